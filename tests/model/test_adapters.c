/* SPDX-License-Identifier: Apache-2.0
 *
 * Low-rank adapters as parameters: names, shapes, initial values; which products the targets name;
 * and what is refused.
 */
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "model/import_names.h"
#include "optim/optim.h"
#include "unit.h"

static ech_config *config(const char *architecture, const char *words)
{
    ech_config *c = import_config();
    char word[100];
    snprintf(word, sizeof word, "model.architecture=%s", architecture);
    import_set(c, word);
    import_set(c, "model.hidden_size=32 model.num_hidden_layers=2 model.num_attention_heads=4");
    c->data.sequence_length = 64;
    if (*words) import_set(c, words);
    return c;
}

static ech_model *create(const char *architecture, const char *words)
{
    ech_config *c = config(architecture, words);
    ech_model *model;
    assert_int_equal(ech_model_resolve(c, 257), ECH_OK);
    if (ech_model_create(c, NULL, &model) != ECH_OK) fail_msg("%s: %s", words, ech_last_error());
    ech_config_destroy(c);
    return model;
}

static const ech_param *find(const ech_model *model, const char *name)
{
    for (size_t i = 0; i < model->param.n; i++)
        if (strcmp(model->param.at[i].name, name) == 0) return &model->param.at[i];
    return NULL;
}

static int count(const ech_model *model)
{
    int n = 0;
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_param *param = &model->param.at[i];
        assert_true(param->frozen == (!param->adapter && !param->commit));
        n += param->adapter == ECH_ADAPTER_A;
    }
    return n;
}

/* As PEFT has them, also of a product whose weight is (in,out). */
TEST(test_shapes)
{
    ech_model *model = create("gpt2", "lora.rank=4");
    const ech_param *A = find(model, "transformer.h.1.attn.c_attn.lora_A.weight");
    const ech_param *B = find(model, "transformer.h.1.attn.c_attn.lora_B.weight");
    assert_true(A && B && count(model) == 2);
    assert_true(A->adapter == ECH_ADAPTER_A && A->initializer == ECH_INIT_UNIFORM);
    assert_true(A->shape.size[0] == 4 && A->shape.size[1] == 32);
    assert_true(fabs(A->std - 1 / sqrt(32)) < 1e-15);
    assert_true(B->adapter == ECH_ADAPTER_B && B->initializer == ECH_INIT_ZERO);
    assert_true(B->shape.size[0] == 96 && B->shape.size[1] == 4);
    assert_int_equal(ech_model_trained(model), 2 * 4 * (32 + 96));
    ech_model_destroy(model);
}

static const struct {
    const char *architecture, *words;
    int adapters;
    const char *one;
} known[] = {
    {"llama", "", 4, "model.layers.0.self_attn.v_proj"},
    {"llama", "lora.targets=all-linear", 14, "model.layers.1.mlp.down_proj"},
    {"llama", "lora.targets=model.layers.1.*_proj", 7, "model.layers.1.self_attn.k_proj"},
    {"llama", "lora.targets=mlp.*_proj", 6, "model.layers.0.mlp.gate_proj"},
    {"llama", "lora.targets=q_proj\tlayers.0.self_attn.o_proj", 3,
     "model.layers.0.self_attn.o_proj"},
    {"phi3", "", 4, "model.layers.0.self_attn.q_proj"},
    {"phi3", "lora.targets=gate_proj", 2, "model.layers.0.mlp.gate_proj"},
    {"mixtral", "lora.targets=all-linear", 8, "model.layers.0.self_attn.o_proj"},
    {"deepseek_v3",
     "model.kv_lora_rank=8 model.q_lora_rank=0 model.qk_nope_head_dim=4 model.qk_rope_head_dim=4 "
     "model.v_head_dim=4 model.num_local_experts=2",
     6, "model.layers.0.self_attn.q_nope_proj"},
};

TEST(test_targets)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char words[400], name[200];
        snprintf(words, sizeof words, "lora.rank=2%s%s", *known[i].words ? " " : "",
                 known[i].words);
        ech_model *model = create(known[i].architecture, words);
        assert_int_equal(count(model), known[i].adapters);
        snprintf(name, sizeof name, "%s.lora_A.weight", known[i].one);
        const ech_param *A = find(model, name);
        if (!A) fail_msg("no %s", name);
        assert_null(A->file_name); /* where the family's files have the weight in another tensor */
        ech_model_destroy(model);
    }
}

/* The streams of other parameters stay as they are. */
TEST(test_sites)
{
    ech_model *with = create("llama", "lora.rank=2 lora.targets=all-linear");
    ech_model *without = create("llama", "");
    for (size_t i = 0; i < without->param.n; i++) {
        const ech_param *p = &without->param.at[i], *q = find(with, p->name);
        assert_true(q && q->site == p->site && q->block == p->block);
    }
    for (size_t i = 0; i < with->param.n; i++)
        for (size_t k = 0; k < i; k++)
            assert_true(with->param.at[i].block != with->param.at[k].block ||
                        with->param.at[i].site != with->param.at[k].site);
    ech_model_destroy(with);
    ech_model_destroy(without);
}

static const struct {
    const char *architecture, *words, *why;
} refused[] = {
    {"llama", "lora.rank=2 lora.targets=c_attn",
     "\"c_attn\" matches no product; products that can have adapters: self_attn.q_proj "
     "self_attn.k_proj self_attn.v_proj self_attn.o_proj mlp.gate_proj mlp.up_proj mlp.down_proj"},
    {"gpt2", "lora.rank=2 lora.targets=attn.*\tq_proj", "\"q_proj\" matches no product"},
    {"llama", "lora.rank=2 lora.targets=\t", "names no product"},
    {"llama", "lora.rank=2 lora.targets=lm_head",
     "\"lm_head\" matches lm_head, for which adapters are not built"},
    {"llama", "lora.rank=2 lora.targets=*norm", "matches model.layers.0.input_layernorm"},
    {"mixtral", "lora.rank=2 lora.targets=w1",
     "matches model.layers.0.block_sparse_moe.experts.%d.w1, for which adapters are not built"},
    {"llama", "lora.rank=33",
     "lora.rank = 33: above the 32 inputs of model.layers.0.self_attn.q_proj.lora_A.weight; use at "
     "most 32"},
    {"llama", "lora.rank=9 model.num_key_value_heads=1",
     "above the 8 outputs of model.layers.0.self_attn.v_proj.lora_B.weight; use at most 8"},
    {"llama", "lora.alpha=4", "lora.alpha = 4: not read by a run without lora.rank"},
    {"llama", "lora.rank=2 optimizer.rates=*lora_*=0", "freezes all parameters"},
    {"llama", "lora.rank=2 optimizer.rates=*lm_head*=1", "matches no adapter; names are as"},
};

TEST(test_refused)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        ech_config *c = config(refused[i].architecture, refused[i].words);
        ech_model *model = NULL;
        ech_clear_error();
        assert_int_equal(ech_model_resolve(c, 257), ECH_OK);
        assert_int_equal(ech_model_create(c, NULL, &model), ECH_EUSAGE);
        if (!strstr(ech_last_error(), refused[i].why))
            fail_msg("'%s' is not in: %s", refused[i].why, ech_last_error());
        ech_config_destroy(c);
    }
}
