/* SPDX-License-Identifier: Apache-2.0
 *
 * Model files of llm.c and llama2.c: finding the format, listing the tensors, and reading rows.
 */
#include "checkpoint/raw.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/transfer.h"
#include "tensor/convert.h"

/* ---- tensors ---- */

int32_t ech_raw_at(const ech_raw_header *header, int i)
{
    int32_t value = 0;
    if (4 * (size_t)i + 4 <= header->n) memcpy(&value, header->at + 4 * i, sizeof value);
    return value;
}

/* Sizes have the bounds of keys.def, at most 2e9 and 1e8, and one file at most 4096 layers; so nothing
 * overflows but sums, which stop at the top. `counts`: only those are wanted. */
static void add(ech_raw *raw, const ech_raw_row *row, const int64_t *size, int64_t layer,
                bool counts)
{
    int64_t rows = size[row->rows], columns = size[row->columns];
    ech_raw_tensor tensor = {.dims = row->columns == ECH_RAW_1 ? 1 : 2,
                             .shape = {rows, columns},
                             .order = row->order,
                             .heads =
                                 row->order == ECH_RAW_INTERLEAVED ? rows / size[ECH_RAW_D] : 0,
                             .offset = raw->bytes};
    int64_t bytes = rows * columns * (int64_t)ech_dtype_bytes(raw->dtype);
    if (__builtin_add_overflow(raw->bytes, bytes, &raw->bytes)) raw->bytes = INT64_MAX;
    if (counts || !row->name) return;
    tensor.name = ech_pool_format(raw->pool, row->name, (long long)layer);
    ECH_PUSH(raw->tensor, tensor);
}

static void list(ech_raw *raw, const ech_raw_format *format, const ech_config *config, bool counts)
{
    int64_t C = config->model.hidden_size, D = C / config->model.num_attention_heads;
    const int64_t size[ECH_RAW_SIZES] = {[ECH_RAW_1] = 1,
                                         [ECH_RAW_C] = C,
                                         [ECH_RAW_3C] = 3 * C,
                                         [ECH_RAW_4C] = 4 * C,
                                         [ECH_RAW_F] = config->model.intermediate_size,
                                         [ECH_RAW_GD] = config->model.num_key_value_heads * D,
                                         [ECH_RAW_D] = D,
                                         [ECH_RAW_V] = config->model.vocab_size,
                                         [ECH_RAW_PADDING] = raw->padding,
                                         [ECH_RAW_P] = config->model.max_position_embeddings};
    raw->bytes = format->bytes;
    for (size_t r = 0; r < format->rows; r++) {
        const ech_raw_row *row = &format->row[r];
        bool head = row->name && strcmp(row->name, ECH_RAW_HEAD) == 0;
        bool layered = row->name && strchr(row->name, '%');
        int64_t n = head && config->model.tie_word_embeddings ? 0
                    : layered                                 ? config->model.num_hidden_layers
                                                              : 1;
        for (int64_t l = 0; l < n; l++) add(raw, row, size, l, counts);
    }
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
             ": truncated, or none",
             raw->path, file_bytes, raw->format, raw->bytes);
}

static ech_status fill_key(const ech_raw *raw, const char *key, int64_t value, ech_config *config)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return ech_config_fill(config, key, text, raw->path, false);
}

static ech_status fill(const ech_raw *raw, const ech_raw_format *format,
                       const ech_raw_header *header, bool tied, ech_config *config)
{
    const char *family = format->llama ? "llama" : "gpt2", *is_tied = tied ? "true" : "false";
    ECH_TRY(ech_config_fill(config, "model.architecture", family, raw->path, false));
    ECH_TRY(ech_config_fill(config, "model.tie_word_embeddings", is_tied, raw->path, false));
    for (int i = 0; format->key[i]; i++) {
        int64_t value = ech_raw_at(header, format->first + i);
        bool sign = format->llama && strcmp(format->key[i], "model.vocab_size") == 0;
        ECH_TRY(fill_key(raw, format->key[i], sign && value < 0 ? -value : value, config));
    }
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads;
    if (!format->llama) return fill_key(raw, "model.num_key_value_heads", H, config);
    if (C % H == 0 && C / H % 2 == 0) return ECH_OK;
    ECH_FAIL(ECH_EINPUT, "%s: %lld heads do not fit a width of %lld", raw->path, (long long)H,
             (long long)C);
}

/* The tensors are listed twice: first for their size alone. */
static ech_status read_as(const ech_raw_format *format, const ech_raw_header *header,
                          int64_t file_bytes, ech_config *config, ech_raw *raw)
{
    bool tied = false;
    raw->format = format->meaning;
    ECH_TRY(format->read(raw, header, &tied));
    ECH_TRY(fill(raw, format, header, tied, config));
    list(raw, format, config, true);
    if (raw->bytes != file_bytes) return fail_size(raw, file_bytes);
    list(raw, format, config, false);
    qsort(raw->tensor.at, raw->tensor.n, sizeof *raw->tensor.at, by_name);
    return ECH_OK;
}

ech_status ech_raw_read(const char *path, const void *header, size_t n, int64_t file_bytes,
                        ech_config *config, ech_raw *out)
{
    const ech_raw_header head = {header, n};
    *out = (ech_raw){.pool = ech_pool_create(), .fd = -1};
    out->path = ech_pool_format(out->pool, "%s", path);
    for (const ech_raw_format *format = ech_raw_formats; format->meaning; format++)
        if (format->claims(&head)) return read_as(format, &head, file_bytes, config, out);
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

/* Columns of what is stored are rows of what is wanted. */
static ech_status read_transposed(const ech_raw *raw, const ech_raw_tensor *t, int64_t first,
                                  int64_t rows, double *to)
{
    const int64_t stored[] = {t->shape[1], t->shape[0]};
    ECH_FREED double *columns = ech_calloc((size_t)(rows * t->shape[1]), sizeof *columns);
    ech_status st = read_box(raw, t, stored, (const int64_t[]){0, first},
                             (const int64_t[]){stored[0], rows}, columns);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < t->shape[1]; c++) to[r * t->shape[1] + c] = columns[c * rows + r];
    return st;
}

static ech_status read_interleaved(const ech_raw *raw, const ech_raw_tensor *t, int64_t first,
                                   int64_t rows, double *to)
{
    int64_t D = t->shape[0] / t->heads, C = t->shape[1];
    size_t item = ech_dtype_bytes(raw->dtype), bytes = (size_t)C * item;
    ECH_FREED void *row = ech_calloc(bytes, 1);
    ech_status st = ECH_OK;
    for (int64_t r = first; r < first + rows && st == ECH_OK; r++) {
        int64_t j = r % D, half = j >= D / 2;
        int64_t from = r - j + 2 * (j - half * (D / 2)) + half;
        st = ech_file_read_at(raw->fd, raw->path, row, bytes, t->offset + from * (int64_t)bytes);
        if (st == ECH_OK) ech_convert(row, raw->dtype, to + (r - first) * C, ECH_F64, C);
    }
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
    case ECH_RAW_PLAIN:
        break;
    }
    return read_plain(raw, tensor, first, rows, to);
}
