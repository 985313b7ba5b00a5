/* SPDX-License-Identifier: Apache-2.0
 *
 * Low-rank adapters (LoRA; Hu et al. 2021, arXiv:2106.09685): a product y = x Wᵀ becomes
 * x Wᵀ + alpha / r dropout(x) Aᵀ Bᵀ, A (r,in) and B (out,r). W is frozen (optim/param_groups.c). B
 * begins as zeros, so that training starts from the model as it is.
 *
 * An adapter is two products of the graph. Over tensor ranks A has the product's inner axis and B
 * its outer one. Between them is a value of r numbers per row. It is the only one that tensor ranks
 * exchange: its sum after A of a row-parallel product, the sum of its gradient before B of a
 * column-parallel one.
 */
#include <fnmatch.h>
#include <string.h>

#include "base/text.h"
#include "model/decoder.h"

/* ---- targets ---- */

static const char *const any_product = "all-linear";

/* The roles that make queries and values. */
static bool is_automatic(const ech_names *names, const char *role)
{
    const char *const roles[] = {names->qkv,      names->q,      names->v,     names->q_b_nope,
                                 names->q_b_rope, names->q_nope, names->q_rope};
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++)
        if (roles[i] && strcmp(roles[i], role) == 0) return true;
    return false;
}

/* Whether the pattern matches the module's whole name, or its end after a dot. */
static bool matches(const char *pattern, const char *module)
{
    for (const char *at = module; at; at = strchr(at, '.')) {
        at += *at == '.';
        if (fnmatch(pattern, at, 0) == 0) return true;
    }
    return false;
}

static bool is_target(const ech_builder *b, const char *role)
{
    const char *targets = b->config->lora.targets;
    const char *module = ech_pool_format(b->model->pool, "%s.%s", b->at, role);
    if (ech_config_is_auto(targets)) return is_automatic(&b->names, role);
    for (ECH_FREED_WORDS word = ech_words_in(targets); ech_words_next(&word);)
        if (strcmp(word.at, any_product) == 0 || matches(word.at, module)) return true;
    return false;
}

/* ---- building ---- */

int ech_adapters_add(const ech_builder *b, const char *role, int x, ech_axis in_axis, int64_t in,
                     ech_axis axis, int64_t out, int y)
{
    int64_t r = b->config->lora.rank;
    const ech_axis low = ECH_AXIS_LATENT;
    if (r == 0 || !is_target(b, role)) return y;
    int A = ech_model_adapter(b->model, b->block, ech_builder_name(b, role, "lora_A.weight"),
                              ech_shape_2d(low, r, in_axis, in), ECH_ADAPTER_A);
    int B = ech_model_adapter(b->model, b->block, ech_builder_name(b, role, "lora_B.weight"),
                              ech_shape_2d(axis, out, low, r), ECH_ADAPTER_B);
    x = ech_layer_dropout(b->block, x, b->config->lora.dropout);
    x = ech_layer_linear(b->block, x, A, -1, false, low, r);
    x = ech_layer_scale(b->block, x, b->config->lora.alpha / (double)r);
    return ech_layer_residual(b->block, y, ech_layer_linear(b->block, x, B, -1, false, axis, out));
}

/* ---- checks ---- */

/* The length of the module's name in its weight's name; 0: the parameter is no weight. */
static size_t module_of(const ech_param *param)
{
    static const char suffix[] = ".weight";
    size_t n = strlen(param->name), m = sizeof suffix - 1;
    bool is_weight = n > m && strcmp(param->name + n - m, suffix) == 0;
    return is_weight && !param->adapter ? n - m : 0;
}

static bool has_adapter(const ech_model *model, const ech_param *param, size_t n)
{
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_param *p = &model->param.at[i];
        if (p->adapter == ECH_ADAPTER_A && strncmp(p->name, param->name, n) == 0 &&
            strcmp(p->name + n, ".lora_A.weight") == 0)
            return true;
    }
    return false;
}

/* Appends the modules that can have adapters, without the names of their blocks, each once. */
static void append_candidates(const ech_model *model, ech_text *out)
{
    for (size_t b = 0; b < model->block.n; b++) {
        const ech_block *block = model->block.at[b];
        for (size_t k = 0; k < block->node.n; k++) {
            const ech_node *node = &block->node.at[k];
            if (node->layer != &ech_layer_row_linear) continue;
            const ech_param *weight = &model->param.at[node->param[0]];
            size_t n = module_of(weight), from = strlen(block->name) + 1;
            if (n <= from) continue;
            ECH_FREED_TEXT word = {0};
            ech_text_append(&word, "%.*s", (int)(n - from), weight->name + from);
            if (ech_text_has_word(out->at ? out->at : "", word.at)) continue;
            ech_text_append(out, "%s%s", out->n ? " " : "", word.at);
        }
    }
}

static ech_status refuse(const ech_config *config, const ech_model *model, const char *word,
                         const char *what)
{
    ECH_FREED_TEXT names = {0};
    append_candidates(model, &names);
    return ech_config_complain(config, "lora.targets",
                               "\"%s\" %s; products that can have adapters: %s", word, what,
                               names.n ? names.at : "none of this model");
}

static ech_status check_word(const ech_config *config, const ech_model *model, const char *word)
{
    bool all = strcmp(word, any_product) == 0, found = false;
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_param *param = &model->param.at[i];
        size_t n = module_of(param);
        ECH_FREED_TEXT module = {0}, what = {0};
        ech_text_append(&module, "%.*s", (int)n, param->name);
        bool wanted = all ? has_adapter(model, param, n) : matches(word, module.at);
        if (n == 0 || !wanted) continue;
        ech_text_append(&what, "matches %s, for which adapters are not built", module.at);
        if (!has_adapter(model, param, n)) return refuse(config, model, word, what.at);
        found = true;
    }
    return found ? ECH_OK : refuse(config, model, word, "matches no product");
}

static ech_status check_words(const ech_config *config, const ech_model *model)
{
    ech_status status = ECH_OK;
    int n = 0;
    for (ECH_FREED_WORDS word = ech_words_in(config->lora.targets);
         !status && ech_words_next(&word); n++)
        status = check_word(config, model, word.at);
    return status || n ? status : refuse(config, model, "", "names no product");
}

static ech_status check_rank(const ech_config *config, const ech_model *model)
{
    int64_t r = config->lora.rank;
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_param *param = &model->param.at[i];
        if (!param->adapter) continue;
        int64_t side = param->shape.size[param->adapter == ECH_ADAPTER_A];
        if (r > side)
            return ech_config_complain(config, "lora.rank",
                                       "above the %lld %s of %s; use at most %lld", (long long)side,
                                       param->adapter == ECH_ADAPTER_A ? "inputs" : "outputs",
                                       param->name, (long long)side);
    }
    return ECH_OK;
}

ech_status ech_adapters_check(const ech_config *config, const ech_model *model)
{
#define KEYS "lora.alpha lora.dropout lora.targets"
    bool adapted = config->lora.rank > 0;
    ECH_TRY(ech_config_check_read(config, KEYS, adapted ? KEYS : "", "a run without lora.rank"));
    if (!adapted) return ECH_OK;
    ECH_TRY(check_rank(config, model));
    if (!ech_config_is_auto(config->lora.targets)) return check_words(config, model);
    for (size_t i = 0; i < model->param.n; i++)
        if (model->param.at[i].adapter) return ECH_OK;
    return refuse(config, model, "auto", "finds no queries and values");
}
