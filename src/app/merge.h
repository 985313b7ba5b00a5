/* SPDX-License-Identifier: Apache-2.0
 *
 * Adapters (LoRA) merged into the weights of their base, in fp64: W + alpha / r B A.
 */
#ifndef ECH_APP_MERGE_H
#define ECH_APP_MERGE_H

#include "checkpoint/peft.h"
#include "model/model.h"

/* Errors: the folder has adapters that belong to no matrix of the model, or whose shapes do not fit
 * it. */
ech_status ech_merge_check(const ech_peft *adapters, const ech_model *model);

/* What is added to one matrix; {0}: nothing. */
typedef struct ech_merge {
    const ech_model *model;
    int64_t in, out, rank;
    double scale, *a, *b; /* alpha / r, A (r,in) and B (out,r) */
} ech_merge;

/* Reads the adapter of a parameter, if there is one. Both may be NULL. Release with
 * ech_merge_free. */
ech_status ech_merge_read(const ech_peft *adapters, const ech_model *model, const ech_param *param,
                          ech_merge *out);
void ech_merge_free(ech_merge *merge);
/* Adds to `rows` rows of the parameter from row `first` on. */
void ech_merge_add(const ech_merge *merge, int64_t first, int64_t rows, double *to);

#endif
