/* SPDX-License-Identifier: Apache-2.0
 *
 * The hierarchical reduction. The members of a machine send their data to its first member, the
 * leader, which adds in member order. The leaders sum around a ring, in which each machine's chunk
 * is its members' shards. Each leader sends the sum to its members. With S bytes and M machines, a
 * leader of L members sends 2 (M - 1) / M S to the next machine and (L - 1) S within its own; each
 * other member sends S. So M machines send each other as much as a ring of M members does, however
 * many members they have.
 */
#include "comm/reduce.h"

/* A machine: members first .. end - 1, the leader first. */
typedef struct machine {
    int number, first, end;
} machine;

static machine machine_at(const ech_lineup *of, int number)
{
    if (!of->machines) return (machine){0, 0, of->size};
    return (machine){number, of->first[number], of->first[number + 1]};
}

static int count_machines(const ech_lineup *of)
{
    return of->machines ? of->machines : 1;
}

static machine machine_of(const ech_lineup *of, int index)
{
    machine m = machine_at(of, 0);
    while (index >= m.end) m = machine_at(of, m.number + 1);
    return m;
}

static machine own_machine(const ech_sum *sum)
{
    ech_lineup of = ech_group_lineup(sum->group);
    return machine_of(&of, sum->group->index);
}

static bool leads(const ech_sum *sum)
{
    return own_machine(sum).first == sum->group->index;
}

/* Members of the largest machine besides its leader. */
static int most_others(const ech_lineup *of)
{
    int most = 0;
    for (int m = 0; m < count_machines(of); m++) {
        machine at = machine_at(of, m);
        if (at.end - at.first - 1 > most) most = at.end - at.first - 1;
    }
    return most;
}

/* The shards of a machine's members, which follow each other. */
static ech_range chunk_of(int64_t n, const ech_lineup *of, int number)
{
    machine m = machine_at(of, number);
    int64_t first = ech_collective_shard_first(n, of->size, m.first);
    int last = m.end - 1;
    return (ech_range){first, ech_collective_shard_first(n, of->size, last) +
                                  ech_collective_shard_count(n, of->size, last) - first};
}

static int64_t longest_chunk(int64_t n, const ech_lineup *of)
{
    int64_t longest = 0;
    for (int m = 0; m < count_machines(of); m++) {
        int64_t here = chunk_of(n, of, m).n;
        if (here > longest) longest = here;
    }
    return longest;
}

/* ---- the ring of leaders ---- */

static int leader_of(const ech_sum *sum, int i)
{
    ech_lineup of = ech_group_lineup(sum->group);
    return machine_at(&of, i).first;
}

static ech_range run_of(const ech_sum *sum, int i, int run)
{
    ech_lineup of = ech_group_lineup(sum->group);
    (void)run; /* the only one */
    return chunk_of(sum->n, &of, i);
}

static ech_ring ring_of(const ech_sum *sum)
{
    ech_lineup of = ech_group_lineup(sum->group);
    return (ech_ring){count_machines(&of),
                      own_machine(sum).number,
                      1,
                      longest_chunk(sum->n, &of),
                      leader_of,
                      run_of};
}

/* ---- within a machine ---- */

/* Segment k of all of x. */
static ech_segment segment_of(const ech_sum *sum, int64_t k)
{
    int64_t n = ech_segment_count(sum->n, k * sum->segment, sum->segment);
    return (ech_segment){.x = sum->x + (size_t)(k * sum->segment) * sum->item,
                         .n = n,
                         .bytes = (size_t)n * sum->wire_item};
}

static char *slot_of(const ech_sum *sum, int64_t k)
{
    machine m = own_machine(sum);
    return ech_sum_slot(sum, k, m.end - m.first - 1);
}

static ech_status begin_add(const ech_sum *sum, int64_t k)
{
    machine m = own_machine(sum);
    ech_comm_batch *batch = ech_sum_batch(sum, sum->scatters, k);
    ech_segment own = segment_of(sum, k);
    char *to = leads(sum) ? slot_of(sum, k) : NULL;
    if (!leads(sum)) ech_sum_send(sum, batch, m.first, own.x, own.n);
    for (int i = m.first + 1; to && i < m.end; i++, to += own.bytes)
        ech_comm_batch_receive(sum->group, batch, i, to, own.bytes);
    return ech_comm_batch_put(sum->group, batch);
}

static ech_status end_add(const ech_sum *sum, int64_t k)
{
    machine m = own_machine(sum);
    ech_segment own = segment_of(sum, k);
    ECH_TRY(ech_comm_batch_wait(sum->group, ech_sum_batch(sum, sum->scatters, k)));
    if (leads(sum) && m.end - m.first > 1)
        ech_add_parts(sum, own.x, own.x, slot_of(sum, k), m.end - m.first - 1, 0, own.n);
    return ECH_OK;
}

/* The leader's x becomes the machine's sum. */
static ech_status add_within(const ech_sum *sum)
{
    int64_t segments = (sum->n + sum->segment - 1) / sum->segment, ahead = ECH_UNDER_WAY - 1;
    for (int64_t k = 0; k < segments + ahead; k++) {
        if (k < segments) ECH_TRY(begin_add(sum, k));
        if (k >= ahead) ECH_TRY(end_add(sum, k - ahead));
    }
    return ECH_OK;
}

/* Copies the leader's x to all members of the machine. */
static ech_status spread(const ech_sum *sum)
{
    machine m = own_machine(sum);
    ech_comm_batch *batch = ech_sum_batch(sum, sum->scatters, 0);
    if (!leads(sum))
        ech_comm_batch_receive(sum->group, batch, m.first, sum->x, (size_t)sum->n * sum->wire_item);
    for (int i = m.first + 1; leads(sum) && i < m.end; i++)
        ech_sum_send(sum, batch, i, sum->x, sum->n);
    return ech_comm_batch_wait(sum->group, batch);
}

/* Each member's shard goes from the leader to it, or the other way. */
static ech_status move_shards(const ech_sum *sum, bool to_leader)
{
    machine m = own_machine(sum);
    int N = sum->group->size, own = sum->group->index;
    ech_comm_batch *batch = ech_sum_batch(sum, sum->scatters, 0);
    for (int i = m.first + 1; i < m.end; i++) {
        if (!leads(sum) && i != own) continue;
        int peer = leads(sum) ? i : m.first;
        int64_t n = ech_collective_shard_count(sum->n, N, i);
        char *x = sum->x + (size_t)ech_collective_shard_first(sum->n, N, i) * sum->item;
        if (leads(sum) != to_leader)
            ech_sum_send(sum, batch, peer, x, n);
        else
            ech_comm_batch_receive(sum->group, batch, peer, x, (size_t)n * sum->wire_item);
    }
    return ech_comm_batch_wait(sum->group, batch);
}

/* ---- the whole and its halves ---- */

static int64_t scratch(size_t item, int64_t n, const ech_lineup *of)
{
    int64_t segment = ech_segment_elements(item, of);
    int64_t within = most_others(of) * ech_segment_count(n, 0, ECH_UNDER_WAY * segment);
    int64_t between =
        count_machines(of) > 1 ? ech_ring_scratch(item, longest_chunk(n, of), 1, of) : 0;
    return within > between ? within : between;
}

/* To the next leader all chunks but its own; from it, to the other members of the machine, all
 * shards but its own. */
static int64_t scattered(int64_t n, const ech_lineup *of, int index)
{
    if (machine_of(of, index).first != index) return n;
    return ech_sum_scattered(n, of, index);
}

/* To the next leader all but its chunk, to each other member of the machine everything. */
static int64_t spread_elements(int64_t n, const ech_lineup *of, machine m)
{
    int next = (m.number + 1) % count_machines(of);
    return n - chunk_of(n, of, next).n + (m.end - m.first - 1) * n;
}

static int64_t gathered(int64_t n, const ech_lineup *of, int index)
{
    machine m = machine_of(of, index);
    if (m.first != index) return ech_collective_shard_count(n, of->size, index);
    return spread_elements(n, of, m);
}

static int64_t sent(int64_t n, const ech_lineup *of, int index)
{
    machine m = machine_of(of, index);
    if (m.first != index) return n;
    return n - chunk_of(n, of, m.number).n + spread_elements(n, of, m);
}

static ech_status run(const ech_sum *sum)
{
    ech_ring ring = ring_of(sum);
    ECH_TRY(add_within(sum));
    if (leads(sum)) ECH_TRY(ech_ring_add(sum, &ring));
    if (leads(sum)) ECH_TRY(ech_ring_gather(sum, &ring));
    return spread(sum);
}

static ech_status scatter(const ech_sum *sum)
{
    ech_ring ring = ring_of(sum);
    ECH_TRY(add_within(sum));
    if (leads(sum)) ECH_TRY(ech_ring_add(sum, &ring));
    ECH_TRY(move_shards(sum, false));
    ech_sum_deliver_all(sum);
    return ECH_OK;
}

static ech_status gather(const ech_sum *sum)
{
    ech_ring ring = ring_of(sum);
    ECH_TRY(move_shards(sum, true));
    if (leads(sum)) ECH_TRY(ech_ring_gather(sum, &ring));
    return spread(sum);
}

const ech_reduction_row ech_reduce_HIERARCHICAL = {
    .part = {[ECH_REDUCTION_WHOLE] = {.scratch = scratch, .sent = sent, .run = run},
             [ECH_REDUCTION_SCATTER] = {.scratch = scratch, .sent = scattered, .run = scatter},
             [ECH_REDUCTION_GATHER] = {.sent = gathered, .run = gather}}};
