/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensors of files, and the boxes of them that a rank saves or loads.
 */
#include "checkpoint/saved.h"

#include <inttypes.h>
#include <string.h>

ech_dtype ech_saved_dtype(const ech_saved_tensor *tensor)
{
    return tensor->narrowed ? tensor->narrow : tensor->dtype;
}

void ech_saved_add(ech_saved_tensor *tensor, const int64_t *begin, const ech_tensor *part)
{
    ECH_ASSERT(tensor->boxes < ECH_MOST_BOXES);
    ECH_ASSERT(part->dims == tensor->dims && part->dtype == tensor->dtype);
    size_t bytes = (size_t)tensor->dims * sizeof *begin;
    ech_box *box = &tensor->box[tensor->boxes++];
    if (tensor->boxes == 1) tensor->data = part->data;
    ptrdiff_t from_first = (char *)part->data - (char *)tensor->data;
    *box = (ech_box){.at = from_first / (ptrdiff_t)ech_dtype_bytes(part->dtype)};
    memcpy(box->begin, begin, bytes);
    memcpy(box->size, part->shape, bytes);
    memcpy(box->stride, part->stride, bytes);
}

static void print_shape(int dims, const int64_t *shape, ech_text *out)
{
    ech_text_append(out, "[");
    for (int d = 0; d < dims; d++) ech_text_append(out, "%s%" PRId64, d ? ", " : "", shape[d]);
    ech_text_append(out, "]");
}

ech_status ech_shape_check(const char *where, const ech_saved_tensor *have,
                           const ech_saved_tensor *want, const char *before, const char *after)
{
    size_t bytes = (size_t)want->dims * sizeof *want->shape;
    if (have->dims == want->dims && memcmp(have->shape, want->shape, bytes) == 0) return ECH_OK;
    ECH_FREED_TEXT is = {0}, must = {0};
    print_shape(have->dims, have->shape, &is);
    print_shape(want->dims, want->shape, &must);
    ECH_FAIL(ECH_EINPUT, "%s: tensor '%s' has shape %s%s%s%s", where, have->name, is.at, before,
             must.at, after);
}
