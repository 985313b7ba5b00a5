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

enum {
    LARGEST_ITEM = 8, /* bytes */
    ALIGNMENT = 4096  /* of the data: whole pages, for direct and mapped reads */
};

static ech_status tensor_bytes(const ech_saved_tensor *tensor, int64_t *out)
{
    int64_t elements;
    if (tensor->dims < 0 || tensor->dims > ECH_MAX_DIMS ||
        !ech_box_elements(tensor->dims, tensor->shape, &elements) ||
        __builtin_mul_overflow(elements, (int64_t)ech_dtype_bytes(ech_saved_dtype(tensor)), out))
        ECH_FAIL(ECH_EINTERNAL, "tensor '%s' to be saved has no shape that can be counted",
                 tensor->name);
    return ECH_OK;
}

static ech_status append_entry(const ech_saved_tensor *tensor, int64_t begin, int64_t end,
                               ech_text *out)
{
    ech_text_append(out, ",");
    if (!ech_json_append_string(out, tensor->name))
        ECH_FAIL(ECH_EINTERNAL, "the name '%s' of a tensor to be saved is not UTF-8", tensor->name);
    ech_text_append(out, ":{\"dtype\":\"%s\",\"shape\":[",
                    ech_dtype_on_disk(ech_saved_dtype(tensor)));
    for (int d = 0; d < tensor->dims; d++)
        ech_text_append(out, "%s%" PRId64, d ? "," : "", tensor->shape[d]);
    ech_text_append(out, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin, end);
    return ECH_OK;
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static ech_status check_names(const ech_stored *stored)
{
    int n = stored->n;
    ECH_FREED const char **names = ech_calloc((size_t)n + 1, sizeof *names);
    for (int i = 0; i < n; i++) names[i] = stored->tensors[i].name;
    names[n] = "__metadata__"; /* taken by the format */
    qsort(names, (size_t)n + 1, sizeof *names, by_name);
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], names[i + 1]) == 0)
            ECH_FAIL(ECH_EINTERNAL, "two tensors to be saved have the name '%s'", names[i]);
    return ECH_OK;
}

static ech_status append_header(ech_stored *stored)
{
    ech_text *out = &stored->header;
    int64_t end = 0;
    ech_text_append_bytes(out, "\0\0\0\0\0\0\0\0", 8);
    ech_text_append(out, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < stored->n; i++) {
        int64_t bytes;
        ECH_TRY(tensor_bytes(&stored->tensors[i], &bytes));
        stored->offsets[i] = end;
        if (__builtin_add_overflow(end, bytes, &end) || end > INT64_MAX / 2)
            ECH_FAIL(ECH_EINTERNAL, "the tensors to be saved are larger than a file can be");
        ECH_TRY(append_entry(&stored->tensors[i], stored->offsets[i], end, out));
    }
    ech_text_append(out, "}");
    while (out->n % ALIGNMENT != 0) ech_text_append(out, " ");
    uint64_t length = out->n - 8;
    if (length > ECH_SAFETENSORS_HEADER_LIMIT)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "the header for %d tensors has %" PRIu64 " bytes: the limit is %d", stored->n,
                 length, ECH_SAFETENSORS_HEADER_LIMIT);
    memcpy(out->at, &length, 8);
    for (int i = 0; i < stored->n; i++) stored->offsets[i] += (int64_t)out->n;
    stored->bytes = (int64_t)out->n + end;
    return ECH_OK;
}

ech_status ech_stored_plan(const ech_saved_tensor *tensors, int n, bool is_state, ech_stored *out)
{
    *out = (ech_stored){.tensors = ech_calloc((size_t)n + 1, sizeof *out->tensors),
                        .offsets = ech_calloc((size_t)n + 1, sizeof *out->offsets)};
    for (size_t item = LARGEST_ITEM; item > 0; item /= 2)
        for (int i = 0; i < n; i++) {
            const ech_saved_tensor *t = &tensors[i];
            if (t->is_state != is_state || ech_dtype_bytes(ech_saved_dtype(t)) != item) continue;
            ECH_TRY(ech_transfer_check(t));
            out->tensors[out->n++] = *t;
        }
    ECH_TRY(check_names(out));
    ECH_TRY(append_header(out));
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
    ECH_FAIL(ECH_EIO,
             "%s: cannot reserve %s for it: %s: free some space, keep fewer checkpoints or "
             "name another checkpoint.directory",
             path, ech_text_from_bytes(bytes, size, sizeof size), strerror(why));
}

/* fsync and close, both checked: a disk may report a failed write only now. */
ech_status ech_stored_finish(int fd, const char *path, ech_status st)
{
    int why = 0;
    ech_tick();
    if (st == ECH_OK && fsync(fd) != 0) why = errno;
    ech_tick();
    if (close(fd) != 0 && st == ECH_OK && !why) why = errno;
    if (why) ECH_FAIL(ECH_EIO, "%s: cannot bring it to disk: %s", path, strerror(why));
    return st;
}

ech_status ech_stored_create(const ech_stored *stored, const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot create it: %s", path, strerror(errno));
    ech_status st = reserve(fd, path, stored->bytes);
    ech_sum_bytes(stored->sums, stored->header.at, stored->header.n, 0);
    if (st == ECH_OK) st = ech_file_write_at(fd, path, stored->header.at, stored->header.n, 0);
    return ech_stored_finish(fd, path, st);
}

ech_status ech_stored_begin(const ech_stored *stored, const char *path, int *fd)
{
    ECH_TRY(ech_stored_create(stored, path));
    *fd = open(path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (*fd < 0) ECH_FAIL(ECH_EIO, "%s: cannot open it again: %s", path, strerror(errno));
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
