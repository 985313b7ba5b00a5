/* SPDX-License-Identifier: Apache-2.0
 *
 * The simulator in seconds, with the costs of a profile, against times worked out by hand.
 */

#include "base/log.h"
#include "schedule/fixture.h"
#include "schedule/lists.h"
#include "schedule/near.h"
#include "simulate/cluster_of.h"
#include "unit.h"

#define ASP                                                                                        \
    "parallel.strategy=asp parallel.server_sync=false parallel.servers=2 parallel.data=2 "         \
    "parallel.flush_every=4 training.check_every=0 parallel.schedule=gpipe"

static ech_simulation simulate(const lists *all, const ech_costs *costs)
{
    ech_simulation simulation;
    assert_int_equal(ech_simulate(lists_plans(all), all->ranks, ECH_LIST_TRAIN, costs, &simulation),
                     ECH_OK);
    return simulation;
}

/* Two stages, one micro-batch: F 3, message 1, F 2, B 4, message 1 beside W 1, B 5, W 7. */
TEST(test_seconds)
{
    ech_profile_block cost[] = {{.seconds = {3, 5, 7}}, {.seconds = {2, 4, 1}}};
    ech_profile profile = {.blocks = 2, .block = cost, .bandwidth = 100, .latency = 0.5};
    const ech_costs costs = ech_costs_of(NULL, &profile, NULL);
    lists all = lists_build((lists_spec){
        .schedule = "gpipe", .stages = 2, .micro_batches = 1, .bytes = 50, .bare = true});
    ech_simulation s = simulate(&all, &costs);
    const ech_list *first = lists_of(&all, 0), *second = lists_of(&all, 1);
    assert_near(s.finish[0][lists_find(first, ECH_STEP_SEND_ACT, 0)], 4, 0);
    assert_near(s.begin[1][lists_find(second, ECH_STEP_FORWARD, 0)], 4, 0);
    assert_near(s.begin[1][lists_find(second, ECH_STEP_BACKWARD_WEIGHT, 0)], 10, 0);
    double sent = 10 + 0.5 + 51.0 / 100;
    assert_near(s.finish[1][lists_find(second, ECH_STEP_SEND_GRAD, 0)], sent, 1e-12);
    assert_near(s.begin[0][lists_find(first, ECH_STEP_BACKWARD_INPUT, 0)], sent, 1e-12);
    assert_near(s.end, sent + 12, 1e-12);
    assert_near(s.busy[0], 15, 1e-12);
    assert_near(s.busy[1], 7, 1e-12);
    assert_near(s.bubble, 1 - 22 / (2 * s.end), 1e-12);
    assert_true(s.seconds);
    ech_simulation_free(&s);
    lists_free(&all);
}

/* A link carries one message at a time, the other direction beside it. Forwards take 1, backwards
 * 1, activations 10 on their way, gradients 11. */
TEST(test_links_are_busy)
{
    ech_profile_block cost[] = {{.seconds = {1, 1, 0}}, {.seconds = {1, 1, 0}}};
    ech_profile profile = {.blocks = 2, .block = cost, .bandwidth = 1};
    const ech_costs costs = ech_costs_of(NULL, &profile, NULL);
    lists all = lists_build((lists_spec){.schedule = "1f1b",
                                         .stages = 2,
                                         .micro_batches = 4,
                                         .bytes = 10,
                                         .bare = true,
                                         .eager = true,
                                         .folded = true});
    ech_simulation s = simulate(&all, &costs);
    const ech_list *first = lists_of(&all, 0), *second = lists_of(&all, 1);
    /* F0.1 is sent after F0.0, though both receives are posted at the same time. */
    assert_near(s.finish[0][lists_find(first, ECH_STEP_SEND_ACT, 0)], 11, 0);
    assert_near(s.begin[0][lists_find(first, ECH_STEP_SEND_ACT, 1)], 2, 0);
    assert_near(s.finish[0][lists_find(first, ECH_STEP_SEND_ACT, 1)], 21, 0);
    /* B0.0 ends at 13, its gradient is there at 24 while the second activation is under way until
     * 21; B0.0 and F0.2 in front: 24 to 26; the third activation until 36. */
    assert_near(s.finish[1][lists_find(second, ECH_STEP_SEND_GRAD, 0)], 24, 0);
    assert_near(s.begin[0][lists_find(first, ECH_STEP_FORWARD, 2)], 25, 0);
    assert_near(s.finish[0][lists_find(first, ECH_STEP_SEND_ACT, 2)], 36, 0);
    ech_simulation_free(&s);
    lists_free(&all);
}

/* A message waits for the end that comes later: here the receive, which is posted after a
 * forward. */
TEST(test_rendezvous)
{
    ech_profile_block cost[] = {{.seconds = {1, 0, 0}}, {.seconds = {20, 0, 0}}};
    ech_profile profile = {.blocks = 2, .block = cost, .latency = 3};
    const ech_costs costs = ech_costs_of(NULL, &profile, NULL);
    lists_spec spec = {
        .schedule = "gpipe", .stages = 2, .micro_batches = 2, .bare = true, .folded = true};
    for (int eager = 0; eager < 2; eager++) {
        spec.eager = eager;
        lists all = lists_build(spec);
        ech_simulation s = simulate(&all, &costs);
        const ech_list *first = lists_of(&all, 0);
        int second_send = lists_find(first, ECH_STEP_SEND_ACT, 1);
        assert_near(s.begin[0][second_send], 2, 0);
        /* F0.0 of stage 1 runs from 4 to 24. */
        assert_near(s.finish[0][second_send], eager ? 7 : 27, 0);
        ech_simulation_free(&s);
        lists_free(&all);
    }
}

/* One stage, three replicas with 2, 1 and 1 of four micro-batches: a reduction begins when the
 * slowest has come, moves 2 (n - 1) / n of its bytes, and ends for all. Each then sums the squares
 * of a third. */
TEST(test_collectives)
{
    static const int replicas[] = {3};
    ech_profile_block cost[] = {{.seconds = {1, 1, 1}}};
    ech_profile profile = {
        .blocks = 1, .block = cost, .bandwidth = 10, .latency = 0.25, .update_seconds = 0.3};
    const ech_costs costs = ech_costs_of(NULL, &profile, NULL);
    lists all = lists_build(
        (lists_spec){.schedule = "1f1b", .stages = 1, .micro_batches = 4, .replicas = replicas});
    ech_simulation s = simulate(&all, &costs);
    double bytes = 10 * 4, reduced = 6 + 0.25 + bytes * 2 * 2 / 3 / 10;
    double normed = reduced + 4 * 4 * 0.3 / 3, folded = normed + 2 * 2 * 0.25;
    for (int rank = 0; rank < 3; rank++) {
        const ech_list *list = lists_of(&all, rank);
        int reduce = lists_find(list, ECH_STEP_REDUCE_GRADS, -1);
        assert_near(s.begin[rank][reduce], rank == 0 ? 6 : 3, 0);
        assert_near(s.finish[rank][reduce], reduced, 1e-12);
        assert_near(s.finish[rank][lists_find(list, ECH_STEP_NORM, -1)], normed, 1e-12);
        assert_near(s.finish[rank][lists_find(list, ECH_STEP_REDUCE, -1)], folded, 1e-12);
    }
    assert_near(s.end, folded + bytes * 0.3 * 2 / 3, 1e-12);
    assert_near(s.bubble, 1 - 12 / (3 * s.end), 1e-12);
    ech_simulation_free(&s);
    lists_free(&all);
}

/* Six ranks on machines of three, 60 bytes; 10 bytes a second within a machine, 2 between. A torus
 * of rows of three: 2 x 2/3 x 60 within and 2 x 1/6 x 60 between. A hierarchy: 2 x 60 to the
 * leader, 60 x 2 / 2 between, 2 x 60 back; halves take the members' shards, 2 x 10, one way.
 * Machines of two share no rows of three. */
TEST(test_reductions)
{
    static const int three[] = {0, 3, 6}, two[] = {0, 2, 4, 6};
    const ech_lineup of = {.size = 6, .machines = 2, .first = three},
                     others = {.size = 6, .machines = 3, .first = two};
    const ech_rates rates = {.node = 3, .inside = 10, .between = 2, .latency = 0.25};
    static const struct {
        ech_reduction reduction;
        ech_reduction_part part;
        double seconds;
    } cases[] = {{ECH_REDUCTION_DIRECT, ECH_REDUCTION_WHOLE, 0.25 + 100.0 / 2},
                 {ECH_REDUCTION_RING, ECH_REDUCTION_GATHER, 0.25 + 50.0 / 2},
                 {ECH_REDUCTION_TORUS, ECH_REDUCTION_WHOLE, 0.5 + 80.0 / 10 + 20.0 / 2},
                 {ECH_REDUCTION_TORUS, ECH_REDUCTION_SCATTER, 0.5 + 40.0 / 10 + 10.0 / 2},
                 {ECH_REDUCTION_HIERARCHICAL, ECH_REDUCTION_WHOLE, 0.75 + 240.0 / 10 + 60.0 / 2},
                 {ECH_REDUCTION_HIERARCHICAL, ECH_REDUCTION_SCATTER, 0.75 + 140.0 / 10 + 30.0 / 2},
                 {ECH_REDUCTION_HIERARCHICAL, ECH_REDUCTION_GATHER, 0.75 + 140.0 / 10 + 30.0 / 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_near(ech_cost_sum(&rates, cases[i].reduction, cases[i].part, 60, of, 0, 5),
                    cases[i].seconds, 1e-12);
    assert_near(ech_cost_sum(&rates, ECH_REDUCTION_TORUS, ECH_REDUCTION_WHOLE, 60, others, 0, 5),
                0.5 + 80.0 / 2 + 20.0 / 2, 1e-12);
    const ech_lineup alone = {.size = 1}, near = {.size = 4};
    assert_near(ech_cost_sum(&rates, ECH_REDUCTION_TORUS, ECH_REDUCTION_WHOLE, 60, alone, 0, 0), 0,
                0);
    assert_near(
        ech_cost_sum(&rates, ECH_REDUCTION_HIERARCHICAL, ECH_REDUCTION_WHOLE, 60, near, 0, 2),
        0.5 + 360.0 / 10, 1e-12);
}

/* A collective takes as long as its busiest member: when windows slide, ranks at the ends of the
 * samples send nothing. */
TEST(test_uneven_collectives)
{
    fixture f =
        fixture_pipeline((fixture_shape){.schedule = "1f1b",
                                         .architecture = "llama",
                                         .stages = 1,
                                         .context = 4,
                                         .micro_batches = 8,
                                         .more = "model.sliding_window=4 data.sequence_length=32"});
    ech_cluster cluster = cluster_of("{bandwidth: 1 MB/s}", "");
    ech_costs costs = ech_costs_of(NULL, NULL, &cluster);
    ech_simulation s;
    int slides = 0;
    assert_int_equal(ech_simulate(fixture_plans(&f), 4, ECH_LIST_TRAIN, &costs, &s), ECH_OK);
    for (int rank = 0; rank < 4; rank++)
        for (size_t i = 0; i < fixture_list(&f, rank)->step.n; i++) {
            const ech_step *step = &fixture_list(&f, rank)->step.at[i];
            if (step->group != ECH_GROUP_CONTEXT || !ech_step_gathers(step)) continue;
            double cost =
                ech_costs_of_step(&costs, f.plan[rank], step, (ech_participants){4, 0, 3});
            assert_true(s.finish[rank][i] - s.begin[rank][i] >= cost - 1e-9);
            slides += cost > 1e-4;
        }
    assert_true(slides > 0);
    ech_simulation_free(&s);
    fixture_free(&f);
}

/* Counts the rank's steps of that kind, whose cost has the latency of 10 ms. */
static int count_latencies(const fixture *f, int rank, ech_step_kind kind, const ech_costs *costs)
{
    int found = 0;
    const ech_list *list = f->plan[rank]->list;
    for (; list < f->plan[rank]->list + ECH_LIST_KINDS; list++)
        for (size_t s = 0; s < list->step.n; s++) {
            if (list->step.at[s].kind != kind) continue;
            double cost = ech_costs_of_step(costs, f->plan[rank], &list->step.at[s],
                                            (ech_participants){4, 0, 3});
            assert_near(cost, 10e-3, 1e-4);
            found++;
        }
    return found;
}

/* Small messages in a cluster have the latency of the level that joins their ranks. */
TEST(test_latencies)
{
    static const struct {
        const char *more;
        ech_step_kind kind;
        int first, n; /* ranks that have such steps */
    } cases[] = {{"parallel.strategy=gossip parallel.sync_every=2 training.check_every=0 "
                  "parallel.data=4",
                  ECH_STEP_NEIGHBOURS, 0, 4},
                 {ASP, ECH_STEP_ANNOUNCE, 0, 2},
                 {ASP, ECH_STEP_SERVE, 2, 2}};
    ech_cluster cluster =
        cluster_of("{ranks: 2, bandwidth: 10 GB/s}, {bandwidth: 10 GB/s, latency: 10 ms}", "");
    ech_costs costs = ech_costs_of(NULL, NULL, &cluster);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        ech_config *config = sample_config("gpt2");
        sample_set(config, "parallel.pipeline=1 model.tie_word_embeddings=false training.steps=8");
        sample_set(config, cases[c].more);
        fixture f = fixture_plan(config, 4);
        for (int rank = 0; rank < 4; rank++) {
            bool has = rank >= cases[c].first && rank < cases[c].first + cases[c].n;
            assert_int_equal(count_latencies(&f, rank, cases[c].kind, &costs) > 0, has);
        }
        fixture_free(&f);
    }
}

TEST(test_wrong_profile)
{
    ech_profile_block cost[1] = {0};
    ech_profile profile = {.blocks = 1, .block = cost};
    const ech_costs costs = ech_costs_of(NULL, &profile, NULL);
    lists all = lists_build((lists_spec){.schedule = "gpipe", .stages = 2, .micro_batches = 1});
    ech_simulation s;
    assert_int_equal(ech_simulate(lists_plans(&all), 2, ECH_LIST_TRAIN, &costs, &s), ECH_EUSAGE);
    lists_free(&all);
}

/* Updates and sums have bars of their own where they take time, and a gap ends a bar. */
TEST(test_timeline_updates)
{
    static const int replicas[] = {2};
    ech_profile_block cost[] = {{.seconds = {1, 1, 1}}};
    ech_profile profile = {.blocks = 1, .block = cost, .latency = 2, .update_seconds = 0.3};
    const ech_costs costs = ech_costs_of(NULL, &profile, NULL);
    lists all = lists_build(
        (lists_spec){.schedule = "gpipe", .stages = 1, .micro_batches = 2, .replicas = replicas});
    ech_simulation s = simulate(&all, &costs);
    ech_timeline t = {0};
    ech_simulation_timeline(&s, lists_plans(&all), ECH_LIST_TRAIN, &t);
    /* F; B with W; the sum of their gradients; NORM; UPDATE after the fold of scalars. */
    assert_int_equal(t.bar.n, 10);
    assert_int_equal(t.bar.at[1].kind, ECH_BAR_BACKWARD);
    assert_near(t.bar.at[1].weight, 1, 1e-12);
    assert_int_equal(t.bar.at[2].kind, ECH_BAR_REDUCTION);
    assert_near(t.bar.at[2].begin, 3, 1e-12);
    assert_near(t.bar.at[2].end, 5, 1e-12);
    assert_int_equal(t.bar.at[3].kind, ECH_BAR_UPDATE);
    assert_near(t.bar.at[3].begin, 5, 1e-12);
    assert_near(t.bar.at[3].end, 5 + 20 * 0.1, 1e-12);
    assert_int_equal(t.bar.at[4].kind, ECH_BAR_UPDATE);
    assert_near(t.bar.at[4].begin, 7 + 4, 1e-12);
    assert_true(t.seconds);
    ech_timeline_free(&t);
    ech_simulation_free(&s);
    lists_free(&all);
}
