/* SPDX-License-Identifier: Apache-2.0
 *
 * A validation: the mean loss over the first samples of the validation data, in order. Training
 * does it between its steps, evaluators of each checkpoint.
 */
#ifndef ECH_APP_TRAIN_VALIDATION_H
#define ECH_APP_TRAIN_VALIDATION_H

#include "exec/exec.h"

typedef struct ech_validation {
    double loss;    /* mean over the tokens that count; NaN: none does */
    int64_t tokens; /* that count */
    double seconds;
} ech_validation;

/* How many samples: training.validate_samples, or all that there are. */
int64_t ech_validation_samples(const ech_config *config, const ech_corpus *corpus);

/* Called behind each batch. *ends: leave the others out. Errors end the validation. */
typedef ech_status ech_validation_pause(void *context, bool *ends);
/* Runs the validate list for each batch of `samples` samples, which `loader` is at the first of,
 * and rewinds that. pause (NULL: none) gets `context`. *out is void if a pause has ended it.
 * Collective as ech_exec_run is. */
ech_status ech_validation_run(ech_exec *exec, int64_t batch, int64_t samples, ech_loader *loader,
                              ech_validation_pause *pause, void *context, ech_validation *out);

#endif
