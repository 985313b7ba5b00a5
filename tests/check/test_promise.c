/* SPDX-License-Identifier: Apache-2.0
 *
 * What the checker proves of updates by what protocols promise, not by the planner's formulas:
 * plans of every protocol keep it, and each of these faults is refused though all of the plan
 * agrees on it.
 */
#include <string.h>

#include "check/promise.h"
#include "schedule/fixture.h"
#include "schedule/operands.h"
#include "schedule/refused.h"
#include "unit.h"

/* ---- sound plans ---- */

#define EXPERTS "model.num_local_experts=4 parallel.expert=2 parallel.data=2 "
static const struct {
    const char *architecture;
    int ranks;
    const char *more;
} sound[] = {
    {"gpt2", 2, "parallel.data=2 parallel.zero=0"},
    {"gpt2", 4, "parallel.data=2 parallel.pipeline=2 parallel.zero=1"},
    {"gpt2", 4, "parallel.data=2 parallel.pipeline=2 parallel.zero=2"}, /* a tied table */
    {"gpt2", 2, "parallel.data=2 parallel.zero=3"},
    {"llama", 4, "parallel.data=2 parallel.tensor=2 model.num_key_value_heads=1 parallel.zero=1"},
    {"llama", 4, "parallel.data=2 parallel.context=2 parallel.zero=2"},
    {"mixtral", 2, EXPERTS "parallel.zero=1"},
    {"mixtral", 2, EXPERTS "parallel.zero=1 model.moe_gate=bias"},
    {"gpt2", 4, "parallel.data=2 parallel.tensor=2 parallel.zero=1 optimizer.name=adafactor"},
    {"gpt2", 4, "parallel.data=2 parallel.tensor=2 parallel.zero=1 parallel.compression=powersgd"},
    {"gpt2", 2, "parallel.data=2 parallel.compression=topk"},
    {"gpt2", 2, "parallel.data=2 parallel.zero=1 memory.offload_optimizer=host"},
    {"gpt2", 2,
     "parallel.data=2 parallel.zero=2 memory.offload_optimizer=disk "
     "memory.offload_parameters=disk"},
    {"gpt2", 2, "parallel.data=2 parallel.strategy=central_storage"},
    {"gpt2", 4,
     "parallel.data=2 parallel.tensor=2 parallel.strategy=local_sgd "
     "parallel.sync_every=2 checkpoint.every=2"},
    {"gpt2", 2,
     "parallel.data=2 parallel.strategy=easgd parallel.outer_momentum=0 checkpoint.every=2"},
    {"gpt2", 4, "parallel.data=2 parallel.strategy=parameter_server parallel.servers=2"},
    {"gpt2", 4,
     "parallel.data=2 parallel.strategy=asp parallel.servers=2 "
     "parallel.server_sync=false parallel.flush_every=2"},
    {"gpt2", 4,
     "parallel.data=2 parallel.strategy=parameter_server parallel.servers=2 "
     "parallel.backup_workers=1 parallel.flush_every=2"},
    {"gpt2", 2,
     "parallel.data=2 parallel.strategy=hogwild parallel.flush_every=2 "
     "optimizer.name=sgd"},
};
enum { SOUND = sizeof sound / sizeof *sound };

static fixture open_fixture(const char *architecture, int ranks, const char *more)
{
    ech_config *config = sample_config(architecture);
    sample_set(config, "training.global_batch_size=4 training.micro_batch_size=1 "
                       "training.check_every=0 training.steps=4 parallel.bucket_bytes=1KiB");
    sample_set(config, more);
    fixture f;
    if (fixture_try(config, ranks, &f) != ECH_OK) fail_msg("%s: %s", more, ech_last_error());
    for (int rank = 0; rank < ranks; rank++) {
        ech_plan_request request = fixture_request(&f, rank);
        f.plan[rank] = ech_plan_create(&request);
    }
    return f;
}

static const ech_list *list_of(const fixture *f, int rank)
{
    return &f->plan[rank]->list[ECH_LIST_TRAIN];
}

static ech_status check_all(const fixture *f)
{
    for (int rank = 0; rank < f->ranks; rank++)
        ECH_TRY(ech_check_list(f->plan[rank], list_of(f, rank)));
    return ech_check_plans(fixture_plans(f), f->ranks, ECH_LIST_TRAIN);
}

TEST(every_protocol_is_kept)
{
    bool seen[ECH_PROTOCOLS] = {false}, tied = false, commits = false, alone = false;
    for (int i = 0; i < SOUND; i++) {
        fixture f = open_fixture(sound[i].architecture, sound[i].ranks, sound[i].more);
        const ech_plan *plan = f.plan[0];
        seen[plan->layout->protocol] = true;
        for (size_t b = 0; b < plan->bucket.n; b++) {
            const ech_bucket *bucket = &plan->bucket.at[b];
            tied |= bucket->group == ECH_GROUP_TIED && plan->zero > 1;
            commits |= bucket->commits && plan->zero > 0;
            alone |= plan->zero > 0 && bucket->shard == bucket->elements;
        }
        if (check_all(&f) != ECH_OK) fail_msg("%s: %s", sound[i].more, ech_last_error());
        fixture_free(&f);
    }
    for (int p = 0; p < ECH_PROTOCOLS; p++) assert_true(seen[p]);
    assert_true(tied && commits && alone);
}

/* ---- faults of a whole plan ---- */

static void refuse(const fixture *f, const char *why)
{
    ech_clear_error();
    expect_message(check_all(f), "schedule check", why);
}

static ech_bucket *bucket_of(const fixture *f, int rank)
{
    return &f->plan[rank]->bucket.at[0];
}

/* Two ranks update the same half, by plans of which each is right alone; nobody the other one. */
TEST(shares_that_do_not_make_up_a_bucket)
{
    fixture f = open_fixture("gpt2", 2, "parallel.data=2 parallel.zero=1");
    assert_int_equal(ech_check_shares(fixture_plans(&f), 2), ECH_OK);
    bucket_of(&f, 1)->own = bucket_of(&f, 0)->own;
    ech_clear_error();
    expect_message(ech_check_shares(fixture_plans(&f), 2), "rank 1",
                   "of bucket 0 of rank 0 is updated once");
    refuse(&f, "of bucket 0 the rank has another shard");
    fixture_free(&f);
}

/* A bucket that takes its sum over other ranks than those that add to its parameters. */
TEST(groups_of_others)
{
    fixture f = open_fixture("gpt2", 4, "parallel.data=2 parallel.tensor=2");
    ech_bucket *bucket = bucket_of(&f, 0);
    assert_int_equal(bucket->group, ECH_GROUP_DATA);
    bucket->group = ECH_GROUP_PARTIAL;
    refuse(&f, "is summed over data x tensor, and other ranks add to");
    bucket->group = ECH_GROUP_CONTEXT;
    refuse(&f, "is summed over context, and other ranks add to");
    fixture_free(&f);
}

/* ---- faults of steps ---- */

static ech_step *step_at(const fixture *f, int rank, ech_step_kind kind)
{
    int s = lists_find(list_of(f, rank), kind, -1);
    assert_true(s >= 0);
    return &list_of(f, rank)->step.at[s];
}

/* The step is one that does nothing to buckets. */
static void leave_out(const fixture *f, int rank, ech_step_kind kind, const char *why)
{
    ech_step *step = step_at(f, rank, kind), was = *step;
    step->kind = ECH_STEP_READ;
    ech_clear_error();
    expect_message(ech_check_buckets(f->plan[rank], list_of(f, rank)), "rank", why);
    *step = was;
}

TEST(steps_that_are_left_out)
{
    fixture f = open_fixture("gpt2", 2, "parallel.data=2 parallel.zero=1");
    leave_out(&f, 0, ECH_STEP_SCATTER_GRADS, "sum over its group is next");
    leave_out(&f, 0, ECH_STEP_NORM, "comes before the norm of bucket");
    leave_out(&f, 0, ECH_STEP_CLIP, "clip factor is next");
    leave_out(&f, 0, ECH_STEP_UPDATE, "update is next");
    leave_out(&f, 0, ECH_STEP_GATHER_WEIGHTS, "ends a list without every update");
    fixture_free(&f);
    f = open_fixture("gpt2", 4, "parallel.data=2 parallel.tensor=2 optimizer.name=adafactor");
    leave_out(&f, 0, ECH_STEP_FOLD, "fold is next");
    fixture_free(&f);
    f = open_fixture("gpt2", 2, "parallel.data=2 parallel.compression=powersgd");
    leave_out(&f, 0, ECH_STEP_RESIDUAL, "residual is next");
    leave_out(&f, 0, ECH_STEP_REDUCE_LEFT, "sum of left factors is next");
    leave_out(&f, 0, ECH_STEP_DECOMPRESS, "decompression is next");
    fixture_free(&f);
}

/* The whole sum is not that of a shard; a shard's sum is not all that a rank without shares
 * updates. */
TEST(sums_of_a_part)
{
    fixture f = open_fixture("gpt2", 2, "parallel.data=2 parallel.zero=0");
    ech_step *reduce = step_at(&f, 0, ECH_STEP_REDUCE_GRADS);
    reduce->kind = ECH_STEP_SCATTER_GRADS;
    ech_clear_error();
    expect_message(ech_check_buckets(f.plan[0], list_of(&f, 0)), "(update bucket",
                   "works on more than the shard that is summed");
    reduce->kind = ECH_STEP_REDUCE_GRADS;
    reduce->group = ECH_GROUP_WORLD;
    ech_clear_error();
    expect_message(ech_check_buckets(f.plan[0], list_of(&f, 0)), "(reduce_grads",
                   "does not meet the ranks of data");
    fixture_free(&f);
}

/* A backward adds to a value of its own, not to that with the sum so far. */
TEST(gradients_apart_from_their_sum)
{
    fixture f = open_fixture("gpt2", 1, "memory.offload_optimizer=host");
    ech_plan *plan = f.plan[0];
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    assert_int_equal(ech_check_buckets(plan, list), ECH_OK);
    int written = -1; /* the last access to gradients of the second micro-batch of a turn */
    for (size_t s = 0; s < list->step.n && list->step.at[s].turn == 0; s++)
        for (int i = 0; i < list->step.at[s].accesses && list->step.at[s].micro == 1; i++) {
            int at = list->step.at[s].first_access + i;
            const ech_value *value = ech_plan_value(plan, list, list->access.at[at].value);
            if (list->access.at[at].write && value->kind == ECH_MEMORY_GRADIENTS) written = at;
        }
    assert_true(written >= 0);
    ech_value other = *ech_plan_value(plan, list, list->access.at[written].value);
    ECH_PUSH(list->value, other);
    list->access.at[written].value = (int)(plan->persistent.n + list->value.n) - 1;
    ech_clear_error();
    expect_message(ech_check_buckets(plan, list), "rank 0", "apart from their sum so far");
    fixture_free(&f);
}

/* ---- versions ---- */

/* With two versions that are kept a turn reads that before the newest (Narayanan et al. 2021),
 * which lies beside it. */
TEST(the_newest_of_two_versions)
{
    lists all = lists_build((lists_spec){.schedule = "pipedream-2bw",
                                         .weights = ECH_WEIGHTS_BUFFERED,
                                         .stages = 1,
                                         .micro_batches = 1,
                                         .turns = 3});
    expect_sound(&all);
    ech_step_kind kinds[] = {ECH_STEP_FORWARD, ECH_STEP_BACKWARD_INPUT, ECH_STEP_BACKWARD_WEIGHT};
    for (int i = 0; i < 3; i++) step_of(&all, 0, kinds[i], 2)->version++;
    expect_list_refused(&all, 0, "(F0.2/0)",
                        "reads version 2 of the weights, and by its schedule should read 1");
    lists_free(&all);
}

/* In an outline no value tells that a forward reads what is gathered: its waits must. */
TEST(a_gather_that_is_not_waited_for)
{
    fixture f = open_fixture("gpt2", 2,
                             "parallel.data=2 parallel.zero=1 parallel.schedule=pipedream "
                             "parallel.flush_every=2");
    ech_plan_request request = fixture_request(&f, 0);
    request.outline = true;
    ech_plan *plan = ech_plan_create(&request);
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    assert_int_equal(ech_check_plan(plan), ECH_OK);
    int forgotten = 0;
    for (size_t s = 0; s < list->step.n; s++)
        for (int i = 0; i < list->step.at[s].afters; i++) {
            int *after = &list->after.at[list->step.at[s].first_after + i], was = *after;
            if (list->step.at[s].kind != ECH_STEP_FORWARD) continue;
            if (list->step.at[was].lane != ECH_LANE_GATHER) continue;
            *after = (int)s - 1;
            ech_clear_error();
            expect_message(ech_check_plan(plan), "(F", "which gathers bucket");
            *after = was;
            forgotten++;
        }
    assert_true(forgotten > 0);
    ech_plan_destroy(plan);
    fixture_free(&f);
}
