/* SPDX-License-Identifier: Apache-2.0
 *
 * For the tests of config: names as an application hands them in, and their run file.
 */
#ifndef ECH_TESTS_CONFIG_SAMPLE_H
#define ECH_TESTS_CONFIG_SAMPLE_H

#include <string.h>

#include "config/sample_run.h"
#include "config/table.h"

static inline ech_config *sample_create(void)
{
    const ech_config_names names[] = {
        {"models", "gpt2 llama"},
        {"optimizers", "adamw sgd"},
        {"curves", "constant linear cosine"},
        {"comms", "local mpi"},
        {"devices", "cpu queued"},
        {"reductions", "direct ring"},
        {"schedules", "1f1b gpipe"},
        {"gates", "topk switch dense"},
        {"losses", "cross_entropy"},
    };
    ech_config *config = NULL;
    if (ech_config_create(names, sizeof names / sizeof names[0], &config) != ECH_OK) return NULL;
    /* Required of families of images; both models here are decoders. */
    ech_config_mark_unread(
        config, "model.image_height model.image_width model.num_classes model.weight_layers", "");
    return config;
}

/* Whether the key's value prints as the text. */
static inline bool sample_prints(const ech_config *config, const char *key, const char *text)
{
    ech_text value = {0};
    ech_config_format_value(config, ech_config_find_path(key), &value);
    bool same = strcmp(value.at, text) == 0;
    ech_text_free(&value);
    return same;
}

static inline ech_status sample_read(ech_config *config, const char *text)
{
    return ech_config_read_text(config, text, strlen(text), "run.yaml");
}

#endif
