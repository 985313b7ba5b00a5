/* SPDX-License-Identifier: Apache-2.0
 *
 * Searches the layouts of a run on a cluster: those with the shortest training step that fit into
 * the devices' memory. Each is a candidate: a value for each key of space.def. The run's other keys
 * stay, and a key of space.def that the run sets is not searched. Where layouts are for another
 * system (ech_advice_options.emit_for), values that it does not have are left out.
 *
 * 1. All candidates are enumerated. A closed formula gives each a bound (its step takes at least as
 *    long) and an estimate of time and memory, which only orders the candidates.
 * 2. In that order, candidates are planned and simulated with few micro-batches. If these have a
 *    steady state (simulate/rehearsal.h), the time of all of them follows exactly. Otherwise more
 *    micro-batches are simulated, and without a steady state each further one is expected to take
 *    as long as between the two simulations. A simulated candidate gives those that differ in ZeRO,
 *    recomputation and offload alone a new estimate.
 * 3. Those that may take a place by an expected time are simulated again without their memory, for
 *    the exact time.
 * 4. Those that still may take a place are planned and simulated as `echelon plan` does it, without
 *    its checks.
 *
 * If nothing fits yet and the work for all candidates is much, those with the least estimated
 * memory are planned next. If these are too large as well, the search ends.
 *
 * A candidate whose bound is above the last place's time cannot be in the list, and is not planned.
 * Work is limited (ech_search_limits), so other candidates may remain that were not planned; their
 * number is reported. One process does all this; nothing is collective.
 */
#ifndef ECH_APP_SEARCH_SEARCH_H
#define ECH_APP_SEARCH_SEARCH_H

#include <jansson.h>

#include "app/plan/planning.h"

typedef enum ech_search_key {
#define KEY(name, ...) ECH_SEARCH_##name,
#include "app/search/space.def"
    ECH_SEARCH_KEYS
} ech_search_key;

typedef enum ech_search_fate {
    ECH_SEARCH_LEFT,    /* not planned: its estimates are too high, or no work was left */
    ECH_SEARCH_BOUNDED, /* not planned: its bound is above the last place's time */
    ECH_SEARCH_REFUSED, /* not a layout of this run: ech_candidate.why */
    ECH_SEARCH_LARGE,   /* does not fit into memory */
    ECH_SEARCH_BRIEF,   /* simulated with few micro-batches; others were faster */
    ECH_SEARCH_PLANNED, /* planned and simulated as a whole */
    ECH_SEARCH_FATES
} ech_search_fate;

typedef struct ech_candidate {
    int64_t value[ECH_SEARCH_KEYS];
    int64_t data;           /* data ranks */
    int64_t micro_batches;  /* of a data rank's step */
    double bound, estimate; /* seconds of a step */
    double estimated_bytes; /* of device memory */
    bool related;           /* a simulated candidate of its family gave the estimate */
    /* bytes over estimated bytes of a simulated candidate of its family; 0: unknown */
    double of_estimated_bytes;
    ech_search_fate fate;
    double seconds; /* of a step, from few micro-batches; NaN: unknown */
    bool exact;     /* no extrapolation: as long as the whole step */
    /* of a planned one */
    ech_plan_forecast forecast;
    int64_t bytes; /* device memory of the rank that needs the most */
    char *why;     /* of a refused or large one; owned, or NULL */
} ech_candidate;

/* Work is counted in forwards of blocks in the lists that are simulated. */
typedef struct ech_search_limits {
    int shown;   /* places */
    int planned; /* candidates that are planned as a whole, at most, unless there is work left */
    double brief, whole; /* work for simulations with few micro-batches, and for whole ones */
    /* part of `brief` for candidates of any estimate; beyond it, only those are simulated that may
     * take a place by the most hopeful reading of their estimates */
    double freely;
} ech_search_limits;
extern const ech_search_limits ech_search_defaults;
/* A time that is extrapolated from few micro-batches is at most this many times the exact one. This
 * was measured, not derived; app/search asserts it. */
#define ECH_SEARCH_BEYOND_EXACT 1.03

typedef struct ech_search {
    const ech_run *run; /* borrowed */
    ech_cluster cluster;
    int ranks;
    const char *system; /* layouts are of this one of app/advice/systems.def; NULL: of ours */
    bool fixed[ECH_SEARCH_KEYS];       /* the run sets the key */
    ECH_LIST(ech_candidate) candidate; /* places first, in their order; then by estimate */
    int places;
    size_t fates[ECH_SEARCH_FATES]; /* candidates by fate */
    size_t open;  /* of ECH_SEARCH_LEFT: those that may take a place, for which no work was left */
    json_t *plan; /* of the first place (ech_search_add_plan); NULL: it was not added. Owned */
    ech_advice advice; /* of the first place */
} ech_search;

/* options: as for ech_planning_create; a cluster is required. report.progress gets the number of
 * simulated candidates. limits NULL: defaults. *out is to be destroyed also after a failure.
 * Errors: no candidate can be run, with the keys that are the cause or the memory that is
 * missing. */
ech_status ech_search_run(const ech_run *run, const ech_planning_options *options,
                          const ech_search_limits *limits, ech_search *out);
/* Plans the first place as a whole once more, for the advice that options->report.advice is about;
 * nothing without such options. `options` is as for ech_search_run. */
ech_status ech_search_advise(ech_search *search, const ech_planning_options *options);
void ech_search_destroy(ech_search *search);
/* Adds the whole plan of the first place, with its train lists, to what ech_search_json and
 * ech_search_html print. options: as for ech_search_run. */
ech_status ech_search_add_plan(ech_search *search, const ech_planning_options *options);

void ech_search_text(const ech_search *search, ech_text *out);
/* Appends one JSON object; docs/formats.md describes its keys. */
ech_status ech_search_json(const ech_search *search, ech_text *out);
/* Appends a page of the same object: one HTML file. */
ech_status ech_search_html(const ech_search *search, ech_text *out);
/* The run's configuration with the candidate's values, not resolved. Release with
 * ech_config_destroy. */
ech_config *ech_search_config(const ech_search *search, const ech_candidate *candidate);
/* Appends a run file: the keys that the run sets, and the candidate's. */
void ech_search_run_file(const ech_search *search, const ech_candidate *candidate, ech_text *out);
/* Appends "parallel.pipeline=4 ...": the candidate's values of the keys that were searched. */
void ech_search_print_keys(const ech_search *search, const ech_candidate *candidate, ech_text *out);

/* ---- parts of these functions ---- */

/* What the run's model and batch say about its candidates. */
typedef struct ech_search_space {
    const ech_run *run;
    const ech_cluster *cluster;
    const char *system; /* as ech_search.system; NULL after ech_search_space_create */
    int ranks;
    int64_t batch;      /* samples of a step */
    ech_config *config; /* of `alone` */
    ech_design alone;   /* of one rank, with the smallest micro-batch */
    bool fixed[ECH_SEARCH_KEYS];
    int64_t value[ECH_SEARCH_KEYS]; /* of the run: of fixed keys */
    double forward, rest;           /* FLOPs of all blocks for one sample: F; B and W */
    double layer;                   /* F of the cheapest block but the first and the last */
    int64_t layers,
        width; /* blocks without the first and the last; numbers of a row between blocks */
    int blocks;
    double parameters, in_experts; /* elements: all, and experts alone */
    double bytes;                  /* of all parameters in the compute type */
} ech_search_space;

/* Limits of the space, which ech_search_text names. */
enum {
    ECH_SEARCH_FEWEST_TOKENS = 2048, /* of a sequence, of each context rank */
    ECH_SEARCH_MOST_MICRO = 16       /* times the run's micro-batch */
};

/* Reads the run. Release *out with ech_search_space_free, also after a failure. Errors: as of
 * ech_design_create for one rank; the run is asynchronous. */
ech_status ech_search_space_create(const ech_run *run, const ech_cluster *cluster, int ranks,
                                   ech_search_space *out);
void ech_search_space_free(ech_search_space *space);
/* Calls `found` for each candidate, with bound and estimates. */
void ech_search_enumerate(const ech_search_space *space,
                          void (*found)(void *context, const ech_candidate *candidate),
                          void *context);
/* Sets the candidate's bound, estimate and estimated bytes. */
void ech_search_estimate(const ech_search_space *space, ech_candidate *candidate);
/* True if the candidate's schedule delays the gradients of weights. */
bool ech_search_delays_weights(const ech_candidate *candidate);
/* Costs of blocks that are known already; release `at` with free(). */
typedef struct ech_search_costs ech_search_costs;
typedef ECH_LIST(ech_search_costs) ech_search_costs_list;
/* Raises the candidate's bound to what its ranks compute and copy, in the costs of a simulation. */
void ech_search_tighten(const ech_search *search, const ech_search_space *space,
                        ech_search_costs_list *known, ech_candidate *candidate);
/* How a candidate is planned and simulated: see the steps above. */
typedef enum ech_search_trial {
    ECH_SEARCH_TRY_BRIEFLY,
    ECH_SEARCH_TRY_EXACTLY,
    ECH_SEARCH_TRY_WHOLE
} ech_search_trial;

/* What trials have in common. */
typedef struct ech_search_trials {
    const ech_search *search;
    const ech_planning_options *options;
    double memory; /* bytes of a device */
    double last;   /* seconds of the last place: slower candidates are not timed exactly */
} ech_search_trials;

/* Tries n candidates, several at once, and sets their fates, times and bytes. Each is tried by
 * itself, so the number of threads changes no result. */
void ech_search_try(const ech_search_trials *trials, ech_search_trial how, ech_candidate **at,
                    int n);
/* The most micro-batches that a brief trial simulates. */
int64_t ech_search_brief_micro_batches(const ech_candidate *candidate);
/* memory.device_limit of plans whose bytes are compared with the device later. */
#define ECH_SEARCH_NO_LIMIT "1000000000000000000"
/* Fails with the reason why a search has found nothing, and with what would work: keys of the run
 * that are the cause, a memory limit, a number of ranks. memory: bytes of a device. */
ech_status ech_search_explain(ech_search *search, const ech_search_space *space,
                              const ech_planning_options *options, double memory);
/* The run file's key, and the text of a value of it. */
const char *ech_search_key_name(ech_search_key key);
const char *ech_search_value(ech_search_key key, int64_t value, char buffer[32]);

#endif
