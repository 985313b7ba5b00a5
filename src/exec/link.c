/* SPDX-License-Identifier: Apache-2.0
 *
 * Steps of the link lanes: REDUCE and REDUCE_GRADS.
 */
#include "exec/state.h"

ech_status ech_handle_REDUCE(ech_exec *exec, const ech_step *step)
{
    return ech_group_fold(exec->group[step->group], step->maximum ? ECH_FOLD_MAX : ECH_FOLD_SUM,
                          &exec->scalars[step->index], step->count);
}

ech_status ech_handle_REDUCE_GRADS(ech_exec *exec, const ech_step *step)
{
    const ech_bucket *bucket = &exec->plan->bucket.at[step->index];
    ech_tensor gradients =
        ech_tensor_1d(ech_exec_address(exec, bucket->value), exec->plan->real, bucket->elements);
    void *scratch = step->scratch < 0 ? NULL : ech_exec_address(exec, step->scratch);
    return ech_group_reduce(exec->group[step->group], exec->plan->reduction, &gradients, scratch);
}
