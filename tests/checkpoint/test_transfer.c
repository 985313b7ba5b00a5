/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes of matrices that are larger than the transfer's buffer, in memory with gaps: what is
 * written, that nothing beside it is, and what is read.
 */
#include "checkpoint/scratch.h"
#include "checkpoint/transfer.h"

typedef struct matrix {
    int64_t rows, columns;
    int parts, degree;  /* rank q of `degree` has the q-th range of each part's columns */
    int64_t padding;    /* columns of memory after those */
    int64_t first, cut; /* rows of the box: all from `first` to `cut` before the last */
} matrix;

enum { OFFSET = 4096, AFTER = 64 }; /* bytes of the file before and after the matrix */

/* Bytes of its memory: ROWS x (columns of all parts and padding), in fp32 or fp64. */
static size_t lay_out(const matrix *m, int rank, ech_dtype dtype, ech_saved_tensor *t,
                      char **memory)
{
    int64_t n = m->columns / m->parts / m->degree, rows = m->rows - m->first - m->cut;
    ech_tensor local = ech_tensor_2d(NULL, dtype, rows, m->parts * n + m->padding);
    size_t bytes = ech_tensor_bytes(&local);
    *memory = local.data = ech_calloc(bytes, 1);
    memset(*memory, 0x5a, bytes);
    *t = (ech_saved_tensor){.name = "w", .dtype = dtype, .dims = 2, .shape = {m->rows, m->columns}};
    for (int p = 0; p < m->parts; p++) {
        ech_tensor part = ech_tensor_narrow(&local, local.dims - 1, p * n, n);
        int64_t column = m->columns / m->parts * p + n * rank;
        ech_saved_add(t, (int64_t[]){m->first, column}, &part);
    }
    return bytes;
}

static bool is_mine(const ech_saved_tensor *t, int64_t row, int64_t column, int *b, int64_t *at)
{
    for (*b = 0; *b < t->boxes; ++*b) {
        const ech_box *box = &t->box[*b];
        int64_t r = row - box->begin[0], c = column - box->begin[1];
        *at = box->at + r * box->stride[0] + c;
        if (r >= 0 && r < box->size[0] && c >= 0 && c < box->size[1]) return true;
    }
    return false;
}

/* One rank writes; every byte of the file is as the boxes say, and all others as before. */
static void check_write(const matrix *m, int rank, const char *path)
{
    size_t elements = (size_t)(m->rows * m->columns), bytes = OFFSET + 4 * elements + AFTER, n;
    char *before = ech_calloc(bytes, 1), *memory, *after;
    memset(before, 0x77, bytes);
    scratch_replace(path, before, bytes);
    ech_saved_tensor t;
    size_t own = lay_out(m, rank, ECH_F32, &t, &memory);
    for (size_t k = 0; k < own / 4; k++) ((float *)(void *)memory)[k] = (float)k;
    int fd = open(path, O_WRONLY);
    assert_int_equal(ech_safetensors_write(fd, path, &t, OFFSET, NULL), ECH_OK);
    close(fd);
    for (int64_t r = 0; r < m->rows; r++) {
        for (int64_t c = 0; c < m->columns; c++) {
            int b;
            int64_t at;
            char *to = before + OFFSET + 4 * (r * m->columns + c);
            if (is_mine(&t, r, c, &b, &at)) memcpy(to, (float *)t.data + at, 4);
        }
    }
    assert_int_equal(ech_file_read(path, bytes, &after, &n), ECH_OK);
    assert_int_equal(n, bytes);
    assert_memory_equal(before, after, bytes);
    free(before);
    free(after);
    free(memory);
}

/* A file whose element k is k, read in fp32 and fp64; memory outside of the boxes stays. */
static void check_read(const matrix *m, int rank, ech_dtype stored, ech_dtype wanted,
                       const char *path)
{
    size_t item = ech_dtype_bytes(stored), elements = (size_t)(m->rows * m->columns);
    char *file = ech_calloc(OFFSET + item * elements, 1), *memory;
    float *narrow = (void *)(file + OFFSET);
    double *wide = (void *)(file + OFFSET);
    for (size_t k = 0; k < elements; k++) {
        if (stored == ECH_F32) narrow[k] = (float)k;
        if (stored == ECH_F64) wide[k] = (double)k;
    }
    scratch_replace(path, file, OFFSET + item * elements);
    ech_saved_tensor t;
    size_t own = lay_out(m, rank, wanted, &t, &memory);
    int fd = open(path, O_RDONLY);
    assert_int_equal(ech_transfer_read(fd, path, stored, &t, OFFSET), ECH_OK);
    close(fd);
    for (int64_t r = 0; r < m->rows; r++) {
        for (int64_t c = 0; c < m->columns; c++) {
            int b;
            int64_t at;
            if (!is_mine(&t, r, c, &b, &at)) continue;
            double value = wanted == ECH_F32 ? (double)((float *)t.data)[at]
                                             : ((double *)t.data)[at];
            if (value != (double)(r * m->columns + c)) fail_msg("row %d column %d", (int)r, (int)c);
            memset((char *)t.data + (size_t)at * ech_dtype_bytes(wanted), 0x5a,
                   ech_dtype_bytes(wanted));
        }
    }
    for (size_t k = 0; k < own; k++)
        if (memory[k] != 0x5a) fail_msg("byte %zu of the memory", k);
    free(file);
    free(memory);
}

static const matrix matrices[] = {
    /* queries, keys and values: many short runs */
    {.rows = 300, .columns = 2304, .parts = 3, .degree = 2},
    {.rows = 300, .columns = 2304, .parts = 3, .degree = 4, .padding = 5},
    /* whole rows in memory with gaps: one run in the file, larger than the buffer */
    {.rows = 700, .columns = 300, .parts = 1, .degree = 1, .padding = 2, .first = 3, .cut = 4},
    /* runs too far from each other, and runs longer than the buffer */
    {.rows = 5, .columns = 24000, .parts = 1, .degree = 4},
    {.rows = 3, .columns = 210000, .parts = 3, .degree = 1, .padding = 1},
    {.rows = 3, .columns = 210000, .parts = 1, .degree = 1, .first = 1},
    /* runs of one element, and the only row */
    {.rows = 90, .columns = 4, .parts = 1, .degree = 4},
    {.rows = 1, .columns = 12, .parts = 3, .degree = 2, .padding = 3},
};

TEST(test_matrices)
{
    char *folder = scratch_make(), *path = ech_file_join(folder, "x");
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        const matrix *m = &matrices[i];
        for (int rank = 0; rank < m->degree; rank++) {
            check_write(m, rank, path);
            check_read(m, rank, ECH_F32, ECH_F32, path);
            check_read(m, rank, ECH_F32, ECH_F64, path);
            check_read(m, rank, ECH_F64, ECH_F32, path);
        }
    }
    free(path);
    scratch_remove(folder);
}

TEST(test_a_file_that_ends_early)
{
    char *folder = scratch_make(), *memory;
    for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
        const matrix *m = &matrices[i];
        ech_saved_tensor t;
        lay_out(m, m->degree - 1, ECH_F64, &t, &memory);
        char *path = scratch_write(folder, "x", "", 0);
        assert_int_equal(truncate(path, OFFSET + 4 * (m->rows - m->cut) * m->columns - 1), 0);
        int fd = open(path, O_RDONLY);
        assert_int_equal(ech_transfer_read(fd, path, ECH_F32, &t, OFFSET), ECH_EINPUT);
        assert_error_has(path);
        assert_error_has("short");
        close(fd);
        free(path);
        free(memory);
    }
    scratch_remove(folder);
}
