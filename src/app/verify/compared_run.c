/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs whose steps are compared: the layout's, and those that one rank trains beside it.
 */
#include "app/setup/initial.h"
#include "app/verify/verify.h"

ech_status ech_compared_run_open(ech_compared_run *c, ech_comm *comm)
{
    ECH_TRY(ech_session_create(c->design, comm, false, &c->session));
    ECH_TRY(ech_design_open_data(c->design, ECH_SPLIT_TRAIN, &c->data));
    ECH_TRY(ech_session_read(&c->session, c->design, c->data, ECH_TRAIN, 0, INT64_MAX, &c->loader));
    return ech_session_initialise(&c->session, c->design->config);
}

ech_status ech_compared_run_validate(ech_compared_run *c, bool *validates, double *loss)
{
    ECH_CLEANUP(ech_corpus_close_at) ech_corpus *valid = NULL;
    ECH_CLEANUP(ech_loader_destroy_at) ech_loader *loader = NULL;
    ECH_TRY(ech_design_open_data(c->design, ECH_SPLIT_VALID, &valid));
    *validates = valid != NULL;
    if (!valid) return ECH_OK;
    int64_t samples = ech_corpus_samples(valid),
            wanted = c->design->config->training.global_batch_size;
    ECH_TRY(ech_session_read(&c->session, c->design, valid, ECH_EVALUATE, 0,
                             wanted < samples ? wanted : samples, &loader));
    ech_status status = ech_exec_run(c->session.exec, ECH_LIST_VALIDATE, 0);
    ech_exec_set_loader(c->session.exec, ECH_EVALUATE, NULL);
    if (status == ECH_OK) *loss = ech_exec_readings(c->session.exec)->loss;
    return status;
}

void ech_compared_run_close(ech_compared_run *c)
{
    ech_loader_destroy(c->loader);
    ech_corpus_close(c->data);
    ech_session_destroy(&c->session);
    *c = (ech_compared_run){0};
}
