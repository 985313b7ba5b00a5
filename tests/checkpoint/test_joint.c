/* SPDX-License-Identifier: Apache-2.0
 *
 * Joint work of ranks that need very different times: as long as it goes on, nobody loses patience;
 * if it stands still, its rank is named.
 */

#include <time.h>

#include "base/log.h"
#include "base/tick.h"
#include "checkpoint/agree.h"
#include "comm/ranks.h"
#include "unit.h"

enum { RANKS = 3, TICKS = 8 };
static const double deadline = 2;

typedef struct job {
    int slow, fails; /* ranks; -1: none */
    bool silent;     /* the slow one does not tick */
    double seconds;  /* that it takes */
    ech_status end[RANKS];
} job;

static void work(const job *j)
{
    for (int i = 0; i < TICKS; i++) {
        long ns = (long)(j->seconds / TICKS * 1e9);
        nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
        if (!j->silent) ech_tick();
    }
}

static ech_status run_one(ech_comm *comm, void *context)
{
    job *j = context;
    int members[RANKS], rank = ech_comm_rank(comm);
    for (int i = 0; i < RANKS; i++) members[i] = i;
    ech_group *group;
    ech_joint joint;
    ECH_TRY(ech_group_create(comm, "savers", members, RANKS, &group));
    ech_group_set_saves(group);
    ech_comm_set_saving(comm, 40);
    ech_joint_begin(&joint, group);
    if (rank == j->slow) work(j);
    j->end[rank] = ech_joint_end(&joint, rank == j->fails ? ECH_EIO : ECH_OK);
    ech_group_destroy(group);
    return j->end[rank] == ECH_ECOMM ? ECH_ECOMM : ECH_OK;
}

/* Twice as long as a wait may last. */
TEST(test_slow)
{
    for (int slow = 0; slow < 2; slow++) {
        job j = {.slow = slow, .fails = -1, .seconds = 2 * deadline};
        assert_int_equal(ranks_run(RANKS, deadline, run_one, &j, NULL), ECH_OK);
        for (int i = 0; i < RANKS; i++) assert_int_equal(j.end[i], ECH_OK);
    }
}

/* Everybody learns it, but only when the slow one has ended, too. */
TEST(test_failure)
{
    job j = {.slow = 1, .fails = 2, .seconds = deadline};
    assert_int_equal(ranks_run(RANKS, deadline, run_one, &j, NULL), ECH_OK);
    assert_int_equal(j.end[0], ECH_EABORTED);
    assert_int_equal(j.end[1], ECH_EABORTED);
    assert_int_equal(j.end[2], ECH_EIO);
}

TEST(test_standstill)
{
    job j = {.slow = 1, .fails = -1, .silent = true, .seconds = 3 * deadline};
    assert_int_equal(ranks_run(RANKS, deadline, run_one, &j, NULL), ECH_ECOMM);
    for (int i = 0; i < RANKS; i++) assert_int_not_equal(j.end[i], ECH_OK);
}
