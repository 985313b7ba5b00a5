/* SPDX-License-Identifier: Apache-2.0
 *
 * Run files for the model of a Hugging Face folder, and for texts, with the origin of each value.
 */
#ifndef ECH_APP_SETUP_TEMPLATE_H
#define ECH_APP_SETUP_TEMPLATE_H

#include "base/status.h"
#include "base/text.h"
#include "tensor/tensor.h"

/* Appends it. Only the folder's config.json is read. ranks: a global batch can be shared by so
 * many. Errors: as of ech_model_import. */
ech_status ech_template_of_model(const char *folder, int ranks, ech_text *out);

/* What a machine can compute. */
typedef struct ech_template_machine {
    int cores;
    double flops[ECH_DTYPES]; /* FLOP/s of products, all cores together; 0: unknown */
} ech_template_machine;
/* Measures this machine, in tenths of a second. */
ech_status ech_template_measure(ech_template_machine *out);
/* Appends the run file that trains a new model on texts: the largest one of a few for which there
 * are enough texts, and which this machine trains in about an hour. Errors: as of
 * ech_data_count_texts. */
ech_status ech_template_of_texts(const char *texts, const ech_template_machine *machine,
                                 ech_text *out);

#endif
