/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists by which replicas that are apart meet, with one fault each: the checker refuses all of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "schedule/fixture.h"

#include "base/log.h"

static fixture make(void)
{
    ech_config *config = sample_config("gpt2");
    sample_set(config, "parallel.data=2 parallel.pipeline=2 training.global_batch_size=4 "
                       "training.micro_batch_size=1 training.check_every=0 optimizer.name=sgd "
                       "parallel.strategy=diloco parallel.bucket_bytes=1KiB");
    return fixture_plan(config, 4);
}

static ech_list *list_of(const fixture *f, int rank)
{
    return &f->plan[rank]->list[ECH_LIST_SYNC];
}

static bool is_refused(const fixture *f, int rank)
{
    bool quiet = ech_log_set_quiet(true);
    bool refused = ech_check_list(f->plan[rank], list_of(f, rank)) != ECH_OK;
    ech_log_set_quiet(quiet);
    return refused;
}

static void each_bucket_meets(void **state)
{
    (void)state;
    fixture f = make();
    for (int rank = 0; rank < f.ranks; rank++) {
        size_t buckets = f.plan[rank]->bucket.n;
        assert_true(buckets > 3 && list_of(&f, rank)->step.n == 3 * buckets);
        assert_false(is_refused(&f, rank));
    }
    const ech_plan *plans[4] = {f.plan[0], f.plan[1], f.plan[2], f.plan[3]};
    assert_int_equal(ech_check_plans(plans, 4, ECH_LIST_SYNC), ECH_OK);
    fixture_free(&f);
}

/* Every step once as another one's, without its waits, over another group, or of another bucket. */
static void faults_are_refused(void **state)
{
    (void)state;
    fixture f = make();
    ech_list *list = list_of(&f, 0);
    for (size_t s = 0; s < list->step.n; s++) {
        ech_step *step = &list->step.at[s], was = *step;
        step->index = was.index ? 0 : 1;
        assert_true(is_refused(&f, 0));
        *step = was;
        step->kind = was.kind == ECH_STEP_DIFFERENCE ? ECH_STEP_OUTER_UPDATE : ECH_STEP_DIFFERENCE;
        assert_true(is_refused(&f, 0));
        *step = was;
        step->group = ECH_GROUP_DATA;
        assert_int_equal(is_refused(&f, 0), was.kind == ECH_STEP_REDUCE_GRADS);
        *step = was;
        step->afters = 0;
        assert_int_equal(is_refused(&f, 0), was.afters > 0);
        *step = was;
        for (int i = 0; i < was.accesses; i++) {
            ech_access *access = &list->access.at[was.first_access + i], old = *access;
            const ech_value *value = ech_plan_value(f.plan[0], list, old.value);
            if (value->kind == ECH_MEMORY_SCRATCH) continue;
            access->value = f.plan[0]->scalars;
            assert_true(is_refused(&f, 0));
            *access = old;
        }
    }
    list->step.n--;
    assert_true(is_refused(&f, 0));
    fixture_free(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_bucket_meets),
                                       cmocka_unit_test(faults_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
