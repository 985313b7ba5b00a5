/* SPDX-License-Identifier: Apache-2.0
 *
 * What tensor, sequence and context parallelism cost: the collectives of a layer, in plans, are the
 * papers' (Shoeybi et al. 2019; Korthikanti et al. 2022; Li et al. 2021; Jacobs et al. 2023). That
 * runs send what plans say is probes/counters.c.
 */

#include "app/grid_run.h"
#include "app/train/train.h"
#include "layer/layers.h"
#include "schedule/traffic.h"
#include "unit.h"

enum { B = 2, T = 24, C = 32, H = 8, D = C / H, L = 2, M = 3 };

/* The groups that blocks' collectives use. */
static const ech_layout_group groups[] = {ECH_GROUP_TENSOR, ECH_GROUP_CONTEXT};
enum { GROUPS = sizeof groups / sizeof *groups };

static const char sizes[] = "training.micro_batch_size=2 model.num_hidden_layers=2 "
                            "model.resid_pdrop=0.1 model.attn_pdrop=0.1 training.steps=4 "
                            "model.tie_word_embeddings=false";

/* M micro-batches a data rank. */
static void print_words(const char *more, int data, char *words, size_t n)
{
    snprintf(words, n, "%s training.global_batch_size=%d %s", sizes, B * M * data, more);
}

/* ---- what a list promises ---- */

/* What has come in pieces is made whole tensor by tensor; blocks have one. */
static ech_comm_count planned(const ech_plan *plan, ech_list_kind kind, ech_layout_group group)
{
    const ech_list *list = &plan->list[kind];
    ech_comm_count sum = {0};
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind != ECH_STEP_COLLECTIVE || step->group != group) continue;
        ECH_ASSERT(plan->model->block.at[step->block]->input.n <= 1);
        sum.calls++;
        sum.bytes += step->bytes;
    }
    return sum;
}

/* ---- metrics ---- */

/* bytes_sent of the first step, as training writes it down. */
static int64_t logged_bytes(const char *more)
{
    char words[700], path[300], *text;
    size_t n;
    print_words(more, 1, words, sizeof words);
    ech_config *config = grid_config("gpt2", words);
    ech_training training = {0};
    assert_int_equal(fixture_run(config, grid_ranks(config), ech_train_rank, &training), ECH_OK);
    snprintf(path, sizeof path, "%s/metrics.jsonl", config->log.directory);
    assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_OK);
    const char *at = strstr(text, "\"bytes_sent\":");
    assert_non_null(at);
    int64_t bytes = strtoll(at + strlen("\"bytes_sent\":"), NULL, 10);
    free(text);
    assert_int_equal(ech_file_remove_all(config->log.directory), ECH_OK);
    ech_config_destroy(config);
    return bytes;
}

/* They hold the collectives of blocks and of the loss; what else there is are scalars. */
TEST(test_metrics_count_collectives)
{
    static const char *const shapes[] = {"parallel.tensor=2",
                                         "parallel.tensor=2 parallel.context=2"};
    for (int i = 0; i < 2; i++) {
        char words[700];
        print_words(shapes[i], 1, words, sizeof words);
        grid_plans g = grid_plan("gpt2", words);
        int64_t wanted = ech_plan_traffic_along(g.plan[0], ECH_TRAFFIC_DATA).bytes,
                logged = logged_bytes(shapes[i]);
        for (int k = 0; k < GROUPS; k++)
            wanted += planned(g.plan[0], ECH_LIST_TRAIN, groups[k]).bytes;
        assert_true(logged >= wanted && logged < wanted + wanted / 10);
        grid_plans_free(&g);
    }
}

/* ---- the papers' numbers ---- */

/* Collectives of one layer's micro-batch: in the forward, and after it. */
typedef struct tally {
    int forward[ECH_COLLECTIVES], backward[ECH_COLLECTIVES];
    int64_t elements;
} tally;

static tally tally_of(const ech_plan *plan, int block, int micro)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    tally t = {.elements = 0};
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind != ECH_STEP_COLLECTIVE || step->block != block || step->micro != micro)
            continue;
        ++(step->phase == ECH_FORWARD ? t.forward : t.backward)[step->collective];
        t.elements += step->bytes / (int64_t)ech_dtype_bytes(plan->types.compute);
    }
    return t;
}

/* Wanted collectives of a layer, and what a rank sends for them. */
typedef struct cost {
    ech_collective kind;
    int forward, backward;
} cost;

static void check_layers(const char *family, const char *more, const cost *costs, int n,
                         int64_t elements)
{
    char words[700];
    print_words(more, 1, words, sizeof words);
    grid_plans g = grid_plan(family, words);
    for (int r = 0; r < g.ranks; r++)
        for (int i = 0; i < L * M; i++) {
            tally t = tally_of(g.plan[r], 1 + i / M, i % M);
            int all = 0, named = 0;
            for (int k = 0; k < ECH_COLLECTIVES; k++) all += t.forward[k] + t.backward[k];
            for (int k = 0; k < n; k++) {
                assert_int_equal(t.forward[costs[k].kind], costs[k].forward);
                assert_int_equal(t.backward[costs[k].kind], costs[k].backward);
                named += costs[k].forward + costs[k].backward;
            }
            assert_int_equal(all, named);
            assert_int_equal(t.elements, elements);
        }
    grid_plans_free(&g);
}

/* Bytes that a rank sends over its tensor group in one training step: layers, and beside them the
 * embedding's sum, the head's, and the loss's three numbers a row to every other rank. */
static void check_step(const char *family, const char *more, int t, int64_t a_layer)
{
    char words[700];
    int64_t unit = (int64_t)B * T * C * (t - 1) / t;
    print_words(more, 1, words, sizeof words);
    grid_plans g = grid_plan(family, words);
    for (int r = 0; r < t; r++)
        assert_int_equal(planned(g.plan[r], ECH_LIST_TRAIN, ECH_GROUP_TENSOR).bytes,
                         M * ((L * a_layer + 4) * unit + B * T * ECH_LOSS_STATS * (t - 1)) *
                             (int64_t)sizeof(double));
    grid_plans_free(&g);
}

/* Without sequence parallelism two all-reduces forward and two backward; with it as many pairs of
 * an all-gather and a reduce-scatter, which are the same bytes, and two gathers more where W's
 * inputs are not kept. Each all-reduce sends 2 b s h (t - 1) / t elements. */
TEST(test_tensor_collectives)
{
    static const cost plain[] = {{ECH_COLLECTIVE_ALL_REDUCE, 2, 2}};
    static const cost keep[] = {{ECH_COLLECTIVE_ALL_GATHER, 2, 2},
                                {ECH_COLLECTIVE_REDUCE_SCATTER, 2, 2}};
    static const cost again[] = {{ECH_COLLECTIVE_ALL_GATHER, 2, 4},
                                 {ECH_COLLECTIVE_REDUCE_SCATTER, 2, 2}};
    static const char *const families[] = {"gpt2", "llama", "qwen3"};
    for (int f = 0; f < 3; f++)
        for (int t = 2; t <= 8; t *= 2) {
            char words[3][80];
            int64_t unit = (int64_t)B * T * C * (t - 1) / t;
            for (int i = 0; i < 3; i++)
                snprintf(words[i], sizeof words[i], "parallel.tensor=%d parallel.sequence=%s", t,
                         i == 0   ? "false"
                         : i == 1 ? "keep"
                                  : "true");
            check_layers(families[f], words[0], plain, 1, 8 * unit);
            check_layers(families[f], words[1], keep, 2, 8 * unit);
            check_layers(families[f], words[2], again, 2, 10 * unit);
            check_step(families[f], words[0], t, 8);
            check_step(families[f], words[1], t, 8);
            check_step(families[f], words[2], t, 10);
        }
}

/* Keys and values go around the ring once for the forward, once for the backward, and their
 * gradients once: c - 1 steps each. Ulysses: queries, keys, values and outputs change hands
 * forward, their gradients back. */
TEST(test_context_collectives)
{
    for (int G = 2; G <= H; G *= 4)
        for (int c = 2; c <= 4; c *= 2) {
            char words[200];
            cost ring = {ECH_COLLECTIVE_SHIFT, c - 1, 2 * (c - 1)};
            cost ulysses = {ECH_COLLECTIVE_ALL_TO_ALL, 4, 4};
            int64_t rows = (int64_t)B * T / c;
            snprintf(words, sizeof words, "parallel.context=%d model.num_key_value_heads=%d", c, G);
            check_layers("llama", words, &ring, 1, 3 * (c - 1) * rows * 2 * G * D);
            if (G % c) continue;
            snprintf(words, sizeof words,
                     "parallel.context=%d model.num_key_value_heads=%d "
                     "parallel.context_method=ulysses",
                     c, G);
            check_layers("llama", words, &ulysses, 1, 2 * rows * (2 * C + 2 * G * D) * (c - 1) / c);
        }
}

ALL_TESTS(grid_setup, fixture_teardown)
