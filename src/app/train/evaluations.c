/* SPDX-License-Identifier: Apache-2.0
 *
 * Which checkpoint goes to which evaluator, on rank 0.
 */
#include "app/train/evaluations.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "app/train/train.h"
#include "base/clock.h"
#include "base/file.h"
#include "checkpoint/folder.h"

enum { NAP_NS = 5000000 };
/* A single wait lasts at most this part of the deadline, because other ranks wait for this one in
 * that time. */
static const double most_wait = 1, deadline_share = 0.25;

/* One result is always awaited. */
typedef struct evaluator {
    int rank;
    int64_t step;         /* that it was given last */
    ech_evaluation given; /* the newest result */
    ech_request sends, receives;
    bool busy, ends;
    double looked; /* when it was listened to last, or given the step */
    double silent; /* seconds since something came, each look's at most `most_silent` */
} evaluator;

struct ech_evaluations {
    ech_comm *comm;
    ech_progress *progress;
    const char *directory; /* of checkpoints */
    double wait;           /* seconds of one */
    double most_silent;    /* part of the deadline: more is this rank's own absence */
    ECH_LIST(int64_t) due; /* steps, ascending */
    size_t next;           /* the first of them that is given to nobody */
    bool told;             /* who waits has said so */
    int n;
    evaluator of[];
};

static ech_status listen(ech_evaluations *all, evaluator *e)
{
    return ech_comm_receive_start(all->comm, e->rank, ECH_EVALUATION_TAG, &e->given,
                                  sizeof e->given, &e->receives);
}

static ech_status give(ech_evaluations *all, evaluator *e, int64_t step)
{
    e->step = step;
    e->looked = ech_clock_now();
    e->silent = 0;
    return ech_comm_send_start(all->comm, e->rank, ECH_EVALUATION_TAG, &e->step, sizeof e->step,
                               &e->sends);
}

ech_status ech_evaluations_create(ech_comm *comm, const ech_layout *layout,
                                  const ech_config *config, ech_progress *progress,
                                  ech_evaluations **out)
{
    ech_ranks evaluators = ech_layout_roles(layout).evaluate;
    size_t n = (size_t)evaluators.n;
    ech_evaluations *all = *out = ech_calloc(1, sizeof *all + n * sizeof *all->of);
    all->comm = comm;
    all->progress = progress;
    all->directory = config->checkpoint.directory;
    all->most_silent = deadline_share * config->parallel.deadline;
    all->wait = fmin(most_wait, all->most_silent);
    for (int i = 0; i < evaluators.n; i++) {
        all->of[i] = (evaluator){.rank = evaluators.first + i, .sends = {.done = true}};
        all->n++;
        ECH_TRY(listen(all, &all->of[i]));
    }
    return ECH_OK;
}

void ech_evaluations_destroy(ech_evaluations *all)
{
    if (!all) return;
    for (int i = 0; i < all->n; i++) {
        bool done;
        evaluator *e = &all->of[i];
        if (e->receives.done && e->sends.done) continue;
        ech_comm_raise(all->comm); /* so that a test cancels it */
        ech_comm_test(all->comm, e->receives.done ? &e->sends : &e->receives, &done);
    }
    free(all->due.at);
    free(all);
}

void ech_evaluations_add(ech_evaluations *all, int64_t step)
{
    ECH_PUSH(all->due, step);
}

/* ---- what comes back ---- */

static void note(const ech_evaluations *all, const ech_evaluation *given)
{
    const ech_validation none = {(double)NAN, 0, (double)NAN, (double)NAN, (double)NAN, 0};
    bool removed = given->kind == ECH_EVALUATION_FAILED;
    ech_note note = {.kind = ECH_NOTE_EVALUATION,
                     .evaluation = {.step = given->step,
                                    .found = removed ? none : given->found,
                                    .removed = removed}};
    snprintf(note.evaluation.name, sizeof note.evaluation.name, "step-%08" PRId64, given->step);
    ech_progress_submit(all->progress, &note);
}

/* Fails if the checkpoint that the evaluator could not read is there. */
static ech_status check_removed(const ech_evaluations *all, const evaluator *e)
{
    ECH_FREED char *path = ech_folder_path(all->directory, e->given.step, ECH_FOLDER_FINAL);
    if (!ech_file_is_folder(path)) return ECH_OK;
    ECH_FAIL((ech_status)e->given.status, "rank %d, an evaluator: %s", e->rank, e->given.why);
}

/* *last: it was the evaluator's last word. */
static ech_status take(ech_evaluations *all, evaluator *e, bool *last)
{
    bool done;
    double now = ech_clock_now();
    *last = false;
    e->silent += fmin(now - e->looked, all->most_silent);
    e->looked = now;
    ECH_TRY(ech_comm_test(all->comm, &e->receives, &done));
    bool owes = e->busy || e->ends;
    if (!done) return ech_comm_overdue(all->comm, &e->receives, owes ? e->silent : 0);
    bool fails = e->given.kind == ECH_EVALUATION_FAILED;
    bool is_result = e->given.kind == ECH_EVALUATION_DONE || fails;
    e->silent = 0;
    *last = e->given.kind == ECH_EVALUATION_LAST;
    if (e->given.kind == ECH_EVALUATION_ASKED) ech_train_ask((int)e->given.step);
    if (fails) ECH_TRY(check_removed(all, e));
    if (is_result) note(all, &e->given);
    if (is_result) e->busy = false;
    return *last ? ECH_OK : listen(all, e);
}

static int count_left(const ech_evaluations *all)
{
    int left = (int)(all->due.n - all->next);
    for (int i = 0; i < all->n; i++) left += all->of[i].busy;
    return left;
}

ech_status ech_evaluations_follow(ech_evaluations *all)
{
    for (int i = 0; i < all->n; i++) {
        evaluator *e = &all->of[i];
        bool last, sent;
        ECH_TRY(take(all, e, &last));
        ECH_TRY(ech_comm_test(all->comm, &e->sends, &sent));
        if (e->busy || !sent || all->next == all->due.n) continue;
        e->busy = true;
        ECH_TRY(give(all, e, all->due.at[all->next++]));
    }
    return ECH_OK;
}

ech_status ech_evaluations_await(ech_evaluations *all, int *left)
{
    double begin = ech_clock_now();
    for (;;) {
        ECH_TRY(ech_evaluations_follow(all));
        *left = count_left(all);
        if (*left == 0 || ech_clock_now() - begin > all->wait) break;
        nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    if (*left && !all->told)
        ech_progress_say(all->progress, "training is done; %s to be evaluated",
                         ECH_COUNT(*left, "checkpoint"));
    all->told |= *left > 0;
    return ECH_OK;
}

/* ---- the end ---- */

/* The result of an evaluation that was under way may still come. */
static ech_status end_one(ech_evaluations *all, evaluator *e)
{
    int64_t step = e->step;
    bool last = false;
    ECH_TRY(ech_comm_wait(all->comm, &e->sends, 1));
    ECH_TRY(give(all, e, ECH_EVALUATOR_ENDS));
    e->ends = true;
    while (!last) {
        ECH_TRY(take(all, e, &last));
        if (!last) nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
    }
    ECH_TRY(ech_comm_wait(all->comm, &e->sends, 1));
    e->step = step;
    return ECH_OK;
}

ech_status ech_evaluations_end(ech_evaluations *all)
{
    ECH_FREED_TEXT steps = {0};
    for (int i = 0; i < all->n; i++) {
        evaluator *e = &all->of[i];
        ECH_TRY(end_one(all, e));
        if (e->busy) ech_text_append(&steps, " step-%08" PRId64, e->step);
    }
    for (size_t i = all->next; i < all->due.n; i++)
        ech_text_append(&steps, " step-%08" PRId64, all->due.at[i]);
    if (steps.n) ech_progress_say(all->progress, "not evaluated, since the run stops:%s", steps.at);
    return ECH_OK;
}
