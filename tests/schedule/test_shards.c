/* SPDX-License-Identifier: Apache-2.0
 *
 * Shards of buckets: equal, at multiples of the device's alignment in any type, and of each
 * gradient every element is counted by one rank, on grids drawn at random.
 */

#include "check/check.h"
#include "layout/drawn.h"
#include "schedule/fixture.h"
#include "schedule/states.h"
#include "unit.h"

enum { NARROWEST = 2 }; /* bytes of the narrowest type */

/* Bytes at whose multiples shards begin. With few of them a bucket does not fall into equal shards
 * by itself. */
static int64_t part;

static ech_plan *plan_of(const fixture *f, int rank)
{
    ech_plan_request request = fixture_request(f, rank);
    ech_device_row device = *request.device;
    device.part = (size_t)part;
    request.device = &device;
    request.outline = true;
    ech_plan *plan = NULL;
    assert_int_equal(ech_checked_plan_create(&request, &plan), ECH_OK);
    return plan;
}

static void check_buckets(const fixture *f, const ech_plan *plan)
{
    const int64_t unit = part / NARROWEST;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        ech_membership m =
            ech_layout_membership(f->of.layout, f->of.model, plan->rank, bucket->group);
        int64_t behind = 0;
        for (int i = 0; i < bucket->params; i++) {
            const ech_plan_param *p = &plan->param[plan->bucket_param.at[bucket->first_param + i]];
            assert_int_equal(p->bucket_offset, behind);
            behind += p->elements + p->padding;
        }
        assert_int_equal(behind, bucket->elements);
        assert_int_equal(bucket->shard % unit, 0);
        assert_int_equal(bucket->shard * m.size, bucket->elements);
        assert_int_equal(bucket->own, bucket->shard * m.index);
        assert_in_range(bucket->padding, 0, bucket->params * (unit - 1) + m.size * unit - 1);
    }
}

/* times[elements of the whole parameter]: how many ranks have counted each so far. */
static void count(const fixture *f, const ech_plan *plan, int param, int *times)
{
    ech_held held =
        ech_layout_held(f->of.layout, f->of.model, plan->rank, param, ECH_HELD_GRADIENT, NULL);
    const ech_shape *shape = &f->of.model->param.at[param].shape;
    if (!held.boxes || !held.counts) return;
    int64_t first, n = ech_plan_own(plan, param, &first);
    for (int b = 0; b < held.boxes; b++) {
        ech_box_runs runs = ech_box_split(shape->dims, shape->size, &held.box[b]);
        for (int64_t i = 0; i < runs.count * runs.length; i++) {
            ech_box_offset at = ech_box_run_at(&runs, i / runs.length);
            int64_t local = at.in_memory + i % runs.length;
            times[at.in_whole + i % runs.length] += local >= first && local < first + n;
        }
    }
}

static void check_once(const fixture *f)
{
    int params = (int)f->of.model->param.n;
    int **times = ech_calloc((size_t)params, sizeof *times);
    for (int p = 0; p < params; p++)
        times[p] = ech_calloc((size_t)ech_shape_whole(&f->of.model->param.at[p].shape) + 1,
                              sizeof **times);
    for (int rank = 0; rank < f->ranks; rank++) {
        ech_plan *plan = plan_of(f, rank);
        check_buckets(f, plan);
        for (int p = 0; p < params; p++) count(f, plan, p, times[p]);
        ech_plan_destroy(plan);
    }
    for (int p = 0; p < params; p++) {
        int64_t n = ech_shape_whole(&f->of.model->param.at[p].shape);
        for (int64_t i = 0; i < n; i++)
            if (times[p][i] != 1)
                fail_msg("%s: element %d is counted %d times", f->of.model->param.at[p].name,
                         (int)i, times[p][i]);
        free(times[p]);
    }
    free(times);
}

TEST(test_random_grids)
{
    static const char *const architectures[] = {"gpt2", "llama", "qwen3"};
    drawing d = {.key = {.seed = 20}};
    int checked = 0;
    for (int i = 0; i < 45; i++) {
        ech_config *config = sample_config(architectures[i % 3]);
        int ranks = draw_grid(&d, config);
        if (i % 3 == 0) config->model.num_key_value_heads = config->model.num_attention_heads;
        if (i % 2) sample_set(config, "parallel.sequence=true");
        config->parallel.bucket_bytes = draw(&d, 3) * 2000;
        part = i % 4 ? 64 : 4;
        fixture f = {.of.config = config};
        if (ranks <= 32 && fixture_try(config, ranks, &f) == ECH_OK) {
            check_once(&f);
            checked++;
        }
        fixture_free(&f);
    }
    assert_in_range(checked, 10, 45);
}

/* Sizes that neither the number of owners nor its rounding divides. */
TEST(test_odd_sizes)
{
    for (int data = 3; data <= 7; data += 2) {
        ech_config *config = sample_config("gpt2");
        fixture f = {.of.config = config};
        config->parallel.data = data;
        config->model.hidden_size = 20;
        config->training.global_batch_size = 2 * data;
        part = 4;
        assert_int_equal(fixture_try(config, data, &f), ECH_OK);
        check_once(&f);
        fixture_free(&f);
    }
}
