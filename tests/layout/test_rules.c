/* SPDX-License-Identifier: Apache-2.0
 *
 * Grids that do not work: what is said of them, and that the grids offered instead do work.
 */
#include <stdio.h>
#include <string.h>

#include "layout/sample.h"
#include "unit.h"

static ech_status try_keys(const char *architecture, const char *keys, int ranks)
{
    ech_config *config = sample_config(architecture);
    sample s;
    sample_set(config, keys);
    ech_clear_error();
    ech_status status = sample_try(config, ECH_PLACEMENT_LOOP, ranks, &s);
    sample_free(&s);
    return status;
}

static void refuse(const char *architecture, const char *keys, int ranks, const char *message)
{
    assert_int_equal(try_keys(architecture, keys, ranks), ECH_EUSAGE);
    assert_string_equal(ech_last_error(), message);
}

static void accept(const char *architecture, const char *keys, int ranks)
{
    if (try_keys(architecture, keys, ranks) != ECH_OK)
        fail_msg("%s on %d ranks: %s", keys, ranks, ech_last_error());
}

/* ---- words; width 16, 4 heads, feed-forward width 64, 8 tokens, 24 samples, 3 layers ---- */

/* Replicas of both tensor ranks must meet in the same order: on machines of three ranks they would
 * not, and norms' gains of the two ranks differed in the last bit. */
TEST(test_machines_do_not_cut_tensor_ranks)
{
    static const char rest[] = " parallel.reduction=hierarchical parallel.tensor=";
    char keys[200];
    snprintf(keys, sizeof keys, "parallel.node_ranks=3%s2", rest);
    refuse("gpt2", keys, 6,
           "command line: parallel.node_ranks = 3: is no multiple of parallel.tensor = 2: a "
           "hierarchical reduction would add up what tensor ranks share in another order on each; "
           "use 2, or parallel.reduction = direct, ring or torus");
    accept("gpt2", "parallel.node_ranks=3 parallel.reduction=ring parallel.tensor=2", 6);
    for (int node = 2; node <= 8; node += 2) {
        snprintf(keys, sizeof keys, "parallel.node_ranks=%d%s2", node, rest);
        accept("gpt2", keys, 8);
        snprintf(keys, sizeof keys, "parallel.node_ranks=%d%s4", node == 6 ? 1 : node, rest);
        accept("gpt2", keys, 8);
    }
}

TEST(test_tensor)
{
    accept("gpt2", "parallel.tensor=4", 8);
    refuse(
        "gpt2", "parallel.tensor=3", 8,
        "command line: parallel.tensor = 3: 3 tensor ranks do not divide 4 attention heads; "
        "grids that work on 8 ranks: pipeline 1 x data 2 x context 1 x tensor 4, "
        "pipeline 1 x data 4 x context 1 x tensor 2, pipeline 1 x data 1 x context 2 x tensor 4, "
        "pipeline 1 x data 2 x context 2 x tensor 2");
    refuse("llama", "parallel.tensor=4 model.intermediate_size=66 parallel.context_method=ulysses",
           4,
           "command line: parallel.tensor = 4: 4 tensor ranks do not divide a feed-forward width "
           "of 66; grids that work on 4 ranks: pipeline 1 x data 2 x context 1 x tensor 2, "
           "pipeline 1 x data 4 x context 1 x tensor 1, pipeline 1 x data 1 x context 2 x tensor "
           "2, pipeline 1 x data 2 x context 2 x tensor 1");
    const char *twelve = "model.hidden_size=24 model.num_attention_heads=12 "
                         "model.intermediate_size=48 model.num_key_value_heads=2 %s";
    char keys[256];
    snprintf(keys, sizeof keys, twelve, "parallel.tensor=3");
    refuse("llama", keys, 3,
           "command line: parallel.tensor = 3: 3 tensor ranks neither divide 2 key/value heads nor "
           "are a multiple of them; grids that work on 3 ranks: "
           "pipeline 1 x data 3 x context 1 x tensor 1, "
           "pipeline 3 x data 1 x context 1 x tensor 1");
    snprintf(keys, sizeof keys, twelve, "parallel.tensor=6");
    accept("llama", keys, 6); /* a multiple of the key/value heads */
    snprintf(keys, sizeof keys, twelve, "parallel.tensor=12");
    accept("llama", keys, 12);
}

/* Shares of a vocabulary are padded, but nobody is without any. */
TEST(test_vocabulary)
{
    const char *keys = "model.hidden_size=256 model.num_attention_heads=64 parallel.tensor=64";
    refuse("gpt2", keys, 64,
           "command line: parallel.tensor = 64: 64 tensor ranks for a vocabulary of 50; grids that "
           "work on 64 ranks: pipeline 1 x data 2 x context 1 x tensor 32, pipeline 1 x data 4 x "
           "context 1 x tensor 16, pipeline 1 x data 1 x context 2 x tensor 32, pipeline 1 x data "
           "2 x context 2 x tensor 16");
}

TEST(test_context)
{
    accept("gpt2", "parallel.context=4", 4);
    refuse("gpt2", "parallel.context=3", 9,
           "command line: parallel.context = 3: 3 context ranks do not divide 8 tokens; grids that "
           "work on 9 ranks: pipeline 3 x data 3 x context 1 x tensor 1");
    refuse(
        "gpt2", "parallel.context=8 parallel.pipeline=2 parallel.data=1", 16,
        "command line: parallel.context = 8: each of 8 context ranks of a ring has two chunks of "
        "a sequence, and 8 tokens do not divide by 2 x 8; grids that work on 16 ranks: "
        "pipeline 2 x data 2 x context 4 x tensor 1, pipeline 2 x data 1 x context 4 x tensor 2, "
        "pipeline 4 x data 1 x context 4 x tensor 1, "
        "pipeline 2 x data 4 x context 2 x tensor 1");
    refuse(
        "llama", "parallel.context=4 parallel.tensor=2 parallel.context_method=ulysses", 8,
        "command line: parallel.context = 4: 4 context x 2 tensor ranks do not divide 4 attention "
        "heads, as parallel.context_method = ulysses needs; grids that work on 8 ranks: "
        "pipeline 1 x data 2 x context 2 x tensor 2, pipeline 1 x data 2 x context 4 x tensor 1, "
        "pipeline 1 x data 4 x context 1 x tensor 2, "
        "pipeline 1 x data 4 x context 2 x tensor 1");
    refuse(
        "llama", "parallel.context=4 model.num_key_value_heads=2 parallel.context_method=ulysses",
        4,
        "command line: parallel.context = 4: 4 context x 1 tensor ranks do not divide 2 key/value "
        "heads, as parallel.context_method = ulysses needs; grids that work on 4 ranks: "
        "pipeline 1 x data 2 x context 2 x tensor 1, pipeline 1 x data 4 x context 1 x tensor 1, "
        "pipeline 1 x data 2 x context 1 x tensor 2, "
        "pipeline 2 x data 1 x context 2 x tensor 1");
    accept("llama", "parallel.context=4 parallel.context_method=ulysses", 4);
    /* One context rank is no ring: a sequence may have any length. */
    accept("gpt2", "data.sequence_length=7", 1);
}

TEST(test_sequences)
{
    accept("gpt2", "memory.sequence_chunks=4", 2);
    refuse("gpt2", "memory.sequence_chunks=3", 4,
           "command line: memory.sequence_chunks = 3: does not divide data.sequence_length = 8; 2 "
           "would");
    refuse("gpt2", "memory.sequence_chunks=16", 4,
           "command line: memory.sequence_chunks = 16: does not divide data.sequence_length = 8; 8 "
           "would");
    refuse("gpt2", "memory.sequence_chunks=2 parallel.context=2 parallel.data=1", 2,
           "command line: memory.sequence_chunks = 2: not with parallel.context = 2: a sequence is "
           "either processed in chunks or sharded over context ranks; use one of the two; grids "
           "that work on 2 ranks: pipeline 1 x data 2 x context 1 x tensor 1, pipeline "
           "1 x data 1 x context 1 x "
           "tensor 2, pipeline 2 x data 1 x context 1 x tensor 1");
    accept("gpt2", "parallel.sequence=true", 2); /* of one tensor rank: without effect */
    accept("gpt2", "parallel.sequence=keep parallel.tensor=4 training.micro_batch_size=1", 4);
    refuse(
        "gpt2",
        "parallel.sequence=true parallel.tensor=4 training.micro_batch_size=1 "
        "data.sequence_length=6",
        4,
        "command line: parallel.sequence = true: 4 tensor ranks do not divide the 6 rows that a "
        "micro-batch has at a time (micro_batch_size 1 x 6 tokens); grids that work on 4 ranks: "
        "pipeline 1 x data 2 x context 1 x tensor 2, pipeline 1 x data 4 x context 1 x tensor 1, "
        "pipeline 2 x data 1 x context 1 x tensor 2, "
        "pipeline 2 x data 2 x context 1 x tensor 1");
    refuse(
        "gpt2",
        "parallel.sequence=true parallel.tensor=4 training.micro_batch_size=1 "
        "memory.sequence_chunks=4 parallel.pipeline=1",
        4,
        "command line: parallel.sequence = true: 4 tensor ranks do not divide the 2 rows that a "
        "micro-batch has at a time (micro_batch_size 1 x 2 tokens); grids that work on 4 ranks: "
        "pipeline 1 x data 2 x context 1 x tensor 2, pipeline 1 x data 4 x context 1 x tensor 1, "
        "pipeline 2 x data 1 x context 1 x tensor 2, "
        "pipeline 2 x data 2 x context 1 x tensor 1");
}

TEST(test_ranks)
{
    refuse(
        "gpt2", "parallel.tensor=4", 6,
        "command line: parallel.tensor = 4: 4 tensor ranks do not divide 6 ranks; use --ranks 4; "
        "grids that work on 6 ranks: pipeline 1 x data 3 x context 1 x tensor 2, "
        "pipeline 1 x data 6 x context 1 x tensor 1, pipeline 1 x data 3 x context 2 x tensor 1, "
        "pipeline 2 x data 3 x context 1 x tensor 1");
    refuse(
        "gpt2", "parallel.tensor=2", 7,
        "command line: parallel.tensor = 2: 2 tensor ranks do not divide 7 ranks; use --ranks 6; "
        "no grid works on 7 ranks, but on 6: pipeline 1 x data 3 x context 1 x tensor 2, "
        "pipeline 1 x data 6 x context 1 x tensor 1, pipeline 1 x data 3 x context 2 x tensor 1, "
        "pipeline 2 x data 3 x context 1 x tensor 1");
    refuse(
        "gpt2", "parallel.context=2 parallel.tensor=2", 2,
        "command line: parallel.context = 2: 2 context x 2 tensor ranks do not divide 2 ranks; "
        "use --ranks 4; grids that work on 2 ranks: pipeline 1 x data 1 x context 1 x tensor 2, "
        "pipeline 1 x data 1 x context 2 x tensor 1, pipeline 1 x data 2 x context 1 x tensor 1, "
        "pipeline 2 x data 1 x context 1 x tensor 1");
    refuse(
        "gpt2", "parallel.pipeline=3 parallel.tensor=2", 8,
        "command line: parallel.pipeline = 3: 3 stages of 2 ranks each (context x tensor) do not "
        "divide 8 ranks; use --ranks 6; grids that work on 8 ranks: "
        "pipeline 4 x data 1 x context 1 x tensor 2, pipeline 2 x data 2 x context 1 x tensor 2, "
        "pipeline 4 x data 2 x context 1 x tensor 1, "
        "pipeline 2 x data 4 x context 1 x tensor 1");
    refuse(
        "gpt2", "parallel.data=2 parallel.tensor=2", 8,
        "command line: parallel.data = 2: pipeline 1 x data 2 x context 1 x tensor 2 needs 4 "
        "ranks, and 8 were started; use --ranks 4, or leave parallel.data out; grids that work on "
        "8 ranks: pipeline 1 x data 4 x context 1 x tensor 2, "
        "pipeline 1 x data 2 x context 1 x tensor 4, pipeline 1 x data 2 x context 2 x tensor 2, "
        "pipeline 2 x data 2 x context 1 x tensor 2");
    refuse("gpt2", "parallel.stage_replicas=[3,1] parallel.tensor=4", 8,
           "command line: parallel.stage_replicas = [3,1]: 4 replicas of 4 ranks each (context x "
           "tensor) need 16 ranks, and 8 were started; use --ranks 16; grids that work on 8 ranks: "
           "parallel.stage_replicas x context 1 x tensor 2, "
           "parallel.stage_replicas x context 2 x tensor 1");
    /* Far above what integers hold. */
    assert_int_equal(try_keys("gpt2",
                              "model.num_attention_heads=16 model.vocab_size=100000 "
                              "data.sequence_length=100000 parallel.context=50000 "
                              "parallel.data=1000000 parallel.pipeline=1000000",
                              4),
                     ECH_EUSAGE);
    assert_true(sample_error_has("50000 context ranks do not divide 4 ranks"));
}

/* A number without divisors is a ring, no torus, but up to three are as good as one. */
TEST(test_torus)
{
    static const struct {
        const char *keys, *said;
        int ranks;
    } refused[] = {
        {"parallel.data=5", "5 data x context ranks form no torus", 5},
        {"parallel.data=7", "6 or 8 would, or use direct or ring", 7},
        {"parallel.stage_replicas=[2,5]", "5 data x context ranks form no torus", 7},
    };
    static const struct {
        const char *keys;
        int ranks;
    } accepted[] = {{"parallel.data=1", 1},
                    {"parallel.data=3", 3},
                    {"parallel.data=6", 6},
                    {"parallel.data=2 parallel.context=2", 4},
                    {"parallel.stage_replicas=[2,1]", 3}};
    char keys[200];
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        snprintf(keys, sizeof keys,
                 "parallel.reduction=torus training.micro_batch_size=1 "
                 "training.global_batch_size=70 %s",
                 refused[i].keys);
        assert_int_equal(try_keys("gpt2", keys, refused[i].ranks), ECH_EUSAGE);
        assert_true(sample_error_has(refused[i].said));
    }
    for (size_t i = 0; i < sizeof accepted / sizeof *accepted; i++) {
        snprintf(keys, sizeof keys,
                 "parallel.reduction=torus training.micro_batch_size=1 "
                 "training.global_batch_size=72 %s",
                 accepted[i].keys);
        accept("gpt2", keys, accepted[i].ranks);
    }
}

/* An expert group is some of a replica's context ranks, or all of several replicas; an error says
 * which number would do. */
TEST(test_experts)
{
    static const struct {
        const char *keys, *said;
        int ranks;
    } refused[] = {
        {"parallel.data=4 parallel.expert=3", "3 expert ranks do not divide 8 experts; 2 would", 4},
        {"parallel.context=4 parallel.expert=16",
         "16 expert ranks do not divide 8 experts; 4 would", 4},
        {"parallel.data=2 parallel.context=3 data.sequence_length=24 parallel.expert=2",
         "2 expert ranks do not divide 3 context ranks; 1 would", 6},
        {"parallel.data=6 parallel.expert=4",
         "4 expert ranks are not all context ranks of several replicas", 6},
        {"parallel.stage_replicas=[2,2] parallel.expert=2",
         "2 expert ranks are more than the 1 context ranks of a replica", 4},
        {"parallel.data=2 parallel.tensor=4 parallel.expert=2 training.micro_batch_size=1 "
         "data.sequence_length=22",
         "4 tensor ranks do not divide the 22 rows that a micro-batch has at a time", 8},
    };
    accept("mixtral", "parallel.data=4 parallel.expert=2", 4);
    accept("mixtral", "parallel.data=2 parallel.context=2 parallel.expert=4", 4);
    accept("mixtral", "parallel.data=2 parallel.context=4 parallel.expert=2", 8);
    accept("qwen3_moe", "parallel.tensor=4 model.moe_intermediate_size=12", 4);
    assert_int_equal(try_keys("qwen3_moe", "parallel.tensor=4 model.moe_intermediate_size=10", 4),
                     ECH_EUSAGE);
    assert_true(sample_error_has("4 tensor ranks do not divide a width of experts of 10"));
    accept("mixtral", "parallel.data=2 parallel.tensor=2 parallel.expert=2", 4);
    accept("mixtral", "parallel.stage_replicas=[1,2] parallel.context=2 parallel.expert=2", 6);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(try_keys("mixtral", refused[i].keys, refused[i].ranks), ECH_EUSAGE);
        assert_true(sample_error_has(refused[i].said));
    }
}

/* A balance group lies in one micro-batch; the number that would is its divisor. */
TEST(test_groups)
{
    const char *balanced = "model.router_aux_loss_coef=0.01 model.moe_group_samples=3";
    char keys[300];
    snprintf(keys, sizeof keys, "%s training.micro_batch_size=4", balanced);
    assert_int_equal(try_keys("mixtral", keys, 1), ECH_EUSAGE);
    assert_true(
        sample_error_has("balance groups of 3 samples cross micro-batches of 4; 2 would not"));
    snprintf(keys, sizeof keys, "%s training.micro_batch_size=6", balanced);
    accept("mixtral", keys, 1);
    assert_int_equal(try_keys("mixtral", "model.moe_capacity_factor=0.001", 1), ECH_EUSAGE);
    assert_true(sample_error_has("an expert would take no token"));
    assert_int_equal(try_keys("mixtral", "model.moe_gate=gshard model.num_experts_per_tok=3", 1),
                     ECH_EUSAGE);
    assert_true(sample_error_has("model.moe_gate = gshard goes to two experts; use 2"));
    assert_int_equal(try_keys("mixtral", "model.moe_gate=switch", 1), ECH_EUSAGE);
    assert_true(sample_error_has("model.moe_gate = switch goes to one expert; use 1"));
    const char *two_levels = "model.moe_gate=hierarchical model.n_group=2 model.topk_group=2";
    accept("mixtral", two_levels, 1);
    assert_int_equal(try_keys("mixtral", "model.moe_gate=hierarchical", 1), ECH_EUSAGE);
    assert_true(sample_error_has("needs two groups or more, of as many experts each"));
    assert_int_equal(try_keys("mixtral", "model.moe_gate=hierarchical model.n_group=3", 1),
                     ECH_EUSAGE);
    assert_true(sample_error_has("use a divisor of 8"));
    assert_int_equal(
        try_keys("mixtral", "model.moe_gate=hierarchical model.n_group=2 model.topk_group=3", 1),
        ECH_EUSAGE);
    assert_true(sample_error_has("above model.n_group = 2; use at most that"));
    assert_int_equal(try_keys("mixtral",
                              "model.moe_gate=hierarchical model.n_group=8 model.topk_group=2 "
                              "model.num_experts_per_tok=3",
                              1),
                     ECH_EUSAGE);
    assert_true(sample_error_has("each of 2 groups, of 1 at most; use a multiple of 2 up to 2"));
    assert_int_equal(try_keys("mixtral", "model.n_group=2", 1), ECH_EUSAGE);
    assert_true(sample_error_has("model.n_group = 2"));
}

/* Nothing helps but another batch or partition. */
TEST(test_no_grid)
{
    refuse(
        "gpt2", "training.micro_batch_size=7", 4,
        "training.global_batch_size = 24 (default): does not divide by micro_batch_size x data = "
        "7 x 4; 28 would");
    refuse("gpt2", "parallel.partition=[1,1,1] parallel.pipeline=2", 4,
           "command line: parallel.partition = [1,1,1]: 3 numbers for 2 stages: one each; no grid "
           "works on 4 ranks, but on 3: pipeline 3 x data 1 x context 1 x tensor 1");
}

/* ---- what is offered ---- */

static void grid_keys(char *keys, size_t n, const char *more, const int grid[4])
{
    snprintf(keys, n,
             "%s parallel.pipeline=%d parallel.data=%d parallel.context=%d parallel.tensor=%d",
             more, grid[0], grid[1], grid[2], grid[3]);
}

/* How many grids the last error offers, for so many ranks; all of them work. */
static int check_offered(const char *more, int ranks)
{
    char *message = ech_strdup(ech_last_error()), keys[512];
    int n = 0;
    for (const char *at = strstr(message, ": pipeline "); at; at = strstr(at + 2, ", pipeline ")) {
        int grid[4];
        assert_int_equal(sscanf(at + 2, "pipeline %d x data %d x context %d x tensor %d", &grid[0],
                                &grid[1], &grid[2], &grid[3]),
                         4);
        assert_int_equal(grid[0] * grid[1] * grid[2] * grid[3], ranks);
        grid_keys(keys, sizeof keys, more, grid);
        accept("llama", keys, ranks);
        n++;
    }
    free(message);
    return n;
}

/* All grids of so many ranks that work, found by trying. */
static int count_working(const char *more, int ranks)
{
    int n = 0;
    char keys[512];
    for (int p = 1; p <= ranks; p++)
        for (int d = 1; p * d <= ranks; d++)
            for (int c = 1; p * d * c <= ranks; c++) {
                if (ranks % (p * d * c)) continue;
                grid_keys(keys, sizeof keys, more, (int[]){p, d, c, ranks / (p * d * c)});
                n += try_keys("llama", keys, ranks) == ECH_OK;
            }
    return n;
}

/* Where grids are said to work, they do, as many as there are up to four; where none is said to,
 * none does. */
TEST(test_offers)
{
    const char *const more[] = {
        "model.num_key_value_heads=2",
        "parallel.context_method=ulysses training.micro_batch_size=4",
        ("parallel.sequence=true training.micro_batch_size=1 data.sequence_length=6 "
         "model.num_key_value_heads=1"),
    };
    int offered = 0, elsewhere = 0;
    for (size_t m = 0; m < sizeof more / sizeof *more; m++)
        for (int ranks = 1; ranks <= 16; ranks++) {
            char keys[512], there[64];
            int working = count_working(more[m], ranks), on;
            /* Seven of anything is wrong. */
            snprintf(keys, sizeof keys, "%s parallel.tensor=7", more[m]);
            assert_int_equal(try_keys("llama", keys, ranks), ECH_EUSAGE);
            snprintf(there, sizeof there, "; grids that work on %d rank%s: ", ranks,
                     ranks > 1 ? "s" : "");
            assert_int_equal(strstr(ech_last_error(), there) != NULL, working > 0);
            if (working) {
                assert_int_equal(check_offered(more[m], ranks), working < 4 ? working : 4);
                offered++;
                continue;
            }
            const char *but = strstr(ech_last_error(), "ranks, but on ");
            assert_non_null(but);
            assert_int_equal(sscanf(but, "ranks, but on %d:", &on), 1);
            assert_true(check_offered(more[m], on) > 0);
            /* None nearer, and none as near with fewer ranks. */
            int away = on > ranks ? on - ranks : ranks - on;
            for (int near = ranks - away + (on < ranks); near < ranks + away; near++)
                if (near > 0) assert_int_equal(count_working(more[m], near), 0);
            elsewhere++;
        }
    assert_true(offered > 10 && elsewhere > 5);
}

/* Runs of blocks of a step on one rank: its plan lists them. 5 blocks with 3 layers. */
TEST(test_runs)
{
    const char *runs =
        "command line: training.global_batch_size = 26216: 26216 micro-batches x 5 block runs on a "
        "rank are more than the 131072 that its plan can hold; use training.micro_batch_size = 2, "
        "or more ranks";
    accept("gpt2", "training.global_batch_size=26214 training.micro_batch_size=1", 1);
    assert_int_equal(
        try_keys("gpt2", "training.global_batch_size=26216 training.micro_batch_size=1", 1),
        ECH_EUSAGE);
    assert_memory_equal(ech_last_error(), runs, strlen(runs));
    accept("gpt2", "training.global_batch_size=26216 training.micro_batch_size=2", 1);
    /* Of the longest stage, and of pieces. */
    accept("gpt2",
           "parallel.pipeline=2 parallel.partition=[2,1] training.global_batch_size=43690"
           " training.micro_batch_size=1",
           2);
    assert_int_equal(try_keys("gpt2",
                              "parallel.pipeline=2 parallel.partition=[3,0]"
                              " training.global_batch_size=43690 training.micro_batch_size=1",
                              2),
                     ECH_EUSAGE);
    assert_int_equal(try_keys("gpt2",
                              "memory.sequence_chunks=2 training.global_batch_size=26214"
                              " training.micro_batch_size=1",
                              1),
                     ECH_EUSAGE);
}
