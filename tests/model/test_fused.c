/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters that a family's files have in one tensor, by tables of made-up families.
 */
#include "base/log.h"
#include "model/import_names.h"
#include "model/family.h"
#include "unit.h"

static const ech_family_fused concatenated[] = {
    {.file = ".self_attn.qkv_proj",
     .parts = ".self_attn.q_proj .self_attn.k_proj .self_attn.v_proj"},
    {.file = ".mlp.gate_up_proj", .parts = ".mlp.gate_proj .mlp.up_proj"},
    {.file = NULL}};
static const ech_family_fused by_heads[] = {
    {".attention.query_key_value", ".self_attn.q_proj .self_attn.k_proj .self_attn.v_proj",
     ECH_FUSED_HEADS, false},
    {.file = NULL}};
static const ech_family_fused experts[] = {
    {".mlp.experts.gate_up_proj", ".mlp.experts.%d.gate_proj.weight .mlp.experts.%d.up_proj.weight",
     ECH_FUSED_ROWS, true},
    {".mlp.experts.down_proj", ".mlp.experts.%d.down_proj.weight", ECH_FUSED_PARTS, true},
    {.file = NULL}};

/* Two layers with 8 heads of width 4, 2 of them for keys, and feed-forward layers of width 12. */
static ech_config *config(const char *architecture)
{
    ech_config *c = import_config();
    char word[100];
    snprintf(word, sizeof word, "model.architecture=%s", architecture);
    import_set(c, word);
    import_set(c, "model.hidden_size=16 model.num_attention_heads=8 model.num_hidden_layers=2 "
                  "model.intermediate_size=12 model.num_key_value_heads=2 model.head_dim=4 "
                  "data.sequence_length=8");
    assert_int_equal(ech_model_resolve(c, 13), ECH_OK);
    return c;
}

static ech_status place(ech_config *c, const ech_family_fused *fused, ech_model **model)
{
    static ech_family family;
    assert_int_equal(ech_model_create(c, NULL, model), ECH_OK);
    family = *(*model)->family;
    family.fused = fused;
    (*model)->family = &family;
    return ech_family_place_params(c, *model);
}

static void check(const ech_model *model, const char *name, const char *file_name,
                  ech_box_place wanted)
{
    const ech_param *p = NULL;
    for (size_t i = 0; i < model->param.n; i++)
        if (strcmp(model->param.at[i].name, name) == 0) p = &model->param.at[i];
    assert_non_null(p);
    if (!file_name) {
        assert_null(p->file_name);
        assert_int_equal(p->place.period, 0);
        return;
    }
    assert_string_equal(p->file_name, file_name);
    assert_int_equal(p->place.dim, wanted.dim);
    assert_int_equal(p->place.transposed, wanted.transposed);
    assert_int_equal(p->place.width, wanted.width);
    assert_int_equal(p->place.period, wanted.period);
    assert_int_equal(p->place.offset, wanted.offset);
}

TEST(one_part_after_the_other)
{
    static const char qkv[] = "model.layers.1.self_attn.qkv_proj.weight";
    ech_config *c = config("llama");
    ECH_CLEANUP(ech_model_destroy_at) ech_model *model = NULL;
    assert_int_equal(place(c, concatenated, &model), ECH_OK);
    check(model, "model.layers.1.self_attn.q_proj.weight", qkv,
          (ech_box_place){.width = 32, .period = 48});
    check(model, "model.layers.1.self_attn.k_proj.weight", qkv,
          (ech_box_place){.width = 8, .period = 48, .offset = 32});
    check(model, "model.layers.1.self_attn.v_proj.weight", qkv,
          (ech_box_place){.width = 8, .period = 48, .offset = 40});
    check(model, "model.layers.0.mlp.up_proj.weight", "model.layers.0.mlp.gate_up_proj.weight",
          (ech_box_place){.width = 12, .period = 24, .offset = 12});
    check(model, "model.layers.0.mlp.down_proj.weight", NULL, (ech_box_place){0});
    check(model, "model.embed_tokens.weight", NULL, (ech_box_place){0});
    ech_config_destroy(c);
}

TEST(by_key_heads)
{
    static const char qkv[] = "model.layers.0.attention.query_key_value.weight";
    ech_config *c = config("llama");
    ECH_CLEANUP(ech_model_destroy_at) ech_model *model = NULL;
    assert_int_equal(place(c, by_heads, &model), ECH_OK);
    check(model, "model.layers.0.self_attn.q_proj.weight", qkv,
          (ech_box_place){.width = 16, .period = 24});
    check(model, "model.layers.0.self_attn.k_proj.weight", qkv,
          (ech_box_place){.width = 4, .period = 24, .offset = 16});
    check(model, "model.layers.0.self_attn.v_proj.weight", qkv,
          (ech_box_place){.width = 4, .period = 24, .offset = 20});
    ech_config_destroy(c);
}

TEST(stacks_of_experts)
{
    static const char gate_up[] = "model.layers.1.mlp.experts.gate_up_proj";
    ech_config *c = config("qwen3_moe");
    ECH_CLEANUP(ech_model_destroy_at) ech_model *model = NULL;
    assert_int_equal(place(c, experts, &model), ECH_OK);
    check(model, "model.layers.1.mlp.experts.%d.gate_proj.weight", gate_up,
          (ech_box_place){.dim = 1, .width = 1, .period = 2, .transposed = true});
    check(model, "model.layers.1.mlp.experts.%d.up_proj.weight", gate_up,
          (ech_box_place){.dim = 1, .width = 1, .period = 2, .offset = 1, .transposed = true});
    check(model, "model.layers.1.mlp.experts.%d.down_proj.weight",
          "model.layers.1.mlp.experts.down_proj",
          (ech_box_place){.dim = 1, .width = 16, .period = 16, .transposed = true});
    ech_config_destroy(c);
}

TEST(a_part_that_lacks_others)
{
    static const ech_family_fused missing[] = {{.file = ".mlp.fused",
                                                .parts = ".mlp.gate_proj .mlp.other_proj"},
                                               {.file = NULL}},
                                  uneven[] = {{".fused", ".self_attn.q_proj .mlp.down_proj",
                                               ECH_FUSED_ROWS, false},
                                              {.file = NULL}};
    ech_config *c = config("llama");
    ECH_CLEANUP(ech_model_destroy_at) ech_model *model = NULL, *other = NULL;
    assert_int_equal(place(c, missing, &model), ECH_EINTERNAL);
    assert_non_null(
        strstr(ech_last_error(), "no parameter 'model.layers.0.mlp.other_proj.weight'"));
    assert_int_equal(place(c, uneven, &other), ECH_EINTERNAL);
    assert_non_null(strstr(ech_last_error(), "does not fit"));
    ech_config_destroy(c);
}
