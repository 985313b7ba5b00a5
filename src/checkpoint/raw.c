/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files without names: finding the format, listing the tensors, and reading rows of them.
 */
#include "checkpoint/raw.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/transfer.h"
#include "tensor/convert.h"

#define X(name, meaning) extern const ech_raw_format ech_raw_format_##name;
#include "checkpoint/raw.def"
#undef X

static const ech_raw_format *const formats[] = {
#define X(name, meaning) &ech_raw_format_##name,
#include "checkpoint/raw.def"
#undef X
};

/* ---- for the formats ---- */

int32_t ech_raw_number(const void *header, size_t n, int i)
{
    int32_t value = 0;
    if (4 * (size_t)i + 4 <= n) memcpy(&value, (const char *)header + 4 * i, sizeof value);
    return value;
}

ech_status ech_raw_fill(const ech_raw *raw, ech_config *config, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return ech_config_fill(config, key, text, raw->path, false);
}

/* Sizes have the bounds of keys.def, at most 2e9 and 1e8, and one file at most 4096 layers; so nothing
 * overflows but sums, which stop at the top. */
static void add_bytes(ech_raw *raw, int64_t elements)
{
    int64_t bytes = elements * (int64_t)ech_dtype_bytes(raw->dtype);
    if (__builtin_add_overflow(raw->bytes, bytes, &raw->bytes)) raw->bytes = INT64_MAX;
}

static void add(ech_raw *raw, ech_raw_tensor tensor, int64_t elements, const char *format,
                va_list arguments)
{
    char name[256];
    tensor.offset = raw->bytes;
    add_bytes(raw, elements);
    if (raw->counts) return;
    vsnprintf(name, sizeof name, format, arguments);
    tensor.name = ech_pool_format(raw->pool, "%s", name);
    ECH_PUSH(raw->tensor, tensor);
}

void ech_raw_vector(ech_raw *raw, int64_t size, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add(raw, (ech_raw_tensor){.dims = 1, .shape = {size}}, size, format, arguments);
    va_end(arguments);
}

void ech_raw_matrix(ech_raw *raw, int64_t rows, int64_t columns, ech_raw_order order, int64_t heads,
                    const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add(raw, (ech_raw_tensor){.dims = 2, .shape = {rows, columns}, .order = order, .heads = heads},
        rows * columns, format, arguments);
    va_end(arguments);
}

void ech_raw_skip(ech_raw *raw, int64_t rows, int64_t columns)
{
    add_bytes(raw, rows * columns);
}

/* ---- opening ---- */

static int by_name(const void *a, const void *b)
{
    const ech_raw_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

const ech_raw_tensor *ech_raw_find(const ech_raw *raw, const char *name)
{
    const ech_raw_tensor key = {.name = name};
    if (!raw->tensor.n) return NULL;
    return bsearch(&key, raw->tensor.at, raw->tensor.n, sizeof key, by_name);
}

static ech_status fail_size(const ech_raw *raw, int64_t file_bytes)
{
    ECH_FAIL(ECH_EINPUT,
             "%s: has %" PRId64 " bytes; as a %s with this header it would have %" PRId64
             ": cut short, or none",
             raw->path, file_bytes, raw->format, raw->bytes);
}

/* The format's list twice: first for its size alone. */
static ech_status read_as(const ech_raw_format *format, const void *header, size_t n,
                          int64_t file_bytes, ech_config *config, ech_raw *raw)
{
    raw->format = format->meaning;
    raw->counts = true;
    ECH_TRY(format->fill(raw, header, n, config));
    ECH_TRY(format->list(raw, header, config));
    if (raw->bytes != file_bytes) return fail_size(raw, file_bytes);
    raw->counts = false;
    ECH_TRY(format->list(raw, header, config));
    qsort(raw->tensor.at, raw->tensor.n, sizeof *raw->tensor.at, by_name);
    return ECH_OK;
}

ech_status ech_raw_read(const char *path, const void *header, size_t n, int64_t file_bytes,
                        ech_config *config, ech_raw *out)
{
    *out = (ech_raw){.pool = ech_pool_create(), .fd = -1};
    out->path = ech_pool_format(out->pool, "%s", path);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (formats[i]->claims(header, n))
            return read_as(formats[i], header, n, file_bytes, config, out);
    ECH_FAIL(ECH_EUNSUPPORTED,
             "%s: neither a Hugging Face folder nor a model file of llm.c or llama2.c", path);
}

ech_status ech_raw_open(const char *path, ech_config *config, ech_raw *out)
{
    char header[ECH_RAW_HEADER];
    int64_t bytes;
    int fd;
    ECH_TRY(ech_file_open(path, &fd, &bytes));
    size_t n = bytes < ECH_RAW_HEADER ? (size_t)bytes : ECH_RAW_HEADER;
    ech_raw raw = {0};
    ech_status st = ech_file_read_at(fd, path, header, n, 0);
    if (st == ECH_OK) st = ech_raw_read(path, header, n, bytes, config, &raw);
    raw.fd = fd;
    if (st == ECH_OK)
        *out = raw;
    else
        ech_raw_close(&raw);
    return st;
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
    ECH_TRY(ech_transfer_check(&stored));
    return ech_transfer_read(raw->fd, raw->path, raw->dtype, &stored, 0, tensor->offset);
}

static ech_status read_plain(const ech_raw *raw, const ech_raw_tensor *t, int64_t first,
                             int64_t rows, double *to)
{
    const int64_t vector[] = {1, t->shape[0]}, zero[] = {0, 0};
    if (t->dims == 1) return read_box(raw, t, vector, zero, vector, to);
    return read_box(raw, t, t->shape, (const int64_t[]){first, 0},
                    (const int64_t[]){rows, t->shape[1]}, to);
}

/* Columns of what is stored are rows of what is wanted. */
static ech_status read_transposed(const ech_raw *raw, const ech_raw_tensor *t, int64_t first,
                                  int64_t rows, double *to)
{
    const int64_t stored[] = {t->shape[1], t->shape[0]};
    double *columns = ech_calloc((size_t)(rows * t->shape[1]), sizeof *columns);
    ech_status st = read_box(raw, t, stored, (const int64_t[]){0, first},
                             (const int64_t[]){stored[0], rows}, columns);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < t->shape[1]; c++) to[r * t->shape[1] + c] = columns[c * rows + r];
    free(columns);
    return st;
}

static ech_status read_interleaved(const ech_raw *raw, const ech_raw_tensor *t, int64_t first,
                                   int64_t rows, double *to)
{
    int64_t D = t->shape[0] / t->heads, C = t->shape[1];
    size_t item = ech_dtype_bytes(raw->dtype), bytes = (size_t)C * item;
    void *row = ech_calloc(bytes, 1);
    ech_status st = ECH_OK;
    for (int64_t r = first; r < first + rows && st == ECH_OK; r++) {
        int64_t j = r % D, half = j >= D / 2;
        int64_t from = r - j + 2 * (j - half * (D / 2)) + half;
        st = ech_file_read_at(raw->fd, raw->path, row, bytes, t->offset + from * (int64_t)bytes);
        if (st == ECH_OK) ech_convert(row, raw->dtype, to + (r - first) * C, ECH_F64, C);
    }
    free(row);
    return st;
}

ech_status ech_raw_rows(const ech_raw *raw, const ech_raw_tensor *tensor, int64_t first,
                        int64_t rows, double *to)
{
    switch (tensor->order) {
    case ECH_RAW_TRANSPOSED:
        return read_transposed(raw, tensor, first, rows, to);
    case ECH_RAW_INTERLEAVED:
        return read_interleaved(raw, tensor, first, rows, to);
    default:
        return read_plain(raw, tensor, first, rows, to);
    }
}
