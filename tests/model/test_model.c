/* SPDX-License-Identifier: Apache-2.0
 *
 * Models: parameters under Hugging Face's names and counts, and what is refused.
 */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "layer/layers.h"
#include "model/import_names.h"
#include "unit.h"

#include "model/family.h"

static ech_config *config(const char *architecture, const char *words)
{
    ech_config *c = import_config();
    char word[100];
    snprintf(word, sizeof word, "model.architecture=%s", architecture);
    import_set(c, word);
    if (*words) import_set(c, words);
    c->data.sequence_length = 1024;
    return c;
}

static ech_model *create(ech_config *c)
{
    ech_model *model;
    assert_int_equal(ech_model_resolve(c, 257), ECH_OK);
    assert_int_equal(ech_model_create(c, NULL, &model), ECH_OK);
    return model;
}

static bool has(const ech_model *model, const char *name)
{
    for (size_t i = 0; i < model->param.n; i++)
        if (strcmp(model->param.at[i].name, name) == 0) return true;
    return false;
}

#define QWEN3_30B                                                                                  \
    "model.hidden_size=2048 model.num_hidden_layers=48 model.num_attention_heads=32 "              \
    "model.num_key_value_heads=4 model.head_dim=128 model.intermediate_size=6144 "                 \
    "model.num_local_experts=128 model.num_experts_per_tok=8 model.vocab_size=151936"
#define EXPERT (3LL * 2048 * 768)
#define SHARED (48 * 2 * EXPERT)

/* GPT-2 small, Llama 3 8B, Qwen3 0.6B and Qwen3-30B-A3B, of which a token goes to 8 of 128 experts,
 * as their authors and indexes of weights say; and the last with shared experts, to which all
 * tokens go. */
static const struct {
    const char *architecture, *words;
    int64_t params, tensors;
    int64_t idle;      /* of experts to which a token does not go */
    int64_t looked_up; /* tables that nothing is multiplied with; tied ones are counted once */
    double attention;  /* widths of all layers' */
    const char *has[2];
} known[] = {
    {"gpt2",
     "model.hidden_size=768 model.num_hidden_layers=12 model.num_attention_heads=12 "
     "model.vocab_size=50257",
     124439808, 148, 0, 1024 * 768, 12 * 768,
     {"transformer.h.11.attn.c_attn.bias", "transformer.wpe.weight"}},
    {"llama",
     "model.hidden_size=4096 model.num_hidden_layers=32 model.num_attention_heads=32 "
     "model.num_key_value_heads=8 model.intermediate_size=14336 model.vocab_size=128256",
     8030261248, 291, 0, 128256 * 4096, 32 * 4096,
     {"model.layers.31.post_attention_layernorm.weight", "lm_head.weight"}},
    {"qwen3",
     "model.hidden_size=1024 model.num_hidden_layers=28 model.num_attention_heads=16 "
     "model.num_key_value_heads=8 model.head_dim=128 model.intermediate_size=3072 "
     "model.vocab_size=151936 model.tie_word_embeddings=true",
     596049920, 310, 0, 0, 28 * 16 * 128,
     {"model.layers.27.self_attn.q_norm.weight", "model.layers.0.self_attn.k_norm.weight"}},
    {"qwen3_moe", QWEN3_30B, 30532122624, 579, 48 * 120 * EXPERT, 151936 * 2048, 48 * 4096,
     {"model.layers.47.mlp.experts.%d.gate_proj.weight", "model.layers.0.mlp.gate.weight"}},
    {"qwen3_moe", QWEN3_30B " model.moe_shared_experts=2", 30532122624 + SHARED, 723,
     48 * 120 * EXPERT, 151936 * 2048, 48 * 4096,
     {"model.layers.47.mlp.shared_experts.down_proj.weight", "model.layers.0.mlp.gate.weight"}},
};

TEST(test_known_models)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        ech_config *c = config(known[i].architecture, known[i].words);
        ech_model *model = create(c);
        int64_t active = known[i].params - known[i].idle;
        assert_int_equal(ech_model_params(model), known[i].params);
        assert_int_equal(ech_model_active(model), active);
        assert_int_equal(model->param.n, known[i].tensors);
        assert_true(has(model, known[i].has[0]) && has(model, known[i].has[1]));
        /* 6 N + 6 L T C, where N is the numbers of matrices that a token is multiplied with. */
        double N = (double)(active - known[i].looked_up);
        for (size_t p = 0; p < model->param.n; p++)
            if (model->param.at[p].shape.dims < 2)
                N -= (double)ech_shape_whole(&model->param.at[p].shape);
        double flops = 6 * (N + known[i].attention * 1024) * 1024;
        ECH_CLEANUP(ech_model_destroy_at) ech_model *whole = NULL;
        assert_int_equal(ech_model_create_whole(c, &whole), ECH_OK);
        assert_true(fabs(ech_model_flops(whole, 1024) / flops - 1) < 1e-12);
        for (size_t p = 0; p < model->param.n; p++)
            assert_int_equal(model->param.at[p].decay, model->param.at[p].shape.dims >= 2);
        ech_model_destroy(model);
        ech_config_destroy(c);
    }
}

static void refuse(ech_config *c, const char *why)
{
    ech_model *model = NULL;
    ech_clear_error();
    ech_status status = ech_model_resolve(c, 257);
    if (status == ECH_OK) status = ech_model_create(c, NULL, &model);
    assert_int_equal(status, ECH_EUSAGE);
    assert_null(model);
    if (!strstr(ech_last_error(), why)) fail_msg("'%s' is not in: %s", why, ech_last_error());
    ech_config_destroy(c);
}

/* A width of heads that is set. */
TEST(test_head_widths)
{
    static const struct {
        const char *architecture, *set, *why; /* NULL: it is none */
    } cases[] = {
        {"llama", "model.head_dim=6", NULL},
        {"qwen3", "model.head_dim=6 model.num_attention_heads=5", NULL},
        {"qwen3", "model.num_attention_heads=5", "does not divide model.hidden_size = 12; 4 would"},
        {"qwen3", "model.head_dim=5", "model.head_dim = 5: rotary positions need an even"},
        {"qwen3", "model.head_dim=1000000 model.num_attention_heads=100000",
         "100000 attention heads of that width are wider than 10000000; use at most 100"},
        {"llama", "model.head_dim=6 model.num_attention_heads=5",
         "must divide model.hidden_size = 12 in family llama, as in transformers; use 4 heads"},
        {"gpt2", "model.head_dim=6", "model.head_dim = 6: not read by gpt2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_config *c = config(cases[i].architecture, "model.hidden_size=12 "
                                                      "model.num_hidden_layers=1 "
                                                      "model.num_attention_heads=2");
        import_set(c, cases[i].set);
        if (cases[i].why) {
            refuse(c, cases[i].why);
            continue;
        }
        ech_model_destroy(create(c));
        ech_config_destroy(c);
    }
}

#define TINY                                                                                       \
    "model.hidden_size=16 model.num_hidden_layers=6 model.num_attention_heads=4 "                  \
    "model.vocab_size=300"

/* With T = 1024 and W = 256, queries see 1 + ... + 256 and 768 times 256 keys. */
TEST(test_windows)
{
    static const char *const refused[][2] = {
        {"model.window_layers=LX", "must be letters L"},
        {"model.rotary_layers=RX", "must be letters R"},
        {"model.window_layers=LLLLLLG", "model.num_hidden_layers is 6"},
    };
    double share = (256 * 257 / 2 + 768 * 256) / (1024.0 * 1025 / 2), flops[3];
    static const char *const words[] = {TINY, TINY " model.sliding_window=256",
                                        TINY " model.sliding_window=256 model.window_layers=LLG "
                                             "model.attention_sinks=true"};
    for (int i = 0; i < 3; i++) {
        ech_config *c = config("llama", words[i]);
        ech_model *model = create(c);
        flops[i] = ech_model_flops(model, 1024);
        for (int64_t layer = 0; layer < 6; layer++)
            assert_int_equal(ech_model_window(c, layer),
                             i == 0 || (i == 2 && layer % 3 == 2) ? 0 : 256);
        assert_int_equal(has(model, "model.layers.5.self_attn.sinks"), i == 2);
        ech_model_destroy(model);
        ech_config_destroy(c);
    }
    double all = 6.0 * 6 * 1024 * 16 * 1024;
    assert_true(fabs(flops[0] - flops[1] - all * (1 - share)) < 1e-6 * all);
    assert_true(fabs(flops[0] - flops[2] - all * (1 - share) * 4 / 6) < 1e-6 * all);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ech_config *c = config("llama", TINY);
        import_set(c, refused[i][0]);
        refuse(c, refused[i][1]);
    }
}

/* Queries and keys of some layers are rotated, which are any. */
TEST(test_rotary_layers)
{
    ech_config *c = config("llama", TINY);
    import_set(c, "model.rotary_layers=RNN");
    ech_model *model = create(c);
    for (int64_t layer = 0; layer < 6; layer++) {
        const ech_block *block = model->block.at[1 + layer];
        int rotary = 0;
        for (size_t n = 0; n < block->node.n; n++)
            rotary += block->node.at[n].layer == &ech_layer_row_rotary;
        assert_int_equal(rotary, layer % 3 == 0 ? 2 : 0);
    }
    ech_model_destroy(model);
    ech_config_destroy(c);
}

/* Which layers have experts. */
TEST(test_sparse_layers)
{
    static const struct {
        const char *set, *sparse, *why; /* a digit a layer: whether it has experts */
    } cases[] = {
        {"model.moe_every=1", "111111", NULL},
        {"model.moe_every=2", "010101", NULL},
        {"model.moe_first_dense=2", "001111", NULL},
        {"model.moe_first_dense=2 model.moe_every=3", "001001", NULL},
        {"model.moe_first_dense=5 model.moe_every=6", "000001", NULL},
        {"model.moe_first_dense=6", NULL, "no layer of 6 has experts"},
        {"model.moe_every=7", NULL, "model.moe_every = 7: no layer of 6 has experts"},
        {"model.moe_shared_experts=3 model.moe_every=2", "010101", NULL},
        {"model.moe_shared_experts=11 model.moe_intermediate_size=1000000", NULL,
         "experts of a width of 1000000 are wider than 10000000 together; use at most 10"},
        {"model.moe_gate=bias model.n_group=4 model.topk_group=1", "111111", NULL},
        {"model.moe_gate=bias model.n_group=3", NULL,
         "model.n_group = 3: groups are of as many experts each; use a divisor of 8"},
        {"model.moe_gate=bias model.n_group=2 model.topk_group=3", NULL,
         "model.topk_group = 3: above model.n_group = 2"},
        {"model.moe_gate=bias model.n_group=4 model.num_experts_per_tok=3", NULL,
         "1 group of 2 experts have fewer; use at most 2, or a larger model.topk_group"},
        {"model.n_group=2", NULL, "model.n_group = 2: not read by model.moe_gate = topk"},
        {"model.num_experts_per_tok=9", NULL, "above model.num_local_experts = 8"},
        {"model.hidden_act=gelu_new", NULL, "not a property of qwen3_moe; use one of swiglu"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_config *c = config("qwen3_moe", "model.hidden_size=12 model.num_hidden_layers=6 "
                                            "model.num_attention_heads=2");
        char name[80];
        import_set(c, cases[i].set);
        if (cases[i].why) {
            refuse(c, cases[i].why);
            continue;
        }
        ech_model *model = create(c);
        for (int l = 0; l < 6; l++) {
            bool sparse = cases[i].sparse[l] == '1';
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%%d.up_proj.weight", l);
            assert_int_equal(has(model, name), sparse);
            snprintf(name, sizeof name, "model.layers.%d.mlp.shared_experts.up_proj.weight", l);
            assert_int_equal(has(model, name), sparse && strstr(cases[i].set, "shared"));
            snprintf(name, sizeof name, "model.layers.%d.mlp.up_proj.weight", l);
            assert_int_equal(has(model, name), !sparse);
        }
        ech_model_destroy(model);
        ech_config_destroy(c);
    }
}

/* The defaults of Switch. Its weights begin as truncated normals whose deviation depends on the
 * number of inputs (Fedus et al. 2021). */
TEST(test_switch)
{
    ech_config *c = config("switch", "model.hidden_size=40 model.num_hidden_layers=4 "
                                     "model.num_attention_heads=2");
    ech_model *model = create(c);
    assert_int_equal(c->model.moe_gate, ECH_GATE_switch);
    assert_int_equal(c->model.num_experts_per_tok, 1);
    const int64_t attention = 4 * 40 * 40, F = 160, norms = 2 * 40, feed_forward = 2 * 40 * F;
    int64_t idle = 2 * 7 * feed_forward, ends = 2 * 257 * 40 + 40, router = 8 * 40;
    assert_int_equal(ech_model_params(model), ends + 4 * (attention + norms) + 2 * router +
                                                  2 * feed_forward + 2 * 8 * feed_forward);
    assert_int_equal(ech_model_active(model), ech_model_params(model) - idle);
    for (size_t p = 0; p < model->param.n; p++) {
        const ech_param *param = &model->param.at[p];
        bool narrow = strstr(param->name, ".wo.") != NULL;
        if (strstr(param->name, "norm")) continue;
        assert_int_equal(param->initializer, ECH_INIT_TRUNCATED);
        assert_true(fabs(param->std - sqrt(0.1 / (narrow ? 160 : 40))) < 1e-15);
    }
    const char *const names[] = {"model.layers.0.mlp.wi.weight",
                                 "model.layers.1.mlp.experts.%d.wi.weight",
                                 "model.layers.2.mlp.wo.weight", "model.layers.3.mlp.gate.weight"};
    for (int i = 0; i < 4; i++) assert_true(has(model, names[i]));
    ech_model_destroy(model);
    assert_int_equal(ech_config_set(c, "model.hidden_act=swiglu"), ECH_OK);
    model = create(c);
    assert_true(has(model, "model.layers.1.mlp.experts.%d.wi_0.weight"));
    ech_model_destroy(model);
    assert_int_equal(ech_config_set(c, "model.initializer_range=0.1"), ECH_OK);
    refuse(c, "model.initializer_range = 0.1: not read by switch");
}

TEST(test_logistic)
{
    ech_config *c = config("logistic", "");
    ech_model *model = create(c);
    assert_int_equal(ech_model_params(model), 257 + 1);
    assert_int_equal(model->block.n, 2);
    assert_true(model->logits < 0);
    assert_true(has(model, "features.weight") && has(model, "logistic.bias"));
    for (size_t p = 0; p < model->param.n; p++) {
        assert_int_equal(model->param.at[p].initializer, ECH_INIT_ZERO);
        assert_int_equal(model->param.at[p].decay, p == 0);
    }
    ech_model_destroy(model);
    c->model.vocab_size = 1;
    assert_int_equal(ech_model_resolve(c, 1), ECH_OK);
    assert_int_equal(ech_model_create(c, NULL, &model), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "has at least 2"));
    c->model.vocab_size = 300;
    assert_int_equal(ech_config_set(c, "model.hidden_size=16"), ECH_OK);
    refuse(c, "model.hidden_size = 16: not read by logistic");
}

TEST(test_refusals)
{
    static const char *const cases[][2] = {
        {"model.num_attention_heads=5", "4 would"},
        {"model.num_key_value_heads=3", "does not divide model.num_attention_heads"},
        {"model.max_position_embeddings=100", "longer"},
        {"model.vocab_size=256", "at least 257"},
        {"model.num_attention_heads=4", "even head width"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_config *c = config("llama", "model.hidden_size=12 model.num_hidden_layers=1 "
                                        "model.num_attention_heads=2");
        import_set(c, cases[i][0]);
        refuse(c, cases[i][1]);
    }
}
