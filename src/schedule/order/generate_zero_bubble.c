/* SPDX-License-Identifier: Apache-2.0
 *
 * ZB-H1: 1F1B whose backwards of the weights wait for idle time. Qi et al. 2023, arXiv:2401.10241,
 * §2.2. Nobody else waits for a W, so stage r leaves r of them behind: its B, which the stage before
 * it needs, comes the earlier, and the W fill the time when the pipeline runs empty. With
 * F, B, W of one length and m >= p, idle is (p - 1)(F + B - W) a rank and step, a third of what 1F1B
 * idles, whose B and W are one backward. Stage r keeps the p - r micro-batches of 1F1B and r more for
 * their W: on no stage more than 1F1B's first.
 */
#include "schedule/order/generate.h"

static void generate(const ech_pipe *pipe, ech_order *order)
{
    ech_generate_1f1b(pipe, pipe->stage, order);
}

const ech_generator ech_generator_row_zero_bubble = {
    .name = "zero-bubble", .weights = ECH_WEIGHTS_FLUSHED, .generate = generate};
