/* SPDX-License-Identifier: Apache-2.0
 *
 * ZB-V: two chunks per rank; a micro-batch goes down the stages through the first chunks and back
 * up through the second ones, and backwards of the weights wait for idle time. Qi et al. 2024,
 * arXiv:2401.10241. The stage with the first virtual stage also has the last one, so that the first
 * backwards begin on all stages soon after the first forwards.
 *
 * Stage r fills the way to its second chunk with 2(p - r) - 1 forwards of the first, holds 2p
 * chunks until its first W has ended, and then alternates F, B and W of either chunk. With F, B, W
 * of equal length and m >= 2p - 1 it never waits between its first F and its last W. No stage holds
 * more than 2p chunks, which equals the p micro-batches of 1F1B's first stage. With fewer
 * micro-batches the order is the same without the missing ones.
 */
#include "schedule/order/items.h"

typedef struct writer {
    int micro_batches;
    ech_order *order;
    int next[2][ECH_W + 1]; /* micro-batch, by chunk */
} writer;

static void add(writer *w, ech_action action, int chunk)
{
    int micro = w->next[chunk][action]++;
    if (micro < w->micro_batches) ech_order_add(w->order, action, chunk, micro);
}

static void add_backward(writer *w, int chunk)
{
    add(w, ECH_B, chunk);
    add(w, ECH_W, chunk);
}

static void generate(const ech_pipe *pipe, ech_order *order)
{
    ECH_ASSERT(pipe->chunks == 2);
    int p = pipe->stages, r = pipe->stage, m = pipe->micro_batches;
    int all = m > 2 * p - 1 ? m : 2 * p - 1;
    writer w = {.micro_batches = m, .order = order};
    for (int i = 0; i < 2 * (p - r) - 1; i++) add(&w, ECH_F, 0);
    for (int i = 0; i < r; i++) {
        add(&w, ECH_F, 1);
        add(&w, ECH_F, 0);
    }
    for (int i = 0; i < p - r; i++) {
        add(&w, ECH_F, 1);
        add_backward(&w, 1);
    }
    while (w.next[1][ECH_F] < all) {
        add(&w, ECH_F, 0);
        add_backward(&w, 0);
        add(&w, ECH_F, 1);
        add_backward(&w, 1);
    }
    for (int i = 0; i < r; i++) {
        add(&w, ECH_B, 0);
        add(&w, ECH_B, 1);
    }
    for (int i = 0; i < p - r; i++) add_backward(&w, 0);
    while (w.next[1][ECH_W] < all) add(&w, ECH_W, 1);
    while (w.next[0][ECH_W] < all) add(&w, ECH_W, 0);
}

const ech_generator ech_generator_row_zero_bubble_v = {.name = "zero-bubble-v",
                                                       .weights = ECH_WEIGHTS_FLUSHED,
                                                       .placement = ECH_PLACEMENT_VEE,
                                                       .chunks = 2,
                                                       .splits = true,
                                                       .generate = generate};
