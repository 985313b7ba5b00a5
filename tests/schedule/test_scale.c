/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of hundreds of ranks, made, checked and simulated in one process.
 */
#include <time.h>

#include "check/check.h"
#include "schedule/fixture.h"
#include "schedule/near.h"
#include "schedule/traffic.h"
#include "simulate/simulate.h"
#include "unit.h"

static double seconds(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

static ech_simulation check_and_simulate(const ech_plan *const *plans, int n)
{
    ech_costs unit = {.seconds = false};
    ech_simulation simulation;
    double begin = seconds(), checked_each, checked;
    for (int rank = 0; rank < n; rank++)
        assert_int_equal(ech_check_list(plans[rank], &plans[rank]->list[ECH_LIST_TRAIN]), ECH_OK);
    checked_each = seconds();
    assert_int_equal(ech_check_plans(plans, n, ECH_LIST_TRAIN), ECH_OK);
    checked = seconds();
    assert_int_equal(ech_check_queues(plans, n, ECH_LIST_TRAIN), ECH_OK);
    double in_queues = seconds();
    assert_int_equal(ech_simulate(plans, n, ECH_LIST_TRAIN, &unit, &simulation), ECH_OK);
    print_message("%d ranks: lists checked in %.2f s, all together in %.2f s, in queues in %.2f s, "
                  "simulated in "
                  "%.2f s\n",
                  n, checked_each - begin, checked - checked_each, in_queues - checked,
                  seconds() - in_queues);
    print_message("ends after %.0f units, bubble %.4f\n", simulation.end, simulation.bubble);
    return simulation;
}

/* Outlines: steps of every rank, without values. One block a virtual stage, tables and head
 * included. */
static void outline(fixture_shape shape, const ech_plan **plans, fixture *f)
{
    int ranks = fixture_world(&shape);
    double begin = seconds();
    assert_int_equal(fixture_try(fixture_shape_config(&shape), ranks, f), ECH_OK);
    for (int rank = 0; rank < ranks; rank++) {
        ech_plan_request request = fixture_request(f, rank);
        ech_plan *plan = NULL;
        request.outline = true;
        assert_int_equal(ech_checked_plan_create(&request, &plan), ECH_OK);
        plans[rank] = plan;
    }
    print_message("%d ranks: planned in %.2f s\n", ranks, seconds() - begin);
}

static void discard(const ech_plan **plans, int n, ech_simulation *simulation, fixture *f)
{
    ech_simulation_free(simulation);
    for (int rank = 0; rank < n; rank++) ech_plan_destroy((ech_plan *)plans[rank]);
    free(plans);
    fixture_free(f);
}

TEST(test_512_stages)
{
    enum { P = 512, M = 512 };
    fixture f;
    const ech_plan **plans = ech_calloc(P, sizeof *plans);
    outline((fixture_shape){.schedule = "1f1b", .stages = P, .micro_batches = M, .layers = P - 2},
            plans, &f);
    ech_simulation s = check_and_simulate(plans, P);
    /* Narayanan et al. 2021 (arXiv:2104.04473), §2.2.1. */
    assert_near(s.end, 3.0 * (M + P - 1), 1e-9); /* blocks are sums of their parts */
    assert_near(s.bubble, (P - 1.0) / (M + P - 1.0), 1e-12);
    int64_t bytes = 0;
    for (int rank = 0; rank < P; rank++) {
        assert_int_equal(s.in_flight[rank], P - rank);
        assert_near(s.busy[rank], 3.0 * M, 1e-9);
        bytes += ech_plan_traffic_along(plans[rank], ECH_TRAFFIC_PIPELINE).bytes;
    }
    assert_int_equal(s.link.n, 2 * (P - 1));
    for (size_t i = 0; i < s.link.n; i++) {
        assert_int_equal(s.link.at[i].messages, M);
        bytes -= s.link.at[i].bytes;
    }
    assert_int_equal(bytes, 0);
    discard(plans, P, &s, &f);
}

TEST(test_interleaved)
{
    enum { P = 64, V = 4, M = 256 };
    fixture f;
    const ech_plan **plans = ech_calloc(P, sizeof *plans);
    outline((fixture_shape){.schedule = "interleaved",
                            .stages = P,
                            .chunks = V,
                            .micro_batches = M,
                            .layers = P * V - 2},
            plans, &f);
    ech_simulation s = check_and_simulate(plans, P);
    assert_near(s.end, 3.0 * (V * M + P - 1), 1e-9);
    assert_near(s.bubble, (P - 1.0) / (V * M + P - 1.0), 1e-12);
    discard(plans, P, &s, &f);
}

/* Every axis at once, under the rules of queues. */
TEST(test_1024_ranks)
{
    enum { RANKS = 1024 };
    static const char *const schedules[] = {"1f1b", "interleaved", "zero-bubble"};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        fixture f;
        const ech_plan **plans = ech_calloc(RANKS, sizeof *plans);
        outline((fixture_shape){.schedule = schedules[i],
                                .stages = 8,
                                .chunks = i == 1 ? 2 : 0,
                                .data = 16,
                                .context = 4,
                                .tensor = 2,
                                .micro_batches = 8,
                                .layers = 30},
                plans, &f);
        ech_simulation s = check_and_simulate(plans, RANKS);
        discard(plans, RANKS, &s, &f);
    }
}
