/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans say how much memory recomputation saves and how much time it costs: memory of layers'
 * inputs and of segments, the length of segments, working memory of sequence chunks, and the time
 * of pipelines.
 */
#include <math.h>

#include "app/grid_run.h"
#include "schedule/peaks.h"
#include "schedule/segments.h"
#include "simulate/simulate.h"
#include "unit.h"

/* Bytes of activations that one micro-batch of rank 0 keeps: those that live when its forward has
 * ended. */
static int64_t kept_bytes(const ech_plan *plan)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int tick = 0;
    int64_t bytes = 0;
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].kind == ECH_STEP_FORWARD && list->step.at[s].micro == 0)
            tick = list->step.at[s].tick;
    for (size_t v = 0; v < list->value.n; v++) {
        const ech_value *value = &list->value.at[v];
        if (value->kind == ECH_MEMORY_ACTIVATIONS && value->born <= tick && value->dies > tick)
            bytes += value->bytes;
    }
    return bytes;
}

static int count(const ech_plan *plan, ech_step_kind kind)
{
    int n = 0;
    for (size_t s = 0; s < plan->list[ECH_LIST_TRAIN].step.n; s++)
        n += plan->list[ECH_LIST_TRAIN].step.at[s].kind == kind;
    return n;
}

/* All-gathers of one run of the list over tensor ranks. */
static int count_gathers(const ech_plan *plan)
{
    int n = 0;
    for (size_t s = 0; s < plan->list[ECH_LIST_TRAIN].step.n; s++)
        n += plan->list[ECH_LIST_TRAIN].step.at[s].collective == ECH_COLLECTIVE_ALL_GATHER;
    return n;
}

static int count_head_gathers(const ech_model *model)
{
    const ech_block *head = model->block.at[model->block.n - 1];
    int n = 0;
    for (size_t c = 0; c < head->program[ECH_BACKWARD_INPUT].n; c++) {
        const ech_exchange *does = ech_call_exchange(head, &head->program[ECH_BACKWARD_INPUT].at[c],
                                                     ECH_BACKWARD_INPUT, ECH_TRAIN);
        n += does && does->kind == ECH_COLLECTIVE_ALL_GATHER;
    }
    return n;
}

/* ---- one rank ---- */

#define ONE "training.micro_batch_size=2 training.global_batch_size=2 "

TEST(test_kept)
{
    static const char *const families[] = {"gpt2", "llama"};
    for (int i = 0; i < 2; i++) {
        int64_t kept[3];
        static const char *const choices[] = {"none", "selective", "full"};
        for (int c = 0; c < 3; c++) {
            char words[300];
            snprintf(words, sizeof words,
                     ONE "model.num_hidden_layers=12 model.intermediate_size=128 "
                         "precision.compute=fp32 memory.recompute=%s",
                     choices[c]);
            grid_plans g = grid_plan(families[i], words);
            kept[c] = kept_bytes(g.plan[0]);
            grid_plans_free(&g);
        }
        int64_t input = 2 * 24 * 32 * (int64_t)sizeof(float);
        /* Of full: each layer's input, the head's, and the statistics of its norm. */
        int64_t row = 2 * 24 * (int64_t)sizeof(float), statistics = i == 0 ? 2 : 1;
        assert_int_equal(kept[2], 13 * input + statistics * row);
        assert_true(5 * kept[2] <= kept[0]);
        /* Of selective: not attention's output. */
        assert_true(kept[1] <= kept[0] - 12 * input && kept[1] > 5 * kept[2]);
    }
}

typedef struct swept {
    int64_t peak; /* of activations */
    int segments;
} swept;

static swept plan_segments(const char *more)
{
    char words[300];
    swept s = {0};
    snprintf(words, sizeof words, ONE "model.num_hidden_layers=64 memory.recompute=full %s", more);
    grid_plans g = grid_plan("gpt2", words);
    const ech_plan *plan = g.plan[0];
    for (int b = 0; b < (int)plan->model->block.n; b++) s.segments += plan->segment[b] == b;
    int64_t peak[ECH_MEMORY_KINDS];
    ech_plan_peaks(plan, peak);
    s.peak = peak[ECH_MEMORY_ACTIVATIONS];
    assert_int_equal(count(plan, ECH_STEP_RECOMPUTE), 64);
    grid_plans_free(&g);
    return s;
}

/* 64 layers in segments of N keep ceil(64 / N) inputs and the values of N layers. That is least at
 * N = sqrt(64 input / values), which `auto` finds. */
TEST(test_sweep)
{
    int64_t peak[65], least = INT64_MAX;
    swept chosen = plan_segments("");
    int best = 0;
    for (int N = 1; N <= 64; N++) {
        char more[60];
        snprintf(more, sizeof more, "memory.recompute_blocks=%d", N);
        swept s = plan_segments(more);
        assert_int_equal(s.segments, (64 + N - 1) / N);
        peak[N] = s.peak;
        if (s.peak < least) best = N;
        if (s.peak < least) least = s.peak;
    }
    print_message(
        "least at N = %d: %lld bytes; auto: %d segments, %lld bytes; N = 1: %lld, 64: %lld\n", best,
        (long long)least, chosen.segments, (long long)chosen.peak, (long long)peak[1],
        (long long)peak[64]);
    assert_true(chosen.peak <= least + least / 50);
    assert_true(peak[1] > least && peak[8] > least && peak[64] > 4 * least);
}

/* Working memory besides keys and values, of a sequence of 16,384 tokens. */
static int64_t working(int chunks, const char *recompute)
{
    char words[400];
    snprintf(words, sizeof words,
             "training.micro_batch_size=1 training.global_batch_size=1 data.sequence_length=16384 "
             "model.num_hidden_layers=12 model.hidden_size=64 model.intermediate_size=256 "
             "precision.compute=fp32 memory.sequence_chunks=%d memory.device_limit=1TiB %s",
             chunks, recompute);
    grid_plans g = grid_plan("gpt2", words);
    ech_working most = ech_plan_working(g.plan[0]);
    int64_t bytes = most.bytes - most.kind[ECH_MEMORY_KV_CACHE];
    grid_plans_free(&g);
    return bytes;
}

TEST(test_sequence_chunks)
{
    static const char segment[] = "memory.recompute=full memory.recompute_blocks=12";
    int64_t whole = working(1, ""), eight = working(8, "memory.recompute=full");
    int64_t whole_again = working(1, segment), eight_again = working(8, segment);
    print_message("T = 16,384: %lld bytes; in 8 chunks %lld, recomputed %lld; in one segment %lld "
                  "and %lld\n",
                  (long long)whole, (long long)working(8, ""), (long long)eight,
                  (long long)whole_again, (long long)eight_again);
    assert_true(6 * eight <= whole);
    assert_true(6 * eight_again <= whole_again);
}

/* ---- tensor ranks ---- */

/* ZeRO-R's P_a: inputs of segments are kept in t shards, and gathered once for each segment and
 * micro-batch. */
TEST(test_sharded)
{
    for (int N = 1; N <= 2; N++) {
        int64_t stored = 0;
        for (int t = 1; t <= 4; t *= 2) {
            char words[300];
            snprintf(words, sizeof words,
                     ONE "model.num_hidden_layers=4 precision.compute=fp32 parallel.tensor=%d "
                         "memory.recompute=full memory.recompute_blocks=%d",
                     t, N);
            grid_plans g = grid_plan("gpt2", words);
            int64_t input = 2 * 24 * 32 * (int64_t)sizeof(float), kept[ECH_KEPTS];
            ech_plan_kept(g.plan[0], kept);
            /* All but the segments' inputs are stored: those of the head. */
            if (t == 1) stored = kept[ECH_KEPT_STORED] - 4 / N * input;
            assert_int_equal(kept[ECH_KEPT_STORED], stored + (t == 1 ? 4 / N * input : 0));
            assert_int_equal(kept[ECH_KEPT_SHARDED], t == 1 ? 0 : 4 / N * input / t);
            assert_int_equal(kept_bytes(g.plan[0]), kept[ECH_KEPT_STORED] + kept[ECH_KEPT_SHARDED]);
            /* The head gathers statistics of the vocabulary's shards; the rest is one a segment. */
            int head = count_head_gathers(g.design.model);
            assert_int_equal(count_gathers(g.plan[0]), t == 1 ? 0 : head + 4 / N);
            grid_plans_free(&g);
        }
    }
}

/* ---- pipelines ---- */

enum { STAGES = 4 };

static const double again = 0.7;

/* Layers cost one a phase, and their R `again`; nothing else costs anything. */
static double end_of(const grid_plans *g)
{
    ech_profile_block cost[STAGES + 2];
    memset(cost, 0, sizeof cost);
    for (int b = 1; b <= STAGES; b++)
        for (int phase = 0; phase < ECH_PROFILE_PHASES; phase++)
            cost[b].seconds[phase] = phase == ECH_PROFILE_FULL ? again : 1;
    ech_profile profile = {.blocks = STAGES + 2, .block = cost};
    ech_costs costs = ech_costs_of(NULL, &profile, NULL);
    ech_simulation s;
    assert_int_equal(
        ech_simulate((const ech_plan *const *)g->plan, g->ranks, ECH_LIST_TRAIN, &costs, &s),
        ECH_OK);
    double end = s.end;
    ech_simulation_free(&s);
    return end;
}

/* What R costs of each layer, where R of a layer that is a segment of its own costs one. */
static void cost_of_recompute(const char *more, double cost[STAGES + 1])
{
    ech_profile_block block[STAGES + 2];
    char words[200];
    memset(block, 0, sizeof block);
    memset(cost, 0, (STAGES + 1) * sizeof *cost);
    for (int b = 0; b < STAGES + 2; b++)
        block[b].seconds[ECH_PROFILE_SELECTIVE] = block[b].seconds[ECH_PROFILE_FULL] = 1;
    ech_profile profile = {.blocks = STAGES + 2, .block = block};
    ech_costs costs = ech_costs_of(NULL, &profile, NULL);
    snprintf(words, sizeof words, ONE "model.num_hidden_layers=4 %s", more);
    grid_plans g = grid_plan("gpt2", words);
    const ech_list *list = &g.plan[0]->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].kind == ECH_STEP_RECOMPUTE)
            cost[list->step.at[s].block] += ech_costs_of_step(&costs, g.plan[0], &list->step.at[s],
                                                              (ech_participants){1, 0, 0});
    grid_plans_free(&g);
}

/* A profile's seconds are those of a layer alone; where the next layer's R reads its output, the
 * last product comes on top: as much as a fifth to a half of the other three and attention. */
TEST(test_cost)
{
    double cost[STAGES + 1];
    cost_of_recompute("memory.recompute=selective", cost);
    for (int b = 1; b <= STAGES; b++) assert_true(fabs(cost[b] - 1) < 1e-12);
    cost_of_recompute("memory.recompute=full memory.recompute_blocks=1", cost);
    for (int b = 1; b <= STAGES; b++) assert_true(fabs(cost[b] - 1) < 1e-12);
    cost_of_recompute("memory.recompute=full memory.recompute_blocks=2", cost);
    for (int b = 2; b <= STAGES; b += 2) {
        assert_true(fabs(cost[b] - 1) < 1e-12);
        assert_true(cost[b - 1] > 1.2 && cost[b - 1] < 1.5);
    }
}

/* R waits for the gradient, as if it were the beginning of B. */
static void put_inside(ech_plan *plan)
{
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++) {
        ech_step *step = &list->step.at[s];
        if (step->kind != ECH_STEP_RECOMPUTE) continue;
        for (size_t r = 0; r < s; r++)
            if (list->step.at[r].kind == ECH_STEP_RECV_GRAD &&
                list->step.at[r].micro == step->micro) {
                int first = (int)list->after.n;
                for (int i = 0; i < step->afters; i++)
                    ECH_PUSH(list->after, list->after.at[step->first_after + i]);
                ECH_PUSH(list->after, (int)r);
                step->first_after = first;
                step->afters++;
            }
    }
}

/* 1F1B with one layer a stage ends p - 1 R's earlier than with R inside of B: in the drain R is
 * done when the gradient comes. */
TEST(test_ahead)
{
    grid_plans g = grid_plan("gpt2", "training.micro_batch_size=1 training.global_batch_size=8 "
                                     "model.num_hidden_layers=4 parallel.pipeline=4 "
                                     "parallel.partition=[1,1,1,1] memory.recompute=full");
    double ahead = end_of(&g);
    /* m micro-batches and p - 1 stages' fill and drain, in which R takes no time. */
    assert_true(fabs(ahead - ((8 + STAGES - 1) * 3 + 8 * again)) < 1e-9);
    for (int r = 0; r < g.ranks; r++) put_inside(g.plan[r]);
    assert_true(fabs(end_of(&g) - ahead - (STAGES - 1) * again) < 1e-9);
    grid_plans_free(&g);
}

/* ---- the least that fits ---- */

enum { CANDIDATES = 6 };

static const char *const candidates[CANDIDATES] = {
    "memory.recompute=none",
    "memory.recompute=selective",
    "memory.recompute=full memory.recompute_blocks=1",
    "memory.recompute=full memory.recompute_blocks=2",
    "memory.recompute=full memory.recompute_blocks=3",
    "memory.recompute=full"};

static const char deep[] = "training.micro_batch_size=4 training.global_batch_size=16 "
                           "model.num_hidden_layers=24 parallel.pipeline=2 "
                           "model.hidden_size=16 parallel.schedule=gpipe";

/* `auto` is the first of the candidates with which every rank fits, at each limit that one of them
 * needs. */
TEST(test_auto)
{
    int64_t needs[CANDIDATES];
    char words[500];
    int taken[CANDIDATES] = {0};
    for (int c = 0; c < CANDIDATES; c++) {
        snprintf(words, sizeof words, "%s %s", deep, candidates[c]);
        grid_plans g = grid_plan("gpt2", words);
        needs[c] = 0;
        for (int r = 0; r < g.ranks; r++)
            if (g.plan[r]->arena_bytes[ECH_SPACE_DEVICE] > needs[c])
                needs[c] = g.plan[r]->arena_bytes[ECH_SPACE_DEVICE];
        grid_plans_free(&g);
    }
    for (int c = 0; c < CANDIDATES; c++) {
        int wanted = 0;
        while (needs[wanted] > needs[c]) wanted++;
        snprintf(words, sizeof words, "%s memory.recompute=auto memory.device_limit=%lld", deep,
                 (long long)needs[c]);
        grid_plans g = grid_plan("gpt2", words);
        int64_t found = 0;
        for (int r = 0; r < g.ranks; r++)
            if (g.plan[r]->arena_bytes[ECH_SPACE_DEVICE] > found)
                found = g.plan[r]->arena_bytes[ECH_SPACE_DEVICE];
        assert_int_equal(found, needs[wanted]);
        assert_int_equal(g.config->memory.recompute, wanted < 2 ? wanted : ECH_RECOMPUTE_FULL);
        taken[wanted]++;
        grid_plans_free(&g);
    }
    assert_true(taken[0] && taken[1] && taken[2] && taken[3]);
    int64_t least = needs[0];
    for (int c = 1; c < CANDIDATES; c++)
        if (needs[c] < least) least = needs[c];
    snprintf(words, sizeof words, "%s memory.recompute=auto memory.device_limit=%lld", deep,
             (long long)least - 64);
    ech_config *config = grid_config("gpt2", words);
    ech_design design = {0};
    ech_plan *plan = NULL;
    assert_int_equal(ech_design_create(config, fixture_tokenizer, 2, 2, &design), ECH_OK);
    ech_status first = ech_design_plan(&design, 0, false, &plan);
    ech_plan_destroy(plan);
    plan = NULL;
    ech_status second = ech_design_plan(&design, 1, false, &plan);
    ech_plan_destroy(plan);
    assert_true(first != ECH_OK || second != ECH_OK);
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

/* ---- bad input ---- */

static void refuse(const char *words, const char *why)
{
    ech_config *config = grid_config("gpt2", words);
    ech_design design = {0};
    int ranks = grid_ranks(config);
    assert_int_not_equal(ech_design_create(config, fixture_tokenizer, ranks, ranks, &design),
                         ECH_OK);
    assert_string_equal(ech_last_error(), why);
    ech_config_destroy(config);
}

TEST(test_refused)
{
    refuse("memory.recompute=full memory.recompute_blocks=3",
           "command line: memory.recompute_blocks = 3: no stage recomputes more than 2 layers; "
           "use at most 2, or remove this key");
    refuse("memory.recompute=full memory.recompute_blocks=2 parallel.pipeline=2 "
           "parallel.partition=[1,1]",
           "command line: memory.recompute_blocks = 2: no stage recomputes more than 1 layer; "
           "use at most 1, or remove this key");
    refuse(
        "memory.recompute=selective memory.recompute_blocks=2",
        "command line: memory.recompute_blocks = 2: not with memory.recompute = selective: only "
        "memory.recompute = full or auto and memory.invert use this key; remove this key");
}

ALL_TESTS(grid_setup, fixture_teardown)
