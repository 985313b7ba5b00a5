/* SPDX-License-Identifier: Apache-2.0
 *
 * Every block of every family on grids of context x tensor ranks against the same block uncut, in fp64:
 * outputs, gradients of inputs and of parameters, losses. The ranks are one thread's, and their groups plain
 * loops (layer/cut_run.h), so what is tested is the models' wiring and the layers' mathematics alone.
 */

#include "layer/cut_compare.h"
#include "model/cut_model.h"
#include "unit.h"

static void compare_blocks(const char *architecture, const char *shape, const char *grid)
{
    ech_text cut_as = {0};
    ech_text_append(&cut_as, "%s %s", shape, grid);
    ech_model *whole = cut_model(architecture, shape), *cut = cut_model(architecture, cut_as.at);
    assert_int_equal(whole->block.n, cut->block.n);
    assert_int_equal(whole->param.n, cut->param.n);
    for (size_t b = 0; b < cut->block.n; b++) {
        int collectives[ECH_PHASES];
        cut_compare(whole->block.at[b], whole->param.at, cut->block.at[b], cut->param.at,
                    (int)cut->param.n, 2, CUT_MODEL_TOKENS, CUT_MODEL_IDS, collectives);
    }
    ech_model_destroy(whole);
    ech_model_destroy(cut);
    ech_text_free(&cut_as);
}

/* Samples of one document, and of several. */
static void compare(const char *architecture, const char *shape, const char *grid)
{
    ech_text masked = {0};
    ech_text_append(&masked, "%s data.document_mask=true", shape);
    compare_blocks(architecture, shape, grid);
    compare_blocks(architecture, masked.at, grid);
    ech_text_free(&masked);
}

static const char *const sequences[] = {"false", "true", "keep"};

/* t tensor ranks in every way, c context ranks; method: with what else is cut. */
static void compare_grid(const char *architecture, const char *shape, int t, int c,
                         const char *method)
{
    for (int i = 0; i < (t > 1 ? 3 : 1); i++) {
        ech_text grid = {0};
        ech_text_append(&grid,
                        "parallel.tensor=%d parallel.context=%d parallel.context_method=%s "
                        "parallel.sequence=%s",
                        t, c, method, sequences[i]);
        compare(architecture, shape, grid.at);
        ech_text_free(&grid);
    }
}

TEST(test_gpt2)
{
    for (int t = 1; t <= 4; t *= 2)
        for (int c = 1; c <= 4; c++) compare_grid("gpt2", "", t, c, "ring");
    compare_grid("gpt2", "model.tie_word_embeddings=false", 2, 2, "ring");
    for (int t = 1; t <= 4; t *= 2) compare_grid("gpt2", "", t, 2, "ulysses");
}

/* With as many key/value heads as ranks, with more, and with fewer. */
static void compare_grouped(const char *architecture, const char *width)
{
    static const int heads[] = {8, 2, 1};
    for (int i = 0; i < 3; i++) {
        ech_text shape = {0};
        ech_text_append(&shape, "model.num_key_value_heads=%d %s", heads[i], width);
        for (int t = 1; t <= 4; t *= 2)
            for (int c = 1; c <= 3; c++) compare_grid(architecture, shape.at, t, c, "ring");
        for (int t = 1; t * 2 <= heads[i]; t *= 2)
            compare_grid(architecture, shape.at, t, 2, "ulysses");
        ech_text_free(&shape);
    }
}

TEST(test_llama)
{
    compare_grouped("llama", "");
}

/* Heads wider and narrower than their share of the model's width. */
TEST(test_qwen3)
{
    compare_grouped("qwen3", "model.head_dim=6");
    compare_grid("qwen3", "model.head_dim=2 model.hidden_size=24", 2, 2, "ring");
    compare_grid("llama", "model.head_dim=6", 2, 2, "ring");
}

/* Experts' width is cut, with as many key/value heads as ranks and with fewer; routers have row shards where there are some. */
TEST(test_mixtral)
{
    static const struct {
        const char *words, *method;
        int context; /* ranks, or a multiple */
    } experts[] = {
        {"model.num_local_experts=5 model.num_experts_per_tok=3 model.router_jitter_noise=0.1 "
         "model.moe_dropout=0.2",
         "ring", 1},
        {"model.num_local_experts=3 model.num_experts_per_tok=3 model.moe_gate=dense", "ring", 1},
        {"model.num_local_experts=4 model.num_experts_per_tok=3 model.router_jitter_noise=0.1 "
         "model.moe_dropout=0.2",
         "ring parallel.expert=2", 2},
        {"model.num_local_experts=4", "ring parallel.expert=4", 4},
        {"model.num_local_experts=4 model.moe_gate=noisy_topk model.router_jitter_noise=0.1 "
         "model.router_load_coef=2",
         "ring", 1},
        {"model.num_local_experts=6 model.moe_gate=hierarchical model.n_group=3 "
         "model.topk_group=2 model.router_importance_coef=2",
         "ring", 1},
        {"model.num_local_experts=4 model.moe_shared_experts=2", "ring", 1},
    };
    for (int i = 0; i < (int)(sizeof experts / sizeof *experts); i++)
        for (int t = 1; t <= 4; t *= 2)
            for (int c = experts[i].context; c <= 4; c += experts[i].context) {
                ech_text shape = {0};
                ech_text_append(&shape, "model.num_key_value_heads=2 %s", experts[i].words);
                compare_grid("mixtral", shape.at, t, c, experts[i].method);
                ech_text_free(&shape);
            }
}

TEST(test_sequence_chunks)
{
    static const char *const chunks[] = {
        "memory.sequence_chunks=2",
        "memory.sequence_chunks=4",
        "memory.sequence_chunks=4 parallel.tensor=2",
        "memory.sequence_chunks=2 parallel.tensor=4 parallel.sequence=true",
        "memory.sequence_chunks=3 parallel.tensor=2 parallel.sequence=keep",
    };
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++) {
        compare("gpt2", "", chunks[i]);
        compare("llama", "model.num_key_value_heads=2", chunks[i]);
        compare("qwen3", "model.num_key_value_heads=2 model.head_dim=4", chunks[i]);
        compare("mixtral", "model.num_key_value_heads=2", chunks[i]);
    }
}
