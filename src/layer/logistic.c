/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a logistic regression: for each sample the sum of its features' weights times their
 * values, and the loss of that logit.
 */
#include "layer/layers.h"

static const unsigned measured = 1u << ECH_TRAIN | 1u << ECH_EVALUATE;

void ech_layer_logistic_loss(ech_block *block, int x, int bias)
{
    ech_node *node = ech_block_node(block, &ech_layer_row_sparse_logits, NULL, 0);
    ech_node_in(node, x);
    ech_node_in(node, ech_block_batch(block, ECH_VALUES));
    ech_node_param(node, bias);
    node->b.in = 2;
    node->purposes = measured;
    int logits = ech_node_out(block, node, "out", ech_shape_samples());
    block->value.at[logits].type = ECH_TYPE_WIDE;
    block->value.at[logits].purposes = measured;

    node = ech_block_node(block, &ech_layer_row_logistic_loss, NULL, 0);
    ech_node_in(node, logits);
    ech_node_in(node, ech_block_batch(block, ECH_TARGETS));
    ech_node_in(node, ech_block_batch(block, ECH_WEIGHTS));
    node->b.in = 7;
    node->purposes = measured;
}

/* x (B,T,1) as (B,T): the features of each sample. */
static ech_tensor of_samples(const ech_tensor *x)
{
    return ech_tensor_2d(x->data, x->dtype, x->shape[0], x->shape[1]);
}

static void logits_forward(const ech_call *call)
{
    ech_tensor x = of_samples(&call->in[0]);
    call->kernels->sparse_logits(call->context, &x, &call->in[1], &call->param[0], &call->out[0]);
}

static void logits_backward(const ech_call *call)
{
    ech_tensor dx = of_samples(&call->din[0]);
    call->kernels->sparse_logits_backward(call->context, &call->dout[0], &call->in[1],
                                          call->accumulate[0], &dx, ech_optional(&call->dparam[0]));
}

const ech_layer ech_layer_row_sparse_logits = {.name = "sparse_logits",
                                               .forward = logits_forward,
                                               .backward_input = logits_backward,
                                               .finishes_in_b = true};

/* (B) as (B,1): a sample has one target. */
static ech_tensor one_each(const ech_tensor *x)
{
    return ech_tensor_2d(x->data, x->dtype, x->shape[0], 1);
}

static void loss_forward(const ech_call *call)
{
    ech_tensor sums = ech_tensor_1d(call->loss_sums, ECH_F64, ECH_LOSS_SUMS);
    ech_tensor targets = one_each(&call->in[1]), weights = one_each(&call->in[2]);
    call->kernels->logistic_loss(call->context, &call->in[0], &targets, &weights, &sums);
}

static void loss_backward(const ech_call *call)
{
    ech_tensor scale = ech_tensor_1d(call->loss_factor, ECH_F64, 1);
    ech_tensor targets = one_each(&call->in[1]), weights = one_each(&call->in[2]);
    call->kernels->logistic_loss_backward(call->context, &call->in[0], &targets, &weights, &scale,
                                          &call->din[0]);
}

const ech_layer ech_layer_row_logistic_loss = {.name = "logistic_loss",
                                               .forward = loss_forward,
                                               .backward_input = loss_backward,
                                               .overwrites = 1};
