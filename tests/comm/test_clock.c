/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks that differ by known spans, on pretended machines: the answer is as near as it says,
 * however long messages take.
 */

#include <math.h>

#include "comm/clock.h"
#include "comm/ranks.h"
#include "unit.h"

typedef struct pretence {
    int machines, first[RANKS_MOST]; /* of each machine; ranks in all at the end */
    int absent;                      /* the last ranks, which take no part */
    double ahead[RANKS_MOST];        /* seconds by which the machine's clock is ahead of rank 0's */
    ech_comm_clock_offset found[RANKS_MOST];
} pretence;

static int machine_of(const pretence *p, int rank)
{
    int m = 0;
    while (rank >= p->first[m + 1]) m++;
    return m;
}

static ech_status agree(ech_comm *comm, void *context)
{
    pretence *p = context;
    int ranks = p->first[p->machines] - p->absent;
    int rank = ech_comm_rank(comm), m = machine_of(p, rank);
    if (rank >= ranks) return ECH_OK;
    ech_machine machine = {p->first[m], p->first[m + 1] - p->first[m]};
    /* Twice: nothing of the first time is left under way. */
    for (int i = 0; i < 2; i++)
        ECH_TRY(ech_comm_clock_agree(comm, ranks, machine, p->ahead[m], &p->found[rank]));
    return ECH_OK;
}

static void check(pretence p)
{
    int ranks = p.first[p.machines];
    assert_int_equal(ranks_run(ranks, 60, agree, &p, NULL), ECH_OK);
    for (int rank = 0; rank < ranks - p.absent; rank++) {
        int m = machine_of(&p, rank);
        const ech_comm_clock_offset *found = &p.found[rank];
        /* The clock was read within the round trip, so that its middle is no further off. */
        assert_true(fabs(found->seconds + p.ahead[m]) <= found->error + 1e-9);
        assert_true(m == 0 ? found->error <= 0 && fabs(found->seconds) <= 0 : found->error > 0);
        assert_memory_equal(found, &p.found[p.first[m]], sizeof *found);
    }
}

TEST(pretended_machines)
{
    check((pretence){.machines = 1, .first = {0, 1}});
    check((pretence){.machines = 1, .first = {0, 3}});
    check((pretence){.machines = 2, .first = {0, 1, 2}, .ahead = {0, 1000.25}});
    check((pretence){.machines = 2, .first = {0, 3, 4}, .ahead = {0, -0.001}});
    check((pretence){.machines = 2, .first = {0, 3, 5}, .absent = 1, .ahead = {0, 7}});
    check((pretence){.machines = 3, .first = {0, 2, 4, 6}, .absent = 2, .ahead = {0, 7, 1}});
    check((pretence){.machines = 2, .first = {0, 3, 4}, .absent = 2, .ahead = {0, 1}});
    check((pretence){.machines = 4, .first = {0, 1, 4, 5, 7}, .ahead = {0, -4096.5, 1e-3, 1e5}});
}

static ech_status ask_machine(ech_comm *comm, void *context)
{
    (void)context;
    ech_machine machine = ech_machine_of(comm);
    RANKS_CHECK(machine.first == 0 && machine.ranks == ech_comm_size(comm));
    return ECH_OK;
}

TEST(threads_are_one_machine)
{
    assert_int_equal(ranks_run(3, 60, ask_machine, NULL, NULL), ECH_OK);
}
