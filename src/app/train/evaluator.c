/* SPDX-License-Identifier: Apache-2.0
 *
 * An evaluator: one rank with a model of its own and an endpoint of its own, so that it is in no
 * group of those who train.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "app/train/evaluations.h"
#include "app/train/train.h"
#include "app/train/validation.h"
#include "base/clock.h"
#include "base/log.h"
#include "checkpoint/folder.h"

enum { NAP_NS = 20000000 };
/* The number of heartbeats that a busy evaluator sends in a deadline, at least, if a batch takes
 * less time. */
enum { SIGNS = 8 };

typedef struct evaluator {
    ech_comm *comm;      /* the job's */
    ech_comm *alone;     /* its own, of one rank */
    bool shares_process; /* with rank 0, which sees its signals itself */
    ech_config *config;
    ech_design design;
    ech_session session;
    ech_corpus *corpus;
    ech_loader *loader;
    double bytes;          /* of the validation's text; 0: unknown */
    const char *directory; /* of checkpoints */
    int64_t given;         /* the step that it gets next */
    ech_evaluation told;   /* what it says */
    ech_request receives, sends;
    double told_at, silence; /* when it has said something last; seconds until it does again */
} evaluator;

/* ---- messages with rank 0 ---- */

static ech_status listen(evaluator *e)
{
    return ech_comm_receive_start(e->comm, 0, ECH_EVALUATION_TAG, &e->given, sizeof e->given,
                                  &e->receives);
}

/* Without a deadline: training may be at anything. */
static ech_status await(evaluator *e, ech_request *request)
{
    for (bool done = false;;) {
        ECH_TRY(ech_comm_test(e->comm, request, &done));
        if (done) return ECH_OK;
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

static ech_status tell(evaluator *e, ech_evaluation what)
{
    ECH_TRY(await(e, &e->sends));
    e->told = what;
    e->told_at = ech_clock_now();
    return ech_comm_send_start(e->comm, 0, ECH_EVALUATION_TAG, &e->told, sizeof e->told, &e->sends);
}

/* A signal may have come to this process alone. */
static ech_status pass_on(evaluator *e)
{
    int asked = e->shares_process ? 0 : ech_train_take_asked();
    return asked ? tell(e, (ech_evaluation){.kind = ECH_EVALUATION_ASKED, .step = asked}) : ECH_OK;
}

static ech_status await_step(evaluator *e)
{
    for (bool done = false;;) {
        ECH_TRY(ech_comm_test(e->comm, &e->receives, &done));
        if (done) return ECH_OK;
        ECH_TRY(pass_on(e));
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
}

/* Between batches: an ech_validation_pause. What comes while it is busy is that it ends. */
static ech_status look_up(void *context, int64_t done, int64_t all, bool *ends)
{
    (void)done;
    (void)all;
    evaluator *e = context;
    bool sent;
    ECH_TRY(pass_on(e));
    ECH_TRY(ech_comm_test(e->comm, &e->receives, ends));
    ECH_TRY(ech_comm_test(e->comm, &e->sends, &sent));
    if (!sent || *ends || ech_clock_now() - e->told_at < e->silence) return ECH_OK;
    return tell(e, (ech_evaluation){.kind = ECH_EVALUATION_GOES_ON});
}

/* ---- a checkpoint ---- */

static ech_status load(evaluator *e, int64_t step)
{
    ECH_FREED char *path = ech_folder_path(e->directory, step, ECH_FOLDER_FINAL);
    ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *checkpoint = NULL;
    ECH_TRY(ech_checkpoint_open(path, false, &checkpoint)); /* who wrote it has just verified it */
    return ech_exec_restore(e->session.exec, checkpoint);
}

static ech_status tell_failure(evaluator *e, int64_t step, ech_status status)
{
    ech_evaluation what = {.kind = ECH_EVALUATION_FAILED, .step = step, .status = status};
    snprintf(what.why, sizeof what.why, "%s", ech_last_error());
    return tell(e, what);
}

/* *ends: rank 0 has told this rank to end. */
static ech_status evaluate(evaluator *e, int64_t step, bool *ends)
{
    ech_validation found = {0};
    *ends = false;
    ech_comm_set_position(e->comm, step, "evaluates");
    bool quiet = ech_log_set_quiet(true);
    ech_status status = load(e, step);
    ech_log_set_quiet(quiet);
    if (status != ECH_OK) return tell_failure(e, step, status);
    ECH_TRY(ech_validation_run(
        e->session.exec, e->design.model->options.samples, e->config->training.global_batch_size,
        ech_validation_samples(e->config, e->corpus), e->loader, look_up, e, &found));
    ECH_TRY(ech_comm_test(e->comm, &e->receives, ends));
    if (*ends) return ECH_OK;
    found.bits_per_byte = ech_validation_bits(found.loss, (double)found.tokens, e->bytes);
    return tell(e, (ech_evaluation){.kind = ECH_EVALUATION_DONE, .step = step, .found = found});
}

/* ---- from begin to end ---- */

static ech_status open(evaluator *e, const ech_design *run)
{
    int rank = ech_comm_rank(e->comm);
    double deadline = run->config->parallel.deadline;
    e->directory = run->config->checkpoint.directory;
    e->silence = deadline / SIGNS;
    e->shares_process = strcmp(ech_comm_name(e->comm), "local") == 0;
    e->config = ech_config_copy(run->config);
    ECH_TRY(ech_design_create_evaluator(run, rank, e->config, &e->design));
    ECH_TRY(ech_comm_open(ech_comm_find("local"), 1, deadline, &e->alone));
    ECH_TRY(ech_session_create_on(&e->design, e->alone, ech_comm_local_rank(e->comm), true,
                                  &e->session));
    ECH_TRY(ech_design_open_data(&e->design, ECH_SPLIT_VALID, &e->corpus));
    ECH_TRY(ech_validation_count_bytes(&e->design, e->design.tokenizer, e->corpus,
                                       ech_validation_samples(e->config, e->corpus), true,
                                       &e->bytes));
    return ech_validation_open(&e->session, &e->design, e->corpus, &e->loader);
}

static ech_status run(evaluator *e, const ech_design *design)
{
    ECH_TRY(open(e, design));
    ECH_TRY(listen(e));
    for (bool ends = false; !ends;) {
        ech_comm_set_position(e->comm, -1, "waits for a checkpoint");
        ECH_TRY(await_step(e));
        int64_t step = e->given;
        ends = step == ECH_EVALUATOR_ENDS;
        if (ends) break;
        ECH_TRY(listen(e));
        ECH_TRY(evaluate(e, step, &ends));
    }
    ECH_TRY(tell(e, (ech_evaluation){.kind = ECH_EVALUATION_LAST}));
    return await(e, &e->sends);
}

ech_status ech_evaluator_run(ech_comm *comm, const ech_design *design)
{
    evaluator e = {.comm = comm, .receives = {.done = true}, .sends = {.done = true}};
    ech_status status = run(&e, design);
    if (!e.receives.done || !e.sends.done) {
        bool done;
        ech_comm_raise(comm); /* after an error alone: a test then cancels both */
        ech_comm_test(comm, e.receives.done ? &e.sends : &e.receives, &done);
    }
    ech_loader_destroy(e.loader);
    ech_session_destroy(&e.session);
    ech_corpus_close(e.corpus);
    ech_design_destroy(&e.design);
    ech_comm_close(e.alone);
    ech_config_destroy(e.config);
    return status;
}
