/* SPDX-License-Identifier: Apache-2.0
 *
 * What tensor, sequence and context parallelism cost, counted: the collectives of a layer are the papers'
 * (Shoeybi et al. 2019; Korthikanti et al. 2022; Li et al. 2021; Jacobs et al. 2023), and counters of runs
 * equal what plans say.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "app/grid_run.h"
#include "app/train/train.h"
#include "layer/layers.h"
#include "schedule/traffic.h"
#include "share.h"

enum { RANKS = 8, RUNS = 2, B = 2, T = 24, C = 32, H = 8, D = C / H, L = 2, M = 3 };

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

/* ---- what happens ---- */

typedef struct counted {
    ech_comm_count wanted[RANKS][GROUPS], sent[RANKS][GROUPS];
    int64_t messages[RANKS], wanted_messages[RANKS];
    int steps; /* training steps of a run of the train list */
} counted;

static ech_status validate(ech_compared_run *c, int rank)
{
    ech_corpus *data;
    ech_loader *loader;
    ECH_TRY(ech_design_open_data(c->design, ECH_SPLIT_VALID, &data));
    ech_loader_options options = ech_design_reads(c->design, rank, false, 50);
    ECH_TRY(ech_loader_create(data, &options, 0, &loader));
    ech_exec_set_loader(c->session.exec, ECH_EVALUATE, loader);
    ech_status status = ech_exec_run(c->session.exec, ECH_LIST_VALIDATE, 0);
    ech_loader_destroy(loader);
    ech_corpus_close(data);
    return status;
}

static ech_status count_rank(void *context, int rank, ech_compared_run *c)
{
    counted *n = context;
    const ech_plan *plan = c->session.plan;
    int turns = c->design->schedule->turns;
    if (rank == 0) n->steps = turns;
    for (int run = 0; run < RUNS; run++)
        ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, run * turns));
    n->messages[rank] = ech_exec_message_count(c->session.exec).bytes;
    n->wanted_messages[rank] = RUNS * ech_plan_traffic_along(plan, ECH_TRAFFIC_PIPELINE).bytes;
    ECH_TRY(validate(c, rank));
    for (int g = 0; g < GROUPS; g++) {
        ech_comm_count train = planned(plan, ECH_LIST_TRAIN, groups[g]);
        ech_comm_count once = planned(plan, ECH_LIST_VALIDATE, groups[g]);
        n->wanted[rank][g].calls = RUNS * train.calls + once.calls;
        n->wanted[rank][g].bytes = RUNS * train.bytes + once.bytes;
        n->sent[rank][g] = ech_exec_channel_count(c->session.exec, groups[g], ECH_LANE_COLLECTIVE,
                                                  ECH_COMM_COLLECTIVES);
    }
    return ECH_OK;
}

static const char *const grids[] = {
    "parallel.tensor=2",
    "parallel.tensor=8 parallel.sequence=true",
    "parallel.tensor=4 parallel.sequence=keep parallel.data=2",
    "parallel.context=4",
    "parallel.context=2 parallel.tensor=2 parallel.context_method=ulysses",
    "parallel.context=2 parallel.tensor=4 parallel.sequence=true",
    "parallel.tensor=3 parallel.pipeline=2 model.num_attention_heads=6 model.hidden_size=36 "
    "model.num_key_value_heads=6",
    "parallel.tensor=2 parallel.pipeline=4 parallel.schedule=gpipe",
    "parallel.tensor=2 parallel.pipeline=3 parallel.schedule=zero-bubble parallel.sequence=true",
    "parallel.tensor=4 parallel.pipeline=2 parallel.schedule=naive parallel.sequence=keep",
    "parallel.tensor=2 parallel.pipeline=3 parallel.schedule=interleaved "
    "parallel.virtual_stages=2 model.num_hidden_layers=4",
    "parallel.tensor=2 parallel.pipeline=2 parallel.context=2 parallel.schedule=pipedream",
    "parallel.tensor=2 parallel.pipeline=2 parallel.schedule=pipedream-2bw parallel.sequence=true",
    "parallel.tensor=2 parallel.pipeline=2 parallel.data=2 memory.sequence_chunks=2",
    "parallel.tensor=2 parallel.stage_replicas=[1,2] memory.sequence_chunks=3",
    "parallel.tensor=2 parallel.pipeline=2 parallel.context=2 data.document_mask=true",
    "parallel.tensor=2 parallel.pipeline=2 parallel.context=2 memory.recompute=full",
    "parallel.tensor=2 parallel.sequence=true memory.recompute=selective",
};

static void check_counters(const char *family, const char *more)
{
    char words[700];
    counted n = {0};
    if (!share_takes()) return;
    print_words(more, strstr(more, "data=2") ? 2 : 1, words, sizeof words);
    grid_run(family, words, count_rank, &n);
    for (int r = 0; r < RANKS; r++) {
        for (int g = 0; g < GROUPS; g++)
            if (n.sent[r][g].bytes != n.wanted[r][g].bytes ||
                n.sent[r][g].calls != n.wanted[r][g].calls)
                fail_msg("%s with %s: rank %d sends %lld bytes in %lld collectives over its %s "
                         "group, planned were %lld in %lld",
                         family, more, r, (long long)n.sent[r][g].bytes,
                         (long long)n.sent[r][g].calls, ech_layout_group_name(groups[g]),
                         (long long)n.wanted[r][g].bytes, (long long)n.wanted[r][g].calls);
        assert_int_equal(n.messages[r], n.wanted_messages[r]);
    }
    assert_true(n.sent[0][0].bytes + n.sent[0][1].bytes > 0);
}

static void test_counters_equal_plans(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        if (!share_takes_of(i, sizeof grids / sizeof *grids)) continue;
        check_counters("gpt2", grids[i]);
        check_counters("llama", grids[i]);
    }
    check_counters("llama", "parallel.tensor=4 model.num_key_value_heads=2");
    check_counters("llama", "parallel.tensor=8 model.num_key_value_heads=1 parallel.sequence=true");
}

/* ---- flows: what plans say of each axis, collective and group ---- */

enum { INSIDE, SUMS, SCATTERS, GATHERS, MESSAGES, COUNTS, COPIES = COUNTS };

/* Inside of blocks a channel's collectives of all kinds are counted as one. Messages between stages: of the world. */
typedef struct flow_counts {
    ech_comm_count of[ECH_GROUPS][COUNTS];
} flow_counts;

static void count_all(const ech_exec *exec, flow_counts *out)
{
    static const struct {
        ech_lane lane;
        ech_comm_counted kind;
    } channels[COUNTS] = {[INSIDE] = {ECH_LANE_COLLECTIVE, ECH_COMM_COLLECTIVES},
                          [SUMS] = {ECH_LANE_REDUCE, ECH_COMM_REDUCES},
                          [SCATTERS] = {ECH_LANE_REDUCE, ECH_COMM_SCATTERS},
                          [GATHERS] = {ECH_LANE_GATHER, ECH_COMM_GATHERS}};
    *out = (flow_counts){0};
    for (int g = 0; g < ECH_GROUPS; g++)
        for (int c = 0; c < MESSAGES; c++)
            out->of[g][c] = ech_exec_channel_count(exec, (ech_layout_group)g, channels[c].lane,
                                                   channels[c].kind);
    out->of[ECH_GROUP_WORLD][MESSAGES] = ech_exec_message_count(exec);
}

static ech_flow planned_flow(const ech_traffic *traffic, int group, int count)
{
    ech_flow tensor = ech_traffic_of(&traffic[ECH_TRAFFIC_TENSOR], ECH_FLOW_ANY, group);
    ech_flow context = ech_traffic_of(&traffic[ECH_TRAFFIC_CONTEXT], ECH_FLOW_ANY, group);
    const ech_traffic *data = &traffic[ECH_TRAFFIC_DATA];
    return count == INSIDE     ? (tensor.calls ? tensor : context)
           : count == SUMS     ? ech_traffic_of(data, ECH_COLLECTIVE_ALL_REDUCE, group)
           : count == SCATTERS ? ech_traffic_of(data, ECH_COLLECTIVE_REDUCE_SCATTER, group)
           : count == GATHERS  ? ech_traffic_of(data, ECH_COLLECTIVE_ALL_GATHER, group)
                              : ech_traffic_of(&traffic[ECH_TRAFFIC_PIPELINE], ECH_FLOW_ANY, group);
}

/* A rank is a thread, so it says what is wrong by its status. */
static ech_status compare(int count, int group, ech_flow planned, ech_comm_count before,
                          ech_comm_count after)
{
    int64_t calls = after.calls - before.calls, bytes = after.bytes - before.bytes;
    int64_t messages = after.messages - before.messages;
    bool same = planned.messages < 0 || RUNS * planned.messages == messages;
    if (RUNS * planned.calls != calls || RUNS * planned.bytes != bytes || !same)
        ECH_FAIL(ECH_EINTERNAL,
                 "kind %d over %s: %d times %lld calls, %lld messages and %lld bytes were planned, "
                 "%lld, %lld and %lld sent",
                 count, ech_layout_group_name((ech_layout_group)group), RUNS,
                 (long long)planned.calls, (long long)planned.messages, (long long)planned.bytes,
                 (long long)calls, (long long)messages, (long long)bytes);
    return ECH_OK;
}

static void count_copies(const ech_exec *exec, int64_t bytes[ECH_TRAFFIC_AXES])
{
    for (ech_traffic_axis axis = 0; axis < ECH_TRAFFIC_AXES; axis++) {
        ech_space from, to;
        bool copies = ech_traffic_copies(axis, &from, &to);
        bytes[axis] = copies ? ech_exec_copied(exec, from, to) : 0;
    }
}

static ech_status compare_copies(const ech_traffic *traffic, const int64_t *before,
                                 const int64_t *after)
{
    ech_space from, to;
    for (ech_traffic_axis axis = 0; axis < ECH_TRAFFIC_AXES; axis++)
        if (ech_traffic_copies(axis, &from, &to) &&
            RUNS * ech_traffic_all(&traffic[axis]).bytes != after[axis] - before[axis])
            ECH_FAIL(ECH_EINTERNAL, "%s: %lld bytes copied, planned were %d times %lld",
                     ech_traffic_axis_name(axis), (long long)(after[axis] - before[axis]), RUNS,
                     (long long)ech_traffic_all(&traffic[axis]).bytes);
    return ECH_OK;
}

static ech_status compare_flows(void *context, int rank, ech_compared_run *c)
{
    int64_t *bytes = context; /* [COUNTS + 1] of rank 0 */
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    flow_counts before, after;
    int64_t copied[ECH_TRAFFIC_AXES], copied_then[ECH_TRAFFIC_AXES];
    count_copies(c->session.exec, copied);
    ech_plan_traffic(c->session.plan, traffic);
    count_all(c->session.exec, &before);
    for (int run = 0; run < RUNS; run++)
        ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, run));
    count_all(c->session.exec, &after);
    count_copies(c->session.exec, copied_then);
    ECH_TRY(compare_copies(traffic, copied, copied_then));
    if (rank == 0) bytes[COPIES] = ech_traffic_all(&traffic[ECH_TRAFFIC_TO_HOST]).bytes;
    for (int g = 0; g < ECH_GROUPS; g++)
        for (int k = 0; k < COUNTS; k++) {
            ech_flow planned = planned_flow(traffic, g, k);
            ECH_TRY(compare(k, g, planned, before.of[g][k], after.of[g][k]));
            if (rank == 0) bytes[k] += planned.bytes;
        }
    return ECH_OK;
}

static const struct {
    const char *words;
    bool reduces, scatters, copies; /* as rank 0 does */
} flows[] = {
    {"parallel.data=2 parallel.tensor=2 parallel.pipeline=2", true, false, false},
    {"parallel.data=2 parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true parallel.zero=1",
     false, true, false},
    {"parallel.data=2 parallel.tensor=2 parallel.context=2 parallel.sequence=true parallel.zero=2 "
     "parallel.reduction=ring",
     false, true, false},
    {"parallel.data=2 parallel.pipeline=2 parallel.zero=2 model.tie_word_embeddings=true "
     "precision.compute=bf16 precision.reduce=bf16",
     false, true, false},
    {"parallel.data=2 parallel.tensor=2 parallel.zero=3", false, true, false},
    {"parallel.data=2 parallel.context=2 parallel.reduction=torus", true, false, false},
    {"parallel.data=2 parallel.context=2 parallel.zero=2 parallel.reduction=torus", false, true,
     false},
    {"parallel.data=3 parallel.reduction=hierarchical parallel.node_ranks=2", true, false, false},
    {"parallel.data=2 parallel.tensor=2 parallel.context=2 parallel.zero=3 "
     "parallel.reduction=hierarchical parallel.node_ranks=4",
     false, true, false},
    {"parallel.data=2 parallel.zero=1 memory.offload_optimizer=host", false, true, true},
    {"parallel.data=2 precision.compute=bf16 memory.offload_optimizer=host", true, false, true},
};

static void test_flows_equal_counters(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof flows / sizeof *flows; i++) {
        char words[700];
        int64_t bytes[COUNTS + 1] = {0};
        if (!share_takes()) continue;
        print_words(flows[i].words, 2, words, sizeof words);
        grid_run("llama", words, compare_flows, bytes);
        assert_int_equal(bytes[SUMS] > 0, flows[i].reduces);
        assert_int_equal(bytes[SCATTERS] > 0, flows[i].scatters);
        assert_int_equal(bytes[GATHERS] > 0, flows[i].scatters);
        assert_int_equal(bytes[COPIES] > 0, flows[i].copies);
    }
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
    bool quiet = ech_log_set_quiet(true);
    assert_int_equal(fixture_run(config, grid_ranks(config), ech_train_rank, &training), ECH_OK);
    ech_log_set_quiet(quiet);
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
static void test_metrics_count_collectives(void **state)
{
    (void)state;
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

/* Collectives of one layer's micro-batch: forward, and all behind it. */
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
static ech_status count_tensor(void *context, int rank, ech_compared_run *c)
{
    int64_t *bytes = context;
    ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, 0));
    bytes[rank] = ech_exec_channel_count(c->session.exec, ECH_GROUP_TENSOR, ECH_LANE_COLLECTIVE,
                                         ECH_COMM_COLLECTIVES)
                      .bytes;
    return ECH_OK;
}

static void check_step(const char *family, const char *more, int t, int64_t a_layer)
{
    char words[700];
    int64_t bytes[RANKS] = {0}, unit = (int64_t)B * T * C * (t - 1) / t;
    print_words(more, 1, words, sizeof words);
    grid_run(family, words, count_tensor, bytes);
    for (int r = 0; r < t; r++)
        assert_int_equal(bytes[r],
                         M * ((L * a_layer + 4) * unit + B * T * ECH_LOSS_STATS * (t - 1)) *
                             (int64_t)sizeof(double));
}

/* Without sequence parallelism two all-reduces forward and two backward; with it as many pairs of an
 * all-gather and a reduce-scatter, which are the same bytes, and two gathers more where W's inputs are
 * not kept. Each all-reduce sends 2 b s h (t - 1) / t elements. */
static void test_tensor_collectives(void **state)
{
    (void)state;
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

/* Keys and values go around the ring once for the forward, once for the backward, and their gradients once:
 * c - 1 steps each. Ulysses: queries, keys, values and outputs change hands forward, their gradients back. */
static void test_context_collectives(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counters_equal_plans),
        cmocka_unit_test(test_flows_equal_counters),
        cmocka_unit_test(test_metrics_count_collectives),
        cmocka_unit_test(test_tensor_collectives),
        cmocka_unit_test(test_context_collectives),
    };
    return cmocka_run_group_tests(tests, grid_setup, fixture_teardown);
}
