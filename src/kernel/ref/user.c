/* SPDX-License-Identifier: Apache-2.0
 *
 * Functions of plugins.
 */
#include "kernel/guarded.h"
#include "kernel/ref/real.h"

void ECH_REF(user)(ech_kernel_context *context, const ech_user_call *call)
{
    ech_user_call now = *call;
    const ech_update *update = &call->update;
    now.threads = context->threads;
    if (call->updates && !ech_update_begins(&update, &now.update)) return;
    for (int i = 0; i < call->tensors; i++)
        ECH_ASSERT(!call->tensor[i].data || ech_tensor_is_contiguous(&call->tensor[i]));
    if (context->guarded)
        ech_guarded_run(&now);
    else
        now.run(&now);
}
