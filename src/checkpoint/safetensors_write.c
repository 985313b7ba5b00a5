/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing safetensors: first the header, then each rank's boxes, at offsets that the header fixes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/box.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/transfer.h"

enum { ALIGNMENT = 4096 }; /* of the data: whole pages, for direct and mapped reads */

static ech_status tensor_bytes(const ech_saved_tensor *tensor, int64_t *out)
{
    int64_t elements;
    if (tensor->dims < 0 || tensor->dims > ECH_MAX_DIMS ||
        !ech_box_elements(tensor->dims, tensor->shape, &elements) ||
        __builtin_mul_overflow(elements, (int64_t)ech_dtype_bytes(ech_saved_dtype(tensor)), out)) {
        ECH_FAIL(ECH_EINTERNAL, "tensor '%s' to be saved has no shape that can be counted",
                 tensor->name);
    }
    return ECH_OK;
}

static ech_status append_entry(const ech_saved_tensor *tensor, int64_t begin, int64_t end,
                               ech_text *out)
{
    ech_text_append(out, ",");
    if (!ech_json_append_string(out, tensor->name)) {
        ECH_FAIL(ECH_EINTERNAL, "the name '%s' of a tensor to be saved is not UTF-8", tensor->name);
    }
    ech_text_append(out, ":{\"dtype\":\"%s\",\"shape\":[",
                    ech_dtype_on_disk(ech_saved_dtype(tensor)));
    for (int d = 0; d < tensor->dims; d++) {
        ech_text_append(out, "%s%" PRId64, d ? "," : "", tensor->shape[d]);
    }
    ech_text_append(out, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin, end);
    return ECH_OK;
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static ech_status check_names(const ech_saved_tensor *tensors, int n)
{
    const char **names = ech_calloc((size_t)n + 1, sizeof *names);
    for (int i = 0; i < n; i++) names[i] = tensors[i].name;
    names[n] = "__metadata__"; /* taken by the format */
    qsort(names, (size_t)n + 1, sizeof *names, by_name);
    const char *twice = NULL;
    for (int i = 0; i < n && !twice; i++) {
        if (strcmp(names[i], names[i + 1]) == 0) twice = names[i];
    }
    free(names);
    if (twice) ECH_FAIL(ECH_EINTERNAL, "two tensors to be saved have the name '%s'", twice);
    return ECH_OK;
}

static ech_status append_header(const ech_saved_tensor *tensors, int n, ech_text *out,
                                int64_t *offsets, int64_t *data_bytes)
{
    int64_t end = 0;
    ech_text_append_bytes(out, "\0\0\0\0\0\0\0\0", 8);
    ech_text_append(out, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = 0; i < n; i++) {
        int64_t bytes;
        ECH_TRY(tensor_bytes(&tensors[i], &bytes));
        offsets[i] = end;
        if (__builtin_add_overflow(end, bytes, &end) || end > INT64_MAX / 2) {
            ECH_FAIL(ECH_EINTERNAL, "the tensors to be saved are larger than a file can be");
        }
        ECH_TRY(append_entry(&tensors[i], offsets[i], end, out));
    }
    ech_text_append(out, "}");
    while (out->n % ALIGNMENT != 0) ech_text_append(out, " ");
    uint64_t length = out->n - 8;
    if (length > ECH_SAFETENSORS_HEADER_LIMIT) {
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "the header for %d tensors has %" PRIu64 " bytes: the limit is %d", n, length,
                 ECH_SAFETENSORS_HEADER_LIMIT);
    }
    memcpy(out->at, &length, 8);
    *data_bytes = end;
    return ECH_OK;
}

ech_status ech_safetensors_header(const ech_saved_tensor *tensors, int n, ech_text *out,
                                  int64_t *offsets, int64_t *file_bytes)
{
    ECH_TRY(check_names(tensors, n));
    ech_text header = {0};
    int64_t data_bytes;
    ech_status st = append_header(tensors, n, &header, offsets, &data_bytes);
    if (st != ECH_OK) {
        ech_text_free(&header);
        return st;
    }
    for (int i = 0; i < n; i++) offsets[i] += (int64_t)header.n;
    *file_bytes = (int64_t)header.n + data_bytes;
    *out = header;
    return ECH_OK;
}

ech_status ech_safetensors_write(int fd, const char *path, const ech_saved_tensor *tensor,
                                 int64_t offset, uint64_t *sums)
{
    ECH_TRY(ech_transfer_check(tensor));
    for (int b = 0; b < tensor->boxes; b++) {
        ECH_TRY(ech_transfer_write(fd, path, tensor, b, offset, sums));
    }
    return ECH_OK;
}
