/* SPDX-License-Identifier: Apache-2.0
 *
 * Model parallelism without a pipeline: a micro-batch goes through all stages and back before the
 * next begins, so one of p stages works and 1 - 1/p of the time is idle. What pipelines are compared
 * with. No stage keeps more than one micro-batch.
 */
#include "schedule/order/items.h"

static void generate(const ech_pipe *pipe, ech_order *order)
{
    for (int micro = 0; micro < pipe->micro_batches; micro++) {
        for (int chunk = 0; chunk < pipe->chunks; chunk++)
            ech_order_add(order, ECH_F, chunk, micro);
        for (int chunk = pipe->chunks; chunk-- > 0;) ech_order_add_backward(order, chunk, micro);
    }
}

const ech_generator ech_generator_row_naive = {
    .name = "naive", .weights = ECH_WEIGHTS_FLUSHED, .generate = generate};
