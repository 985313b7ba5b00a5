/* SPDX-License-Identifier: Apache-2.0
 *
 * Laying out, creating and writing one safetensors file: first the header, then each rank's boxes,
 * at offsets that the header fixes.
 */
#include "checkpoint/stored.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/tick.h"
#include "checkpoint/hash.h"
#include "checkpoint/transfer.h"

enum { ALIGNMENT = 4096 }; /* of the data: whole pages, for direct and mapped reads */

static ech_status tensor_bytes(const ech_saved_tensor *tensor, int64_t *out)
{
    int64_t elements, shape[ECH_MAX_DIMS];
    if (tensor->dims < 0 || tensor->dims > ECH_MAX_DIMS ||
        !ech_box_elements(tensor->dims, tensor->shape, &elements))
        elements = -1;
    else
        ech_saved_shape(tensor, shape);
    if (elements < 0 || !ech_box_elements(tensor->dims, shape, &elements) ||
        __builtin_mul_overflow(elements, (int64_t)ech_dtype_bytes(ech_saved_dtype(tensor)), out))
        ECH_FAIL(ECH_EINTERNAL, "tensor '%s' to be saved has no shape that can be counted",
                 tensor->name);
    return ECH_OK;
}

static ech_status append_entry(const ech_saved_tensor *tensor, int64_t begin, int64_t end,
                               ech_text *out)
{
    int64_t shape[ECH_MAX_DIMS];
    ech_saved_shape(tensor, shape);
    ech_text_append(out, ",");
    if (!ech_json_append_string(out, tensor->name))
        ECH_FAIL(ECH_EINTERNAL, "the name '%s' of a tensor to be saved is not UTF-8", tensor->name);
    ech_text_append(out, ":{\"dtype\":\"%s\",\"shape\":[",
                    ech_dtype_on_disk(ech_saved_dtype(tensor)));
    for (int d = 0; d < tensor->dims; d++)
        ech_text_append(out, "%s%" PRId64, d ? "," : "", shape[d]);
    ech_text_append(out, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin, end);
    return ECH_OK;
}

/* ---- the order ---- */

/* A tensor of the caller's list. */
typedef struct listed {
    const ech_saved_tensor *tensor;
    int at;    /* its number */
    int first; /* the number of the first tensor of its name */
} listed;

static size_t item_of(const listed *l)
{
    return ech_dtype_bytes(ech_saved_dtype(l->tensor));
}

static int by_name(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    int order = strcmp(x->tensor->name, y->tensor->name);
    return order ? order : x->at - y->at;
}

static int by_place(const void *a, const void *b)
{
    const listed *x = a, *y = b;
    if (item_of(x) != item_of(y)) return item_of(x) > item_of(y) ? -1 : 1;
    return x->first != y->first ? x->first - y->first : x->at - y->at;
}

/* Whether both are parts of one tensor by its shape, type and groups. */
static bool are_alike(const ech_saved_tensor *a, const ech_saved_tensor *b)
{
    int64_t x[ECH_MAX_DIMS], y[ECH_MAX_DIMS];
    if (a->dims != b->dims || ech_saved_dtype(a) != ech_saved_dtype(b)) return false;
    ech_saved_shape(a, x);
    ech_saved_shape(b, y);
    return a->place.period == b->place.period && a->place.dim == b->place.dim &&
           a->place.transposed == b->place.transposed &&
           memcmp(x, y, (size_t)a->dims * sizeof *x) == 0;
}

/* How many indices of a group the parts have from its beginning on, one part after the other. */
static int64_t covered_by(const listed *part, int n)
{
    int64_t end = 0;
    for (int found = 0, i; found < n; found++) {
        for (i = 0; i < n; i++)
            if (part[i].tensor->place.offset == end && are_alike(part[i].tensor, part->tensor))
                break;
        if (i == n) return -1;
        end += part[i].tensor->place.width;
    }
    return end;
}

/* Tensors of one name. */
static ech_status check_name(const listed *of, int n)
{
    const ech_saved_tensor *first = of->tensor;
    if (strcmp(first->name, "__metadata__") == 0 || (n > 1 && !first->place.period))
        ECH_FAIL(ECH_EINTERNAL, "two tensors to be saved have the name '%s'", first->name);
    if (first->place.period && covered_by(of, n) != first->place.period)
        ECH_FAIL(ECH_EINTERNAL, "the %d parts of tensor '%s' to be saved do not make it up", n,
                 first->name);
    return ECH_OK;
}

static ech_status group_names(listed *all, int n)
{
    qsort(all, (size_t)n, sizeof *all, by_name);
    for (int i = 0, same; i < n; i += same) {
        for (same = 0; i + same < n; same++) {
            if (strcmp(all[i].tensor->name, all[i + same].tensor->name) != 0) break;
            all[i + same].first = all[i].at;
        }
        ECH_TRY(check_name(&all[i], same));
    }
    return ECH_OK;
}

/* Larger dtypes come first, and the parts of a tensor one after the other. */
static ech_status put_in_order(const ech_saved_tensor *tensors, int n, ech_checkpoint_file file,
                               ech_stored *out)
{
    ECH_FREED listed *all = ech_calloc((size_t)n + 1, sizeof *all);
    int found = 0;
    for (int i = 0; i < n; i++) {
        if (tensors[i].file != file) continue;
        ECH_TRY(ech_transfer_check(&tensors[i]));
        all[found++] = (listed){.tensor = &tensors[i], .at = i};
    }
    ECH_TRY(group_names(all, found));
    qsort(all, (size_t)found, sizeof *all, by_place);
    for (int i = 0; i < found; i++) out->tensors[i] = *all[i].tensor;
    out->n = found;
    return ECH_OK;
}

/* ---- the header ---- */

/* Whether tensor i of the list is a part of the same tensor as the one before it. */
static bool is_next_part(const ech_stored *stored, int i)
{
    return i > 0 && strcmp(stored->tensors[i].name, stored->tensors[i - 1].name) == 0;
}

static ech_status append_tensor(ech_stored *stored, int i, int64_t *end)
{
    int64_t bytes, begin = *end;
    ECH_TRY(tensor_bytes(&stored->tensors[i], &bytes));
    stored->offsets[i] = begin;
    if (__builtin_add_overflow(begin, bytes, end) || *end > INT64_MAX / 2)
        ECH_FAIL(ECH_EINTERNAL, "the tensors to be saved are larger than a file can be");
    return append_entry(&stored->tensors[i], begin, *end, &stored->header);
}

static ech_status append_header(ech_stored *stored, const char *base)
{
    ech_text *out = &stored->header;
    int64_t end = 0;
    ech_text_append_bytes(out, "\0\0\0\0\0\0\0\0", 8);
    ech_text_append(out, "{\"__metadata__\":{\"format\":\"pt\"");
    if (base && *base) ech_text_append(out, ",\"" ECH_BASE_KEY "\":\"%s\"", base);
    ech_text_append(out, "}");
    for (int i = 0; i < stored->n; i++) {
        if (is_next_part(stored, i))
            stored->offsets[i] = stored->offsets[i - 1];
        else
            ECH_TRY(append_tensor(stored, i, &end));
    }
    ech_text_append(out, "}");
    while (out->n % ALIGNMENT != 0) ech_text_append(out, " ");
    uint64_t length = out->n - 8;
    if (length > ECH_SAFETENSORS_HEADER_LIMIT)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "the header for %d tensors has %" PRIu64
                 " bytes: the limit is %d; use fewer layers",
                 stored->n, length, ECH_SAFETENSORS_HEADER_LIMIT);
    memcpy(out->at, &length, 8);
    for (int i = 0; i < stored->n; i++) stored->offsets[i] += (int64_t)out->n;
    stored->bytes = (int64_t)out->n + end;
    return ECH_OK;
}

ech_status ech_stored_plan(const ech_saved_tensor *tensors, int n, ech_checkpoint_file file,
                           const char *base, ech_stored *out)
{
    *out = (ech_stored){.tensors = ech_calloc((size_t)n + 1, sizeof *out->tensors),
                        .offsets = ech_calloc((size_t)n + 1, sizeof *out->offsets)};
    ECH_TRY(put_in_order(tensors, n, file, out));
    ECH_TRY(append_header(out, file == ECH_FILE_ADAPTER ? base : NULL));
    out->sums = ech_calloc((size_t)ech_hash_ranges(out->bytes) + 1, sizeof *out->sums);
    return ECH_OK;
}

void ech_stored_free(ech_stored *stored)
{
    free(stored->tensors);
    free(stored->offsets);
    free(stored->sums);
    ech_text_free(&stored->header);
    *stored = (ech_stored){0};
}

static ech_status reserve(int fd, const char *path, int64_t bytes)
{
    int failed;
    do failed = fallocate(fd, 0, 0, bytes);
    while (failed && errno == EINTR);
    /* a file system that cannot reserve finds out while it writes */
    if (failed && (errno == EOPNOTSUPP || errno == ENOSYS)) failed = ftruncate(fd, bytes);
    if (!failed) return ECH_OK;
    int why = errno;
    char size[32];
    ECH_FAIL(ECH_EIO, "%s: cannot reserve %s for it: %s", path,
             ech_text_from_bytes(bytes, size, sizeof size), ech_system_error(why));
}

/* fsync and close, both checked: a disk may report a failed write only now. */
ech_status ech_stored_finish(int fd, const char *path, ech_status st)
{
    int why = 0;
    ech_tick();
    if (st == ECH_OK && fsync(fd) != 0) why = errno;
    ech_tick();
    if (close(fd) != 0 && st == ECH_OK && !why) why = errno;
    if (why) ECH_FAIL(ECH_EIO, "%s: cannot flush it to disk: %s", path, ech_system_error(why));
    return st;
}

ech_status ech_stored_create(const ech_stored *stored, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot create it: %s", path, ech_system_error(errno));
    ech_status st = reserve(fd, path, stored->bytes);
    ech_sum_bytes(stored->sums, stored->header.at, stored->header.n, 0);
    if (st == ECH_OK) st = ech_file_write_at(fd, path, stored->header.at, stored->header.n, 0);
    return ech_stored_finish(fd, path, st);
}

ech_status ech_stored_begin(const ech_stored *stored, const char *path, int *fd)
{
    ECH_TRY(ech_stored_create(stored, path));
    *fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot open it again: %s", path, ech_system_error(errno));
    return ECH_OK;
}

static bool has_part(const ech_stored *stored)
{
    for (int i = 0; i < stored->n; i++) {
        const ech_saved_tensor *t = &stored->tensors[i];
        for (int b = 0; b < t->boxes; b++)
            if (ech_box_count(t->dims, t->box[b].size) > 0) return true;
    }
    return false;
}

ech_status ech_stored_write(const ech_stored *stored, const char *path)
{
    if (!has_part(stored)) return ECH_OK;
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        ECH_FAIL(ECH_EIO,
                 "%s: cannot open what rank 0 created: %s: checkpoint.directory must be the same "
                 "folder on all machines",
                 path, strerror(errno));
    ech_status st = ECH_OK;
    for (int i = 0; i < stored->n && st == ECH_OK; i++)
        st = ech_safetensors_write(fd, path, &stored->tensors[i], stored->offsets[i], stored->sums);
    return ech_stored_finish(fd, path, st);
}
