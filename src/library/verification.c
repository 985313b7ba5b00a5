/* SPDX-License-Identifier: Apache-2.0
 *
 * Verification: app/verify on the run's ranks, and its result for other programs.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "app/verify/verify.h"
#include "base/log.h"
#include "base/thread.h"
#include "library/library.h"

struct echelon_verification {
    ech_verifications both;
    int count; /* comparisons; 0: this process does not have rank 0 */
    ech_text text;
};

static ech_status verify_rank(ech_comm *comm, const ech_design *design, void *context)
{
    echelon_verification *v = context;
    bool is_first = ech_comm_rank(comm) == 0;
    ech_status status = ech_verify_twice_rank(comm, design, &v->both);
    if (status == ECH_OK && is_first) v->count = v->both.own_compared ? 2 : 1;
    return ech_library_end_rank(design, status);
}

static ech_status verify_here(const echelon_run *given, int ranks, echelon_verification *v)
{
    ech_run_arguments arguments = ech_library_arguments(given);
    ECH_CLEANUP(ech_run_close) ech_run run = {0};
    const ech_start start = {
        .command = "verify", .reads_weights = true, .run = &run, .main = verify_rank, .context = v};
    arguments.ranks = ranks;
    ech_status status = ech_run_open(&arguments, &run);
    if (status == ECH_OK) status = ech_start_ranks(&start);
    free(arguments.assignment.at);
    return status;
}

typedef struct verifying {
    const echelon_run *run;
    int ranks;
    echelon_verification *v;
    bool quiet; /* the caller's thread */
    ech_status status;
    char error[2048]; /* of the status */
} verifying;

static void *verify_apart(void *context)
{
    verifying *of = context;
    ech_log_set_quiet(of->quiet);
    of->status = verify_here(of->run, of->ranks, of->v);
    snprintf(of->error, sizeof of->error, "%s", ech_last_error());
    return NULL;
}

/* A launcher's rank computes on the thread that starts it. The caller's thread may take signals, so
 * it starts another one. */
static ech_status verify(const echelon_run *given, int ranks, echelon_verification *v)
{
    verifying of = {.run = given, .ranks = ranks, .v = v, .quiet = ech_log_is_quiet()};
    pthread_t thread;
    if (ech_thread_start(&thread, verify_apart, &of) != 0)
        ECH_FAIL(ECH_EIO, "cannot start another thread for the verification: " ECH_NO_THREAD);
    pthread_join(thread, NULL);
    if (of.status != ECH_OK) ech_set_last_error(of.error);
    return of.status;
}

echelon_status echelon_verify(echelon_run *run, const echelon_verify_options *options,
                              echelon_verification **out)
{
    enum { STEPS = 2 };
    echelon_verify_options o;
    ech_library_enter();
    ECH_USE(run, RUN);
    ECH_NEED(out);
    ECH_TAKE(o, options);
    if (o.steps < 0 || !(o.tolerance >= 0))
        ECH_REFUSE("%lld steps, tolerance %g: must be 0 or more", (long long)o.steps, o.tolerance);
    echelon_verification *v = ech_handle_create(sizeof *v, ECH_HANDLE_VERIFICATION);
    v->both =
        (ech_verifications){.main = {.steps = o.steps ? o.steps : STEPS,
                                     .tolerance = o.tolerance > 0 ? o.tolerance : ECH_TOLERANCE,
                                     .widened = !(o.tolerance > 0) || o.tolerance == ECH_TOLERANCE},
                            .own = {.tolerance = ECH_TOLERANCE_FP32},
                            .own_precision = o.own_precision};
    ech_status status = verify(run, o.ranks, v);
    if (status == ECH_OK && v->count) ech_verify_print(&v->both, &v->text);
    if (status == ECH_OK)
        *out = v;
    else
        echelon_verification_free(v);
    return (echelon_status)status;
}

void echelon_verification_free(echelon_verification *verification)
{
    if (!verification) return;
    ECH_USE_HANDLE(verification, VERIFICATION, );
    ech_text_free(&verification->text);
    ech_handle_destroy(verification);
}

int echelon_verification_count(const echelon_verification *verification)
{
    ECH_USE_HANDLE(verification, VERIFICATION, 0);
    return verification->count;
}

echelon_status echelon_verification_at(const echelon_verification *verification, int index,
                                       echelon_comparison *out)
{
    ech_library_enter();
    ECH_USE(verification, VERIFICATION);
    ECH_NEED_STRUCT(out);
    if (index < 0 || index >= verification->count)
        ECH_REFUSE("there is no comparison %d; there are %d", index, verification->count);
    const ech_verification *main = &verification->both.main,
                           *v = index ? &verification->both.own : main;
    echelon_comparison c = {.precision = v->precision,
                            .layout = main->layout,
                            .ranks = main->ranks,
                            .passed = v->passed,
                            .ill_conditioned = v->ill,
                            .tolerance = v->tolerance,
                            .unit = v->unit,
                            .worst = v->worst,
                            .worst_at = v->worst_at,
                            .first_bad = v->first_bad,
                            .steps = v->done,
                            .compared = v->compared,
                            .loss = v->worst_loss,
                            .gradients = v->worst_gradient,
                            .weights = v->worst_weight,
                            .states = v->worst_state,
                            .reports = v->reports ? v->worst_report : (double)NAN,
                            .validation = v->validated ? v->worst_validation : (double)NAN};
    ech_library_give(out, out->size, &c, sizeof c);
    return ECHELON_OK;
}

const char *echelon_verification_text(const echelon_verification *verification)
{
    ECH_USE_HANDLE(verification, VERIFICATION, "");
    return verification->text.n ? verification->text.at : "";
}
