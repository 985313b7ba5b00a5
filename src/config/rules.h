/* SPDX-License-Identifier: Apache-2.0
 *
 * The pairs of features of a run that cannot be combined (the table rules.def). They are checked
 * before there is a model. A rule is a pair of features; a configuration breaks it if both are on.
 * All texts are static.
 */
#ifndef ECH_CONFIG_RULES_H
#define ECH_CONFIG_RULES_H

#include "config/config.h"

typedef enum ech_feature {
#define FEATURE(name, ...) ECH_FEATURE_##name,
#define RULE(...)
#include "config/rules.def"
    ECH_FEATURES
} ech_feature;

enum {
#define FEATURE(...)
#define RULE(feature, other, ...) ECH_RULE_##feature##_##other,
#include "config/rules.def"
    ECH_RULES
};

/* When a rule is checked. Each rule has one scope: GRID if one of its features has that scope in
 * rules.def. */
typedef enum ech_rule_scope {
    ECH_RULES_OF_RUN, /* once: the run file alone decides */
    /* for each device mesh that is tried: it also depends on the parallel degrees */
    ECH_RULES_OF_GRID
} ech_rule_scope;

typedef enum ech_rule_kind {
    ECH_RULE_FORBIDDEN, /* one feature excludes the other, or is an option without effect */
    ECH_RULE_UNBUILT    /* they could be combined, but this is not implemented */
} ech_rule_kind;

typedef struct ech_rule {
    ech_feature feature; /* errors name its key */
    ech_feature other;   /* it cannot be combined with this one */
    ech_rule_kind kind;
    const char *reason;  /* why not */
    const char *hint;    /* what to set instead */
} ech_rule;

extern const ech_rule ech_rules[ECH_RULES];

bool ech_feature_is_on(const ech_config *config, ech_feature feature);
/* The feature's key, and what its value is when the feature is on ("above 1"). */
const char *ech_feature_key(ech_feature feature);
const char *ech_feature_value(ech_feature feature);

/* The first rule of that scope that the configuration breaks; NULL: none. */
const ech_rule *ech_rule_broken(const ech_config *config, ech_rule_scope scope);
/* Appends "not with parallel.context = 2: REASON; HINT", with the other feature's key. Returns
 * rule->feature's key, for ech_config_complain. */
const char *ech_rule_explain(const ech_rule *rule, const ech_config *config, ech_text *out);
/* Checks all rules of scope RUN. Logs an error for each broken one, but only the first with the
 * same `feature`; ECH_EUSAGE. */
ech_status ech_rules_check(const ech_config *config);
/* Appends help: all pairs of that kind, with reasons and hints. */
void ech_rules_help(ech_rule_kind kind, ech_text *out);
/* Appends all pairs that involve the key ("parallel.zero"), as ech_rules_help does. */
void ech_rules_help_key(const char *key, ech_text *out);

#endif
