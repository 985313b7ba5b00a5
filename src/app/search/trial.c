/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials of a search's candidates: what each is as a run, and its plan and simulation, with few
 * micro-batches, with as many as an exact time takes, or as a whole.
 */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "app/search/search.h"
#include "base/log.h"
#include "base/text.h"

static void set(ech_config *config, const char *key, const char *value)
{
    ECH_FREED_TEXT text = {0};
    ech_text_append(&text, "%s=%s", key, value);
    ech_status status = ech_config_set(config, text.at);
    ECH_ASSERT(status == ECH_OK);
}

ech_config *ech_search_config(const ech_search *search, const ech_candidate *candidate)
{
    ech_config *config = ech_config_copy(search->run->config);
    for (ech_search_key key = 0; key < ECH_SEARCH_KEYS; key++) {
        char value[32];
        if (search->fixed[key]) continue;
        set(config, ech_search_key_name(key), ech_search_value(key, candidate->value[key], value));
    }
    return config;
}

/* ---- plans of one candidate ---- */

/* Fails if the layouts are for another system, which lacks a value that was searched. */
static ech_status check_system(const ech_search *search, const ech_design *design)
{
    ech_emitted emitted;
    if (!search->system) return ECH_OK;
    ech_status status = ech_emit(design, search->system, &emitted);
    for (ech_search_key key = 0; key < ECH_SEARCH_KEYS && status == ECH_OK; key++)
        if (!search->fixed[key] && ech_emitted_lacks(&emitted, ech_search_key_name(key)))
            status =
                ech_config_complain(design->config, ech_search_key_name(key),
                                    "%s does not have this value in this layout", search->system);
    ech_emitted_free(&emitted);
    return status;
}

static ech_status check_length(const ech_planning *planning)
{
    if (!planning->report.checked) ECH_FAIL(ECH_EUSAGE, "its lists are too long to simulate");
    return ECH_OK;
}

/* Plans the candidate with m micro-batches in a step. No memory is too small here, so that *bytes
 * says what is missing; NULL: memory is not planned. */
static ech_status simulate(const ech_search_trials *s, const ech_candidate *c, int64_t m,
                           double *seconds, ech_steady *steady, int64_t *bytes)
{
    ech_run run = *s->search->run;
    ech_planning_options options = *s->options;
    ech_planning planning;
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = ech_search_config(s->search, c);
    char batch[32];
    snprintf(batch, sizeof batch, "%lld", (long long)(m * c->data * c->value[ECH_SEARCH_micro]));
    set(config, "training.global_batch_size", batch);
    set(config, "memory.device_limit", ECH_SEARCH_NO_LIMIT);
    run.config = config;
    options.report = (ech_plan_options){.brief = true, .timed = !bytes};
    ech_status status = ech_planning_create(&run, &options, &planning);
    if (status == ECH_OK) status = check_system(s->search, &planning.design);
    if (status == ECH_OK) status = check_length(&planning);
    if (status == ECH_OK) {
        *seconds = planning.report.simulation.end / planning.design.schedule->turns;
        *steady = planning.report.simulation.steady;
        if (bytes) *bytes = ech_plan_report_bytes(&planning.report);
    }
    ech_planning_destroy(&planning);
    return status;
}

/* With few micro-batches: enough to fill the pipeline, and as many more as a round of it. */
static int64_t few(const ech_candidate *c, int round)
{
    int64_t p = c->value[ECH_SEARCH_pipeline], unit = p > 1 ? p : 2;
    return (1 + round) * unit;
}

static bool is_short(const ech_candidate *c)
{
    return c->micro_batches <= few(c, 2);
}

static void refuse(ech_candidate *c, ech_search_fate fate, const char *why)
{
    c->fate = fate;
    c->why = ech_strdup(why);
}

static void check_size(const ech_search_trials *s, ech_candidate *c)
{
    if ((double)c->bytes <= s->memory) return;
    ECH_FREED_TEXT why = {0};
    ech_text_append(&why, "needs %s of a device; it has %s", ECH_BYTES(c->bytes),
                    ECH_BYTES((int64_t)s->memory));
    refuse(c, ECH_SEARCH_LARGE, why.at);
}

/* Micro-batches after the first n that whole periods of the steady state do not cover; -1: no
 * steady state was found. */
static int64_t uncovered(const ech_candidate *c, const ech_steady *steady, int64_t n)
{
    if (c->micro_batches == n) return 0;
    return steady->micro_batches ? (c->micro_batches - n) % steady->micro_batches : -1;
}

/* Sets the time of the step: the steady state of a simulation of n micro-batches covers the
 * others. */
static void set_exact(ech_candidate *c, int64_t n, double seconds, const ech_steady *steady)
{
    double periods =
        n == c->micro_batches ? 0 : (double)((c->micro_batches - n) / steady->micro_batches);
    c->seconds = seconds + steady->seconds * periods;
    c->exact = true;
}

/* More micro-batches than the first simulation has: a steady state of them is found more often. */
static int64_t several(const ech_candidate *c)
{
    int64_t m = c->micro_batches, n = few(c, 3) + m % few(c, 0);
    return n < m ? n : m;
}

/* Finds bytes from few micro-batches, and the time of the step from these or from more. If it has
 * no place even if all further micro-batches last as long as its bound has them, that is its time.
 */
static ech_status simulate_briefly(const ech_search_trials *s, ech_candidate *c, int64_t *bytes)
{
    double first, second;
    int64_t m = c->micro_batches, less = is_short(c) ? m : few(c, 1), n = several(c);
    ech_steady steady;
    ECH_TRY(simulate(s, c, less, &first, &steady, bytes));
    if (uncovered(c, &steady, less) == 0) {
        set_exact(c, less, first, &steady);
        return ECH_OK;
    }
    c->seconds = fmax(c->bound, first + c->bound / (double)m * (double)(m - less));
    if (c->seconds > s->last) return ECH_OK;
    ECH_TRY(simulate(s, c, n, &second, &steady, NULL));
    c->seconds = fmax(c->bound, second + (second - first) / (double)(n - less) * (double)(m - n));
    if (uncovered(c, &steady, n) == 0) set_exact(c, n, second, &steady);
    return ECH_OK;
}

/* Finds the exact time of the step, without memory: from so many micro-batches that a steady state
 * covers the others, or else from all. */
static void simulate_exactly(const ech_search_trials *s, ech_candidate *c)
{
    int64_t n = several(c), more;
    double seconds;
    ech_steady steady;
    do {
        if (simulate(s, c, n, &seconds, &steady, NULL) != ECH_OK) {
            refuse(c, ECH_SEARCH_REFUSED, ech_last_error());
            return;
        }
        more = uncovered(c, &steady, n);
        if (more == 0) set_exact(c, n, seconds, &steady);
        n = more < 0 ? c->micro_batches : n + more;
    } while (more != 0);
}

static void plan_briefly(const ech_search_trials *s, ech_candidate *c)
{
    int64_t bytes;
    ech_status status = simulate_briefly(s, c, &bytes);
    if (status != ECH_OK) {
        refuse(c, ECH_SEARCH_REFUSED, ech_last_error());
        return;
    }
    c->fate = ECH_SEARCH_BRIEF;
    c->bytes = bytes;
    check_size(s, c);
}

static void plan_whole(const ech_search_trials *s, ech_candidate *c)
{
    ech_run run = *s->search->run;
    ech_planning_options options = *s->options;
    ech_planning planning;
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = ech_search_config(s->search, c);
    set(config, "memory.device_limit", ECH_SEARCH_NO_LIMIT); /* so that the error says the bytes */
    run.config = config;
    options.report = (ech_plan_options){.unchecked = true, .tokens = s->options->report.tokens};
    ech_status status = ech_planning_create(&run, &options, &planning);
    if (status == ECH_OK) status = check_length(&planning);
    if (status == ECH_OK) {
        c->forecast = ech_plan_forecast_of(&planning.report);
        c->seconds = c->forecast.seconds;
        c->bytes = ech_plan_report_bytes(&planning.report);
        c->fate = ECH_SEARCH_PLANNED;
        check_size(s, c);
    } else {
        refuse(c, ECH_SEARCH_REFUSED, ech_last_error());
    }
    ech_planning_destroy(&planning);
}

/* ---- many candidates at once ---- */

typedef struct batch {
    const ech_search_trials *s;
    void (*plan)(const ech_search_trials *s, ech_candidate *c);
    ech_candidate **at;
    int n;
    atomic_int next;
} batch;

static void *work(void *argument)
{
    batch *b = argument;
    bool quiet = ech_log_set_quiet(true);
    for (int i = atomic_fetch_add(&b->next, 1); i < b->n; i = atomic_fetch_add(&b->next, 1))
        b->plan(b->s, b->at[i]);
    ech_log_set_quiet(quiet);
    return NULL;
}

enum { MOST_THREADS = 8 };

int64_t ech_search_brief_micro_batches(const ech_candidate *c)
{
    return is_short(c) ? c->micro_batches : few(c, 1) + several(c);
}

void ech_search_try(const ech_search_trials *trials, ech_search_trial how, ech_candidate **at,
                    int n)
{
    static void (*const plan[])(const ech_search_trials *,
                                ech_candidate *) = {[ECH_SEARCH_TRY_BRIEFLY] = plan_briefly,
                                                    [ECH_SEARCH_TRY_EXACTLY] = simulate_exactly,
                                                    [ECH_SEARCH_TRY_WHOLE] = plan_whole};
    pthread_t thread[MOST_THREADS];
    batch b = {.s = trials, .plan = plan[how], .at = at, .n = n};
    int cores = ech_device_find("cpu")->cores(), started = 0;
    while (started + 1 < cores && started + 1 < n && started < MOST_THREADS &&
           pthread_create(&thread[started], NULL, work, &b) == 0)
        started++;
    work(&b);
    while (started > 0) pthread_join(thread[--started], NULL);
}
