/* SPDX-License-Identifier: Apache-2.0
 *
 * PipeDream-2BW: 1F1B without a flush and with two versions of the weights. Narayanan et al. 2021,
 * arXiv:2006.09503, §3.1. An update needs a step's m micro-batches; with m >= p no micro-batch still
 * in the pipeline needs weights older than the version before the newest.
 */
#include "schedule/order/generate.h"

static bool accepts(const ech_pipeline_shape *shape, ech_text *why)
{
    if (shape->micro_batches >= shape->stages) return true;
    ech_text_append(why,
                    "makes %s a replica, and parallel.schedule = pipedream-2bw needs as many as "
                    "there are stages; use at least %d x training.micro_batch_size x replicas, or "
                    "a smaller training.micro_batch_size",
                    ECH_COUNT(shape->micro_batches, "micro-batch"), shape->stages);
    return false;
}

static void generate(const ech_pipe *pipe, ech_order *order)
{
    ech_generate_1f1b(pipe, 0, order);
}

const ech_generator ech_generator_row_pipedream_2bw = {.name = "pipedream-2bw",
                                                       .weights = ECH_WEIGHTS_BUFFERED,
                                                       .accepts = accepts,
                                                       .generate = generate};
