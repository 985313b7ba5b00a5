/* SPDX-License-Identifier: Apache-2.0
 *
 * 1F1B and its relatives, with one chunk: stage r of p runs p - r - 1 forwards ahead, then
 * alternates one forward and one backward, then runs the remaining backwards. It is as idle as
 * GPipe, but a stage holds only min(p - r, m) micro-batches. A single stage runs micro-batch by
 * micro-batch.
 *
 * If stages have unequal replicas, a rank runs pipe->depth - 1 ahead. There is no cycle of waits:
 * the dependencies of a B lead, over any stages, only to Bs of earlier micro-batches.
 */
#include "schedule/order/items.h"

/* The W of a micro-batch comes after the B of the one `delay` micro-batches later. */
static void generate_delayed(const ech_pipe *pipe, int delay, ech_order *order)
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
    generate_delayed(pipe, 0, order);
}

/* PipeDream-Flush: Narayanan et al. 2021, arXiv:2006.09503, section 3.2. */
const ech_generator ech_generator_row_1f1b = {
    .name = "1f1b", .weights = ECH_WEIGHTS_FLUSHED, .generate = generate};

/* PipeDream: 1F1B without a flush. Narayanan et al. 2019 (SOSP), sections 3.2 and 3.3. The pipeline
 * fills once, runs through all micro-batches of a span, and updates come between them. The backward
 * of a micro-batch uses its forward's weights, which are stashed until then: as many versions as
 * micro-batches begun, pipe->depth. */
const ech_generator ech_generator_row_pipedream = {
    .name = "pipedream", .weights = ECH_WEIGHTS_STASHED, .generate = generate};

static bool accepts_2bw(const ech_pipeline_shape *shape, ech_text *why)
{
    if (shape->micro_batches >= shape->stages) return true;
    ech_text_append(why,
                    "makes %s a replica, and parallel.schedule = pipedream-2bw needs as many as "
                    "there are stages; use at least %d x training.micro_batch_size x replicas, or "
                    "a smaller training.micro_batch_size",
                    ECH_COUNT(shape->micro_batches, "micro-batch"), shape->stages);
    return false;
}

/* PipeDream-2BW: 1F1B without a flush and with two versions of the weights. Narayanan et al. 2021,
 * arXiv:2006.09503, section 3.1. An update needs a step's m micro-batches; with m >= p no
 * micro-batch still in the pipeline needs weights older than the version before the newest. */
const ech_generator ech_generator_row_pipedream_2bw = {.name = "pipedream-2bw",
                                                       .weights = ECH_WEIGHTS_BUFFERED,
                                                       .accepts = accepts_2bw,
                                                       .generate = generate};

static void generate_zero_bubble(const ech_pipe *pipe, ech_order *order)
{
    generate_delayed(pipe, pipe->stage, order);
}

/* ZB-H1: Qi et al. 2023, arXiv:2401.10241, section 2.2. No other stage waits for a W, so stage r
 * delays its Ws by r micro-batches: its B, which the previous stage needs, comes earlier, and the
 * Ws fill the time when the pipeline drains. With F, B, W of equal length and m >= p, idle time is
 * (p - 1)(F + B - W) per rank and step, a third of 1F1B's, whose B and W are one backward. Stage r
 * holds the p - r micro-batches of 1F1B and r more for their Ws: on no stage more than 1F1B's first
 * stage. */
const ech_generator ech_generator_row_zero_bubble = {
    .name = "zero-bubble", .weights = ECH_WEIGHTS_FLUSHED, .generate = generate_zero_bubble};
