/* SPDX-License-Identifier: Apache-2.0
 *
 * Validation: the mean loss over the first samples of the validation data, in order. Training
 * validates between its steps, evaluators validate each checkpoint.
 */
#ifndef ECH_APP_TRAIN_VALIDATION_H
#define ECH_APP_TRAIN_VALIDATION_H

#include "exec/exec.h"

typedef struct ech_validation {
    double loss;    /* mean over the counted tokens; NaN: there are none */
    int64_t tokens; /* counted tokens */
    double seconds;
} ech_validation;

/* Number of samples: training.validate_samples, or all samples. */
int64_t ech_validation_samples(const ech_config *config, const ech_corpus *corpus);

/* Called after each batch. *ends: skip the rest. Errors end the validation. */
typedef ech_status ech_validation_pause(void *context, bool *ends);
/* Runs the validate list for each batch of `samples` samples, starting at the loader's first, and
 * rewinds the loader. pause (NULL: none) gets `context`. *out is invalid if a pause ended it.
 * Collective like ech_exec_run. */
ech_status ech_validation_run(ech_exec *exec, int64_t batch, int64_t samples, ech_loader *loader,
                              ech_validation_pause *pause, void *context, ech_validation *out);

#endif
