/* SPDX-License-Identifier: Apache-2.0
 *
 * PipeDream: 1F1B without a flush. Narayanan et al. 2019 (SOSP), §3.2 and §3.3. The pipeline fills
 * once, runs through all micro-batches of a span, and updates come between them; the backward of a
 * micro-batch sees the weights that its forward saw, which are stashed until then: as many versions
 * as micro-batches begun, pipe->depth.
 */
#include "schedule/order/generate.h"

static void generate(const ech_pipe *pipe, ech_order *order)
{
    ech_generate_1f1b(pipe, 0, order);
}

const ech_generator ech_generator_row_pipedream = {
    .name = "pipedream", .weights = ECH_WEIGHTS_STASHED, .generate = generate};
