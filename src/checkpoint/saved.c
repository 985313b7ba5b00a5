/* SPDX-License-Identifier: Apache-2.0
 *
 * Saying which boxes of a tensor are where.
 */
#include <string.h>

#include "checkpoint/box.h"

ech_dtype ech_saved_dtype(const ech_saved_tensor *tensor)
{
    return tensor->narrowed ? tensor->narrow : tensor->dtype;
}

void ech_saved_add(ech_saved_tensor *tensor, const int64_t *begin, const ech_tensor *part)
{
    ECH_ASSERT(tensor->boxes < ECH_MOST_BOXES);
    ECH_ASSERT(part->dims == tensor->dims && part->dtype == tensor->dtype);
    size_t bytes = (size_t)tensor->dims * sizeof *begin;
    ech_saved_box *box = &tensor->box[tensor->boxes++];
    *box = (ech_saved_box){.data = part->data};
    memcpy(box->begin, begin, bytes);
    memcpy(box->size, part->shape, bytes);
    memcpy(box->stride, part->stride, bytes);
}

void ech_saved_whole(ech_saved_tensor *tensor, void *data)
{
    const int64_t origin[ECH_MAX_DIMS] = {0};
    int64_t elements;
    tensor->boxes = 0;
    /* a file may have a shape whose strides cannot be counted, if it has no element */
    if (!ech_box_elements(tensor->dims, tensor->shape, &elements) || elements == 0) return;
    ech_tensor all = ech_tensor_view(data, tensor->dtype, tensor->dims, tensor->shape);
    ech_saved_add(tensor, origin, &all);
}
