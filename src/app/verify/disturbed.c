/* SPDX-License-Identifier: Apache-2.0
 *
 * The unit of a layout that computes inputs of blocks from their outputs (memory.invert): x' =
 * (x + f) - f, which is x up to a last bit of x + f. Where x is small, as in rows that dropout has
 * emptied, a norm makes that bit large. Few elements are rounded there, so a second run may by
 * chance round none of them. The twin therefore changes the last bit of every x + f, or of f.
 */
#include "app/verify/verifier.h"
#include "layer/layers.h"

/* `in` times one plus its type's epsilon. The result may be where the other operand is not. */
static void change(const ech_call *call, const ech_tensor *in)
{
    call->kernels->scale(call->context, in, 1 + ech_verifier_epsilon(in->dtype), 0, &call->out[0]);
}

/* The result may be in the memory of either operand; the other one is then unchanged. */
static void disturbed_difference(const ech_call *call)
{
    const ech_tensor *sum = &call->in[0], *addend = &call->in[1], *out = &call->out[0];
    if (out->data == addend->data) {
        change(call, addend);
        call->kernels->subtract(call->context, sum, out, out);
    } else {
        change(call, sum);
        call->kernels->subtract(call->context, out, addend, out);
    }
}

static const ech_layer disturbed = {.name = "difference", .forward = disturbed_difference};

void ech_verifier_disturb(ech_model *model)
{
    for (size_t b = 0; b < model->block.n; b++) {
        ech_block *block = model->block.at[b];
        for (size_t n = 0; n < block->node.n; n++)
            if (block->node.at[n].layer == &ech_layer_row_difference)
                block->node.at[n].layer = &disturbed;
    }
}
