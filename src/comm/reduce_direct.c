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

/* The segment `at` elements into a member's piece. */
typedef struct part {
    char *x;
    size_t bytes;
} part;

static part find_part(const ech_sum *sum, int member, int64_t at, int64_t segment)
{
    int N = sum->group->size;
    int64_t count = ech_piece_count(sum->n, N, member);
    int64_t first = ech_piece_first(sum->n, N, member);
    return (part){.x = sum->x + (size_t)(first + at) * sum->item,
                  .bytes = (size_t)ech_segment_count(count, at, segment) * sum->item};
}

/* Receives the others' addends for this rank's piece into scratch, in member order, and sends every
 * owner this rank's addends. */
static ech_status scatter(const ech_sum *sum, ech_batch *batch, int64_t at, int64_t segment)
{
    ech_group *group = sum->group;
    int N = group->size, index = group->index;
    part own = find_part(sum, index, at, segment);
    char *to = sum->scratch;
    for (int i = 0; i < N; i++) {
        if (i == index) continue;
        ECH_TRY(ech_batch_receive(group, batch, i, to, own.bytes));
        to += own.bytes;
    }
    for (int k = 1; k < N; k++) { /* not all to member 0 first */
        int owner = (index + k) % N;
        part p = find_part(sum, owner, at, segment);
        ECH_TRY(ech_batch_send(group, batch, owner, p.x, p.bytes));
    }
    return ECH_OK;
}

/* Receives the others' sums in place and sends this rank's. */
static ech_status gather(const ech_sum *sum, ech_batch *batch, int64_t at, int64_t segment)
{
    ech_group *group = sum->group;
    int N = group->size, index = group->index;
    part own = find_part(sum, index, at, segment);
    for (int i = 0; i < N; i++) {
        if (i == index) continue;
        part p = find_part(sum, i, at, segment);
        ECH_TRY(ech_batch_receive(group, batch, i, p.x, p.bytes));
    }
    for (int k = 1; k < N; k++)
        ECH_TRY(ech_batch_send(group, batch, (index + k) % N, own.x, own.bytes));
    return ECH_OK;
}

static ech_status run(const ech_sum *sum)
{
    ech_group *group = sum->group;
    ech_batch *scattered = &group->batch[0], *gathered = &group->batch[1];
    int64_t segment = ech_segment(sum->item, group->size);
    int64_t longest = ech_piece_count(sum->n, group->size, 0);
    for (int64_t at = 0; at < longest; at += segment) {
        ECH_TRY(scatter(sum, scattered, at, segment));
        ECH_TRY(ech_batch_wait(group, scattered));
        part own = find_part(sum, group->index, at, segment);
        ech_add_in_order(sum, own.x, sum->scratch, (int64_t)(own.bytes / sum->item));
        ECH_TRY(ech_batch_wait(group, gathered)); /* of the segment before */
        ECH_TRY(gather(sum, gathered, at, segment));
    }
    return ech_batch_wait(group, gathered);
}

const ech_reduction_row ech_reduce_DIRECT = {.scratch = scratch, .sent = sent, .run = run};
