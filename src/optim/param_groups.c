/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameter groups.
 */
#include "optim/optim.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

static const double MOST_FACTOR = 1e6; /* the bound of optimizer.learning_rate */

/* The patterns of a key, and the parameters they apply to. */
typedef struct patterns {
    const ech_config *config;
    const char *key;
    ech_param *params;
    size_t n;
} patterns;

/* Frozen, whatever the keys say: the run trains adapters. */
static bool is_base(const ech_config *config, const ech_param *param)
{
    return config->lora.rank > 0 && !param->adapter && !param->commit;
}

/* factor: NULL: matched parameters do not decay. */
static ech_status set_matched(const patterns *p, const char *pattern, const double *factor)
{
    size_t matched = 0;
    for (size_t i = 0; i < p->n; i++) {
        ech_param *param = &p->params[i];
        if (param->commit || is_base(p->config, param)) continue;
        if (fnmatch(pattern, param->name, 0) != 0) continue;
        matched++;
        if (!factor) {
            param->decay = false;
        } else {
            param->rate = *factor;
            param->frozen = !(*factor > 0);
        }
    }
    if (matched) return ECH_OK;
    size_t like = p->n - 1;
    while (like > 0 && is_base(p->config, &p->params[like])) like--;
    return ech_config_complain(p->config, p->key, "\"%s\" matches no %s; names are as %s", pattern,
                               p->config->lora.rank ? "adapter" : "parameter",
                               p->params[like].name);
}

static ech_status set_rate(const patterns *p, char *word)
{
    double factor;
    char *equals = strrchr(word, '=');
    bool is_factor = equals && ech_text_to_real(equals + 1, &factor);
    if (!is_factor || !(factor >= 0 && factor <= MOST_FACTOR))
        return ech_config_complain(p->config, p->key,
                                   "\"%s\" is no PATTERN=FACTOR with a factor from 0 to %g, as "
                                   "lm_head*=0.1",
                                   word, MOST_FACTOR);
    *equals = '\0';
    return set_matched(p, word, &factor);
}

static ech_status for_each_word(const patterns *p, const char *words, bool rates)
{
    ech_status status = ECH_OK;
    for (ECH_FREED_WORDS word = ech_words_in(words); !status && ech_words_next(&word);)
        status = rates ? set_rate(p, word.at) : set_matched(p, word.at, NULL);
    return status;
}

ech_status ech_optimizer_freeze_params(const ech_config *config, ech_param *params, size_t n)
{
    patterns p = {config, "optimizer.rates", params, n};
    size_t trained = 0;
    for (size_t i = 0; i < n; i++) params[i].frozen |= is_base(config, &params[i]);
    ECH_TRY(for_each_word(&p, config->optimizer.rates, true));
    for (size_t i = 0; i < n; i++) trained += ech_param_is_trained(&params[i]);
    if (trained || !n) return ECH_OK;
    return ech_config_complain(config, p.key,
                               "freezes all parameters; add a pattern with a factor above 0 after "
                               "the others, as lm_head*=1");
}

ech_status ech_optimizer_group_params(const ech_config *config, ech_param *params, size_t n)
{
    patterns p = {config, "optimizer.no_decay", params, n};
    ECH_TRY(for_each_word(&p, config->optimizer.no_decay, false));
    ECH_TRY(ech_optimizer_freeze_params(config, params, n));
    for (size_t i = 0; i < n; i++) params[i].rate *= ech_optimizer_rule_of(config, &params[i]).rate;
    return ECH_OK;
}

bool ech_optimizer_has_groups(const ech_config *config)
{
    return config->optimizer.no_decay[0] || config->optimizer.rates[0] ||
           ech_optimizer_of(config)->rule;
}
