/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks whose death the job survives (ech_comm_spare), on one machine and over the network. Folds,
 * gathers and broadcasts of the others go on without them, and all agree whose parts these contain.
 * Messages with a dead rank complete, and say that the rank is lost. The death of a rank that is
 * not spared is an error that names it.
 */

#include "comm/processes.h"
#include "unit.h"

enum { ROUNDS = 40, KILLED_AT = 7, VICTIM = 2 };

typedef struct wanted {
    bool spares; /* the victim, too */
} wanted;

/* *alive: those whose part was in it, alike on all. */
static ech_status meet(ech_group *world, int round, int *alive)
{
    int N = ech_group_size(world), index = ech_group_index(world);
    double sum[3] = {1, index == VICTIM, round}, most[2] = {index, -round};
    int64_t told = index == 0 ? 1000 + round : 0, own = index + 1, all[MOST] = {0};
    ECH_TRY(ech_group_fold(world, ECH_FOLD_SUM, sum, 3));
    ECH_TRY(ech_group_fold(world, ECH_FOLD_MAX, most, 2));
    ECH_TRY(ech_group_broadcast(world, 0, &told, sizeof told));
    ECH_TRY(ech_group_gather(world, all, &own, sizeof own));
    *alive = (int)sum[0];
    RANKS_CHECK(*alive == N - (sum[1] < 1) && sum[2] == *alive * round);
    RANKS_CHECK(most[0] == N - 1 && most[1] == -round && told == 1000 + round);
    for (int i = 0; i < N && index == 0; i++)
        RANKS_CHECK(all[i] == i + 1 || (i == VICTIM && ech_group_has_missed(world, i)));
    return ECH_OK;
}

/* The first send may have left before its rank has noticed the death: then only that it ends is
 * sure. */
static ech_status check_messages(ech_comm *comm)
{
    ech_request request[3];
    int number = 5;
    ECH_TRY(ech_comm_send_start(comm, VICTIM, 3, &number, sizeof number, &request[0]));
    ECH_TRY(ech_comm_receive_start(comm, VICTIM, 3, &number, sizeof number, &request[1]));
    ECH_TRY(ech_comm_wait(comm, request, 2));
    ECH_TRY(ech_comm_send_start(comm, VICTIM, 3, &number, sizeof number, &request[2]));
    ECH_TRY(ech_comm_wait(comm, &request[2], 1));
    RANKS_CHECK(request[1].lost && request[2].lost && number == 5);
    RANKS_CHECK(ech_comm_is_lost(comm, VICTIM) && !ech_comm_is_lost(comm, 1));
    return ECH_OK;
}

static ech_status live(ech_comm *comm, void *context)
{
    const wanted *w = context;
    int N = ech_comm_size(comm), alive = N;
    ech_group *world;
    ech_status st = checks_world(comm, &world);
    ech_comm_spare(comm, 1, w->spares ? N - 1 : VICTIM);
    for (int round = 0; round < ROUNDS && st == ECH_OK; round++) {
        int before = alive;
        if (ech_comm_rank(comm) == VICTIM && round == KILLED_AT) raise(SIGKILL);
        st = meet(world, round, &alive);
        RANKS_CHECK(st != ECH_OK || alive <= before);
    }
    RANKS_CHECK(st != ECH_OK || alive == N - 1);
    if (st == ECH_OK) st = check_messages(comm);
    ech_group_destroy(world);
    return st;
}

static void end_as(bool spares, int ranks, int machines)
{
    wanted w = {spares};
    job j = {.backend = ech_comm_find("ucx"),
             .ranks = ranks,
             .deadline = 60,
             .body = live,
             .context = &w,
             .machines = machines};
    int codes[MOST];
    char *log;
    run(&j, codes, &log);
    for (int r = 0; r < ranks; r++) {
        int expected = r == VICTIM ? -SIGKILL : spares ? 0 : FAILED;
        if (codes[r] != expected)
            fail_msg("%d ranks, %d machines, rank %d: %d\n%s", ranks, machines, r, codes[r], log);
    }
    if (!spares) assert_non_null(strstr(log, "rank 2"));
    free(log);
}

TEST(others_go_on)
{
    end_as(true, 4, 0);
    end_as(true, 4, 2);
    end_as(true, 8, 2);
}

TEST(who_is_not_spared_ends_all)
{
    end_as(false, 4, 0);
}

int main(void)
{
    if (!ech_comm_find("ucx")) {
        puts("skipped: this build is without UCX");
        return 77;
    }
    return unit_run(NULL);
}
