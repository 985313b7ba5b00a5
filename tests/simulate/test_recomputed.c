/* SPDX-License-Identifier: Apache-2.0
 *
 * What full recomputation costs on a cluster whose software repeats the whole forward of a layer.
 */
#include "schedule/fixture.h"
#include "schedule/near.h"
#include "simulate/cluster_of.h"
#include "simulate/simulate.h"
#include "unit.h"

/* Seconds of a step's forwards or recomputations of layers. */
static double seconds_of(const ech_plan *plan, const ech_cluster *cluster, ech_phase phase)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    ech_costs costs = ech_costs_of(NULL, NULL, cluster);
    double sum = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool layer = step->block > 0 && step->block < (int)plan->model->block.n - 1;
        if (!layer || (int)phase != ech_step_kind_phase(step->kind)) continue;
        sum += ech_costs_of_step(&costs, plan, step, (ech_participants){1, 0, 0});
    }
    return sum;
}

static void check(const char *more)
{
    fixture f = fixture_pipeline((fixture_shape){
        .schedule = "1f1b", .stages = 1, .micro_batches = 3, .layers = 4, .more = more});
    ech_cluster needed = cluster_of("{bandwidth: 10 GB/s}", ""),
                whole = cluster_of("{bandwidth: 10 GB/s}", "recompute: {outputs: 1}\n");
    double forward = seconds_of(f.plan[0], &needed, ECH_FORWARD),
           again = seconds_of(f.plan[0], &needed, ECH_RECOMPUTE);
    assert_true(again > 0.5 * forward && again < forward);
    assert_near(seconds_of(f.plan[0], &whole, ECH_FORWARD), forward, 0);
    assert_near(seconds_of(f.plan[0], &whole, ECH_RECOMPUTE), forward, 1e-12 * forward);
    fixture_free(&f);
}

TEST(test_segments_of_one_layer)
{
    check("memory.recompute=full memory.recompute_blocks=1");
}

/* All layers but the last of a segment are recomputed whole anyhow. */
TEST(test_segments_of_two_layers)
{
    check("memory.recompute=full memory.recompute_blocks=2");
}

/* Collectives divide R into several steps; the last one is charged. R does not store its input's
 * shard again, which F does. */
TEST(test_tensor_ranks)
{
    fixture f = fixture_pipeline((fixture_shape){.schedule = "1f1b",
                                                 .stages = 1,
                                                 .tensor = 2,
                                                 .micro_batches = 3,
                                                 .layers = 4,
                                                 .more = "memory.recompute=full"});
    ech_cluster whole = cluster_of("{bandwidth: 10 GB/s}", "recompute: {outputs: 1}\n");
    double forward = seconds_of(f.plan[0], &whole, ECH_FORWARD),
           again = seconds_of(f.plan[0], &whole, ECH_RECOMPUTE);
    assert_true(again > 0.8 * forward && again < forward);
    fixture_free(&f);
}

/* Selective recomputation leaves nothing out. */
TEST(test_selective)
{
    fixture f = fixture_pipeline((fixture_shape){.schedule = "1f1b",
                                                 .stages = 1,
                                                 .micro_batches = 3,
                                                 .layers = 4,
                                                 .more = "memory.recompute=selective"});
    ech_cluster needed = cluster_of("{bandwidth: 10 GB/s}", ""),
                whole = cluster_of("{bandwidth: 10 GB/s}", "recompute: {outputs: 1}\n");
    double again = seconds_of(f.plan[0], &needed, ECH_RECOMPUTE);
    assert_true(again > 0);
    assert_near(seconds_of(f.plan[0], &whole, ECH_RECOMPUTE), again, 0);
    fixture_free(&f);
}

ALL_TESTS(NULL, NULL)
