/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to model: the structure of decoder-only transformers: layers x + attention(norm(x)), x + mlp(norm(x)),
 * a final norm and the head. A family supplies the parts.
 */
#ifndef ECH_MODEL_DECODER_H
#define ECH_MODEL_DECODER_H

#include "model/model.h"

/* Appends a part (attention or MLP) with input value x to the block; returns its output value. Parameters are
 * named NAME.something. std: of the initial weights of the product that is added to the residual stream. */
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

/* Builds all blocks after the embedding. A tied head uses `table`, the embedding's parameter; otherwise
 * lm_head.weight is added. */
void ech_decoder_build(const ech_config *config, ech_model *model, const ech_decoder *decoder,
                       int table);

#endif
