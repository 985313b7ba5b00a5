/* SPDX-License-Identifier: Apache-2.0
 *
 * A training run to compare with.
 */
#include "app/verify/contestant.h"

#include "app/setup/initial.h"

ech_status ech_contestant_open(ech_contestant *c, ech_comm *comm)
{
    int world = ech_comm_size(comm);
    ECH_TRY(ech_setup_resolve(c->config, c->tokenizer, world, ech_comm_local_size(comm)));
    ECH_TRY(ech_design_create(c->config, c->tokenizer, world, &c->design));
    ECH_TRY(ech_session_create(&c->design, comm, false, &c->session));
    ech_loader_options options = ech_design_reads(&c->design, ech_comm_rank(comm), true, INT64_MAX);
    ECH_TRY(ech_design_open_data(&c->design, ECH_SHARE_TRAIN, &c->data));
    ECH_TRY(ech_loader_create(c->data, &options, 0, &c->loader));
    ech_exec_set_loader(c->session.exec, ECH_TRAIN, c->loader);
    return ech_session_initialise(&c->session, c->config);
}

void ech_contestant_close(ech_contestant *c)
{
    ech_loader_destroy(c->loader);
    ech_corpus_close(c->data);
    ech_session_destroy(&c->session);
    ech_design_destroy(&c->design);
    ech_config_destroy(c->config);
    *c = (ech_contestant){0};
}
