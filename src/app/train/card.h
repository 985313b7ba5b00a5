/* SPDX-License-Identifier: Apache-2.0
 *
 * The model card of a checkpoint: README.md beside the weights, Markdown with metadata in YAML, as
 * the Hugging Face Hub expects it. Pure. Nothing in it depends on the layout.
 */
#ifndef ECH_APP_TRAIN_CARD_H
#define ECH_APP_TRAIN_CARD_H

#include <stdint.h>

#include "config/config.h"

typedef struct ech_card {
    const ech_config *config;
    const char *run_yaml; /* the resolved run file */
    int64_t parameters, step, tokens;
    double loss;       /* of the step; NaN: none */
    double valid_loss; /* of the newest validation, if valid_step >= 0 */
    int64_t valid_step;
} ech_card;

/* Appends the card. Names that the user chose are last parts of paths (of a model in the Hub's
 * cache, its name there), escaped: no name is Markdown, HTML or YAML. */
void ech_card_append(const ech_card *card, ech_text *out);

#endif
