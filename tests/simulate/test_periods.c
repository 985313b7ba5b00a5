/* SPDX-License-Identifier: Apache-2.0
 *
 * A simulation that skips whole periods has the same bits as one of whole lists.
 */
#include "schedule/fixture.h"
#include "simulate/classes.h"
#include "unit.h"

static ech_plan *outline(const fixture *f, int rank)
{
    ech_plan_request request = fixture_request(f, rank);
    request.outline = true;
    return ech_plan_create(&request);
}

static void assert_same(const ech_simulation *some, const ech_simulation *whole,
                        const ech_plan *const *plans)
{
    assert_memory_equal(&some->end, &whole->end, sizeof some->end);
    assert_memory_equal(&some->bubble, &whole->bubble, sizeof some->bubble);
    assert_int_equal(some->link.n, whole->link.n);
    for (int i = 0; i < some->plans; i++) {
        size_t bytes = plans[i]->list[ECH_LIST_TRAIN].step.n * sizeof(double);
        assert_memory_equal(some->begin[i], whole->begin[i], bytes);
        assert_memory_equal(some->finish[i], whole->finish[i], bytes);
        assert_memory_equal(&some->busy[i], &whole->busy[i], sizeof(double));
        assert_memory_equal(&some->products[i], &whole->products[i], sizeof(double));
        assert_memory_equal(some->waits[i], whole->waits[i], sizeof some->waits[i]);
        assert_int_equal(some->in_flight[i], whole->in_flight[i]);
    }
}

/* Simulates with these costs, and returns the number of skipped periods. */
static int64_t compare(const ech_plan *const *plans, int n, const ech_costs *costs)
{
    ech_simulation some, whole;
    assert_int_equal(ech_simulate(plans, n, ECH_LIST_TRAIN, costs, &some), ECH_OK);
    assert_int_equal(ech_simulate_whole(plans, n, ECH_LIST_TRAIN, costs, &whole), ECH_OK);
    assert_int_equal(whole.steady.skipped, 0);
    assert_same(&some, &whole, plans);
    int64_t skipped = some.steady.skipped;
    ech_simulation_free(&some);
    ech_simulation_free(&whole);
    return skipped;
}

/* Skipped periods of a grid, in units and in seconds. */
typedef struct skips {
    int64_t units, seconds;
} skips;

/* more: ranks that are servers. */
static skips skips_of(fixture_shape shape, int more)
{
    fixture f;
    int ranks = fixture_world(&shape) + more;
    ech_status status = fixture_try(fixture_shape_config(&shape), ranks, &f);
    if (status != ECH_OK) fail_msg("%s", ech_last_error());
    ECH_FREED ech_plan **plans = ech_calloc((size_t)ranks, sizeof *plans);
    ech_profile profile;
    ech_costs units = {.seconds = false},
              seconds = classes_costs(f.of.layout, f.of.model, &profile);
    for (int rank = 0; rank < ranks; rank++) plans[rank] = outline(&f, rank);
    const ech_plan *const *at = (const ech_plan *const *)plans;
    skips found = {compare(at, ranks, &units), compare(at, ranks, &seconds)};
    for (int rank = 0; rank < ranks; rank++) ech_plan_destroy(plans[rank]);
    free(profile.block);
    fixture_free(&f);
    return found;
}

/* A schedule that repeats from the first micro-batches on skips nearly all of them. */
TEST(every_schedule)
{
    for (int s = 0; s < FIXTURE_SCHEDULES; s++) {
        const char *schedule = fixture_schedules[s];
        bool spans = fixture_is_asynchronous(schedule);
        fixture_shape shape = {.schedule = schedule,
                               .stages = 4,
                               .chunks = fixture_chunks(schedule),
                               .data = 2,
                               .micro_batches = spans ? 4 : 48,
                               .turns = spans ? 12 : 0};
        int least = spans || strcmp(schedule, "interleaved") == 0 ? 6 : 36;
        skips found = skips_of(shape, 0);
        if (found.units < least) fail_msg("%s: %lld periods", schedule, (long long)found.units);
    }
}

/* `units`, `seconds`: periods that are skipped. There are none where the state does not come back,
 * as slow stages catch up; and where a server has no list that repeats. */
TEST(every_grid)
{
    static const struct {
        fixture_shape shape;
        int servers, units, seconds;
    } cases[] = {
        {{.schedule = "1f1b",
          .stages = 2,
          .data = 2,
          .tensor = 2,
          .context = 2,
          .micro_batches = 24},
         0,
         18,
         18},
        {{.schedule = "1f1b", .stages = 4, .data = 4, .tensor = 4, .micro_batches = 32}, 0, 24, 16},
        {{.schedule = "1f1b",
          .stages = 2,
          .data = 4,
          .micro_batches = 16,
          .more = "model.tie_word_embeddings=true"},
         0,
         10,
         10},
        {{.schedule = "interleaved",
          .stages = 2,
          .chunks = 2,
          .data = 2,
          .tensor = 2,
          .micro_batches = 24,
          .more = "parallel.sequence=true parallel.zero=1"},
         0,
         7,
         6},
        {{.schedule = "gpipe",
          .stages = 2,
          .data = 4,
          .micro_batches = 16,
          .more = "parallel.zero=2"},
         0,
         9,
         0},
        {{.schedule = "1f1b",
          .stages = 1,
          .data = 16,
          .micro_batches = 12,
          .more = "parallel.zero=3 parallel.node_ranks=4"},
         0,
         7,
         7},
        {{.schedule = "1f1b",
          .stages = 3,
          .data = 2,
          .micro_batches = 24,
          .more = "parallel.node_ranks=3"},
         0,
         17,
         13},
        {{.schedule = "1f1b",
          .stages = 2,
          .data = 4,
          .micro_batches = 24,
          .more = "parallel.delay=3:0.25"},
         0,
         18,
         0},
        {{.schedule = "1f1b", .stages = 2, .replicas = "[3,1]", .micro_batches = 48}, 0, 0, 0},
        {{.schedule = "zero-bubble",
          .stages = 8,
          .data = 2,
          .micro_batches = 64,
          .more = "memory.recompute=full"},
         0,
         47,
         0},
        {{.schedule = "1f1b", .stages = 8, .data = 8, .micro_batches = 48, .layers = 12},
         0,
         36,
         36},
        {{.schedule = "1f1b",
          .architecture = "mixtral",
          .stages = 2,
          .data = 4,
          .micro_batches = 16,
          .more = "model.num_local_experts=4 parallel.expert=2"},
         0,
         10,
         10},
        {{.schedule = "1f1b",
          .stages = 1,
          .data = 2,
          .micro_batches = 12,
          .more = "parallel.strategy=parameter_server parallel.servers=2"},
         2,
         0,
         0},
        {{.schedule = "1f1b",
          .stages = 1,
          .data = 2,
          .micro_batches = 4,
          .turns = 6,
          .more = "parallel.strategy=asp parallel.servers=2"},
         2,
         0,
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        skips found = skips_of(cases[i].shape, cases[i].servers);
        if (found.units != cases[i].units || found.seconds != cases[i].seconds)
            fail_msg("case %zu: %lld and %lld periods", i, (long long)found.units,
                     (long long)found.seconds);
    }
}

/* Steps that differ end the part that repeats: here a message of one micro-batch is larger. */
TEST(an_odd_step_is_simulated)
{
    fixture_shape shape = {.schedule = "1f1b", .stages = 2, .micro_batches = 48};
    fixture f = fixture_pipeline(shape);
    ech_profile profile;
    ech_costs costs = classes_costs(f.of.layout, f.of.model, &profile);
    int64_t before = compare(fixture_plans(&f), 2, &costs);
    ech_list *list = &f.plan[0]->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++)
        if (ech_step_sends(&list->step.at[s]) && list->step.at[s].micro == 36)
            list->step.at[s].bytes *= 1000;
    int64_t after = compare(fixture_plans(&f), 2, &costs);
    assert_true(before > after && after > 20);
    free(profile.block);
    fixture_free(&f);
}

ALL_TESTS(NULL, NULL)
