/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks a configuration against the table of features that cannot be combined.
 */
#include "config/rules.h"

#include <math.h>
#include <string.h>

#include "config/strategy.h"
#include "config/table.h"

/* ---- conditions ---- */

/* True for a name that is not a generator's: a file, a plugin's order, or a mistyped name. */
static bool is_written(const ech_config *c)
{
    const char *names = ech_config_choices(c, ech_config_find_path("parallel.schedule"));
    return strpbrk(c->parallel.schedule, "/.") ||
           (names && !ech_text_has_word(names, c->parallel.schedule));
}

static bool is_named(const ech_config *config, const char *key, const char *name)
{
    return strcmp(ech_config_name(config, key), name) == 0;
}

static bool recomputes_all(const ech_config *c)
{
    return c->memory.recompute == ECH_RECOMPUTE_FULL || c->memory.recompute == ECH_RECOMPUTE_AUTO;
}

/* Whether some stage's replicas have unequal numbers of micro-batches. */
static bool are_uneven(const ech_config *c)
{
    const ech_config_list *list = &c->parallel.stage_replicas;
    int64_t micro = c->training.micro_batch_size;
    for (int s = 0; s < list->n && micro != ECH_AUTO; s++)
        if (c->training.global_batch_size / micro % list->at[s]) return true;
    return false;
}

/* Whether the numbers of replicas of stages differ, or the numbers of micro-batches of replicas. */
static bool are_unequal(const ech_config *c)
{
    const ech_config_list *list = &c->parallel.stage_replicas;
    for (int s = 0; s < list->n; s++)
        if (list->at[s] != list->at[0]) return true;
    return are_uneven(c);
}

/* Whether a stage has more replicas than an earlier one. */
static bool are_growing(const ech_config *c)
{
    const ech_config_list *list = &c->parallel.stage_replicas;
    for (int s = 0; s < list->n; s++)
        for (int later = s + 1; later < list->n; later++)
            if (list->at[later] > list->at[s]) return true;
    return false;
}

static bool has_experts(const ech_config *c)
{
    return c->model.num_local_experts > 0;
}

/* Whether experts are chosen by logits with noise. */
static bool is_noisy(const ech_config *c)
{
    return ech_text_has_word("noisy_topk hierarchical", ech_config_name(c, "model.moe_gate"));
}

/* The proportion of data.split for validation; -1: it is not given. */
static int64_t second_share(const ech_config *c)
{
    int64_t bound[4];
    return c->data.split[0] && ech_text_to_bounds(c->data.split, bound) ? bound[2] - bound[1] : -1;
}

/* Left out it is dynamic in fp16 alone. */
static bool is_dynamic(const ech_config *c)
{
    return c->precision.loss_scale == ECH_AUTO && (ech_config_is_set(c, "precision.loss_scale") ||
                                                   is_named(c, "precision.compute", "fp16"));
}

static bool is_narrowed(const ech_config *c)
{
    int64_t wire = c->precision.reduce;
    return wire == ECH_WIRE_BF16 || wire == ECH_WIRE_FP16 || wire == ECH_WIRE_E6M9 ||
           (wire == ECH_WIRE_FP32 && c->precision.compute == ECH_COMPUTE_FP64);
}

static bool inverts(const ech_config *c)
{
    return c->memory.invert == 1 || (c->memory.invert == ECH_AUTO && c->model.reversible == 1);
}

/* True if optimizer.rates has a factor of 0 (PATTERN=0). */
static bool freezes(const ech_config *c)
{
    double factor;
    for (ECH_FREED_WORDS word = ech_words_in(c->optimizer.rates); ech_words_next(&word);) {
        char *equals = strrchr(word.at, '=');
        if (equals && ech_text_to_real(equals + 1, &factor) && !(factor > 0)) return true;
    }
    return false;
}

static bool is_half(const ech_config *c)
{
    return c->precision.compute == ECH_COMPUTE_BF16 || c->precision.compute == ECH_COMPUTE_FP16;
}

/* Families without texts read no tokenizer; before a family has marked its keys, all are read. */
static bool reads_images(const ech_config *c)
{
    return !ech_config_reads(c, "data.tokenizer") && ech_config_reads(c, "model.num_classes");
}

static bool has_batch_norm(const ech_config *c)
{
    return reads_images(c) && ech_config_reads(c, "model.norm_samples");
}

/* ---- the table ---- */

static const struct {
    const char *key, *value;
    ech_rule_scope scope;
} features[ECH_FEATURES] = {
#define FEATURE(name, key, value, scope, condition) {key, value, ECH_RULES_OF_##scope},
#define RULE(...)
#include "config/rules.def"
};

bool ech_feature_is_on(const ech_config *c, ech_feature feature)
{
    switch (feature) {
#define FEATURE(name, key, value, scope, condition)                                                \
    case ECH_FEATURE_##name:                                                                       \
        return condition;
#define RULE(...)
#include "config/rules.def"
    case ECH_FEATURES:
        break;
    }
    return false;
}

const char *ech_feature_key(ech_feature feature)
{
    return features[feature].key;
}

const char *ech_feature_value(ech_feature feature)
{
    return features[feature].value;
}

const ech_rule ech_rules[ECH_RULES] = {
#define FEATURE(...)
#define RULE(feature, other, kind, reason, hint)                                                   \
    {ECH_FEATURE_##feature, ECH_FEATURE_##other, ECH_RULE_##kind, reason, hint},
#include "config/rules.def"
};

/* ---- the walk ---- */

static ech_rule_scope scope_of(const ech_rule *rule)
{
    ech_rule_scope a = features[rule->feature].scope, b = features[rule->other].scope;
    return a > b ? a : b;
}

static bool is_broken(const ech_rule *rule, const ech_config *config, ech_rule_scope scope)
{
    return scope_of(rule) == scope && ech_feature_is_on(config, rule->feature) &&
           ech_feature_is_on(config, rule->other);
}

const ech_rule *ech_rule_broken(const ech_config *config, ech_rule_scope scope)
{
    for (int r = 0; r < ECH_RULES; r++)
        if (is_broken(&ech_rules[r], config, scope)) return &ech_rules[r];
    return NULL;
}

const char *ech_rule_explain(const ech_rule *rule, const ech_config *config, ech_text *out)
{
    const ech_config_key *key = ech_config_find_path(features[rule->other].key);
    const char *cause = ech_config_origin_of(config, key)->cause;
    ech_text_append(out, "not with %s = ", features[rule->other].key);
    size_t before = out->n;
    ech_config_format_value(config, key, out);
    if (out->n == before) ech_text_append(out, "\"\"");
    if (cause) ech_text_append(out, ", which follows from %s", cause);
    ech_text_append(out, ": %s; %s%s", rule->reason, cause ? "remove that key, or " : "",
                    rule->hint);
    return features[rule->feature].key;
}

ech_status ech_rules_check(const ech_config *config)
{
    ech_status status = ECH_OK;
    bool said[ECH_FEATURES] = {false};
    for (int r = 0; r < ECH_RULES; r++) {
        const ech_rule *rule = &ech_rules[r];
        ECH_FREED_TEXT why = {0};
        if (said[rule->feature] || !is_broken(rule, config, ECH_RULES_OF_RUN)) continue;
        said[rule->feature] = true;
        const char *key = ech_rule_explain(rule, config, &why);
        ECH_ALSO(&status, ech_config_complain(config, key, "%s", why.at));
    }
    return status;
}

static void append_rule(const ech_rule *rule, ech_text *out)
{
    ECH_FREED_TEXT why = {0};
    ech_text_append(&why, "%s; %s", rule->reason, rule->hint);
    ech_text_append(out, "  %s %s, with %s %s:\n", features[rule->feature].key,
                    features[rule->feature].value, features[rule->other].key,
                    features[rule->other].value);
    ech_config_append_wrapped(why.at, 6, out);
}

void ech_rules_help(ech_rule_kind kind, ech_text *out)
{
    for (int r = 0; r < ECH_RULES; r++)
        if (ech_rules[r].kind == kind) append_rule(&ech_rules[r], out);
}

static bool is_about(ech_feature feature, const char *key)
{
    return strcmp(features[feature].key, key) == 0 ||
           ech_text_has_word(features[feature].value, key);
}

void ech_rules_help_key(const char *key, ech_text *out)
{
    for (int r = 0; r < ECH_RULES; r++)
        if (is_about(ech_rules[r].feature, key) || is_about(ech_rules[r].other, key))
            append_rule(&ech_rules[r], out);
}
