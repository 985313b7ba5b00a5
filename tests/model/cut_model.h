/* SPDX-License-Identifier: Apache-2.0
 *
 * Small models of every family, cut as a line of assignments says, without any file. Include it
 * after cmocka.
 */
#ifndef ECH_TESTS_MODEL_CUT_MODEL_H
#define ECH_TESTS_MODEL_CUT_MODEL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "model/model.h"
#include "unit.h"

enum { CUT_MODEL_TOKENS = 24, CUT_MODEL_IDS = 13 };

/* "section.key=value section.key=value ...": as on a command line. */
static inline void cut_model_set(ech_config *config, const char *assignments)
{
    char *words = ech_strdup(assignments), *rest = words, *word;
    while ((word = strsep(&rest, " ")))
        if (*word) assert_int_equal(ech_config_set(config, word), ECH_OK);
    free(words);
}

/* One layer of width 16 with 8 heads, with experts if the family has them; dropout everywhere. */
static inline ech_model *cut_model(const char *architecture, const char *assignments)
{
    const ech_config_names names[] = {{"models", ech_family_names()},
                                      {"gates", ech_gate_names()},
                                      {"devices", ech_device_names()}};
    ech_config *config;
    ech_model *model;
    char word[100];
    assert_int_equal(ech_config_create(names, 3, &config), ECH_OK);
    snprintf(word, sizeof word, "model.architecture=%s", architecture);
    cut_model_set(config, word);
    config->model.hidden_size = 16;
    config->model.num_attention_heads = 8;
    config->model.num_hidden_layers = 1;
    config->model.intermediate_size = 12;
    config->data.sequence_length = CUT_MODEL_TOKENS;
    if (ech_family_reads(config, "model.moe_every")) cut_model_set(config, "model.moe_every=1");
    if (ech_family_reads(config, "model.embd_pdrop"))
        cut_model_set(config, "model.embd_pdrop=0.1 model.resid_pdrop=0.2 model.attn_pdrop=0.3");
    cut_model_set(config, assignments);
    assert_int_equal(ech_model_resolve(config, CUT_MODEL_IDS), ECH_OK);
    if (ech_model_create(config, NULL, &model) != ECH_OK)
        fail_msg("%s %s: %s", architecture, assignments, ech_last_error());
    ech_config_destroy(config);
    return model;
}

#endif
