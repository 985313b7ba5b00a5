/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening, validating and closing a compared run.
 */
#include "app/verify/compared_run.h"

#include "app/setup/initial.h"

ech_status ech_compared_run_open(ech_compared_run *c, ech_comm *comm)
{
    ECH_TRY(ech_session_create(c->design, comm, false, &c->session));
    ech_loader_options options = ech_design_reads(c->design, ech_comm_rank(comm), true, INT64_MAX);
    ECH_TRY(ech_design_open_data(c->design, ECH_SPLIT_TRAIN, &c->data));
    ECH_TRY(ech_loader_create(c->data, &options, 0, &c->loader));
    ech_exec_set_loader(c->session.exec, ECH_TRAIN, c->loader);
    return ech_session_initialise(&c->session, c->design->config);
}

/* The loss of the corpus's first samples, one global batch of them. */
static ech_status validate(ech_compared_run *c, const ech_corpus *valid, int rank)
{
    int64_t samples = ech_corpus_samples(valid),
            wanted = c->design->config->training.global_batch_size;
    ech_loader_options options =
        ech_design_reads(c->design, rank, false, wanted < samples ? wanted : samples);
    ech_loader *loader;
    ECH_TRY(ech_loader_create(valid, &options, 0, &loader));
    ech_exec_set_loader(c->session.exec, ECH_EVALUATE, loader);
    ech_status status = ech_exec_run(c->session.exec, ECH_LIST_VALIDATE, 0);
    ech_exec_set_loader(c->session.exec, ECH_EVALUATE, NULL);
    ech_loader_destroy(loader);
    return status;
}

ech_status ech_compared_run_validate(ech_compared_run *c, int rank, bool *validates, double *loss)
{
    ech_corpus *valid;
    ECH_TRY(ech_design_open_data(c->design, ECH_SPLIT_VALID, &valid));
    *validates = valid != NULL;
    if (!valid) return ECH_OK;
    ech_status status = validate(c, valid, rank);
    if (status == ECH_OK) *loss = ech_exec_readings(c->session.exec)->loss;
    ech_corpus_close(valid);
    return status;
}

void ech_compared_run_close(ech_compared_run *c)
{
    ech_loader_destroy(c->loader);
    ech_corpus_close(c->data);
    ech_session_destroy(&c->session);
    *c = (ech_compared_run){0};
}
