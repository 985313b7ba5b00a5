/* SPDX-License-Identifier: Apache-2.0
 *
 * A small model and its layout without any file: the configuration's fields are set by hand.
 */
#ifndef ECH_TESTS_LAYOUT_SAMPLE_H
#define ECH_TESTS_LAYOUT_SAMPLE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/comm.h"
#include "layout/layout.h"
#include "optim/optim.h"

static inline ech_config *sample_config(const char *architecture)
{
    const ech_config_names names[] = {
        {"models", ech_family_names()}, {"optimizers", ech_optimizer_names()},
        {"curves", ech_curve_names()},  {"comms", ech_comm_names()},
        {"devices", "cpu queued"},      {"reductions", ech_reduction_names()},
        {"gates", ech_gate_names()},    {"losses", "cross_entropy"}};
    ech_config *config;
    char word[100];
    ECH_ASSERT(ech_config_create(names, sizeof names / sizeof *names, &config) == ECH_OK);
    snprintf(word, sizeof word, "model.architecture=%s", architecture);
    ECH_ASSERT(ech_config_set(config, word) == ECH_OK);
    config->model.hidden_size = 16;
    config->model.num_hidden_layers = 3;
    config->model.num_attention_heads = 4;
    config->data.sequence_length = 8;
    config->training.steps = 10;
    config->training.global_batch_size = 24;
    config->training.micro_batch_size = 2;
    config->optimizer.learning_rate = 0.1;
    config->parallel.bucket_bytes = 4096;
    config->parallel.virtual_stages = 1;
    return config;
}

/* "section.key=value section.key=value ...": as on a command line. */
static inline void sample_set(ech_config *config, const char *assignments)
{
    char *words = ech_strdup(assignments), *rest = words, *word;
    while ((word = strsep(&rest, " ")))
        if (*word) ECH_ASSERT(ech_config_set(config, word) == ECH_OK);
    free(words);
}

typedef struct sample {
    ech_config *config;
    ech_model *model;
    ech_layout *layout;
} sample;

/* Takes the configuration. Whatever comes of it, sample_free. */
static inline ech_status sample_try(ech_config *config, ech_placement placement, int ranks,
                                    sample *s)
{
    *s = (sample){.config = config};
    ech_status status = ech_model_resolve(config, 50);
    if (status == ECH_OK) status = ech_model_create_whole(config, &s->model);
    if (status == ECH_OK) status = ech_layout_resolve(config, s->model, ranks, NULL);
    ech_model_destroy(s->model);
    s->model = NULL;
    if (status == ECH_OK) status = ech_model_create(config, NULL, &s->model);
    if (status == ECH_OK)
        status = ech_layout_create(config, s->model, placement, ranks, &s->layout);
    return status;
}

static inline sample sample_create(ech_config *config, int ranks)
{
    sample s;
    ECH_ASSERT(sample_try(config, ECH_PLACEMENT_LOOP, ranks, &s) == ECH_OK);
    return s;
}

static inline void sample_free(sample *s)
{
    ech_layout_destroy(s->layout);
    ech_model_destroy(s->model);
    ech_config_destroy(s->config);
}

/* Whether this thread's last error has all the words, divided by "|"; prints what is missing. */
static inline bool sample_error_has(const char *words)
{
    char *copy = ech_strdup(words), *rest = copy, *word;
    bool all = true;
    while ((word = strsep(&rest, "|"))) {
        if (strstr(ech_last_error(), word)) continue;
        ech_log_warn("no \"%s\" in \"%s\"", word, ech_last_error());
        all = false;
    }
    free(copy);
    return all;
}

#endif
