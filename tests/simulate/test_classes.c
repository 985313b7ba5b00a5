/* SPDX-License-Identifier: Apache-2.0
 *
 * Classes of ranks: how many there are, and that a simulation of one rank of each is exact.
 */
#include "schedule/fixture.h"
#include "simulate/classes.h"
#include "simulate/cluster_of.h"
#include "unit.h"

static ech_plan *outline(const fixture *f, int rank)
{
    ech_plan_request request = fixture_request(f, rank);
    request.outline = true;
    return ech_plan_create(&request);
}

/* The picture of n plans. Release with free(). */
static char *draw(const ech_plan *const *plans, int n)
{
    ech_simulation simulation;
    ech_timeline timeline;
    ech_text text = {0};
    assert_int_equal(
        ech_simulate(plans, n, ECH_LIST_TRAIN, &(ech_costs){.seconds = false}, &simulation),
        ECH_OK);
    ech_simulation_timeline(&simulation, plans, ECH_LIST_TRAIN, &timeline);
    ech_timeline_finish(&timeline);
    ech_timeline_text(&timeline, 200, 64, &text);
    ech_timeline_free(&timeline);
    ech_simulation_free(&simulation);
    return text.at;
}

/* Ranks without bars of their own are drawn like the first of their class. */
static void assert_same_picture(const ech_plan *const *plans, const ech_layout *layout)
{
    const ech_classes *classes = &layout->classes;
    ECH_FREED const ech_plan **first = ech_calloc((size_t)classes->n, sizeof *first);
    for (int c = 0; c < classes->n; c++) first[c] = plans[classes->first[c]];
    ECH_FREED char *all = draw(plans, layout->world), *some = draw(first, classes->n);
    assert_string_equal(all, some);
}

/* Takes the configuration. Returns the number of classes. */
static int expect_agreement(ech_config *config, int ranks, const ech_cluster *cluster)
{
    fixture f;
    ech_status status = fixture_try(config, ranks, &f);
    if (status != ECH_OK) fail_msg("%s", ech_last_error());
    ECH_FREED ech_plan **plans = ech_calloc((size_t)ranks, sizeof *plans);
    for (int rank = 0; rank < ranks; rank++) plans[rank] = outline(&f, rank);
    const char *differs = classes_disagree((const ech_plan *const *)plans, f.of.layout, f.of.model,
                                           cluster, ECH_LIST_TRAIN);
    if (differs) fail_msg("%s: %s", config->parallel.schedule, differs);
    assert_same_picture((const ech_plan *const *)plans, f.of.layout);
    int classes = f.of.layout->classes.n, counted = 0;
    for (int c = 0; c < classes; c++) counted += f.of.layout->classes.ranks[c];
    assert_int_equal(counted, ranks);
    for (int rank = 0; rank < ranks; rank++) ech_plan_destroy(plans[rank]);
    fixture_free(&f);
    return classes;
}

static int classes_of(fixture_shape shape)
{
    return expect_agreement(fixture_shape_config(&shape), fixture_world(&shape), NULL);
}

TEST(test_all_schedules)
{
    for (int s = 0; s < FIXTURE_SCHEDULES; s++) {
        const char *schedule = fixture_schedules[s];
        fixture_shape shape = {.schedule = schedule,
                               .stages = 4,
                               .chunks = fixture_chunks(schedule),
                               .data = 4,
                               .micro_batches = 8,
                               .turns = fixture_is_asynchronous(schedule) ? 2 : 0};
        assert_int_equal(classes_of(shape), 4);
    }
}

TEST(test_grids)
{
    static const struct {
        fixture_shape shape;
        int classes;
    } cases[] = {
        {{.schedule = "1f1b", .stages = 2, .data = 2, .tensor = 2, .context = 2,
          .micro_batches = 4}, 2},
        {{.schedule = "1f1b", .stages = 4, .data = 4, .tensor = 4, .micro_batches = 6}, 4},
        {{.schedule = "1f1b", .stages = 2, .data = 4, .micro_batches = 4,
          .more = "model.tie_word_embeddings=true"}, 2},
        {{.schedule = "interleaved", .stages = 2, .chunks = 2, .data = 2, .tensor = 2,
          .micro_batches = 4, .more = "parallel.sequence=true parallel.zero=1"}, 2},
        {{.schedule = "gpipe", .stages = 2, .data = 4, .micro_batches = 2,
          .more = "parallel.zero=2"}, 2},
        {{.schedule = "1f1b", .stages = 1, .data = 16, .micro_batches = 2,
          .more = "parallel.zero=3 parallel.node_ranks=4"}, 1},
        /* messages between stages leave the machine for one replica of two */
        {{.schedule = "1f1b", .stages = 3, .data = 2, .micro_batches = 4,
          .more = "parallel.node_ranks=3"}, 6},
        {{.schedule = "1f1b", .stages = 2, .data = 4, .micro_batches = 4,
          .more = "parallel.delay=3:0.25"}, 4},
        /* one rank shares a tensor group with the slow rank, one a data group, and one none */
        {{.schedule = "1f1b", .stages = 1, .data = 2, .tensor = 2, .micro_batches = 2,
          .more = "parallel.delay=3:0.25"}, 4},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int found = classes_of(cases[i].shape);
        if (found != cases[i].classes)
            fail_msg("case %zu: %d classes, not %d", i, found, cases[i].classes);
    }
}

/* Each rank is a class of its own. */
TEST(test_unequal_replicas)
{
    fixture_shape shape = {
        .schedule = "1f1b", .stages = 2, .replicas = "[3,1]", .micro_batches = 6};
    assert_int_equal(classes_of(shape), 4);
}

/* Ranks are alike only if they are so on all levels of a cluster. */
TEST(test_levels)
{
    static const struct {
        fixture_shape shape;
        int classes;
    } cases[] = {
        /* of four tensor groups, two are divided by the border of a unit of eight */
        {{.schedule = "1f1b",
          .stages = 1,
          .data = 4,
          .tensor = 6,
          .micro_batches = 2,
          .more = "model.hidden_size=24 model.num_attention_heads=6"},
         2},
        /* messages between stages leave a unit of eight, or not, by replica */
        {{.schedule = "1f1b", .stages = 4, .data = 3, .tensor = 2, .micro_batches = 4}, 12},
    };
    ech_cluster cluster =
        cluster_of("{ranks: 2, bandwidth: 10 GB/s}, {ranks: 8, bandwidth: 1 MB/s}, "
                   "{bandwidth: 10 kB/s, latency: 1 ms}",
                   "");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_config *config = fixture_shape_config(&cases[i].shape);
        config->parallel.node_ranks = 2;
        int found = expect_agreement(config, fixture_world(&cases[i].shape), &cluster);
        if (found != cases[i].classes)
            fail_msg("case %zu: %d classes, not %d", i, found, cases[i].classes);
    }
}

ALL_TESTS(NULL, NULL)
