/* SPDX-License-Identifier: Apache-2.0
 *
 * Why a search has found nothing, and what would work.
 */
#include <math.h>
#include <stdlib.h>

#include "app/search/search.h"
#include "base/log.h"
#include "base/text.h"

/* ---- keys that leave no candidate ---- */

static void count(void *context, const ech_candidate *candidate)
{
    size_t *n = context;
    (void)candidate;
    ++*n;
}

/* True if there are candidates when the keys of `freed` are searched, too. */
static bool has_some(const ech_search_space *space, const bool freed[ECH_SEARCH_KEYS])
{
    size_t n = 0;
    ech_search_space other = *space;
    for (ech_search_key key = 0; key < ECH_SEARCH_KEYS; key++)
        if (freed[key]) other.fixed[key] = false;
    ech_search_enumerate(&other, count, &n);
    return n > 0;
}

static void append_key(ech_search_key key, const char *between, ech_text *out)
{
    ech_text_append(out, "%s%s", out->n ? between : "", ech_search_key_name(key));
}

/* Each fixed key that alone makes the space empty; without one, a pair; else all fixed keys. */
static void find_cause(const ech_search_space *space, ech_text *out)
{
    const bool *fixed = space->fixed;
    for (ech_search_key key = 0; key < ECH_SEARCH_KEYS; key++) {
        bool freed[ECH_SEARCH_KEYS] = {false};
        freed[key] = true;
        if (fixed[key] && has_some(space, freed)) append_key(key, " or ", out);
    }
    for (ech_search_key a = 0; a < ECH_SEARCH_KEYS && !out->n; a++)
        for (ech_search_key b = a + 1; b < ECH_SEARCH_KEYS && !out->n; b++) {
            bool freed[ECH_SEARCH_KEYS] = {false};
            freed[a] = freed[b] = true;
            if (!fixed[a] || !fixed[b] || !has_some(space, freed)) continue;
            append_key(a, "", out);
            append_key(b, " and ", out);
        }
    bool alone = out->n > 0;
    for (ech_search_key key = 0; key < ECH_SEARCH_KEYS && !alone; key++)
        if (fixed[key] && has_some(space, fixed)) append_key(key, " and ", out);
}

static ech_status explain_empty(const ech_search *search, const ech_search_space *space)
{
    ECH_FREED_TEXT cause = {0};
    int64_t data = space->run->config->parallel.data;
    find_cause(space, &cause);
    if (!cause.n && data != ECH_AUTO)
        ech_text_append(&cause, "parallel.data = %lld", (long long)data);
    if (cause.n)
        ECH_FAIL(ECH_EUSAGE,
                 "no layout of %d ranks has whole micro-batches of %lld samples a step with the "
                 "run's %s; do not set this, or change the number of ranks or "
                 "training.global_batch_size",
                 search->ranks, (long long)space->batch, cause.at);
    ECH_FAIL(ECH_EUSAGE,
             "no layout of %d ranks has whole micro-batches of %lld samples a step; change the "
             "number of ranks or training.global_batch_size: a multiple of %d samples works",
             search->ranks, (long long)space->batch, space->ranks);
}

/* ---- memory ---- */

/* Plans all lists of a candidate on so many ranks for its bytes: few micro-batches of training may
 * need less. Of a long step some micro-batches are planned, and *exact is false. False: refused. */
static bool plan_bytes(const ech_search *search, const ech_planning_options *options, int ranks,
                       ech_candidate *c, bool *exact)
{
    enum { SHORT = 64 };
    int64_t m = c->micro_batches, most = 3 * c->value[ECH_SEARCH_pipeline];
    ech_run_arguments arguments = *search->run->arguments;
    ech_run run = *search->run;
    ech_planning_options whole = *options;
    ech_planning planning;
    ECH_FREED_TEXT batch = {0};
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = ech_search_config(search, c);
    *exact = m <= SHORT;
    if (!*exact && m > most) m = most;
    ech_text_append(&batch, "training.global_batch_size=%lld",
                    (long long)(m * c->data * c->value[ECH_SEARCH_micro]));
    arguments.ranks = ranks;
    run.arguments = &arguments;
    run.config = config;
    whole.report = (ech_plan_options){.unchecked = true};
    bool quiet = ech_log_set_quiet(true);
    ech_status status = ech_config_set(config, "memory.device_limit=" ECH_SEARCH_NO_LIMIT);
    if (status == ECH_OK) status = ech_config_set(config, batch.at);
    if (status == ECH_OK) {
        status = ech_planning_create(&run, &whole, &planning);
        if (status == ECH_OK) {
            int64_t bytes = ech_plan_report_bytes(&planning.report);
            if (bytes > c->bytes) c->bytes = bytes;
        }
        ech_planning_destroy(&planning);
    }
    ech_log_set_quiet(quiet);
    return status == ECH_OK;
}

static ech_candidate *find_least(ech_search *search)
{
    ech_candidate *least = NULL;
    for (size_t i = 0; i < search->candidate.n; i++) {
        ech_candidate *c = &search->candidate.at[i];
        if (c->fate == ECH_SEARCH_LARGE && (!least || c->bytes < least->bytes)) least = c;
    }
    return least;
}

/* The candidate that needs the least memory, of those planned; NULL: none is too large. */
static ech_candidate *find_smallest(ech_search *search, const ech_planning_options *options,
                                    bool *exact)
{
    enum { MOST_PLANS = 20 };
    ech_candidate *least = find_least(search);
    for (int i = 0; least && i < MOST_PLANS; i++) {
        int64_t brief = least->bytes;
        plan_bytes(search, options, search->ranks, least, exact);
        if (least->bytes <= brief || !*exact) break;
        least = find_least(search);
    }
    return least;
}

/* The candidates with the least estimated memory, in their order. */
enum { TRIED = 4 };
typedef struct smallest {
    ech_candidate at[TRIED];
    int n;
} smallest;

static void keep_smallest(void *context, const ech_candidate *candidate)
{
    smallest *list = context;
    int i = list->n < TRIED ? list->n++ : TRIED - 1;
    if (i == TRIED - 1 && list->at[i].estimated_bytes > 0 &&
        list->at[i].estimated_bytes <= candidate->estimated_bytes)
        return;
    for (; i > 0 && list->at[i - 1].estimated_bytes > candidate->estimated_bytes; i--)
        list->at[i] = list->at[i - 1];
    list->at[i] = *candidate;
}

/* More ranks, with which a layout fits; 0: none of those tried. */
static int find_ranks(const ech_search *search, const ech_planning_options *options, double memory)
{
    enum { MOST_DOUBLINGS = 6 };
    for (int i = 1; i <= MOST_DOUBLINGS && search->ranks <= INT32_MAX >> i; i++) {
        smallest list = {.n = 0};
        ech_search_space space;
        int ranks = search->ranks << i;
        bool exact, fits = false;
        ech_status status = ech_search_space_create(search->run, &search->cluster, ranks, &space);
        space.system = search->system;
        if (status == ECH_OK) ech_search_enumerate(&space, keep_smallest, &list);
        ech_search_space_free(&space);
        for (int c = 0; c < list.n && !fits; c++)
            fits = plan_bytes(search, options, ranks, &list.at[c], &exact) &&
                   (double)list.at[c].bytes <= memory;
        if (fits) return ranks;
    }
    return 0;
}

static ech_status explain_memory(const ech_search *search, const ech_candidate *least,
                                 const ech_planning_options *options, double memory, bool exact)
{
    ECH_FREED_TEXT layout = {0}, fixed = {0}, works = {0};
    int ranks = find_ranks(search, options, memory);
    ech_search_print_keys(search, least, &layout);
    for (ech_search_key key = 0; key < ECH_SEARCH_KEYS; key++)
        if (search->fixed[key]) append_key(key, ", ", &fixed);
    if (ranks) ech_text_append(&works, "; %d ranks would fit", ranks);
    if (exact && ech_config_is_set(search->run->config, "memory.device_limit"))
        ech_text_append(&works, "; memory.device_limit=%lld would do", (long long)least->bytes);
    if (fixed.n) ech_text_append(&works, "; or do not set %s", fixed.at);
    ECH_FAIL(ECH_EUSAGE,
             "no layout of %d ranks fits: the smallest of those planned needs %s of a device, %s "
             "more than the %s that it has (%s)%s",
             search->ranks, ECH_BYTES(least->bytes), ECH_BYTES(least->bytes - (int64_t)memory),
             ECH_BYTES((int64_t)memory), layout.at,
             works.n ? works.at : "; use devices with more memory, or a smaller model");
}

ech_status ech_search_explain(ech_search *search, const ech_search_space *space,
                              const ech_planning_options *options, double memory)
{
    bool exact = false;
    const ech_candidate *least = find_smallest(search, options, &exact);
    if (least) return explain_memory(search, least, options, memory, exact);
    for (size_t i = 0; i < search->candidate.n; i++)
        if (search->candidate.at[i].fate == ECH_SEARCH_REFUSED)
            ECH_FAIL(ECH_EUSAGE,
                     "no layout of %d ranks can be run; the first of %zu was refused: %s",
                     search->ranks, search->fates[ECH_SEARCH_REFUSED], search->candidate.at[i].why);
    return explain_empty(search, space);
}
