/* SPDX-License-Identifier: Apache-2.0
 *
 * Which features cannot be combined: the table of rules.def, checked before there is a model.
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

/* What decides a rule: the run file alone, or the degrees of a grid, too. */
typedef enum ech_rule_scope { ECH_RULES_OF_RUN, ECH_RULES_OF_GRID } ech_rule_scope;

typedef struct ech_rule {
    ech_feature feature, other; /* that cannot be combined; errors name the first one's key */
    const char *reason, *hint;
} ech_rule;

extern const ech_rule ech_rules[ECH_RULES];

bool ech_feature_is_on(const ech_config *config, ech_feature feature);

/* The first rule of that scope that the configuration breaks; NULL: none. */
const ech_rule *ech_rule_broken(const ech_config *config, ech_rule_scope scope);
/* Appends "not with parallel.context = 2: REASON; HINT". Returns the key to blame. */
const char *ech_rule_explain(const ech_rule *rule, const ech_config *config, ech_text *out);
/* Checks the rules of the run's scope: an error, logged, for each feature that breaks one; ECH_EUSAGE. */
ech_status ech_rules_check(const ech_config *config);
/* Help: all pairs that cannot be combined, with reasons. */
void ech_rules_help(ech_text *out);

#endif
