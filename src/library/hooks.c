/* SPDX-License-Identifier: Apache-2.0
 *
 * Training with hooks: a loop over the functions for single steps. Hooks run on the caller's thread
 * while the ranks wait at the gate. After the hooks of a step the processes agree on what any of
 * them requests, and whether one has failed.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "library/library.h"

typedef struct driver {
    const echelon_train_hooks *hooks;
    echelon_training *training;
    echelon_metrics metrics;
    int requests;      /* not fulfilled yet */
    ech_status status; /* of the first hook of this process that failed */
    char error[2048];
} driver;

/* A hook's own call of the library may have failed: then its message is the reason. */
static void note_failure(driver *d, const char *name, int result)
{
    ECH_FREED_TEXT why = {0};
    if (*ech_last_error())
        ech_text_append(&why, "%s", ech_last_error());
    else
        ech_text_append(&why, "it returned %d", result);
    d->status = result >= (int)ECH_EINTERNAL ? (ech_status)result : ECH_EABORTED;
    ech_fail_at(__FILE__, __LINE__, d->status, "step %lld: the hook %s failed: %s",
                (long long)d->metrics.step, name, why.at);
    snprintf(d->error, sizeof d->error, "%s", ech_last_error());
}

static void call(driver *d, echelon_hook *hook, const char *name)
{
    if (!hook || d->status != ECH_OK) return;
    ech_clear_error();
    ech_training_set_hook(d->training, true);
    int result = hook(d->training, &d->metrics, d->hooks->context);
    ech_training_set_hook(d->training, false);
    if (result < 0)
        note_failure(d, name, result);
    else
        d->requests |= result;
}

/* Collective. */
static ech_status agree(driver *d)
{
    enum { STOP, SAVE, VALIDATE, FAILURE, NUMBERS };
    double number[NUMBERS] = {[STOP] = (d->requests & ECHELON_STOP) != 0,
                              [SAVE] = (d->requests & ECHELON_SAVE) != 0,
                              [VALIDATE] = (d->requests & ECHELON_VALIDATE) != 0,
                              [FAILURE] = d->status != ECH_OK};
    ECH_TRY(ech_training_fold(d->training, number, NUMBERS));
    d->requests = (number[STOP] > 0 ? ECHELON_STOP : 0) | (number[SAVE] > 0 ? ECHELON_SAVE : 0) |
                  (number[VALIDATE] > 0 ? ECHELON_VALIDATE : 0);
    d->metrics.requests |= d->requests;
    if (d->status == ECH_OK && number[FAILURE] > 0)
        ECH_FAIL(ECH_EABORTED, "step %lld: another process's hook failed",
                 (long long)d->metrics.step);
    if (d->status != ECH_OK) ech_set_last_error(d->error);
    return d->status;
}

/* Fulfils requests; those that need a checkpoint wait until one can record the step. */
static ech_status fulfil(driver *d)
{
    const echelon_train_hooks *hooks = d->hooks;
    if (d->requests & ECHELON_VALIDATE && isnan(d->metrics.valid_loss)) {
        ECH_TRY((ech_status)echelon_train_validate(d->training, &d->metrics.valid_loss));
        call(d, hooks->validated, "validated");
        ECH_TRY(agree(d));
    }
    d->requests &= ~ECHELON_VALIDATE;
    if (!d->requests || !ech_training_may_save(d->training)) return ECH_OK;
    bool stops = d->requests & ECHELON_STOP;
    d->requests = 0;
    if (!d->metrics.saved) {
        ECH_TRY((ech_status)echelon_train_save(d->training));
        d->metrics.saved = 1;
        call(d, hooks->saved, "saved");
        ECH_TRY(agree(d));
        stops |= d->requests & ECHELON_STOP;
        d->requests &= ECHELON_VALIDATE; /* after the next step */
    }
    if (stops && !echelon_train_is_done(d->training)) ech_training_stop(d->training);
    return ECH_OK;
}

static ech_status train(driver *d)
{
    const echelon_train_hooks *hooks = d->hooks;
    d->metrics = (echelon_metrics){.size = sizeof d->metrics,
                                   .step = echelon_train_steps(d->training),
                                   .loss = (double)NAN,
                                   .grad_norm = (double)NAN,
                                   .valid_loss = (double)NAN,
                                   .unit = ech_training_unit(d->training)};
    call(d, hooks->begin, "begin");
    ECH_TRY(agree(d));
    ECH_TRY(fulfil(d));
    while (!echelon_train_is_done(d->training)) {
        ECH_TRY((ech_status)echelon_train_step(d->training, &d->metrics));
        call(d, hooks->step_end, "step_end");
        if (!isnan(d->metrics.valid_loss)) call(d, hooks->validated, "validated");
        if (d->metrics.saved) call(d, hooks->saved, "saved");
        ECH_TRY(agree(d));
        ECH_TRY(fulfil(d));
    }
    call(d, hooks->end, "end");
    return agree(d);
}

/* Keeps the training for this thread, between the hooks and until it has ended. */
static echelon_status train_and_finish(driver *d)
{
    echelon_status status = ECHELON_OK;
    ECH_USE(d->training, TRAINING);
    if (ech_training_trains(d->training)) status = (echelon_status)train(d);
    snprintf(d->error, sizeof d->error, "%s", ech_last_error());
    echelon_status end = echelon_train_finish(d->training);
    if (status == ECHELON_OK) return end;
    ech_set_last_error(d->error);
    return status;
}

echelon_status echelon_train(echelon_run *run, const echelon_train_options *options,
                             const echelon_train_hooks *hooks)
{
    echelon_train_hooks h;
    driver d = {.hooks = &h};
    ech_library_enter();
    ECH_TAKE(h, hooks);
    echelon_status status = echelon_train_start(run, options, &d.training);
    return status == ECHELON_OK ? train_and_finish(&d) : status;
}
