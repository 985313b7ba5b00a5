/* SPDX-License-Identifier: Apache-2.0
 *
 * A training run that is compared with another: what verify and its replay share.
 */
#ifndef ECH_APP_VERIFY_CONTESTANT_H
#define ECH_APP_VERIFY_CONTESTANT_H

#include "app/setup/setup.h"

typedef struct ech_contestant {
    const ech_design *design; /* borrowed */
    ech_session session;
    ech_corpus *data;
    ech_loader *loader;
} ech_contestant;

/* Session, loader, initial parameters. Collective over the ranks of `comm`. */
ech_status ech_contestant_open(ech_contestant *contestant, ech_comm *comm);
/* The loss of a batch of validation data under the newest weights; without such data *validates is false.
 * Collective. */
ech_status ech_contestant_validate(ech_contestant *contestant, int rank, bool *validates,
                                   double *loss);
void ech_contestant_close(ech_contestant *contestant);

#endif
