/* SPDX-License-Identifier: Apache-2.0
 *
 * The search: candidates in the order of their estimates, those that may be among the first tried
 * briefly, and the best of these as a whole (trial.c).
 */
#include "app/search/search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/count.h"
#include "base/text.h"

const ech_search_limits ech_search_defaults = {
    .shown = 10, .planned = 20, .brief = 8e5, .whole = 4e5, .freely = 2e5};

/* A planned candidate, its time over its bound, and its bytes over their estimate. */
typedef struct related {
    ech_candidate first;
    double factor, bytes;
} related;

typedef struct state {
    ech_search *search;
    const ech_search_limits *limits;
    ech_search_space space;
    ech_search_trials trials;
    ech_search_costs_list costs;
    ECH_LIST(ech_candidate) all;
    ECH_LIST(related) family;
    bool hopeless; /* nothing fits, not even the layouts with the least estimated memory */
} state;

/* ---- candidates in order ---- */

enum { BATCH = 16 }; /* candidates that are tried at once */

/* Steps take at least this part of first estimates, nearly always; estimates by a family are within
 * 1 %. This was measured. It decides the order, and what remains without work for all. */
static const double least_of_estimate = 0.95;

static double hope(const ech_candidate *c)
{
    return c->related ? c->estimate : least_of_estimate * c->estimate;
}

static int by_hope(const void *a, const void *b)
{
    const ech_candidate *x = a, *y = b;
    double hope_x = hope(x), hope_y = hope(y);
    if (hope_x < hope_y || hope_x > hope_y) return hope_x < hope_y ? -1 : 1;
    return memcmp(x->value, y->value, sizeof x->value);
}

static int by_place(const void *a, const void *b)
{
    const ech_candidate *const *x = a, *const *y = b;
    if ((*x)->seconds < (*y)->seconds || (*x)->seconds > (*y)->seconds)
        return (*x)->seconds < (*y)->seconds ? -1 : 1;
    return by_hope(*x, *y);
}

typedef ECH_LIST(ech_candidate *) references;

/* The simulated candidates that fit, the fastest first. */
static void find_fit(state *s, references *out)
{
    out->n = 0;
    for (size_t i = 0; i < s->all.n; i++) {
        ech_candidate *c = &s->all.at[i];
        if (c->fate == ECH_SEARCH_BRIEF || c->fate == ECH_SEARCH_PLANNED) ECH_PUSH(*out, c);
    }
    if (out->n) qsort(out->at, out->n, sizeof *out->at, by_place);
}

/* The time of the last place; INFINITY: it is free. */
static double last_place(state *s)
{
    references fit = {0};
    find_fit(s, &fit);
    double last = (int)fit.n < s->limits->shown ? INFINITY : fit.at[s->limits->shown - 1]->seconds;
    free(fit.at);
    return last;
}

/* The same of those that are planned as a whole. */
static double last_planned(state *s)
{
    references fit = {0};
    double last = INFINITY;
    int places = 0;
    find_fit(s, &fit);
    for (size_t i = 0; i < fit.n && places < s->limits->shown; i++) {
        places += fit.at[i]->fate == ECH_SEARCH_PLANNED;
        if (places == s->limits->shown) last = fit.at[i]->seconds;
    }
    free(fit.at);
    return last;
}

/* Forwards of blocks in the lists of one replica. */
static double work_of(const state *s, int64_t micro_batches)
{
    return (double)s->space.blocks * (double)micro_batches;
}

static double brief_work(const state *s, const ech_candidate *c)
{
    return work_of(s, ech_search_brief_micro_batches(c));
}

/* A candidate that the estimate of memory calls far too large comes after the others. */
static bool seems_large(const state *s, const ech_candidate *c)
{
    double factor = c->of_estimated_bytes > 0 ? c->of_estimated_bytes : 1;
    return factor * c->estimated_bytes > 1.25 * s->trials.memory;
}

/* Steps take at least this many times the tight bound, mostly: messages and sums are not in it.
 * This and the next factor were measured, and decide only the order of candidates. */
static const double beyond_bound = 1.08;
/* Candidates whose first estimate is above a place's by this are not looked at more closely. */
static const double near = 1.15;

static void sort_by_hope(state *s)
{
    if (s->all.n) qsort(s->all.at, s->all.n, sizeof *s->all.at, by_hope);
}

/* Sorts the candidates by estimates; the first ones get tight bounds before. */
static void sort_candidates(state *s)
{
    double limit = INFINITY;
    sort_by_hope(s);
    for (size_t i = 0; i < s->all.n && s->all.at[i].estimate <= limit; i++) {
        ech_candidate *c = &s->all.at[i];
        ech_search_tighten(s->search, &s->space, &s->costs, c);
        c->estimate = fmax(c->estimate, beyond_bound * c->bound);
        if ((int)i >= s->limits->shown && !seems_large(s, c))
            limit = fmin(limit, near * c->estimate);
    }
    sort_by_hope(s);
}

/* ---- estimates from planned candidates of the same family ---- */

/* The keys before this one are the same in a family. Its candidates differ in ZeRO, recomputation
 * and offload alone: their steps exceed their bounds by about the same factor. */
enum { FAMILY = ECH_SEARCH_zero };

/* True if both have the same values of the first n keys. */
static bool are_alike(const ech_candidate *a, const ech_candidate *b, size_t n)
{
    return memcmp(a->value, b->value, n * sizeof *a->value) == 0;
}

/* True if one of at[n] has the candidate's values of the first `same` keys. */
static bool has_alike(ech_candidate *const *at, int n, const ech_candidate *c, size_t same)
{
    for (int i = 0; i < n; i++)
        if (are_alike(at[i], c, same)) return true;
    return false;
}

static const related *find_family(const state *s, const ech_candidate *c)
{
    for (size_t i = 0; i < s->family.n; i++)
        if (are_alike(&s->family.at[i].first, c, FAMILY)) return &s->family.at[i];
    return NULL;
}

static void learn(state *s, const ech_candidate *c)
{
    double factor = c->seconds / c->bound;
    if (!isfinite(factor) || find_family(s, c)) return;
    double bytes = (double)c->bytes / c->estimated_bytes;
    ECH_PUSH(s->family, ((related){.first = *c, .factor = factor, .bytes = bytes}));
}

static bool offloads(const ech_candidate *c)
{
    return c->value[ECH_SEARCH_offload] != 0;
}

static void estimate_by(const related *family, ech_candidate *c)
{
    double estimate = family->factor * c->bound;
    c->of_estimated_bytes = family->bytes;
    /* copies to the host are in the first estimate, and only partly in the bound */
    if (offloads(c) && !offloads(&family->first) && estimate < c->estimate) return;
    c->estimate = estimate;
    c->related = true;
}

static void estimate_again(state *s)
{
    for (size_t i = 0; i < s->all.n; i++) {
        ech_candidate *c = &s->all.at[i];
        const related *family = c->fate == ECH_SEARCH_LEFT ? find_family(s, c) : NULL;
        if (!family) continue;
        ech_search_tighten(s->search, &s->space, &s->costs, c);
        estimate_by(family, c);
    }
    sort_by_hope(s);
}

/* ---- brief plans ---- */

/* Leaves out the candidate if its bound says so. */
static bool is_bounded(state *s, ech_candidate *c, double last)
{
    if (c->bound <= last) ech_search_tighten(s->search, &s->space, &s->costs, c);
    if (c->bound > last) c->fate = ECH_SEARCH_BOUNDED;
    return c->bound > last;
}

/* True if the candidate may take a place by the most hopeful reading of its estimates. */
static bool is_hopeful(const state *s, const ech_candidate *c, double last)
{
    return seems_large(s, c) ? isinf(last) : hope(c) <= last;
}

/* The next candidates in order, one of a family: the others are estimated by it. */
static int find_next(state *s, bool large, double last, double *left, ech_candidate **at)
{
    int n = 0;
    for (size_t i = 0; i < s->all.n && n < BATCH; i++) {
        ech_candidate *c = &s->all.at[i];
        bool any = s->limits->brief - *left < s->limits->freely;
        if (c->fate != ECH_SEARCH_LEFT || seems_large(s, c) != large ||
            has_alike(at, n, c, FAMILY) || is_bounded(s, c, last) || brief_work(s, c) > *left)
            continue;
        if (!any && !is_hopeful(s, c, last)) continue;
        *left -= brief_work(s, c);
        at[n++] = c;
    }
    return n;
}

/* Tells the caller how far the search is: "searching: 40 of 5,016 layouts simulated". */
static void tell_progress(const state *s)
{
    const ech_plan_options *options = &s->trials.options->report;
    ECH_FREED_TEXT text = {0};
    size_t simulated = 0;
    if (!options->progress) return;
    for (size_t i = 0; i < s->all.n; i++) {
        ech_search_fate fate = s->all.at[i].fate;
        simulated += fate != ECH_SEARCH_LEFT && fate != ECH_SEARCH_BOUNDED;
    }
    ech_text_append(&text, "searching: %zu of %s simulated", simulated,
                    ECH_COUNT((int64_t)s->all.n, "layout"));
    options->progress(text.at, options->context);
}

static void plan_brief_batch(state *s, ech_candidate **at, int n)
{
    tell_progress(s);
    s->trials.last = last_place(s);
    ech_search_try(&s->trials, ECH_SEARCH_TRY_BRIEFLY, at, n);
    for (int i = 0; i < n; i++) learn(s, at[i]);
}

/* ---- where nothing fits ---- */

static int by_bytes(const void *a, const void *b)
{
    const ech_candidate *const *x = a, *const *y = b;
    if ((*x)->estimated_bytes < (*y)->estimated_bytes) return -1;
    return (*x)->estimated_bytes > (*y)->estimated_bytes ? 1 : by_hope(*x, *y);
}

/* The candidates with the least estimated memory, one of those with the same degrees. */
static int find_smallest(state *s, double *left, ech_candidate **at)
{
    references open = {0};
    int n = 0;
    for (size_t i = 0; i < s->all.n; i++)
        if (s->all.at[i].fate == ECH_SEARCH_LEFT) ECH_PUSH(open, &s->all.at[i]);
    if (open.n) qsort(open.at, open.n, sizeof *open.at, by_bytes);
    for (size_t i = 0; i < open.n && n < BATCH; i++) {
        if (has_alike(at, n, open.at[i], ECH_SEARCH_micro)) continue;
        *left -= brief_work(s, open.at[i]);
        at[n++] = open.at[i];
    }
    free(open.at);
    return n;
}

static bool has_fate(ech_candidate *const *at, int n, ech_search_fate fate)
{
    for (int i = 0; i < n; i++)
        if (at[i]->fate == fate) return true;
    return false;
}

/* True if a candidate fits, or if all that are left can be planned with a tenth of the work. */
static bool is_open(const state *s, double left)
{
    double needs = 0;
    for (size_t i = 0; i < s->all.n; i++) {
        const ech_candidate *c = &s->all.at[i];
        if (c->fate == ECH_SEARCH_BRIEF || c->fate == ECH_SEARCH_PLANNED) return true;
        if (c->fate == ECH_SEARCH_LEFT) needs += brief_work(s, c);
    }
    return needs <= fmin(left, 0.1 * s->limits->brief);
}

/* False if the candidates with the least estimated memory are too large: the others would only
 * delay the error. */
static bool may_fit(state *s, double *left)
{
    ech_candidate *at[BATCH];
    if (s->hopeless || is_open(s, *left)) return !s->hopeless;
    int n = find_smallest(s, left, at);
    plan_brief_batch(s, at, n);
    s->hopeless = has_fate(at, n, ECH_SEARCH_LARGE) && !has_fate(at, n, ECH_SEARCH_BRIEF);
    estimate_again(s);
    return !s->hopeless;
}

/* large: candidates that seem so; most others are expected to fit, so that only their first batch
 * shows whether that is in doubt. Returns the number of candidates that were simulated. */
static int plan_round(state *s, bool large, double *left)
{
    ech_candidate *at[BATCH];
    int simulated = 0;
    for (bool doubtful = large; !doubtful || may_fit(s, left); doubtful = true) {
        int n = find_next(s, large, last_place(s), left, at);
        if (n == 0) break;
        plan_brief_batch(s, at, n);
        estimate_again(s);
        simulated += n;
    }
    return simulated;
}

/* ---- whole plans ---- */

/* True if the candidate may still take a place, which lasts `last` seconds. */
static bool may_be_placed(const ech_candidate *c, double last)
{
    return c->bound <= last &&
           (c->exact ? c->seconds : c->seconds / ECH_SEARCH_BEYOND_EXACT) <= last;
}

/* The time of the last place if all candidates with exact times fit; INFINITY: it is free. */
static double last_exact(const state *s, const references *fit)
{
    int places = 0;
    for (size_t i = 0; i < fit->n; i++) {
        places += fit->at[i]->exact;
        if (places == s->limits->shown) return fit->at[i]->seconds;
    }
    return INFINITY;
}

/* Finds the exact times of the next candidates that may be placed. Returns their number. */
static int time_next(state *s, const references *fit)
{
    ech_candidate *at[BATCH];
    double last = last_exact(s, fit);
    int n = 0;
    for (size_t i = 0; i < fit->n && n < BATCH; i++)
        if (!fit->at[i]->exact && may_be_placed(fit->at[i], last)) at[n++] = fit->at[i];
    ech_search_try(&s->trials, ECH_SEARCH_TRY_EXACTLY, at, n);
    return n;
}

/* Plans the next candidates that may be placed as a whole, as many as there are places. Returns
 * their number. */
static int plan_next(state *s, const references *fit, int planned, double *left)
{
    ech_candidate *at[BATCH];
    double last = last_planned(s);
    int n = 0;
    for (size_t i = 0; i < fit->n && n < BATCH && n < s->limits->shown; i++) {
        ech_candidate *c = fit->at[i];
        double needs = work_of(s, c->micro_batches);
        if (c->fate != ECH_SEARCH_BRIEF || !may_be_placed(c, last)) continue;
        if (planned + n >= s->limits->planned && needs > *left) break;
        *left -= needs;
        at[n++] = c;
    }
    ech_search_try(&s->trials, ECH_SEARCH_TRY_WHOLE, at, n);
    return n;
}

static void plan_best(state *s)
{
    references fit = {0};
    double left = s->limits->whole;
    int planned = 0, n;
    tell_progress(s);
    for (size_t i = 0; i < s->all.n; i++) planned += s->all.at[i].fate == ECH_SEARCH_PLANNED;
    do {
        find_fit(s, &fit);
        n = time_next(s, &fit);
        if (n == 0) {
            n = plan_next(s, &fit, planned, &left);
            planned += n;
        }
    } while (n > 0);
    free(fit.at);
}

/* Places that candidates have left, since they do not fit or are slower than expected, are open
 * again to candidates that were out by their bound. */
static void reopen(state *s)
{
    double last = last_planned(s);
    for (size_t i = 0; i < s->all.n; i++) {
        ech_candidate *c = &s->all.at[i];
        if (c->fate == ECH_SEARCH_BOUNDED && c->bound <= last) c->fate = ECH_SEARCH_LEFT;
    }
}

static int count_unfit(const state *s)
{
    int n = 0;
    for (size_t i = 0; i < s->all.n; i++)
        n += s->all.at[i].fate == ECH_SEARCH_LARGE || s->all.at[i].fate == ECH_SEARCH_REFUSED;
    return n;
}

/* Counts the candidates that may take a place but were not simulated, as the work has ended. */
static size_t count_open(state *s)
{
    double last = last_planned(s);
    size_t n = 0;
    for (size_t i = 0; i < s->all.n; i++) {
        const ech_candidate *c = &s->all.at[i];
        n += c->fate == ECH_SEARCH_LEFT && c->bound <= last && is_hopeful(s, c, last);
    }
    return n;
}

/* Moves the candidates to the search: places first. */
static void sort_places(state *s)
{
    references fit = {0};
    ech_search *search = s->search;
    find_fit(s, &fit);
    for (size_t i = 0; i < fit.n && search->places < s->limits->shown; i++) {
        if (fit.at[i]->fate != ECH_SEARCH_PLANNED) continue;
        ECH_PUSH(search->candidate, *fit.at[i]);
        fit.at[i]->fate = ECH_SEARCH_FATES; /* moved */
        search->places++;
    }
    search->fates[ECH_SEARCH_PLANNED] += (size_t)search->places;
    for (size_t i = 0; i < s->all.n; i++) {
        if (s->all.at[i].fate == ECH_SEARCH_FATES) continue;
        search->fates[s->all.at[i].fate]++;
        ECH_PUSH(search->candidate, s->all.at[i]);
    }
    s->all.n = 0;
    free(fit.at);
}

static void keep(void *context, const ech_candidate *candidate)
{
    state *s = context;
    ECH_PUSH(s->all, *candidate);
}

static double memory_of(const ech_search *search)
{
    const ech_config *config = search->run->config;
    const ech_cluster *cluster = &search->cluster;
    int64_t limit = config->memory.device_limit;
    bool given = ech_config_is_set(config, "memory.device_limit") && limit > 0;
    return given ? (double)limit : cluster->device_memory - cluster->device_reserved;
}

/* Simulates briefly all candidates that may be placed. Exact times are often longer than the
 * extrapolated ones before, so that more candidates may be placed then. Each large candidate may
 * show that others of its family are not as large as they seemed. */
static void plan_rounds(state *s, double *left)
{
    references fit = {0};
    int simulated, timed;
    do {
        reopen(s);
        plan_round(s, false, left);
        simulated = plan_round(s, true, left);
        find_fit(s, &fit);
        timed = time_next(s, &fit);
    } while (simulated > 0 || timed > 0);
    free(fit.at);
}

static ech_status run_search(state *s)
{
    ech_search *search = s->search;
    double left = s->limits->brief;
    ech_search_enumerate(&s->space, keep, s);
    sort_candidates(s);
    int unfit;
    do {
        plan_rounds(s, &left);
        unfit = count_unfit(s);
        plan_best(s);
    } while (count_unfit(s) > unfit);
    search->open = count_open(s);
    sort_places(s);
    if (search->places) return ECH_OK;
    return ech_search_explain(search, &s->space, s->trials.options, s->trials.memory);
}

ech_status ech_search_run(const ech_run *run, const ech_planning_options *options,
                          const ech_search_limits *limits, ech_search *out)
{
    state s = {.search = out, .trials = {.search = out, .options = options}};
    s.limits = limits ? limits : &ech_search_defaults;
    *out = (ech_search){.run = run};
    if (!options->cluster)
        ECH_FAIL(ECH_EUSAGE, "a search needs the speeds of a cluster; add --cluster FILE");
    ECH_TRY(ech_run_ranks_of(run->config, run->arguments->ranks, &out->ranks));
    {
        ECH_CLEANUP(ech_config_destroy_at) ech_config *config = ech_config_copy(run->config);
        ECH_TRY(ech_planning_read_cluster(config, options->cluster, out->ranks, &out->cluster));
    }
    ECH_TRY(ech_advice_check(&options->report.advice, &out->cluster, options->cluster));
    s.trials.memory = memory_of(out);
    int trains = out->ranks - (int)run->config->parallel.evaluators;
    ech_status status = ech_search_space_create(run, &out->cluster, trains, &s.space);
    memcpy(out->fixed, s.space.fixed, sizeof out->fixed);
    s.space.system = out->system = options->report.advice.emit_for;
    if (status == ECH_OK) status = run_search(&s);
    ech_search_space_free(&s.space);
    free(s.all.at);
    free(s.costs.at);
    free(s.family.at);
    return status;
}

ech_status ech_search_advise(ech_search *search, const ech_planning_options *options)
{
    const ech_advice_options *advice = &options->report.advice;
    ech_planning planning;
    ech_run run = *search->run;
    if (!advice->emit_for && !(advice->mtbf_hours > 0)) return ECH_OK;
    ECH_CLEANUP(ech_config_destroy_at)
    ech_config *config = ech_search_config(search, &search->candidate.at[0]);
    run.config = config;
    ech_status status = ech_planning_create(&run, options, &planning);
    search->advice = planning.report.advice;
    planning.report.advice = (ech_advice){0};
    ech_planning_destroy(&planning);
    return status;
}

void ech_search_destroy(ech_search *search)
{
    ech_advice_free(&search->advice);
    for (size_t i = 0; i < search->candidate.n; i++) free(search->candidate.at[i].why);
    free(search->candidate.at);
    json_decref(search->plan);
    *search = (ech_search){0};
}
