/* SPDX-License-Identifier: Apache-2.0
 *
 * The naive reduction: every member sends its whole tensor to every other, and each adds in member
 * order. It is the reference for the other algorithms.
 */
#include "comm/reduce.h"

static int64_t scratch(size_t item, int64_t n, const ech_lineup *of)
{
    return (of->size - 1) * ech_segment_count(n, 0, ech_segment_elements(item, of));
}

static int64_t sent(int64_t n, const ech_lineup *of, int index)
{
    (void)index; /* the same for all */
    return (of->size - 1) * n;
}

static ech_status run(const ech_sum *sum)
{
    ech_group *group = sum->group;
    ech_comm_batch *batch = &group->batch[0];
    for (int64_t at = 0; at < sum->n; at += sum->segment) {
        int64_t n = ech_segment_count(sum->n, at, sum->segment);
        size_t bytes = (size_t)n * sum->item;
        char *x = sum->x + (size_t)at * sum->item;
        char *to = sum->scratch;
        for (int i = 0; i < group->size; i++) {
            if (i == group->index) continue;
            ech_comm_batch_receive(group, batch, i, to, bytes);
            ech_sum_send(sum, batch, i, x, n);
            to += bytes;
        }
        ECH_TRY(ech_comm_batch_wait(group, batch));
        ech_add_in_order(sum, x, x, sum->scratch, n);
    }
    return ECH_OK;
}

const ech_reduction_row ech_reduce_NAIVE = {
    .part = {[ECH_REDUCTION_WHOLE] = {.scratch = scratch, .sent = sent, .run = run}}};
