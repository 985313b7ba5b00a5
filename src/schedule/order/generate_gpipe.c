/* SPDX-License-Identifier: Apache-2.0
 *
 * GPipe: all forwards of a step, then all backwards. Huang et al. 2018, arXiv:1811.06965, §2.3.
 * Idle (p - 1) / (m + p - 1) of the time; every stage holds all m micro-batches. Backwards are in
 * ascending order of micro-batches as in every order, so gradients are summed in the same order as
 * elsewhere. With several chunks, all micro-batches go through one chunk before the next (breadth
 * first: Lamy-Poirier 2022, arXiv:2211.05953).
 */
#include "schedule/order/items.h"

static void generate_gpipe(const ech_pipe *pipe, ech_order *order)
{
    for (int chunk = 0; chunk < pipe->chunks; chunk++)
        for (int micro = 0; micro < pipe->micro_batches; micro++)
            ech_order_add(order, ECH_F, chunk, micro);
    for (int chunk = pipe->chunks; chunk-- > 0;)
        for (int micro = 0; micro < pipe->micro_batches; micro++)
            ech_order_add_backward(order, chunk, micro);
}

const ech_generator ech_generator_row_gpipe = {
    .name = "gpipe", .weights = ECH_WEIGHTS_FLUSHED, .generate = generate_gpipe};

/* Model parallelism without a pipeline, for comparison: a micro-batch goes through all stages and
 * back before the next begins, so one of p stages works and 1 - 1/p of the time is idle. No stage
 * holds more than one micro-batch. */
static void generate_naive(const ech_pipe *pipe, ech_order *order)
{
    for (int micro = 0; micro < pipe->micro_batches; micro++) {
        for (int chunk = 0; chunk < pipe->chunks; chunk++)
            ech_order_add(order, ECH_F, chunk, micro);
        for (int chunk = pipe->chunks; chunk-- > 0;) ech_order_add_backward(order, chunk, micro);
    }
}

const ech_generator ech_generator_row_naive = {
    .name = "naive", .weights = ECH_WEIGHTS_FLUSHED, .generate = generate_naive};
