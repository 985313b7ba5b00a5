/* SPDX-License-Identifier: Apache-2.0
 *
 * All-to-all, of equal blocks and of rows by counts, ring shift, barrier, broadcast, gather, and
 * the all-reduce of scalars (fold).
 */
#include <math.h>

#include "comm/group.h"

ech_status ech_group_all_to_all(ech_group *group, const void *to, void *from, size_t bytes)
{
    ech_comm_batch *batch = &group->batch[0];
    const char *out = to;
    char *in = from;
    size_t N = (size_t)group->size, index = (size_t)group->index;
    ech_group_begin(group, ECH_CALL_ALL_TO_ALL);
    if (bytes == 0) return ECH_OK;
    for (size_t k = 1; k < N; k++) {
        size_t source = (index + N - k) % N;
        ech_comm_batch_receive(group, batch, (int)source, in + source * bytes, bytes);
    }
    for (size_t k = 1; k < N; k++) { /* not all to member 0 first */
        size_t destination = (index + k) % N;
        ech_comm_batch_send(group, batch, (int)destination, out + destination * bytes, bytes);
    }
    ECH_TRY(ech_comm_batch_put(group, batch));
    ech_group_copy(group, in + index * bytes, out + index * bytes, bytes);
    return ech_comm_batch_wait(group, batch);
}

/* ---- counted rows ---- */

void ech_row_sums(const int32_t *table, int64_t splits, int64_t each, int64_t *rows)
{
    for (int64_t m = 0; m < splits; m++) {
        rows[m] = 0;
        for (int64_t i = 0; i < each && rows[m] >= 0; i++) {
            int32_t n = table[m * each + i];
            rows[m] = n < 0 ? n : rows[m] + n;
        }
    }
}

static ech_status check_counts(const ech_group *group, const ech_row_exchange *x)
{
    int own = group->of->ranks[group->index];
    const char *name = ech_comm_call_name(group->call), *over = group->of->name;
    const int64_t *packed = x->packs ? x->receives : x->sends;
    int64_t all = 0;
    for (int i = 0; i < group->size; i++) {
        int peer = group->of->ranks[i];
        if (x->receives[i] < 0 || x->receives[i] > x->most)
            ECH_FAIL(ECH_EINTERNAL,
                     "%s over group %s: rank %d says that it sends %lld rows to rank %d, which has "
                     "room for %lld of each",
                     name, over, peer, (long long)x->receives[i], own, (long long)x->most);
        if (x->sends[i] < 0 || x->sends[i] > x->most)
            ECH_FAIL(
                ECH_EINTERNAL,
                "%s over group %s: rank %d would send %lld rows to rank %d, which has room for "
                "%lld of each",
                name, over, own, (long long)x->sends[i], peer, (long long)x->most);
        all += packed[i];
    }
    if (all > x->room)
        ECH_FAIL(ECH_EINTERNAL, "%s over group %s: rank %d says that it has %lld rows of %lld",
                 name, over, own, (long long)all, (long long)x->room);
    if (x->sends[group->index] == x->receives[group->index]) return ECH_OK;
    ECH_FAIL(ECH_EINTERNAL, "%s over group %s: rank %d sends itself %lld rows and receives %lld",
             name, over, own, (long long)x->sends[group->index],
             (long long)x->receives[group->index]);
}

/* Where the rows of split i in the slice begin. */
static size_t slice_at(const ech_row_exchange *x, const int64_t *counts, bool packed, int i)
{
    int64_t row = packed ? x->first : i * x->rows;
    for (int k = 0; k < i && packed; k++) row += counts[k];
    return (size_t)row * x->bytes;
}

static void enter_rows(ech_group *group, const ech_row_exchange *x, int member, bool sends,
                       char *buffer)
{
    const int64_t *counts = sends ? x->sends : x->receives;
    int64_t rows = ech_row_slice(x, counts[member]);
    if (rows < 0) return;
    char *at = buffer + slice_at(x, counts, sends != x->packs, member);
    ech_comm_batch_enter(group, &group->batch[0], member, sends, at, (size_t)rows * x->bytes);
}

static void copy_own_rows(const ech_group *group, const ech_row_exchange *x, const char *out,
                          char *in)
{
    int own = group->index;
    int64_t rows = ech_row_slice(x, x->sends[own]);
    if (rows > 0)
        ech_group_copy(group, in + slice_at(x, x->receives, x->packs, own),
                       out + slice_at(x, x->sends, !x->packs, own), (size_t)rows * x->bytes);
}

ech_status ech_group_exchange_rows(ech_group *group, const void *to, void *from,
                                   const ech_row_exchange *x)
{
    ech_comm_batch *batch = &group->batch[0];
    char *out = (char *)(uintptr_t)to;
    int N = group->size, index = group->index;
    ech_group_begin(group, ECH_CALL_EXCHANGE_ROWS);
    ECH_TRY(check_counts(group, x));
    if (x->room == 0 || x->bytes == 0) return ECH_OK;
    for (int k = 1; k < N; k++) enter_rows(group, x, (index + N - k) % N, false, from);
    for (int k = 1; k < N; k++) /* not all to member 0 first */
        enter_rows(group, x, (index + k) % N, true, out);
    ECH_TRY(ech_comm_batch_put(group, batch));
    copy_own_rows(group, x, out, from);
    return ech_comm_batch_wait(group, batch);
}

ech_status ech_group_shift(ech_group *group, int distance, const void *to_send, void *to_receive,
                           size_t bytes)
{
    ech_comm_batch *batch = &group->batch[0];
    int N = group->size, index = group->index;
    int far = (distance % N + N) % N;
    ech_group_begin(group, ECH_CALL_SHIFT);
    if (bytes == 0) return ECH_OK;
    if (far == 0) {
        ech_group_copy(group, to_receive, to_send, bytes);
        return ECH_OK;
    }
    ech_comm_batch_receive(group, batch, (index + N - far) % N, to_receive, bytes);
    ech_comm_batch_send(group, batch, (index + far) % N, to_send, bytes);
    return ech_comm_batch_wait(group, batch);
}

ech_status ech_group_slide(ech_group *group, int distance, const void *to_send, void *to_receive,
                           size_t bytes)
{
    ech_comm_batch *batch = &group->batch[0];
    int N = group->size, index = group->index;
    ECH_ASSERT(distance != 0);
    ech_group_begin(group, ECH_CALL_SLIDE);
    if (bytes == 0) return ECH_OK;
    if (ech_collective_slides(-distance, N, index))
        ech_comm_batch_receive(group, batch, index - distance, to_receive, bytes);
    if (ech_collective_slides(distance, N, index))
        ech_comm_batch_send(group, batch, index + distance, to_send, bytes);
    return ech_comm_batch_wait(group, batch);
}

/* ---- barrier ---- In round k every member signals member index + 2^k; after ceil(log2 N) rounds
 * each has heard, directly or indirectly, from all. Source: Hensgen, Finkel, Manber 1988, "Two
 * algorithms for barrier synchronization". */

ech_status ech_group_barrier(ech_group *group)
{
    ech_group_begin(group, ECH_CALL_BARRIER);
    ech_comm_batch *batch = &group->batch[0];
    int N = group->size;
    for (int far = 1; far < N; far *= 2) {
        int from = (group->index - far + N) % N, to = (group->index + far) % N;
        ech_comm_batch_enter(group, batch, from, false, NULL, 0);
        ech_comm_batch_enter(group, batch, to, true, NULL, 0);
        ECH_TRY(ech_comm_batch_wait(group, batch));
    }
    return ECH_OK;
}

/* ---- broadcast ---- A binomial tree. Indices are relative to the root: in the round of distance
 * `far`, members below `far` have the data and send it to relative + far. If ranks are spared the
 * root sends to all, since in a tree a dead rank would cut off others. */

ech_status ech_group_spread(ech_group *group, int root, void *data, size_t bytes)
{
    ech_comm_batch *batch = &group->batch[0];
    int N = group->size;
    int relative = (group->index - root + N) % N;
    bool flat = group->comm->spared_end > 0;
    int far = 1;
    if (relative > 0) {
        while (!flat && far * 2 <= relative) far *= 2;
        int from = flat ? 0 : relative - far;
        ech_comm_batch_receive(group, batch, (from + root) % N, data, bytes);
        ECH_TRY(ech_comm_batch_wait(group, batch));
        far = flat ? N : far * 2;
    }
    for (; relative + far < N; far = flat ? far + 1 : far * 2)
        ech_comm_batch_send(group, batch, (relative + far + root) % N, data, bytes);
    return ech_comm_batch_wait(group, batch);
}

ech_status ech_group_broadcast(ech_group *group, int root, void *data, size_t bytes)
{
    ECH_ASSERT(root >= 0 && root < group->size);
    ech_group_begin(group, ECH_CALL_BROADCAST);
    return ech_group_spread(group, root, data, bytes);
}

/* ---- gather ---- */

ech_status ech_group_gather(ech_group *group, void *whole, const void *mine, size_t bytes)
{
    ech_comm_batch *batch = &group->batch[0];
    char *to = whole;
    ech_group_begin(group, ECH_CALL_GATHER);
    if (bytes == 0) return ECH_OK;
    if (group->index > 0) ech_comm_batch_send(group, batch, 0, mine, bytes);
    for (int i = 1; i < group->size && group->index == 0; i++)
        ech_comm_batch_receive(group, batch, i, to + (size_t)i * bytes, bytes);
    ECH_TRY(ech_comm_batch_put(group, batch));
    if (group->index == 0) ech_group_copy(group, to, mine, bytes);
    return ech_comm_batch_wait(group, batch);
}

bool ech_group_has_missed(const ech_group *group, int member)
{
    return member > 0 && group->batch[0].at[member - 1].lost;
}

/* ---- fold ---- Member 0 gathers the values, sums them or takes the maximum in member order, and
 * broadcasts the result, so all have the same bits. */

static double fold_two(ech_fold fold, double a, double b)
{
    if (fold == ECH_FOLD_SUM) return a + b;
    if (isnan(a) || isnan(b)) return (double)NAN;
    return a > b ? a : b;
}

static ech_status fold_some(ech_group *group, ech_fold fold, double *values, int n)
{
    ech_comm_batch *batch = &group->batch[0];
    size_t bytes = (size_t)n * sizeof *values;
    int others = group->index == 0 ? group->size - 1 : 0;
    double *from = group->folds;
    if (group->index > 0) ech_comm_batch_send(group, batch, 0, values, bytes);
    for (int i = 0; i < others; i++)
        ech_comm_batch_receive(group, batch, i + 1, from + i * ECH_FOLD_VALUES, bytes);
    ECH_TRY(ech_comm_batch_wait(group, batch));
    for (int i = 0; i < others; i++)
        for (int v = 0; v < n && !ech_group_has_missed(group, i + 1); v++)
            values[v] = fold_two(fold, values[v], from[i * ECH_FOLD_VALUES + v]);
    return ech_group_spread(group, 0, values, bytes);
}

ech_status ech_group_fold(ech_group *group, ech_fold fold, double *values, int n)
{
    ech_group_begin(group, ECH_CALL_FOLD);
    for (int at = 0; at < n; at += ECH_FOLD_VALUES) {
        int some = n - at < ECH_FOLD_VALUES ? n - at : ECH_FOLD_VALUES;
        ECH_TRY(fold_some(group, fold, values + at, some));
    }
    return ECH_OK;
}
