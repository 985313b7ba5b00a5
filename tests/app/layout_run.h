/* SPDX-License-Identifier: Apache-2.0
 *
 * A layout that trains a few spans on threads, watched by a test: fp64, untied, SGD without decay
 * or clipping unless `more` says otherwise. After fixture.h and cmocka.h.
 */
#ifndef ECH_TESTS_APP_LAYOUT_RUN_H
#define ECH_TESTS_APP_LAYOUT_RUN_H

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "unit.h"

typedef struct layout_run {
    ech_config *config; /* as written; ranks resolve their copies */
    int spans;
    /* Called on every rank's own thread. Optional. */
    void (*begin)(void *context, int rank, const ech_compared_run *run);
    void (*begin_span)(void *context, int rank, int span);
    void (*end)(void *context, int rank, const ech_compared_run *run);
    void *context;
    double *weights; /* out: all parameters in the model's order */
} layout_run;

static inline int64_t layout_run_elements(const ech_model *model, int param)
{
    return ech_shape_whole(&model->param.at[param].shape);
}

static inline void layout_run_take_weights(const layout_run *run, const ech_compared_run *c,
                                           int rank)
{
    const ech_model *model = c->design->model;
    double *to = run->weights;
    for (int p = 0; p < (int)model->param.n; p++) {
        if (ech_layout_held(c->design->layout, c->design->model, rank, p, ECH_HELD_WEIGHTS, NULL)
                .writes) {
            ech_tensor x = ech_exec_param(c->session.exec, p);
            memcpy(to, x.data, ech_tensor_bytes(&x));
        }
        to += layout_run_elements(model, p);
    }
}

static inline ech_status layout_run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    layout_run *run = context;
    int rank = ech_comm_rank(comm);
    ech_compared_run c = {.design = design};
    ECH_TRY(ech_compared_run_open(&c, comm));
    if (run->begin) run->begin(run->context, rank, &c);
    ech_status status = ECH_OK;
    for (int span = 0; span < run->spans && status == ECH_OK; span++) {
        if (run->begin_span) run->begin_span(run->context, rank, span);
        status = ech_exec_run(c.session.exec, ECH_LIST_TRAIN, span * c.design->schedule->turns);
    }
    if (status == ECH_OK) layout_run_take_weights(run, &c, rank);
    if (run->end) run->end(run->context, rank, &c);
    ech_compared_run_close(&c);
    return status;
}

/* What the callbacks are has been filled in. */
static inline void layout_run_start(layout_run *run, const char *architecture, int ranks,
                                    const char *more)
{
    char words[700];
    snprintf(words, sizeof words,
             "model.tie_word_embeddings=false training.micro_batch_size=1 training.steps=24 "
             "training.check_every=0 precision.compute=fp64 optimizer.name=sgd "
             "optimizer.learning_rate=0.5 optimizer.weight_decay=0 optimizer.clip_norm=0 %s",
             more);
    run->config = fixture_config(architecture, words);
    run->weights = ech_calloc(1 << 16, sizeof *run->weights);
    assert_int_equal(fixture_run(run->config, ranks, layout_run_rank, run), ECH_OK);
}

static inline void layout_run_free(layout_run *run)
{
    ech_config_destroy(run->config);
    free(run->weights);
}

#endif
