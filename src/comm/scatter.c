/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce-scatter: every member sends its addends of each other member's shard to that member, and
 * adds the ones that it receives in member order; segment by segment, with several in flight.
 * All-gather of the same shards.
 */
#include "comm/reduce.h"

static int64_t count_segments(int64_t elements, int64_t segment)
{
    return (elements + segment - 1) / segment;
}

/* Elements of a slice. */
static int64_t slice_of(const ech_sum *sum)
{
    return sum->n / sum->group->size / sum->slices->slices;
}

int64_t ech_sum_segments(const ech_sum *sum)
{
    if (sum->slices) return sum->slices->slices * count_segments(slice_of(sum), sum->segment);
    ech_lineup of = ech_group_lineup(sum->group);
    return count_segments(ech_lineup_shard_count(&of, sum->n, ech_lineup_first_owner(&of)),
                          sum->segment);
}

/* Where segment k of a shard begins; for slices, *count: the elements in use from there to the end
 * of its slice. */
static int64_t offset_of(const ech_sum *sum, int member, int64_t k, int64_t *count)
{
    if (!sum->slices) {
        ech_lineup of = ech_group_lineup(sum->group);
        *count = ech_lineup_shard_count(&of, sum->n, member) - k * sum->segment;
        return k * sum->segment;
    }
    const ech_row_slices *of = sum->slices;
    int64_t each = slice_of(sum), segments = count_segments(each, sum->segment);
    int64_t slice = k / segments, at = k % segments * sum->segment;
    *count = of->counts[member * of->slices + slice] * (each / of->rows) - at;
    return slice * each + at;
}

/* A store has only its own shard of x. */
static char *place_in_x(const ech_sum *sum, int member, int64_t at)
{
    ech_lineup of = ech_group_lineup(sum->group);
    int index = sum->group->index;
    if (!ech_lineup_adds(&of, index))
        return member == index ? sum->shard + (size_t)at * sum->item : NULL;
    return sum->x + (size_t)(ech_lineup_shard_first(&of, sum->n, member) + at) * sum->item;
}

ech_segment ech_sum_segment(const ech_sum *sum, int member, int64_t k)
{
    int64_t count, at = offset_of(sum, member, k, &count);
    int64_t n = ech_segment_count(count, 0, sum->segment);
    return (ech_segment){
        .x = n ? place_in_x(sum, member, at) : sum->x, .n = n, .bytes = (size_t)n * sum->wire_item};
}

/* Where this member's segment is in its own shard. */
static char *place_of(const ech_sum *sum, char *mine, int64_t k)
{
    int64_t count;
    return mine + (size_t)offset_of(sum, sum->group->index, k, &count) * sum->item;
}

char *ech_sum_slot(const ech_sum *sum, int64_t k, int parts)
{
    return sum->scratch + (size_t)(k % ECH_UNDER_WAY * parts * sum->segment) * sum->wire_item;
}

int ech_sum_parts(const ech_lineup *of)
{
    return of->stores ? of->size - of->stores : of->size - 1;
}

int64_t ech_scatter_scratch(size_t item, int64_t n, const ech_lineup *of)
{
    int64_t shard = ech_lineup_shard_count(of, n, ech_lineup_first_owner(of));
    int64_t segment = ech_segment_elements(item, of);
    return ech_sum_parts(of) * ech_segment_count(shard, 0, ECH_UNDER_WAY * segment);
}

void ech_sum_send(const ech_sum *sum, ech_comm_batch *batch, int member, const void *data,
                  int64_t n)
{
    sum->group->count->elements += n;
    ech_comm_batch_send(sum->group, batch, member, data, (size_t)n * sum->wire_item);
}

ech_comm_batch *ech_sum_batch(const ech_sum *sum, int set, int64_t k)
{
    return &sum->group->batch[set * ECH_UNDER_WAY + k % ECH_UNDER_WAY];
}

/* Receives the others' addends of this rank's shard into scratch, in member order, and sends every
 * owner this rank's addends. */
ech_status ech_scatter_begin(const ech_sum *sum, int64_t k)
{
    ech_group *group = sum->group;
    ech_comm_batch *batch = ech_sum_batch(sum, sum->scatters, k);
    ech_lineup of = ech_group_lineup(group);
    int N = group->size, index = group->index;
    bool adds = ech_lineup_adds(&of, index);
    ech_segment own = ech_sum_segment(sum, index, k);
    char *to = ech_sum_slot(sum, k, ech_sum_parts(&of));
    if (adds) ech_narrow(sum, own.x, own.n);
    for (int i = 0; i < N; i++) {
        if (i == index || !ech_lineup_adds(&of, i)) continue;
        ech_comm_batch_receive(group, batch, i, to, own.bytes);
        to += own.bytes;
    }
    for (int d = 1; d < N && adds; d++) { /* not all to member 0 first */
        int owner = (index + d) % N;
        ech_segment p = ech_sum_segment(sum, owner, k);
        ech_narrow(sum, p.x, p.n);
        ech_sum_send(sum, batch, owner, p.x, p.n);
    }
    return ech_comm_batch_put(group, batch);
}

ech_status ech_scatter_end(const ech_sum *sum, char *mine, int64_t k)
{
    ech_segment own = ech_sum_segment(sum, sum->group->index, k);
    ech_lineup of = ech_group_lineup(sum->group);
    char *parts = ech_sum_slot(sum, k, ech_sum_parts(&of));
    ECH_TRY(ech_comm_batch_wait(sum->group, ech_sum_batch(sum, sum->scatters, k)));
    if (!of.stores)
        ech_add_in_order(sum, mine, own.x, parts, own.n);
    else if (ech_sum_parts(&of) > 1) /* the first part replaces the own one */
        ech_add_parts(sum, mine, parts, parts + own.bytes, ech_sum_parts(&of) - 1, 0, own.n);
    else if (own.n && mine != parts)
        ech_group_copy(sum->group, mine, parts, own.bytes);
    return ECH_OK;
}

static ech_status run(const ech_sum *sum, char *mine)
{
    int64_t segments = ech_sum_segments(sum), ahead = ECH_UNDER_WAY - 1;
    for (int64_t k = 0; k < segments + ahead; k++) {
        int64_t ends = k - ahead;
        if (k < segments) ECH_TRY(ech_scatter_begin(sum, k));
        if (ends >= 0) ECH_TRY(ech_scatter_end(sum, place_of(sum, mine, ends), ends));
    }
    return ECH_OK;
}

ech_status ech_group_reduce_scatter(ech_group *group, const ech_tensor *x, void *mine,
                                    void *scratch)
{
    ech_sum sum;
    ECH_TRY(ech_sum_make(group, ECH_CALL_REDUCE_SCATTER, x, x->dtype, scratch, &sum));
    if (sum.n == 0) return ECH_OK;
    if (group->size == 1) {
        if (mine != sum.x) ech_group_copy(group, mine, sum.x, (size_t)sum.n * sum.item);
        return ECH_OK;
    }
    return run(&sum, mine);
}

/* ---- all-gather: every member sends its shard to each other one, which receives it in place ----
 */

ech_status ech_gather_begin(const ech_sum *sum, const char *mine, int64_t k)
{
    ech_group *group = sum->group;
    ech_comm_batch *batch = ech_sum_batch(sum, sum->gathers, k);
    ech_lineup of = ech_group_lineup(group);
    int N = group->size, index = group->index;
    ech_status status;
    if (ech_library_gather(sum, mine, batch, &status)) return status;
    for (int i = 0; i < N; i++) {
        if (i == index || !ech_lineup_adds(&of, index)) continue;
        ech_segment p = ech_sum_segment(sum, i, k);
        ech_comm_batch_receive(group, batch, i, p.x, p.bytes);
    }
    int64_t n = ech_sum_segment(sum, index, k).n;
    for (int d = 1; d < N; d++) {
        int to = (index + d) % N;
        if (ech_lineup_adds(&of, to)) ech_sum_send(sum, batch, to, mine, n);
    }
    return ech_comm_batch_put(group, batch);
}

ech_status ech_gather_end(const ech_sum *sum, int64_t k)
{
    ech_group *group = sum->group;
    ECH_TRY(ech_comm_batch_wait(group, ech_sum_batch(sum, sum->gathers, k)));
    for (int i = 0; i < group->size; i++) {
        ech_segment p = ech_sum_segment(sum, i, k);
        ech_widen(sum, p.x, p.n);
    }
    return ECH_OK;
}

/* Nothing is added and scratch is not needed, so a shard is one segment. */
ech_status ech_group_all_gather(ech_group *group, void *whole, const void *mine, size_t item,
                                int64_t n)
{
    const ech_sum all = {
        .group = group, .x = whole, .n = n, .item = item, .wire_item = item, .segment = n};
    ech_group_begin(group, ECH_CALL_ALL_GATHER);
    if (n == 0) return ECH_OK;
    ECH_TRY(ech_gather_begin(&all, mine, 0));
    ech_segment own = ech_sum_segment(&all, group->index, 0);
    if (own.bytes > 0 && mine != own.x) ech_group_copy(group, own.x, mine, own.bytes);
    return ech_gather_end(&all, 0);
}

/* ---- the same of slices of rows ---- */

static ech_status check_counts(const ech_group *group, const ech_row_slices *of)
{
    for (int64_t i = 0; i < group->size * of->slices; i++)
        if (of->counts[i] < 0 || of->counts[i] > of->rows)
            ECH_FAIL(ECH_EINTERNAL,
                     "%s over group %s: rank %d says that it has %lld rows in a slice of %lld that "
                     "rank %d has room for",
                     ech_comm_call_name(group->call), group->of->name,
                     group->of->ranks[i / of->slices], (long long)of->counts[i],
                     (long long)of->rows, group->of->ranks[group->index]);
    return ECH_OK;
}

/* This member's rows, in a group of one. */
static void copy_rows(const ech_sum *sum, char *mine)
{
    for (int64_t k = 0; k < ech_sum_segments(sum); k++) {
        ech_segment own = ech_sum_segment(sum, 0, k);
        if (own.n) ech_group_copy(sum->group, place_of(sum, mine, k), own.x, own.bytes);
    }
}

/* A slice has enough segments that four fit into the scratch of a sum of even shards. */
ech_status ech_group_scatter_rows(ech_group *group, const ech_tensor *x, void *mine, void *scratch,
                                  const ech_row_slices *of)
{
    ech_sum sum;
    ECH_TRY(ech_sum_make(group, ECH_CALL_REDUCE_SCATTER, x, x->dtype, scratch, &sum));
    ECH_TRY(check_counts(group, of));
    if (sum.n == 0) return ECH_OK;
    int64_t fourth = sum.n / group->size / ECH_UNDER_WAY;
    if (sum.segment > fourth) sum.segment = fourth > 0 ? fourth : 1;
    sum.slices = of;
    if (group->size > 1) return run(&sum, mine);
    copy_rows(&sum, mine);
    return ECH_OK;
}

/* A slice is a segment. */
ech_status ech_group_gather_rows(ech_group *group, const ech_tensor *whole, const void *mine,
                                 const ech_row_slices *of)
{
    int64_t n = ech_tensor_count(whole), ahead = ECH_UNDER_WAY - 1;
    size_t item = ech_dtype_bytes(whole->dtype);
    ech_sum all = {.group = group,
                   .x = whole->data,
                   .n = n,
                   .item = item,
                   .wire_item = item,
                   .segment = n,
                   .slices = of};
    ech_group_begin(group, ECH_CALL_ALL_GATHER);
    ECH_TRY(check_counts(group, of));
    for (int64_t k = 0; k < of->slices + ahead && n > 0; k++) {
        if (k < of->slices) {
            ech_segment own = ech_sum_segment(&all, group->index, k);
            const char *from = place_of(&all, (char *)(uintptr_t)mine, k);
            ECH_TRY(ech_gather_begin(&all, from, k));
            if (own.n) ech_group_copy(group, own.x, from, own.bytes);
        }
        if (k >= ahead) ECH_TRY(ech_gather_end(&all, k - ahead));
    }
    return ECH_OK;
}
