/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.strategy = central_storage: weights are in shared memory, once in the process, and
 * optimizer states once over all ranks, as planned and as allocated; nobody updates what another
 * rank may still read. That what is trained has the bits of mirrored is probes/bits.c.
 */

#include <stdatomic.h>

#include "app/grid_run.h"
#include "schedule/peaks.h"
#include "schedule/states.h"
#include "unit.h"

#define CENTRAL "parallel.strategy=central_storage "

/* ---- what there is of it ---- */

enum { RANKS = 4, STEPS = 3 };
static const ech_device *under;
static ech_device counting;
static _Atomic int64_t taken, given;
static struct {
    int64_t weights, states; /* bytes, of numbers without padding */
    int64_t arena, shared;   /* of the plan */
    const double *first;     /* number of its first shared parameter; NULL: the rank updates none */
} seen[RANKS];

static ech_status take(size_t bytes, void **out)
{
    taken += (int64_t)bytes;
    return under->alloc(bytes, out);
}

static void give(void *memory, size_t bytes)
{
    if (memory) given += (int64_t)bytes;
    under->release(memory, bytes);
}

static void look(const ech_session *s, int rank)
{
    const ech_plan *plan = s->plan;
    int64_t peak[ECH_MEMORY_KINDS], measured[ECH_MEMORY_KINDS];
    ech_plan_peaks(plan, peak);
    ech_exec_peaks(s->exec, measured);
    assert_true(fixture_peaks_are_planned(s, FIXTURE_TRAINED));
    assert_true(peak[ECH_MEMORY_PARAMETERS_IN_SHARED] > 0 && peak[ECH_MEMORY_PARAMETERS] == 0);
    assert_int_equal(measured[ECH_MEMORY_PARAMETERS_IN_SHARED],
                     peak[ECH_MEMORY_PARAMETERS_IN_SHARED]);
    seen[rank].weights = ech_plan_number_bytes(plan, ECH_MEMORY_PARAMETERS);
    seen[rank].states = ech_plan_number_bytes(plan, ECH_MEMORY_OPTIMIZER);
    seen[rank].arena = plan->arena_bytes[ECH_SPACE_DEVICE];
    seen[rank].shared = plan->arena_bytes[ECH_SPACE_SHARED];
    int64_t own, elements = ech_plan_own(plan, 0, &own);
    ech_tensor first = ech_exec_param(s->exec, 0);
    assert_int_equal(ech_tensor_count(&first), elements);
    seen[rank].first = elements ? (double *)first.data - own : NULL;
}

static ech_status train_rank(ech_comm *comm, const ech_design *design, void *context)
{
    (void)context;
    ech_session s = {0};
    ech_corpus *corpus = NULL;
    ech_loader *loader = NULL;
    ECH_TRY(ech_design_plan(design, ech_comm_rank(comm), false, &s.plan));
    ech_exec_setup setup = {
        .config = design->config, .plan = s.plan, .device = &counting, .comm = comm};
    ech_status status = ech_exec_create(&setup, &s.exec);
    if (status == ECH_OK) status = ech_design_open_data(design, ECH_SPLIT_TRAIN, &corpus);
    if (status == ECH_OK)
        status = ech_session_read(&s, design, corpus, ECH_TRAIN, 0, INT64_MAX, &loader);
    if (status == ECH_OK) status = ech_exec_run(s.exec, ECH_LIST_INIT, 0);
    for (int64_t step = 0; step < STEPS && status == ECH_OK; step++)
        status = ech_exec_run(s.exec, ECH_LIST_TRAIN, step);
    if (status == ECH_OK) look(&s, ech_comm_rank(comm));
    ech_session_destroy(&s);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
    return status;
}

TEST(there_is_one_copy)
{
    counting = *(under = ech_device_find("cpu"));
    counting.alloc = take;
    counting.release = give;
    taken = given = 0;
    ech_config *config = grid_config("llama", CENTRAL "parallel.data=4 parallel.bucket_bytes=1GiB");
    assert_int_equal(fixture_run(config, RANKS, train_rank, NULL), ECH_OK);
    ech_config_destroy(config);
    grid_plans one = grid_plan("llama", "parallel.data=1");
    int64_t all = ech_plan_number_bytes(one.plan[0], ECH_MEMORY_PARAMETERS);
    int64_t weights = 0, states = 0, arenas = 0;
    for (int r = 0; r < RANKS; r++) {
        weights += seen[r].weights;
        states += seen[r].states;
        arenas += seen[r].arena;
        assert_int_equal(seen[r].shared, seen[0].shared);
        assert_true(seen[r].weights > 0 && seen[r].weights < all / 2);
        assert_true(!seen[r].first || seen[r].first == seen[0].first);
    }
    assert_true(all > 100000 && weights == all && states == 2 * all); /* two moments of AdamW */
    assert_true(seen[0].shared >= all && seen[0].shared < all + all / 20);
    assert_int_equal(taken, arenas + seen[0].shared);
    assert_int_equal(given, taken);
    grid_plans_free(&one);
}

/* ---- what the checker finds ---- */

TEST(faults_are_found)
{
    grid_plans g = grid_plan("gpt2", CENTRAL "parallel.data=2");
    ech_plan *plan = g.plan[1];
    ech_list *list = &plan->list[ECH_LIST_TRAIN];

    /* The norm's sum does not wait for the others' squares: they may still compute. */
    int *afters = &grid_step(list, ECH_STEP_NORM_SUM, 0)->afters;
    assert_int_equal(*afters, 1);
    *afters = 0;
    grid_refuse(plan, "does not wait until all ranks have read the weights of bucket");
    *afters = 1;
    assert_int_equal(ech_check_list(plan, list), ECH_OK);

    /* Nobody hears that a shard is there. */
    ech_step *publish = grid_step(list, ECH_STEP_PUBLISH, 0);
    int index = publish->index;
    publish->index = index ? 0 : 1;
    grid_refuse(plan, "(publish bucket");
    publish->index = index;
    assert_int_equal(ech_check_list(plan, list), ECH_OK);
    grid_plans_free(&g);
}

ALL_TESTS(grid_setup, fixture_teardown)
