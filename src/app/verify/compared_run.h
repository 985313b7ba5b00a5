/* SPDX-License-Identifier: Apache-2.0
 *
 * A training run that is compared with another: what verify and its replay share.
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

/* Session, loader, initial parameters. Collective over the ranks of `comm`. */
ech_status ech_compared_run_open(ech_compared_run *run, ech_comm *comm);
/* The loss of a batch of validation data under the newest weights; without such data *validates is false.
 * Collective. */
ech_status ech_compared_run_validate(ech_compared_run *run, int rank, bool *validates,
                                     double *loss);
void ech_compared_run_close(ech_compared_run *run);

#endif
