/* SPDX-License-Identifier: Apache-2.0
 *
 * A training run that verify compares with another: its session and training data.
 */
#ifndef ECH_APP_VERIFY_COMPARED_RUN_H
#define ECH_APP_VERIFY_COMPARED_RUN_H

#include "app/setup/setup.h"

typedef struct ech_compared_run {
    const ech_design *design; /* borrowed */
    ech_session session;
    ech_corpus *data;
    ech_loader *loader;
} ech_compared_run;

/* Makes session and loader and initializes the parameters; run->design is set. Collective over `comm`. */
ech_status ech_compared_run_open(ech_compared_run *run, ech_comm *comm);
/* *loss: of the first batch of validation data under the newest weights. *validates: there is such data.
 * Collective. */
ech_status ech_compared_run_validate(ech_compared_run *run, int rank, bool *validates,
                                     double *loss);
void ech_compared_run_close(ech_compared_run *run);

#endif
