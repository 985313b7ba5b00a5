/* SPDX-License-Identifier: Apache-2.0
 *
 * The direct reduction: member i owns piece i. Every member sends each owner its share of the piece
 * (reduce-scatter); the owner adds them in member order and sends the sum to all (all-gather). The
 * ring's bytes, and each element's sum is the serial one whatever the cut.
 *
 * It goes segment by segment, several under way at once: while the sum of one is handed out, the next
 * ones are collected, so that a link carries something in both directions all the time. The last ones
 * are handed out while the next sum begins.
 */
#include "comm/reduce.h"

enum { AHEAD = ECH_UNDER_WAY - 1 }; /* segments begun before one is handed out */

static int64_t scratch(size_t item, int64_t n, int N)
{
    return ech_scatter_scratch(item, n, N);
}

static int64_t sent(int64_t n, int N, int index)
{
    int64_t own = ech_piece_count(n, N, index);
    return n - own + (N - 1) * own;
}

static ech_status begin(const ech_sum *sum)
{
    ech_pieces pieces = ech_pieces_of_sum(sum);
    int64_t segments = ech_pieces_segments(&pieces);
    for (int64_t k = 0; k < AHEAD && k < segments; k++) ECH_TRY(ech_scatter_begin(sum, &pieces, k));
    return ECH_OK;
}

/* The sum of segment k. */
static ech_status hand_out(const ech_sum *sum, const ech_pieces *pieces, int64_t k)
{
    char *mine = ech_pieces_part(pieces, sum->group->index, k).x;
    ECH_TRY(ech_scatter_end(sum, pieces, mine, k));
    ECH_TRY(ech_gather_end(sum->group, k)); /* what used its batch before */
    return ech_gather_begin(pieces, mine, k);
}

static ech_status run(const ech_sum *sum)
{
    ech_pieces pieces = ech_pieces_of_sum(sum);
    int64_t segments = ech_pieces_segments(&pieces);
    for (int64_t k = 0; k < segments; k++) {
        if (k + AHEAD < segments) ECH_TRY(ech_scatter_begin(sum, &pieces, k + AHEAD));
        ECH_TRY(hand_out(sum, &pieces, k));
    }
    return ECH_OK;
}

static ech_status end(const ech_sum *sum)
{
    for (int64_t k = 0; k < ECH_UNDER_WAY; k++) ECH_TRY(ech_gather_end(sum->group, k));
    return ECH_OK;
}

const ech_reduction_row ech_reduce_DIRECT = {
    .scratch = scratch, .sent = sent, .begin = begin, .run = run, .end = end};
