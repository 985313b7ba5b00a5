/* SPDX-License-Identifier: Apache-2.0
 *
 * Tries settings on copies of the configuration, each with a design of its own.
 */
#include "app/setup/parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "config/follow.h"
#include "config/strategy.h"

enum { MOST_OFFERED = 4, LONGEST_WORD = 80 };
/* One error makes up to two dozen plans. Nothing is tried for a plan that needs so many times what
 * it may use or has more steps, and no plan of more blocks that a rank computes in a step. */
enum { MOST_EXCESS = 64, MOST_STEPS = 20000, MOST_BLOCKS = 4096 };

/* What the search keeps of the resolved configuration, which has it from the machine. */
static const char kept[] = "memory.device_limit parallel.threads parallel.node_ranks";

/* Settings that are tried, in the order in which they are offered: those that cost little time
 * first. Words are separated by blanks. */
static const char *const single[] = {
    "checkpoint.background=false",
    "parallel.zero=1",
    "parallel.zero=2",
    "memory.recompute=selective",
    "parallel.zero=3",
    "memory.recompute=full",
    "parallel.tensor=2",
    "parallel.pipeline=2",
    "parallel.tensor=4",
    "parallel.pipeline=4",
    "memory.offload_optimizer=host",
    "memory.offload_activations=host",
    "memory.offload_parameters=host",
    "memory.offload_optimizer=disk",
    "memory.offload_activations=disk",
    "memory.offload_parameters=disk",
};
enum { SINGLE = sizeof single / sizeof *single };

/* Settings that are added one after the other until the run fits. */
static const char *const together[] = {
    "training.micro_batch_size=1",
    "memory.recompute=full",
    "parallel.zero=3",
    "checkpoint.background=false",
    "memory.offload_activations=host",
    "memory.offload_parameters=host",
    "memory.offload_activations=disk",
    "memory.offload_parameters=disk",
};
enum { TOGETHER = sizeof together / sizeof *together };

/* Whether the run file says something else about the key, or its strategy does. */
static bool may_set(const ech_config *config, const char *word)
{
    ECH_FREED char *key = ech_strdup(word);
    ECH_FREED_TEXT value = {0};
    *strchr(key, '=') = '\0';
    if (strstr(ech_strategy_keys(config), key)) return false;
    ech_config_format(config, key, &value);
    return strcmp(value.at, strchr(word, '=') + 1) != 0;
}

static ech_status set_all(ech_config *config, const char *words)
{
    ECH_FREED char *copy = ech_strdup(words);
    char *rest = NULL;
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        ECH_TRY(ech_config_set(config, word));
    return ECH_OK;
}

typedef enum outcome { REFUSED, TOO_LARGE, FITS } outcome;

static bool is_long(const ech_design *design)
{
    return (int64_t)design->layout->micro_batches * (int64_t)design->model->block.n > MOST_BLOCKS;
}

/* The run with these settings. */
static outcome try_words(const ech_design *design, const char *words)
{
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = ech_config_copy(design->config);
    ECH_CLEANUP(ech_design_destroy) ech_design other = {0};
    int ranks = ech_layout_ranks(design->layout);
    ech_config_forget(config, kept);
    ech_status status = set_all(config, words);
    if (status == ECH_OK) {
        ech_model_choose(config);
        ech_config_follow(config);
        status = ech_design_create(config, design->tokenizer, ranks, ranks, &other);
    }
    if (status != ECH_OK || is_long(&other)) return REFUSED;
    return ech_design_fits(&other, NULL) ? FITS : TOO_LARGE;
}

static bool helps(const ech_design *design, const char *words)
{
    return try_words(design, words) == FITS;
}

/* Settings that fit by themselves. */
static int print_single(const ech_design *design, ech_text *out)
{
    int n = 0;
    int64_t micro = design->config->training.micro_batch_size;
    for (micro /= 2; micro > 0 && n == 0; micro /= 2) {
        char word[LONGEST_WORD];
        snprintf(word, sizeof word, "training.micro_batch_size=%lld", (long long)micro);
        if (!helps(design, word)) continue;
        ech_text_append(out, "%s, ", word);
        n++;
    }
    for (int i = 0; i < SINGLE && n < MOST_OFFERED; i++) {
        if (!may_set(design->config, single[i]) || !helps(design, single[i])) continue;
        ech_text_append(out, "%s, ", single[i]);
        n++;
    }
    return n;
}

/* A later word replaces an earlier one of its key. */
static void add_word(ech_text *words, const char *word)
{
    size_t n = strcspn(word, "=") + 1;
    ECH_FREED char *copy = ech_strdup(words->n ? words->at : "");
    char *rest = NULL;
    ech_text_free(words);
    for (char *at = strtok_r(copy, " ", &rest); at; at = strtok_r(NULL, " ", &rest))
        if (strncmp(at, word, n) != 0) ech_text_append(words, "%s ", at);
    ech_text_append(words, "%s", word);
}

static void print_together(const ech_design *design, ech_text *out)
{
    ECH_FREED_TEXT words = {0};
    for (int i = 0; i < TOGETHER; i++) {
        ECH_FREED_TEXT more = {0};
        if (!may_set(design->config, together[i])) continue;
        ech_text_append(&more, "%s", words.n ? words.at : "");
        add_word(&more, together[i]);
        outcome found = try_words(design, more.at);
        if (found == REFUSED) continue;
        ech_text_free(&words);
        ech_text_append(&words, "%s", more.at);
        if (found != FITS) continue;
        ech_text_append(out, "%s, ", words.at);
        return;
    }
}

void ech_remedies_print(const ech_design *design, const ech_plan *plan, ech_text *out)
{
    int64_t most = design->config->memory.device_limit;
    bool exceeds = plan->arena_bytes[ECH_SPACE_DEVICE] / MOST_EXCESS > most;
    if (exceeds || plan->list[ECH_LIST_TRAIN].step.n > MOST_STEPS) return;
    bool quiet = ech_log_set_quiet(true);
    ECH_FREED char *error = ech_last_error() ? ech_strdup(ech_last_error()) : NULL;
    if (print_single(design, out) == 0) print_together(design, out);
    ech_clear_error();
    if (error) ech_set_last_error(error);
    ech_log_set_quiet(quiet);
}
