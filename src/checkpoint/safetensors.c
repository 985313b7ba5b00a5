/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading safetensors: 8 bytes of header length N (little-endian), N bytes of JSON, then the
 * tensors' bytes. A file is refused unless the tensors fill the rest exactly, one after the other:
 * no hole, no overlap, nothing after the last (so a file cannot be two formats at once).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/finite.h"
#include "checkpoint/transfer.h"

/* Bytes of the shortest entry: "":{"dtype":"U8","shape":[],"data_offsets":[0,0]}, */
enum { ENTRY_BYTES = 49 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little-endian");

typedef struct entry {
    const char *name;
    ech_dtype dtype;
    int dims;
    int64_t shape[ECH_MAX_DIMS];
    int64_t begin, end; /* bytes, from where the data begins */
} entry;

struct ech_safetensors {
    int fd;
    ech_pool *pool; /* names, and the path */
    const char *path;
    const char *base;
    int64_t data_at; /* where the data begins in the file */
    int n;           /* tensors */
    entry *entries;  /* in the order of their bytes */
    entry **by_name; /* the same, sorted */
};

/* ---- the header ---- */

#define DAMAGED ": damaged or cut off; download or save it again"

static ech_status parse_shape(const char *path, const json_t *shape, entry *e)
{
    if (!json_is_array(shape))
        ECH_FAIL(ECH_EINPUT, "%s: tensor '%s': shape is no array" DAMAGED, path, e->name);
    size_t dims = json_array_size(shape);
    if (dims > ECH_MAX_DIMS)
        ECH_FAIL(
            ECH_EUNSUPPORTED,
            "%s: tensor '%s' has %zu dimensions: at most %d are supported; reshape or remove it",
            path, e->name, dims, ECH_MAX_DIMS);
    e->dims = (int)dims;
    for (int d = 0; d < e->dims; d++) {
        const json_t *size = json_array_get(shape, (size_t)d);
        if (!ech_json_to_int(size, 0, INT64_MAX, &e->shape[d]))
            ECH_FAIL(ECH_EINPUT, "%s: tensor '%s': shape[%d] is no size" DAMAGED, path, e->name, d);
    }
    return ECH_OK;
}

static ech_status parse_offsets(const char *path, const json_t *offsets, entry *e)
{
    if (!json_is_array(offsets) || json_array_size(offsets) != 2 ||
        !ech_json_to_int(json_array_get(offsets, 0), 0, INT64_MAX, &e->begin) ||
        !ech_json_to_int(json_array_get(offsets, 1), 0, INT64_MAX, &e->end) || e->end < e->begin)
        ECH_FAIL(ECH_EINPUT, "%s: tensor '%s': data_offsets is no pair begin <= end" DAMAGED, path,
                 e->name);
    int64_t elements, bytes;
    if (!ech_box_elements(e->dims, e->shape, &elements) ||
        __builtin_mul_overflow(elements, (int64_t)ech_dtype_bytes(e->dtype), &bytes))
        ECH_FAIL(ECH_EINPUT, "%s: tensor '%s': the shape's product overflows" DAMAGED, path,
                 e->name);
    if (e->end - e->begin != bytes)
        ECH_FAIL(ECH_EINPUT,
                 "%s: tensor '%s': data_offsets hold %" PRId64 " bytes, its shape and dtype need "
                 "%" PRId64 DAMAGED,
                 path, e->name, e->end - e->begin, bytes);
    return ECH_OK;
}

static ech_status parse_entry(const char *path, const json_t *value, entry *e)
{
    if (!json_is_object(value) || json_object_size(value) != 3)
        ECH_FAIL(ECH_EINPUT,
                 "%s: tensor '%s' is no object of dtype, shape and data_offsets" DAMAGED, path,
                 e->name);
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    if (!dtype) ECH_FAIL(ECH_EINPUT, "%s: tensor '%s' has no dtype" DAMAGED, path, e->name);
    if (!ech_dtype_from_disk(dtype, &e->dtype))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: tensor '%s' has dtype '%.20s': only F64, F32, BF16, F16, I64, I32, U16, U8 "
                 "and BOOL are supported; convert the model to bf16 first, in transformers",
                 path, e->name, dtype);
    ECH_TRY(parse_shape(path, json_object_get(value, "shape"), e));
    ECH_TRY(parse_offsets(path, json_object_get(value, "data_offsets"), e));
    return ECH_OK;
}

static ech_status check_metadata(const char *path, const json_t *metadata)
{
    if (!json_is_object(metadata))
        ECH_FAIL(ECH_EINPUT, "%s: __metadata__ is no object" DAMAGED, path);
    const char *key;
    const json_t *value;
    json_object_foreach((json_t *)(uintptr_t)metadata, key, value)
    {
        if (!json_is_string(value))
            ECH_FAIL(ECH_EINPUT, "%s: __metadata__ '%s' is no string" DAMAGED, path, key);
    }
    return ECH_OK;
}

static int by_bytes(const void *a, const void *b)
{
    const entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    const entry *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static ech_status check_order(const ech_safetensors *file, int64_t data_bytes)
{
    int64_t end = 0;
    for (int i = 0; i < file->n; i++) {
        const entry *e = &file->entries[i];
        if (e->begin != end)
            ECH_FAIL(ECH_EINPUT,
                     "%s: tensor '%s' begins at byte %" PRId64
                     " of the data, the one before it ends at %" PRId64
                     ": it must not have holes or overlaps" DAMAGED,
                     file->path, e->name, e->begin, end);
        end = e->end;
    }
    if (end != data_bytes)
        ECH_FAIL(ECH_EINPUT,
                 "%s: the tensors take %" PRId64 " bytes, the file holds %" PRId64
                 " after the header: it is %s; download or save it again",
                 file->path, end, data_bytes, end > data_bytes ? "truncated" : "too long");
    return ECH_OK;
}

static ech_status fill_entries(ech_safetensors *file, json_t *root, int64_t data_bytes)
{
    file->entries = ech_calloc(json_object_size(root), sizeof *file->entries);
    file->by_name = ech_calloc(json_object_size(root), sizeof *file->by_name);
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            ECH_TRY(check_metadata(file->path, value));
            const char *base = json_string_value(json_object_get(value, ECH_BASE_KEY));
            if (base) file->base = ech_pool_format(file->pool, "%s", base);
            continue;
        }
        entry *e = &file->entries[file->n++];
        e->name = ech_pool_format(file->pool, "%s", key);
        ECH_TRY(parse_entry(file->path, value, e));
    }
    qsort(file->entries, (size_t)file->n, sizeof *file->entries, by_bytes);
    ECH_TRY(check_order(file, data_bytes));
    for (int i = 0; i < file->n; i++) file->by_name[i] = &file->entries[i];
    qsort(file->by_name, (size_t)file->n, sizeof *file->by_name, by_name);
    return ECH_OK;
}

/* ---- the file ---- */

/* The header's length, if it fits into a file of `size` bytes. */
static ech_status check_length(const ech_safetensors *file, int64_t size, int64_t *header_bytes)
{
    uint64_t length = 0;
    char begin[64];
    size_t n = size < (int64_t)sizeof begin ? (size_t)size : sizeof begin;
    ECH_TRY(ech_file_read_at(file->fd, file->path, begin, n, 0));
    ECH_TRY(ech_file_check_pointer(file->path, begin, n));
    if (size >= 8) memcpy(&length, begin, sizeof length);
    if (size < 8 || length > (uint64_t)size - 8)
        ECH_FAIL(ECH_EINPUT,
                 "%s: a header of %" PRIu64 " bytes does not fit into this file of %" PRId64
                 ": truncated, or not a safetensors file; download or save it again",
                 file->path, length, size);
    if (length > ECH_SAFETENSORS_HEADER_LIMIT)
        ECH_FAIL(ECH_EINPUT, "%s: its header of %" PRIu64 " bytes is above the limit of %d" DAMAGED,
                 file->path, length, ECH_SAFETENSORS_HEADER_LIMIT);
    *header_bytes = (int64_t)length;
    return ECH_OK;
}

static ech_status read_header(ech_safetensors *file, int64_t file_bytes)
{
    int64_t header_bytes;
    ECH_TRY(check_length(file, file_bytes, &header_bytes));
    file->data_at = 8 + header_bytes;
    size_t n = (size_t)header_bytes;
    ECH_FREED char *text = ech_calloc(n + 1, 1);
    json_auto_t *root = NULL;
    ech_json_limits limits = {.depth = 3,
                              .containers = 3 * (n / ENTRY_BYTES) + 16,
                              .values = (3 + ECH_MAX_DIMS) * (n / ENTRY_BYTES) + 64};
    ECH_TRY(ech_file_read_at(file->fd, file->path, text, n, 8));
    ECH_TRY(ech_json_parse(file->path, text, n, limits, &root));
    return fill_entries(file, root, file_bytes - file->data_at);
}

ech_status ech_safetensors_open(const char *path, ech_safetensors **out)
{
    int fd;
    int64_t bytes;
    ECH_TRY(ech_file_open(path, &fd, &bytes));
    ECH_CLEANUP(ech_safetensors_close_at) ech_safetensors *file = ech_calloc(1, sizeof *file);
    file->fd = fd;
    file->pool = ech_pool_create();
    file->path = ech_pool_format(file->pool, "%s", path);
    ECH_TRY(read_header(file, bytes));
    *out = file;
    file = NULL;
    return ECH_OK;
}

void ech_safetensors_close(ech_safetensors *file)
{
    if (!file) return;
    close(file->fd);
    free(file->entries);
    free(file->by_name);
    ech_pool_destroy(file->pool);
    free(file);
}

const char *ech_safetensors_base(const ech_safetensors *file)
{
    return file->base;
}

int ech_safetensors_count(const ech_safetensors *file)
{
    return file->n;
}

ech_saved_tensor ech_safetensors_get(const ech_safetensors *file, int i)
{
    const entry *e = &file->entries[i];
    ech_saved_tensor tensor = {.name = e->name, .dtype = e->dtype, .dims = e->dims};
    memcpy(tensor.shape, e->shape, sizeof tensor.shape);
    return tensor;
}

int ech_safetensors_find(const ech_safetensors *file, const char *name)
{
    entry wanted = {.name = name}, *key = &wanted;
    entry **found = bsearch(&key, file->by_name, (size_t)file->n, sizeof *file->by_name, by_name);
    return found ? (int)(*found - file->entries) : -1;
}

ech_status ech_safetensors_fail_missing(const char *where, ech_safetensors *const *files, size_t n,
                                        const char *name)
{
    ECH_LIST(const char *) names = {0};
    for (size_t f = 0; f < n; f++)
        for (int t = 0; t < files[f]->n; t++) ECH_PUSH(names, files[f]->entries[t].name);
    ECH_FREED const char **all = names.at;
    const char *nearest = ech_text_nearest(name, all, names.n);
    ECH_FAIL(ECH_EINPUT,
             "%s: no tensor '%s' among its %zu%s%s%s; name weights of the model that the run file "
             "describes",
             where, name, names.n, nearest ? " (the nearest is '" : "", nearest ? nearest : "",
             nearest ? "')" : "");
}

/* The first entry that ends after that byte of the data, or n. */
static int entry_at(const ech_safetensors *file, int64_t at)
{
    int low = 0, high = file->n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (file->entries[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

ech_safetensors_element ech_safetensors_nonfinite(const ech_safetensors *file, const char *bytes,
                                                  size_t n, int64_t offset)
{
    int64_t begin = offset - file->data_at, end = begin + (int64_t)n;
    for (int i = entry_at(file, begin); i < file->n && file->entries[i].begin < end; i++) {
        const entry *e = &file->entries[i];
        int64_t item = (int64_t)ech_dtype_bytes(e->dtype), past = begin - e->begin;
        int64_t first = past > 0 ? (past + item - 1) / item : 0;
        int64_t last = ((e->end < end ? e->end : end) - e->begin) / item;
        if (last <= first) continue;
        const char *at = bytes + (e->begin + first * item - begin);
        int64_t found = ech_find_nonfinite(e->dtype, at, last - first);
        if (found >= 0)
            return (ech_safetensors_element){e->name, first + found,
                                             ech_nonfinite_name(e->dtype, at + found * item)};
    }
    return (ech_safetensors_element){0};
}

static bool is_convertible(ech_dtype a, ech_dtype b)
{
    return a == b || (ech_dtype_is_real(a) && ech_dtype_is_real(b));
}

ech_status ech_safetensors_read(const ech_safetensors *file, int i, const ech_saved_tensor *tensor)
{
    const entry *e = &file->entries[i];
    int64_t shape[ECH_MAX_DIMS];
    ech_saved_shape(tensor, shape);
    ECH_ASSERT(tensor->dims == e->dims &&
               memcmp(shape, e->shape, (size_t)e->dims * sizeof *e->shape) == 0);
    if (!is_convertible(e->dtype, tensor->dtype))
        ECH_FAIL(ECH_EINPUT,
                 "%s: tensor '%s' is stored in %s, which is not converted to the %s that is "
                 "needed; save it in that type",
                 file->path, e->name, ech_dtype_name(e->dtype), ech_dtype_name(tensor->dtype));
    return ech_transfer_read(file->fd, file->path, e->dtype, tensor, file->data_at + e->begin);
}
