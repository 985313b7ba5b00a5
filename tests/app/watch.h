/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver of probes (probe.h): functions that stand in front of src/ and tell probes what each
 * rank runs, and what each probe has found. Include it after fixture.h, in a program that is linked
 * with probes/ and --wrap.
 */
#ifndef ECH_TESTS_APP_WATCH_H
#define ECH_TESTS_APP_WATCH_H

#include <pthread.h>
#include <stdarg.h>

#include "app/probe.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(ECH_POISON)
enum { WATCH_IS_PLAIN = false };
#else
enum { WATCH_IS_PLAIN = true };
#endif

enum probe_number {
#define X(noun) PROBE_##noun,
#include "app/probes/probes.def"
#undef X
    PROBES
};

static const probe *const probes[PROBES] = {
#define X(noun) &probe_##noun,
#include "app/probes/probes.def"
#undef X
};

/* In memory that parent and children share. */
typedef struct probe_result {
    bool applies, failed;
    char why[300];
} probe_result;

static pthread_mutex_t probe_lock = PTHREAD_MUTEX_INITIALIZER;
static probe_result *probe_results; /* [PROBES] of the case; NULL: nobody watches */
static probe_case probe_watched;
static bool probe_looks;    /* runs that begin now are watched */
static bool probe_verifies; /* the run under way is the one whose states are judged */
static void *probe_states[PROBES][PROBE_MOST_RANKS];
static _Thread_local int probe_current; /* observes or judges on this thread */

void probe_fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    pthread_mutex_lock(&probe_lock);
    probe_result *r = &probe_results[probe_current];
    if (!r->failed) vsnprintf(r->why, sizeof r->why, format, args);
    r->failed = true;
    pthread_mutex_unlock(&probe_lock);
    va_end(args);
}

void probe_look_away(void)
{
    probe_looks = false;
}

/* ---- one rank's watch ---- */

typedef struct probe_watch {
    probe_run run;
    void *state[PROBES];
    bool is_judged; /* of the verified run, the first on its thread */
    bool failed;    /* a list has returned an error */
    bool extras;    /* the lists after it have begun */
    int64_t next;   /* the training step after those that have run */
    ech_observer inner;
    void *inner_context;
} probe_watch;

static _Thread_local probe_watch *probe_watching;
static _Thread_local bool probe_has_watched; /* on this thread, which is a rank's */

static void probe_free(int p, void *state)
{
    if (state && probes[p]->release) probes[p]->release(state);
    free(state);
}

static void probe_tell(probe_watch *w, probe_moment moment)
{
    for (int p = 0; p < PROBES; p++) {
        if (!probe_results[p].applies || !probes[p]->observe) continue;
        if (moment == PROBE_STEP && !probes[p]->steps) continue;
        bool is_list = moment == PROBE_BEFORE || moment == PROBE_AFTER;
        if (is_list && probes[p]->lists != w->run.extra) continue;
        probe_current = p;
        probes[p]->observe(w->state[p], &w->run, moment);
    }
}

static bool probe_wants_steps(void)
{
    for (int p = 0; p < PROBES; p++)
        if (probe_results[p].applies && probes[p]->steps) return true;
    return false;
}

static void probe_observe(void *context, ech_exec *exec, const ech_step *step)
{
    probe_watch *w = context;
    if (w->inner) w->inner(w->inner_context, exec, step);
    w->run.step = step;
    probe_tell(w, PROBE_STEP);
}

/* ---- in front of src/ ---- */

ech_status __real_ech_session_create(const ech_design *, ech_comm *, bool, ech_session *);
ech_status __wrap_ech_session_create(const ech_design *, ech_comm *, bool, ech_session *);
void __real_ech_session_destroy(ech_session *);
void __wrap_ech_session_destroy(ech_session *);
ech_status __real_ech_exec_run(ech_exec *, ech_list_kind, int64_t);
ech_status __wrap_ech_exec_run(ech_exec *, ech_list_kind, int64_t);
void __real_ech_exec_observe(ech_exec *, ech_observer, void *);
void __wrap_ech_exec_observe(ech_exec *, ech_observer, void *);
void __real_ech_compared_run_close(ech_compared_run *);
void __wrap_ech_compared_run_close(ech_compared_run *);

/* The single rank beside a layout is opened second on its thread, and is not watched. */
ech_status __wrap_ech_session_create(const ech_design *design, ech_comm *comm, bool forward_only,
                                     ech_session *out)
{
    ECH_TRY(__real_ech_session_create(design, comm, forward_only, out));
    if (!probe_looks || probe_watching || forward_only) return ECH_OK;
    probe_watch *w = probe_watching = ech_calloc(1, sizeof *w);
    w->run = (probe_run){.design = design, .session = out, .rank = ech_comm_rank(comm)};
    w->is_judged = probe_verifies && !probe_has_watched;
    probe_has_watched = true;
    for (int p = 0; p < PROBES; p++) {
        w->state[p] = ech_calloc(1, probes[p]->state + 1);
        if (w->is_judged) probe_states[p][w->run.rank] = w->state[p];
    }
    if (w->is_judged && w->run.rank == 0) probe_watched.computed = ech_config_copy(design->config);
    if (probe_wants_steps()) __real_ech_exec_observe(out->exec, probe_observe, w);
    probe_tell(w, PROBE_OPENED);
    return ECH_OK;
}

static bool probe_watches(const ech_exec *exec)
{
    return probe_watching && probe_watching->run.session->exec == exec;
}

void __wrap_ech_session_destroy(ech_session *session)
{
    probe_watch *w = probe_watching;
    if (session->exec && probe_watches(session->exec)) {
        bool extras = w->is_judged && probe_has_run(&w->run, ECH_LIST_VALIDATE);
        if (!w->failed && extras && !w->extras)
            probe_current = PROBE_quiet,
            probe_fail("rank %d: no list has run after the verified ones", w->run.rank);
        if (!w->failed) probe_tell(w, PROBE_CLOSED);
        for (int p = 0; p < PROBES && !w->is_judged; p++) probe_free(p, w->state[p]);
        probe_watching = NULL;
        free(w);
    }
    __real_ech_session_destroy(session);
}

void __wrap_ech_exec_observe(ech_exec *exec, ech_observer observer, void *context)
{
    probe_watch *w = probe_watching;
    if (!probe_watches(exec) || !probe_wants_steps()) {
        __real_ech_exec_observe(exec, observer, context);
        return;
    }
    w->inner = observer;
    w->inner_context = context;
}

ech_status __wrap_ech_exec_run(ech_exec *exec, ech_list_kind list, int64_t number)
{
    probe_watch *w = probe_watching;
    if (!probe_watches(exec)) return __real_ech_exec_run(exec, list, number);
    w->run.list = list;
    w->run.number = number;
    probe_tell(w, PROBE_BEFORE);
    ech_status status = __real_ech_exec_run(exec, list, number);
    w->failed |= status != ECH_OK;
    ECH_TRY(status);
    w->run.lists |= 1u << list;
    if (list == ECH_LIST_TRAIN || list == ECH_LIST_UNDELAYED)
        w->next = number + w->run.session->plan->list[list].turns;
    if (w->is_judged && w->run.rank == 0 && w->run.extra == PROBE_OF_RUN) {
        ECH_ASSERT(probe_watched.lists < PROBE_MOST_LISTS);
        probe_watched.ran[probe_watched.lists++] = (probe_ran){list, number};
    }
    probe_tell(w, PROBE_AFTER);
    return ECH_OK;
}

/* ---- lists after a verified run ---- */

static ech_status probe_run_extra(probe_watch *w, probe_extra extra)
{
    ech_exec *exec = w->run.session->exec;
    w->run.extra = extra;
    ECH_TRY(ech_group_barrier(ech_exec_world(exec)));
    ech_exec_record(exec, extra == PROBE_TIMED);
    ech_status status = ech_exec_run(exec, ECH_LIST_TRAIN, w->next);
    ech_exec_record(exec, false);
    return status == ECH_OK ? ech_group_barrier(ech_exec_world(exec)) : status;
}

/* All ranks come here when all of them have verified. */
static ech_status probe_run_extras(probe_watch *w)
{
    w->extras = true;
    __real_ech_exec_observe(w->run.session->exec, NULL, NULL);
    ECH_TRY(probe_run_extra(w, PROBE_TIMED));
    ECH_TRY(probe_run_extra(w, PROBE_QUIET));
    return probe_results[PROBE_withheld].applies ? probe_run_extra(w, PROBE_POISONED) : ECH_OK;
}

void __wrap_ech_compared_run_close(ech_compared_run *run)
{
    probe_watch *w = probe_watching;
    bool ends = run->session.exec && probe_watches(run->session.exec) && w->is_judged;
    if (ends && !w->failed && probe_has_run(&w->run, ECH_LIST_VALIDATE) &&
        probe_run_extras(w) != ECH_OK) {
        w->failed = true;
        probe_current = w->run.extra == PROBE_POISONED ? PROBE_withheld
                        : w->run.extra == PROBE_TIMED  ? PROBE_lanes
                                                       : PROBE_quiet;
        probe_fail("rank %d: a list after the verified ones: %s", w->run.rank, ech_last_error());
    }
    __real_ech_compared_run_close(run);
}

/* ---- a case ---- */

/* In the child: watches what runs from here on. results: [PROBES], shared with the parent. */
static void probe_begin(const ech_config *config, int ranks, probe_result *results)
{
    ech_config *copy = ech_config_copy(config);
    ech_design design = {0};
    bool made =
        ech_design_create(copy, fixture_tokenizer_of(copy), ranks, ranks, &design) == ECH_OK;
    ECH_ASSERT(ranks <= PROBE_MOST_RANKS);
    for (int p = 0; p < PROBES; p++) {
        bool here = WATCH_IS_PLAIN || !probes[p]->plain;
        results[p] = (probe_result){.applies = here && made && probes[p]->applies(&design)};
    }
    if (made) ech_design_destroy(&design);
    ech_config_destroy(copy);
    probe_results = results;
    probe_watched =
        (probe_case){.config = config, .ranks = ranks, .tokenizer = fixture_tokenizer_of(config)};
    probe_verifies = probe_looks = true;
}

/* What has failed first, or NULL. */
static const char *probe_conclude(const probe_result *results, char *out, size_t n)
{
    for (int p = 0; p < PROBES; p++)
        if (results[p].failed) {
            snprintf(out, n, "%s: %s", probes[p]->name, results[p].why);
            return out;
        }
    return NULL;
}

/* passed: verify has. Returns whether all probes have, too; if not, `why` says which one has
 * failed. */
static bool probe_judge(bool passed, char *why, size_t n)
{
    probe_verifies = false;
    for (int p = 0; p < PROBES && passed; p++) {
        if (!probe_results[p].applies || !probes[p]->judge) continue;
        probe_current = p;
        probe_looks = true;
        probes[p]->judge(probe_states[p], &probe_watched);
    }
    for (int p = 0; p < PROBES; p++)
        for (int r = 0; r < PROBE_MOST_RANKS; r++) probe_free(p, probe_states[p][r]);
    ech_config_destroy((ech_config *)probe_watched.computed);
    return passed && !probe_conclude(probe_results, why, n);
}

/* ---- over all cases ---- */

typedef struct probe_tally {
    int64_t applied; /* cases, of which some have not come so far */
    int64_t judged, failed;
} probe_tally;

/* passed: all of them have judged. */
static void probe_count(const probe_result *results, bool passed, probe_tally *tallies)
{
    for (int p = 0; p < PROBES; p++) {
        if (!results[p].applies) continue;
        __atomic_fetch_add(&tallies[p].applied, 1, __ATOMIC_RELAXED);
        if (!passed && !results[p].failed) continue;
        __atomic_fetch_add(&tallies[p].judged, 1, __ATOMIC_RELAXED);
        if (results[p].failed) __atomic_fetch_add(&tallies[p].failed, 1, __ATOMIC_RELAXED);
    }
}

static void probe_print(const probe_tally *tallies)
{
    printf("%-12s %6s %6s\n", "probe", "cases", "failed");
    for (int p = 0; p < PROBES; p++)
        printf("%-12s %6lld %6lld\n", probes[p]->name, (long long)tallies[p].judged,
               (long long)tallies[p].failed);
}

#endif
