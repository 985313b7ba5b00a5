/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates that are withheld because a gradient is not finite, which an fp16 run with a large loss
 * scale has now and then. Such gradients depend on the order of sums: an infinity of one sign in a
 * layout is a NaN in another. So they are not compared. What is compared: both sides withhold the
 * update, and their weights and states stay.
 */
#include <math.h>

#include "app/verify/verifier.h"

/* Asynchronous schedules withhold a stage's update by that stage's gradients, others by all. */
static bool is_of(const ech_verifier *v, int set, int stage)
{
    return ech_weights_are_synchronous(v->schedule.weights) || stage == set;
}

static int sets_of(const ech_verifier *v)
{
    return ech_weights_are_synchronous(v->schedule.weights) ? 1 : v->layout.design->layout->stages;
}

static bool counts(const ech_verifier *v, int param)
{
    return ech_param_is_trained(ech_verifier_param(v, param));
}

static bool all_finite(const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i])) return false;
    return true;
}

/* Whether the gradients x of all parameters, as of a single rank, are finite for the set's update.
 * */
static bool is_finite(const ech_verifier *v, const double *x, int set)
{
    for (int p = 0; p < ech_verifier_params(v); p++)
        if (counts(v, p) && is_of(v, set, v->stage_of[p]) &&
            !all_finite(x + v->first[p], v->first[p + 1] - v->first[p]))
            return false;
    return true;
}

bool ech_verifier_layout_updates(const ech_verifier *v, int stage)
{
    for (size_t i = 0; i < v->copy.n; i++) {
        const ech_copy *copy = &v->copy.at[i];
        int64_t n = v->first[copy->param + 1] - v->first[copy->param];
        if (counts(v, copy->param) && is_of(v, stage, copy->stage) &&
            !all_finite(v->gradients + copy->at, n))
            return false;
    }
    return true;
}

void ech_verifier_find_withheld(ech_verifier *v)
{
    const char *differs = "gradients that are finite on one side only";
    for (int set = 0; set < sets_of(v); set++) {
        bool layout = ech_verifier_layout_updates(v, set),
             single = is_finite(v, v->single.gradient, set);
        v->withheld[set] = !layout && !single;
        if (layout != single)
            ech_verifier_note(v, differs, -1, INFINITY, &v->result->worst_gradient);
    }
}

bool ech_verifier_is_withheld(const ech_verifier *v, int stage)
{
    return v->withheld[sets_of(v) > 1 ? stage : 0];
}

/* A withheld update does not count as one, except in a span, whose updates are numbered before it
 * runs. */
static bool numbers_all(const ech_verifier *v)
{
    ech_weights weights = v->schedule.weights;
    return !ech_weights_are_synchronous(weights) || weights == ECH_WEIGHTS_PULLED ||
           (weights == ECH_WEIGHTS_DELAYED && v->list == ECH_LIST_TRAIN);
}

void ech_verifier_count_updates(ech_verifier *v)
{
    ech_follower *f = &v->single;
    const double *by = f->given ? ech_follower_copy(f, ECH_COPY_GIVEN, 0) : f->gradient;
    if (!f->given && ech_serial_does(v->serial, ECH_DO_MEAN)) return; /* a summand */
    for (int set = 0; set < sets_of(v); set++) {
        v->result->updates++;
        v->result->withheld += !is_finite(v, by, set);
    }
    bool withheld = ech_exec_readings(f->run.session.exec)->withheld;
    if (withheld && !numbers_all(v)) v->unnumbered[v->worker]++;
}
