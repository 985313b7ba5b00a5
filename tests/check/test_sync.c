/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists that synchronize independent replicas get one fault each: the checker refuses all of them.
 */

#include "schedule/fixture.h"
#include "unit.h"

#include "base/log.h"
#include "schedule/operands.h"

static fixture make(const char *strategy)
{
    ech_config *config = sample_config("gpt2");
    sample_set(config, "parallel.data=2 parallel.pipeline=2 training.global_batch_size=4 "
                       "training.micro_batch_size=1 training.check_every=0 optimizer.name=sgd "
                       "parallel.sync_every=2 training.steps=4 checkpoint.every=2 "
                       "parallel.bucket_bytes=1KiB");
    sample_set(config, strategy);
    return fixture_plan(config, 4);
}

static bool is_refused(const fixture *f, int rank, const ech_list *list)
{
    bool refused = ech_check_list(f->plan[rank], list) != ECH_OK;
    return refused;
}

TEST(each_bucket_meets)
{
    fixture f = make("parallel.strategy=gossip");
    for (int rank = 0; rank < f.ranks; rank++) {
        const ech_plan *plan = f.plan[rank];
        size_t buckets = plan->bucket.n;
        assert_true(buckets > 3 && plan->list[ECH_LIST_SYNC].step.n == 3 * buckets);
        assert_true(plan->list[ECH_LIST_GOSSIP].step.n == 2 * buckets);
        assert_false(is_refused(&f, rank, &plan->list[ECH_LIST_SYNC]));
        assert_false(is_refused(&f, rank, &plan->list[ECH_LIST_GOSSIP]));
    }
    const ech_plan *plans[4] = {f.plan[0], f.plan[1], f.plan[2], f.plan[3]};
    assert_int_equal(ech_check_plans(plans, 4, ECH_LIST_SYNC), ECH_OK);
    assert_int_equal(ech_check_plans(plans, 4, ECH_LIST_GOSSIP), ECH_OK);
    fixture_free(&f);
}

/* Every step once as another one's, without its waits, over another group, of another bucket, or on
 * another value. */
static void faults_of(const fixture *f, ech_list *list)
{
    for (size_t s = 0; s < list->step.n; s++) {
        ech_step *step = &list->step.at[s], was = *step;
        step->index = was.index ? 0 : 1;
        assert_true(is_refused(f, 0, list));
        *step = was;
        step->kind = was.kind == ECH_STEP_DIFFERENCE ? ECH_STEP_OUTER_UPDATE : ECH_STEP_DIFFERENCE;
        assert_true(is_refused(f, 0, list));
        *step = was;
        step->group = ECH_GROUP_DATA;
        assert_int_equal(is_refused(f, 0, list), ech_step_gathers(&was));
        *step = was;
        step->afters = 0;
        assert_int_equal(is_refused(f, 0, list), was.afters > 0);
        *step = was;
        for (int i = 0; i < was.accesses; i++) {
            ech_access *access = &list->access.at[was.first_access + i], old = *access;
            const ech_value *value = ech_plan_value(f->plan[0], list, old.value);
            if (value->kind == ECH_MEMORY_SCRATCH) continue;
            access->value = f->plan[0]->scalars;
            assert_true(is_refused(f, 0, list));
            *access = old;
        }
    }
    list->step.n--;
    assert_true(is_refused(f, 0, list));
}

TEST(faults_are_refused)
{
    fixture f = make("parallel.strategy=gossip");
    faults_of(&f, &f.plan[0]->list[ECH_LIST_SYNC]);
    faults_of(&f, &f.plan[0]->list[ECH_LIST_GOSSIP]);
    fixture_free(&f);
    f = make("parallel.strategy=easgd parallel.outer_momentum=0");
    faults_of(&f, &f.plan[0]->list[ECH_LIST_SYNC]);
    faults_of(&f, &f.plan[0]->list[ECH_LIST_RETURN]);
    fixture_free(&f);
}
