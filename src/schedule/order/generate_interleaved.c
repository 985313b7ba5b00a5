/* SPDX-License-Identifier: Apache-2.0
 *
 * Interleaved 1F1B: Narayanan et al. 2021, arXiv:2104.04473, §2.2, in Megatron-LM's order. Each
 * rank has v chunks, so a micro-batch passes it v times; p micro-batches go through a chunk before
 * the next chunk is due, forwards from the first chunk on, backwards from the last. Stage r runs
 * 2(p - r - 1) + (v - 1)p forwards ahead, and with m = p all of them. Idle time is (p - 1)/(v m) of
 * the working time, and a rank holds one chunk more than it runs ahead.
 */
#include "schedule/order/items.h"

/* Megatron-LM's "virtual micro-batch" i of p groups: its chunk, and its micro-batch. */
static int chunk_of(const ech_pipe *pipe, int i)
{
    return i % (pipe->stages * pipe->chunks) / pipe->stages;
}

static int micro_of(const ech_pipe *pipe, int i)
{
    return i / (pipe->stages * pipe->chunks) * pipe->stages + i % pipe->stages;
}

static int count_ahead(const ech_pipe *pipe)
{
    int p = pipe->stages, all = pipe->micro_batches * pipe->chunks;
    if (pipe->micro_batches == p) return all;
    int ahead = 2 * (p - pipe->stage - 1) + (pipe->chunks - 1) * p;
    return ahead < all ? ahead : all;
}

static bool accepts(const ech_pipeline_shape *shape, ech_text *why)
{
    int p = shape->stages, m = shape->micro_batches;
    if (m % p == 0) return true;
    ech_text_append(why,
                    "makes %s a replica, and parallel.schedule = interleaved needs a multiple of "
                    "the %d stages; use ",
                    ECH_COUNT(m, "micro-batch"), p);
    if (m > p) ech_text_append(why, "%d or ", m / p * p);
    ech_text_append(why, "%lld x training.micro_batch_size x replicas", ((long long)m / p + 1) * p);
    return false;
}

static void generate(const ech_pipe *pipe, ech_order *order)
{
    ECH_ASSERT(pipe->micro_batches % pipe->stages == 0);
    int all = pipe->micro_batches * pipe->chunks, ahead = count_ahead(pipe);
    for (int i = 0; i < ahead; i++)
        ech_order_add(order, ECH_F, chunk_of(pipe, i), micro_of(pipe, i));
    for (int i = 0; i < all; i++) {
        int f = i + ahead;
        if (f < all) ech_order_add(order, ECH_F, chunk_of(pipe, f), micro_of(pipe, f));
        ech_order_add_backward(order, pipe->chunks - 1 - chunk_of(pipe, i), micro_of(pipe, i));
    }
}

const ech_generator ech_generator_row_interleaved = {.name = "interleaved",
                                                     .weights = ECH_WEIGHTS_FLUSHED,
                                                     .accepts = accepts,
                                                     .generate = generate};
