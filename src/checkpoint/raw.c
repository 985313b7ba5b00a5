/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files of llm.c and llama2.c: opening them and reading rows.
 */
#include "checkpoint/raw.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/foreign.h"
#include "checkpoint/transfer.h"

ech_status ech_raw_open(const char *path, ech_config *config, ech_raw *out)
{
    char header[ECH_RAW_HEADER];
    int64_t bytes;
    int fd;
    ECH_TRY(ech_foreign_check(path));
    ECH_TRY(ech_file_open(path, &fd, &bytes));
    size_t n = bytes < ECH_RAW_HEADER ? (size_t)bytes : ECH_RAW_HEADER;
    ECH_CLEANUP(ech_raw_close) ech_raw raw = {0};
    ech_status st = ech_file_read_at(fd, path, header, n, 0);
    if (st == ECH_OK) st = ech_file_check_pointer(path, header, n);
    if (st == ECH_OK) st = ech_raw_read(path, header, n, bytes, config, &raw);
    raw.fd = fd;
    ECH_TRY(st);
    *out = raw;
    raw = (ech_raw){.fd = -1};
    return ECH_OK;
}

void ech_raw_close(ech_raw *raw)
{
    if (raw->fd >= 0) close(raw->fd);
    free(raw->tensor.at);
    ech_pool_destroy(raw->pool);
    *raw = (ech_raw){.fd = -1};
}

/* ---- rows ---- */

/* A box of the tensor as it is stored, (rows,columns) at `to`. */
static ech_status read_box(const ech_raw *raw, const ech_raw_tensor *tensor, const int64_t *shape,
                           const int64_t *begin, const int64_t *size, double *to)
{
    ech_saved_tensor stored = {.name = tensor->name, .dtype = ECH_F64, .dims = 2};
    ech_tensor part = ech_tensor_2d(to, ECH_F64, size[0], size[1]);
    memcpy(stored.shape, shape, 2 * sizeof *shape);
    ech_saved_add(&stored, begin, &part);
    return ech_transfer_read(raw->fd, raw->path, raw->dtype, &stored, tensor->offset);
}

static ech_status read_plain(const ech_raw *raw, const ech_raw_tensor *t, int64_t first,
                             int64_t rows, double *to)
{
    const int64_t vector[] = {1, t->shape[0]}, zero[] = {0, 0};
    if (t->dims == 1) return read_box(raw, t, vector, zero, vector, to);
    return read_box(raw, t, t->shape, (const int64_t[]){first, 0},
                    (const int64_t[]){rows, t->shape[1]}, to);
}

/* A column of the stored matrix is a row of the result. */
static ech_status read_transposed(const ech_raw *raw, const ech_raw_tensor *t, int64_t first,
                                  int64_t rows, double *to)
{
    const int64_t stored[] = {t->shape[1], t->shape[0]};
    ECH_FREED double *columns = ech_calloc((size_t)(rows * t->shape[1]), sizeof *columns);
    ECH_TRY(read_box(raw, t, stored, (const int64_t[]){0, first},
                     (const int64_t[]){stored[0], rows}, columns));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < t->shape[1]; c++) to[r * t->shape[1] + c] = columns[c * rows + r];
    return ECH_OK;
}

static ech_status read_interleaved(const ech_raw *raw, const ech_raw_tensor *t, int64_t first,
                                   int64_t rows, double *to)
{
    int64_t D = t->shape[0] / t->heads, C = t->shape[1];
    size_t item = ech_dtype_bytes(raw->dtype), bytes = (size_t)C * item;
    ECH_FREED void *row = ech_calloc(bytes, 1);
    for (int64_t r = first; r < first + rows; r++) {
        int64_t j = r % D, half = j >= D / 2;
        int64_t from = r - j + 2 * (j - half * (D / 2)) + half;
        ECH_TRY(
            ech_file_read_at(raw->fd, raw->path, row, bytes, t->offset + from * (int64_t)bytes));
        ech_convert(row, raw->dtype, to + (r - first) * C, ECH_F64, C);
    }
    return ECH_OK;
}

ech_status ech_raw_rows(const ech_raw *raw, const ech_raw_tensor *tensor, int64_t first,
                        int64_t rows, double *to)
{
    if (tensor->order == ECH_RAW_TRANSPOSED) return read_transposed(raw, tensor, first, rows, to);
    if (tensor->order == ECH_RAW_INTERLEAVED) return read_interleaved(raw, tensor, first, rows, to);
    return read_plain(raw, tensor, first, rows, to);
}
