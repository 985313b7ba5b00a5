/* SPDX-License-Identifier: Apache-2.0
 *
 * Validations of the training loop: early stopping, and which checkpoints are the best.
 */
#include <math.h>
#include <stdlib.h>

#include "app/train/trainer.h"
#include "app/train/validation.h"
#include "base/clock.h"
#include "checkpoint/folder.h"

typedef struct validating {
    ech_trainer *t;
    double began;
    bool stops; /* some rank was asked to stop, so the validation was cut short */
} validating;

static void ask(const ech_trainer *t)
{
    ech_exec_ask(t->session.exec, ech_trainer_wants_to_stop(t), false);
}

/* An ech_validation_pause. */
static ech_status look_up(void *context, int64_t done, int64_t all, bool *ends)
{
    validating *v = context;
    ech_trainer *t = v->t;
    const ech_note note = {
        .kind = ECH_NOTE_VALIDATING,
        .validating = {
            .step = t->step, .done = done, .all = all, .seconds = ech_clock_now() - v->began}};
    if (ech_trainer_is_first(t)) ech_progress_submit(t->progress, &note);
    *ends = done < all && ech_exec_readings(t->session.exec)->stop;
    v->stops = *ends;
    ask(t);
    return ECH_OK;
}

static ech_status run(ech_trainer *t, ech_validation *out, bool *stops)
{
    validating v = {.t = t, .began = ech_clock_now()};
    ask(t);
    ECH_TRY(ech_validation_run(
        t->session.exec, t->design->model->options.samples, t->config->training.global_batch_size,
        ech_validation_samples(t->config, t->valid), t->valid_loader, look_up, &v, out));
    *stops = v.stops;
    if (*stops) out->loss = (double)NAN;
    return ECH_OK;
}

/* patience 0: the validation does not count for it. Every validation has the same samples, so their
 * text is counted once. */
static ech_status log_validation(ech_trainer *t, const ech_validation *found, int64_t patience)
{
    if (!ech_trainer_is_first(t)) return ECH_OK;
    if (t->valid_bytes < 0)
        ECH_TRY(ech_validation_count_bytes(t->design, t->design->tokenizer, t->valid,
                                           ech_validation_samples(t->config, t->valid), true,
                                           &t->valid_bytes));
    ech_note note = {
        .kind = ECH_NOTE_VALIDATION,
        .validation = {
            .step = t->step, .found = *found, .patience = patience, .waited = t->validated.waited}};
    note.validation.found.bits_per_byte =
        ech_validation_bits(found->loss, (double)found->tokens, t->valid_bytes);
    ech_progress_submit(t->progress, &note);
    return ECH_OK;
}

ech_status ech_trainer_validate(ech_trainer *t, double *loss, bool *stops)
{
    ech_validation found;
    ECH_TRY(run(t, &found, stops));
    if (!*stops) ECH_TRY(log_validation(t, &found, 0));
    *loss = found.loss;
    return ECH_OK;
}

/* ---- patience ---- */

/* Early stopping as in Keras: a loss is better if it is lower than the best by more than the least
 * improvement. */
static void count(ech_trainer *t, double loss)
{
    ech_validated *v = &t->validated;
    bool first = !v->is || isnan(v->best);
    bool better = isfinite(loss) && (first || loss < v->best - t->config->training.min_improvement);
    if (!v->is) *v = (ech_validated){.is = true, .best = (double)NAN};
    v->step = t->step;
    v->loss = loss;
    v->waited = better ? 0 : v->waited + 1;
    if (!better) return;
    v->best = loss;
    v->best_step = t->step;
}

static bool is_exhausted(const ech_trainer *t)
{
    int64_t patience = t->config->training.patience;
    return patience > 0 && t->validated.is && t->validated.waited >= patience;
}

static void say_exhausted(const ech_trainer *t)
{
    const ech_validated *v = &t->validated;
    ech_progress_say(t->progress,
                     "training ends after step %lld: the validation loss is not lower than %.4f of "
                     "step %lld since %lld validations; a higher training.patience goes on",
                     (long long)t->step, v->best, (long long)v->best_step, (long long)v->waited);
}

/* ---- the best checkpoints ---- */

/* Whether the present step belongs to the best, which then has its place there. Equal losses do not
 * replace an earlier step's. */
static bool take_best(ech_trainer *t, double loss)
{
    int worst = 0;
    if (!isfinite(loss) || t->calendar.best == 0) return false;
    for (int i = 0; i < t->best_n; i++) {
        if (t->best[i].step == t->step) return true; /* validated once more */
        if (t->best[i].loss >= t->best[worst].loss) worst = i;
    }
    bool has_room = t->best_n < t->calendar.best;
    if (!has_room && loss >= t->best[worst].loss) return false;
    t->best[has_room ? t->best_n++ : worst] = (ech_best){t->step, loss};
    return true;
}

/* On rank 0. Checkpoints of later steps will be replaced. */
static ech_status find_best(ech_trainer *t)
{
    ECH_CLEANUP(ech_folders_free) ech_folders folders = {0};
    ECH_TRY(ech_folder_list_complete(t->config->checkpoint.directory, &folders));
    for (size_t i = 0; i < folders.n; i++)
        if (folders.at[i].step > t->step) free(folders.at[i].path);
    size_t n = 0;
    for (size_t i = 0; i < folders.n; i++)
        if (folders.at[i].step <= t->step) folders.at[n++] = folders.at[i];
    folders.n = n;
    ECH_FREED double *losses = ech_calloc(n + 1, sizeof *losses);
    for (size_t i = 0; i < n; i++) losses[i] = ech_folder_valid_loss(&folders.at[i]);
    for (size_t i = 0; i < n; i++)
        if (ech_folder_is_among_best(losses, n, i, t->calendar.best))
            t->best[t->best_n++] = (ech_best){folders.at[i].step, losses[i]};
    return ECH_OK;
}

ech_status ech_trainer_begin_validations(ech_trainer *t)
{
    ech_group *world = ech_exec_world(t->session.exec);
    size_t most = (size_t)t->calendar.best;
    t->exhausted = is_exhausted(t);
    if (most == 0) return ECH_OK;
    t->best = ech_calloc(most, sizeof *t->best);
    if (ech_trainer_is_first(t)) ECH_TRY(find_best(t));
    ECH_TRY(ech_group_broadcast(world, 0, &t->best_n, sizeof t->best_n));
    return ech_group_broadcast(world, 0, t->best, most * sizeof *t->best);
}

void ech_trainer_say_best(const ech_trainer *t)
{
    if (t->best_n == 0) return;
    ech_best best = t->best[0];
    for (int i = 1; i < t->best_n; i++)
        if (t->best[i].loss < best.loss) best = t->best[i];
    ECH_FREED char *path =
        ech_folder_path(t->config->checkpoint.directory, best.step, ECH_FOLDER_FINAL);
    ech_progress_say(t->progress, "lowest validation loss: %.4f after step %lld, in %s", best.loss,
                     (long long)best.step, path);
}

/* ---- validations by the calendar ---- */

ech_status ech_trainer_validate_due(ech_trainer *t, bool *stops, bool *keeps)
{
    ech_validation found;
    *keeps = false;
    ECH_TRY(run(t, &found, stops));
    if (*stops) return ECH_OK;
    count(t, found.loss);
    *keeps = take_best(t, found.loss);
    ECH_TRY(log_validation(t, &found, t->config->training.patience));
    t->exhausted = is_exhausted(t);
    if (t->exhausted && t->step < t->config->training.steps && ech_trainer_is_first(t))
        say_exhausted(t);
    return ECH_OK;
}

bool ech_trainer_owes_validation(const ech_trainer *t)
{
    bool has = t->validated.is && t->validated.step == t->step;
    return !has && t->saved_step == t->step && t->step > 0 &&
           ech_calendar_due(&t->calendar, ECH_LIST_VALIDATE, t->step);
}

double ech_trainer_valid_loss(const ech_trainer *t)
{
    bool has = t->validated.is && t->validated.step == t->step;
    return has ? t->validated.loss : (double)NAN;
}
