/* SPDX-License-Identifier: Apache-2.0
 *
 * A training run that is compared with another: what verify and its replay share.
 */
#ifndef ECH_APP_VERIFY_CONTESTANT_H
#define ECH_APP_VERIFY_CONTESTANT_H

#include "app/setup/setup.h"

typedef struct ech_contestant {
    ech_config *config; /* resolved when it is opened */
    const ech_tokenizer *tokenizer;
    ech_design design;
    ech_session session;
    ech_corpus *data;
    ech_loader *loader;
} ech_contestant;

/* Design, session, loader, initial parameters. Collective over the ranks of `comm`. */
ech_status ech_contestant_open(ech_contestant *contestant, ech_comm *comm);
void ech_contestant_close(ech_contestant *contestant);

#endif
