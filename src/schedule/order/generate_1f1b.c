/* SPDX-License-Identifier: Apache-2.0
 *
 * 1F1B with a flush: PipeDream-Flush. Narayanan et al. 2021, arXiv:2006.09503, §3.2. Stage r of p
 * runs min(p - r - 1, m) forwards ahead, then one forward, one backward, then the backwards that are
 * left: as idle as GPipe, but a stage keeps min(p - r, m) micro-batches. One stage alone runs
 * micro-batch by micro-batch.
 *
 * Where stages have unequal replicas, a rank runs pipe->depth - 1 ahead. Nothing waits in a circle
 * then: what a B needs goes back, over any stages, only to Bs of earlier micro-batches.
 */
#include "schedule/order/generate.h"

void ech_generate_1f1b(const ech_pipe *pipe, int delay, ech_order *order)
{
    int m = pipe->micro_batches;
    int ahead = pipe->depth - 1 < m ? pipe->depth - 1 : m;
    for (int micro = 0; micro < ahead; micro++) ech_order_add(order, ECH_F, 0, micro);
    for (int micro = 0; micro < m; micro++) {
        if (micro + ahead < m) ech_order_add(order, ECH_F, 0, micro + ahead);
        ech_order_add(order, ECH_B, 0, micro);
        if (micro >= delay) ech_order_add(order, ECH_W, 0, micro - delay);
    }
    for (int micro = m > delay ? m - delay : 0; micro < m; micro++)
        ech_order_add(order, ECH_W, 0, micro);
}

static void generate(const ech_pipe *pipe, ech_order *order)
{
    ech_generate_1f1b(pipe, 0, order);
}

const ech_generator ech_generator_row_1f1b = {
    .name = "1f1b", .weights = ECH_WEIGHTS_FLUSHED, .generate = generate};
