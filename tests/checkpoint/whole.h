/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving and loading whole tensors.
 */
#ifndef ECH_TESTS_CHECKPOINT_WHOLE_H
#define ECH_TESTS_CHECKPOINT_WHOLE_H

#include "checkpoint/checkpoint.h"

/* Makes the whole tensor, contiguous in `data`, the only box; no box if it has no elements. */
static inline void saved_whole(ech_saved_tensor *tensor, void *data)
{
    const int64_t origin[ECH_MAX_DIMS] = {0};
    tensor->boxes = 0;
    for (int d = 0; d < tensor->dims; d++)
        if (tensor->shape[d] == 0) return;
    ech_tensor all = ech_tensor_view(data, tensor->dtype, tensor->dims, tensor->shape);
    ech_saved_add(tensor, origin, &all);
}

#endif
