/* SPDX-License-Identifier: Apache-2.0
 *
 * The direct reduction: member i owns piece i. Every member sends each owner its share of the piece
 * (reduce-scatter); the owner adds them in member order and sends the sum to all (all-gather). The
 * ring's bytes, and each element's sum is the serial one whatever the cut.
 *
 * It goes segment by segment; the all-gather of one overlaps the reduce-scatter of the next.
 */
#include "comm/reduce.h"

static int64_t scratch(size_t item, int64_t n, int N)
{
    int64_t piece = ech_piece_count(n, N, 0);
    return (N - 1) * ech_segment_count(piece, 0, ech_segment(item, N));
}

static int64_t sent(int64_t n, int N, int index)
{
    int64_t own = ech_piece_count(n, N, index);
    return n - own + (N - 1) * own;
}

static ech_status run(const ech_sum *sum)
{
    ech_group *group = sum->group;
    ech_batch *scattered = &group->batch[0], *gathered = &group->batch[1];
    ech_pieces pieces = ech_pieces_of_sum(sum);
    int64_t longest = ech_piece_count(sum->n, group->size, 0);
    for (int64_t at = 0; at < longest; at += pieces.segment) {
        char *mine = ech_pieces_part(&pieces, group->index, at).x;
        ECH_TRY(ech_scatter_segment(sum, scattered, &pieces, mine, at));
        ECH_TRY(ech_batch_wait(group, gathered)); /* of the segment before */
        ECH_TRY(ech_gather_segment(&pieces, gathered, mine, at));
    }
    return ech_batch_wait(group, gathered);
}

const ech_reduction_row ech_reduce_DIRECT = {.scratch = scratch, .sent = sent, .run = run};
