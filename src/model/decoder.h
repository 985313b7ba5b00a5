/* SPDX-License-Identifier: Apache-2.0
 *
 * What decoder-only transformers share: layers x + attention(norm(x)), x + mlp(norm(x)), and a head
 * behind a last norm. A family says what its parts are. Private to this room.
 */
#ifndef ECH_MODEL_DECODER_H
#define ECH_MODEL_DECODER_H

#include "model/model.h"

/* Adds a part to the block and returns the output's value; parameters are called NAME.something. std: of the product
 * that ends in the residual stream. */
typedef int (*ech_decoder_part)(const ech_config *config, ech_model *model, ech_block *block,
                                const char *name, int x, double std);

typedef struct ech_decoder {
    const char *layers;                   /* "transformer.h": layer i is "transformer.h.i" */
    const char *first_norm, *second_norm; /* of a layer: "ln_1" is "transformer.h.i.ln_1" */
    const char *last_norm;                /* "transformer.ln_f" */
    int (*norm)(ech_model *model, ech_block *block, const ech_config *config, const char *name,
                int x);
    ech_decoder_part attention, mlp;
} ech_decoder;

/* The layers, and the head: with the embedding's table if that is tied, else with lm_head.weight. */
void ech_decoder_build(const ech_config *config, ech_model *model, const ech_decoder *decoder,
                       int table);

#endif
