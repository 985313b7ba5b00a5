/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks' threads run on cores of their own if there are enough cores. They are not bound if there
 * are too few, if a second such job would find free cores, if the user binds OpenMP's threads, or
 * if parallel.pin is false.
 */

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "base/log.h"
#include "device/cores.h"
#include "unit.h"

enum { MOST = 4 };

typedef struct watched {
    const ech_config *config;
    char binding[MOST][80];
    ech_core_set before[MOST], during[MOST], after[MOST];
} watched;

static ech_status watch_rank(ech_comm *comm, const ech_design *design, void *context)
{
    watched *all = context;
    int me = ech_comm_rank(comm);
    ech_compared_run c = {.design = design};
    all->before[me] = ech_cores_mine();
    ECH_TRY(ech_compared_run_open(&c, comm));
    snprintf(all->binding[me], sizeof all->binding[me], "%s", ech_exec_binding(c.session.exec));
    ech_status status = ech_exec_run(c.session.exec, ECH_LIST_TRAIN, 0);
    all->during[me] = ech_cores_mine();
    ech_compared_run_close(&c);
    all->after[me] = ech_cores_mine();
    return status;
}

static watched watch(int ranks, const char *more)
{
    ech_config *config = fixture_config("gpt2", more);
    watched all = {0};
    assert_int_equal(fixture_run(config, ranks, watch_rank, &all), ECH_OK);
    for (int r = 0; r < ranks; r++) assert_true(ech_cores_are_same(&all.before[r], &all.after[r]));
    ech_config_destroy(config);
    return all;
}

static void forget_binding(void)
{
    static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY",
                                        "KMP_AFFINITY"};
    for (int i = 0; i < 4; i++) unsetenv(names[i]);
}

TEST(ranks_have_cores_of_their_own)
{
    ech_core_set mine = ech_cores_mine();
    int order[ECH_MOST_CORES], cores = ech_cores_count(&mine);
    int whole = ech_cores_order(&mine, 0, order); /* not counting a core's further threads */
    forget_binding();
    for (int ranks = 1; ranks <= MOST; ranks++) {
        watched all = watch(ranks, "parallel.threads=1");
        for (int r = 0; r < ranks; r++) {
            bool fits = ranks <= cores && 2 * ranks > whole;
            assert_string_equal(all.binding[r], fits ? "pinned"
                                                : ranks <= cores
                                                    ? "not pinned: there is room for another job"
                                                    : "not pinned: more threads than cores");
            assert_int_equal(ech_cores_count(&all.during[r]), fits ? 1 : cores);
            for (int other = 0; other < r && fits; other++)
                assert_false(ech_cores_overlap(&all.during[r], &all.during[other]));
        }
    }
}

/* Cores that a job may not use are no room. */
TEST(a_job_with_one_core_is_pinned)
{
    ech_core_set mine = ech_cores_mine();
    int order[ECH_MOST_CORES];
    forget_binding();
    ech_cores_order(&mine, 0, order);
    ech_cores_bind(order, 1);
    watched all = watch(1, "parallel.threads=1");
    ech_cores_bind_set(&mine);
    assert_string_equal(all.binding[0], "pinned");
    assert_int_equal(ech_cores_count(&all.during[0]), 1);
}

TEST(who_binds_threads_himself_is_left_alone)
{
    forget_binding();
    setenv("OMP_PROC_BIND", "close", 1);
    watched all = watch(2, "parallel.threads=1");
    unsetenv("OMP_PROC_BIND");
    assert_string_equal(all.binding[0],
                        "not pinned: an environment variable binds OpenMP's threads");
    assert_true(ech_cores_are_same(&all.before[1], &all.during[1]));
    all = watch(2, "parallel.threads=1 parallel.pin=false");
    assert_string_equal(all.binding[0], "not pinned: parallel.pin is false");
    assert_true(ech_cores_are_same(&all.before[1], &all.during[1]));
}

ALL_TESTS(fixture_setup, fixture_teardown)
