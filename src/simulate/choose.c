/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulates the partitioner's candidates one by one, and chooses the fastest.
 */
#include "simulate/choose.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "layout/propose.h"
#include "schedule/segments.h"
#include "simulate/simulate.h"

enum {
    MOST_RANKS = 1024,
    MOST_RUNS = 1 << 19, /* block runs in all simulations together: some seconds */
    MOST_FOUND = 12,     /* of the partitioner's */
    MOST_MOVES = 64,     /* cuts of virtual stages that are tried after the partitioner's */
    SPAN = 16            /* training steps between two drains, until the layout decides it */
};

/* Candidates are simulated up to this ratio of the partitioner's shortest estimate. */
static const double WORTH = 1.5;

typedef struct chooser {
    ech_config *config;
    const ech_model *model; /* unsharded */
    const ech_profile *profile;
    const ech_kernels *kernels;
    int world;
    ech_schedule_choice *choice;
    ech_layout_filter filter;
    bool simulates;
    int moves; /* at most so many cuts are tried after the partitioner's */
} chooser;

/* ---- one proposal ---- */

/* Everything built from a proposal. */
typedef struct trial {
    ech_config *config;
    ech_model *model;
    ech_layout *layout;
    ech_schedule *schedule;
    double seconds;
} trial;

static void end_trial(trial *t)
{
    ech_schedule_destroy(t->schedule);
    ech_layout_destroy(t->layout);
    ech_model_destroy(t->model);
    ech_config_destroy(t->config);
}

static ech_plan *plan_rank(const chooser *c, const trial *t, int rank, bool outline)
{
    ech_plan_request request = {
        .config = t->config,
        .model = t->model,
        .layout = t->layout,
        .schedule = t->schedule,
        .kernels = c->kernels,
        .device = ech_device_row_of(ech_config_name(t->config, "parallel.device")),
        .rank = rank,
        .threads = (int)t->config->parallel.threads,
        .outline = outline};
    return ech_plan_create(&request);
}

static ech_status simulate(const chooser *c, trial *t)
{
    ECH_FREED ech_plan **plans = ech_calloc((size_t)c->world, sizeof *plans);
    ech_costs costs = ech_costs_of(t->config, c->profile, NULL);
    ECH_CLEANUP(ech_simulation_free) ech_simulation simulation = {0};
    for (int rank = 0; rank < c->world; rank++) plans[rank] = plan_rank(c, t, rank, true);
    ech_status status =
        ech_simulate((const ech_plan *const *)plans, c->world, ECH_LIST_TRAIN, &costs, &simulation);
    if (status == ECH_OK) t->seconds = simulation.end / t->schedule->turns;
    for (int rank = 0; rank < c->world; rank++) ech_plan_destroy(plans[rank]);
    return status;
}

/* Sets up a run with these keys. */
static ech_status try_proposal(const chooser *c, const ech_proposal *proposal, trial *t)
{
    ech_config *config = ech_config_copy(c->config);
    t->config = config;
    t->seconds = proposal->seconds;
    ech_layout_take(config, proposal);
    ECH_TRY(ech_layout_resolve(config, c->model, c->world, &c->filter));
    ECH_FREED double *density = ech_profile_densities(c->profile);
    ECH_TRY(ech_model_create(config, density, &t->model));
    ECH_TRY(ech_layout_create(config, t->model, ech_schedule_placement(c->choice), c->world,
                              &t->layout));
    ECH_TRY(ech_schedule_create(config, c->choice, t->layout, &t->schedule));
    ECH_TRY(ech_segments_check(config, t->model, t->layout));
    ECH_TRY(ech_balance_check(config, t->model, t->layout, t->schedule));
    return c->simulates ? simulate(c, t) : ECH_OK;
}

/* The same without a line in the log. */
static ech_status try_quietly(const chooser *c, const ech_proposal *proposal, trial *t)
{
    bool quiet = ech_log_set_quiet(true);
    ech_status status = try_proposal(c, proposal, t);
    ech_log_set_quiet(quiet);
    return status;
}

/* True if a proposal fits memory.device_limit. One rank of each stage represents the others; the
 * first replica has the most micro-batches. */
static bool fits(const chooser *c, const ech_proposal *proposal)
{
    ECH_CLEANUP(end_trial) trial t = {0};
    chooser plain = *c;
    plain.simulates = false;
    bool fit = try_quietly(&plain, proposal, &t) == ECH_OK;
    for (int s = 0; fit && s < t.layout->stages; s++) {
        ECH_CLEANUP(ech_plan_destroy_at)
        ech_plan *plan = plan_rank(c, &t, t.layout->first_rank[s], false);
        fit = plan->arena_bytes[ECH_SPACE_DEVICE] <= t.config->memory.device_limit;
    }
    return fit;
}

/* ---- all proposals ---- */

/* True if a candidate is worth a simulation; every even partition is, so that nothing simpler is
 * faster. */
static bool is_worth(const ech_proposals *all, size_t i, int *found)
{
    if (all->at[i].partition.word == ECH_PARTITION_EVEN) return true;
    return all->at[i].seconds <= WORTH * all->at[0].seconds && ++*found <= MOST_FOUND;
}

/* Sets whether, and how often, there is time to simulate. */
static void set_limits(chooser *c, const ech_partition_needs *needs, size_t proposals)
{
    int64_t micro = c->config->training.global_batch_size / c->config->training.micro_batch_size;
    double runs = (double)micro * (double)c->model->block.n * needs->turns; /* of a simulation */
    double left = MOST_RUNS / runs - (double)proposals;
    c->simulates = c->world <= MOST_RANKS && left >= 0;
    c->moves = c->simulates ? (int)fmin(left, MOST_MOVES) : 0;
}

typedef struct ranked {
    const ech_proposal *proposal;
    double seconds;
} ranked;
typedef ECH_LIST(ranked) ranking;

/* Among equally short ones, the earlier proposal comes first. */
static void rank_proposal(ranking *all, ranked new)
{
    ECH_PUSH(*all, new);
    size_t at = all->n - 1;
    for (; at > 0 && all->at[at - 1].seconds > new.seconds; at--) all->at[at] = all->at[at - 1];
    all->at[at] = new;
}

/* Ranks the candidates that can run, the shortest step first. */
static void try_all(const chooser *c, const ech_proposals *all, ranking *out)
{
    int found = 0;
    for (size_t i = 0; i < all->n; i++) {
        ECH_CLEANUP(end_trial) trial t = {0};
        if (!is_worth(all, i, &found)) continue;
        if (try_quietly(c, &all->at[i], &t) == ECH_OK)
            rank_proposal(out, (ranked){&all->at[i], t.seconds});
    }
}

/* ---- virtual stages ---- */

/* The layers of each virtual stage of a trial, without embedding and head. */
static void read_layers(const trial *t, ech_proposal *out)
{
    const int *first = t->layout->first_block;
    int last = t->layout->stages * t->layout->chunks - 1;
    ECH_FREED int64_t *layers = ech_calloc((size_t)last + 1, sizeof *layers);
    for (int s = 0; s <= last; s++) layers[s] = first[s + 1] - first[s] - (s == 0) - (s == last);
    ech_config_replace_list(&out->partition, -1, layers, last + 1);
}

/* Moves a layer from one virtual stage to another if that shortens the step. */
static bool try_move(const chooser *c, ech_proposal *p, int from, int to)
{
    ECH_CLEANUP(end_trial) trial t = {0};
    int64_t *layers = p->partition.at;
    if (layers[from] == 0) return false;
    layers[from]--;
    layers[to]++;
    if (try_quietly(c, p, &t) == ECH_OK && t.seconds < p->seconds) {
        p->seconds = t.seconds;
        return true;
    }
    layers[from]++;
    layers[to]--;
    return false;
}

/* The partitioner estimates a rank's virtual stages as if each had a rank of its own. So the best
 * cut of virtual stages is refined here: single layers move between any two of them while that
 * shortens the simulated step. `refined` is the caller's to free; its partition has n = 0 if
 * nothing was found. */
static void refine(const chooser *c, const ranking *all, ech_proposal *refined)
{
    ECH_CLEANUP(end_trial) trial t = {0};
    if (all->n == 0 || c->moves == 0 || all->at[0].proposal->replicas.n) return;
    if (try_proposal(c, all->at[0].proposal, &t) != ECH_OK) return;
    int n = t.layout->stages * t.layout->chunks, tries = c->moves, unchanged = 0;
    if (t.layout->chunks < 2 || n > ECH_CONFIG_LONGEST_LIST) return;
    *refined = *all->at[0].proposal;
    refined->partition = refined->replicas = (ech_config_list){.word = ECH_REPLICAS_AUTO};
    read_layers(&t, refined);
    refined->seconds = t.seconds;
    for (int pair = 0; tries > 0 && unchanged < n * n; pair = (pair + 1) % (n * n)) {
        int from = pair / n, to = pair % n;
        unchanged++;
        if (from == to) continue;
        tries--;
        if (try_move(c, refined, from, to)) unchanged = 0;
    }
}

/* ---- the choice ---- */

/* The first that fits. */
static const ech_proposal *find_fitting(const chooser *c, const ranking *all)
{
    bool limited = ech_config_is_set(c->config, "memory.device_limit");
    for (size_t i = 0; i < all->n; i++)
        if (!limited || fits(c, all->at[i].proposal)) return all->at[i].proposal;
    return NULL;
}

/* Explains why the candidate that would be the shortest cannot run. */
static ech_status explain(const chooser *c, const ech_proposal *first)
{
    ECH_CLEANUP(end_trial) trial t = {0};
    ECH_TRY(try_proposal(c, first, &t));
    return ech_config_complain(c->config, "memory.device_limit",
                               "no partition fits; use more ranks, a smaller "
                               "training.micro_batch_size, or a higher limit");
}

static ech_status choose(const chooser *c, const ech_proposals *all)
{
    ECH_FREED ranking tried = {0};
    ech_proposal refined = {0};
    try_all(c, all, &tried);
    refine(c, &tried, &refined);
    if (refined.partition.n) rank_proposal(&tried, (ranked){&refined, refined.seconds});
    const ech_proposal *best = find_fitting(c, &tried);
    if (best) ech_layout_take(c->config, best);
    free(refined.partition.at);
    return best ? ECH_OK : explain(c, &all->at[0]);
}

/* ---- the entry point ---- */

/* True if stages begin all their forwards before the first backward. */
static bool keeps_all(const ech_generator *generator, int chunks)
{
    enum { MICRO_BATCHES = 8 };
    const ech_pipe pipe = {
        .stages = 2, .chunks = chunks, .micro_batches = MICRO_BATCHES, .depth = 2};
    ECH_FREED ech_order order = {0};
    generator->generate(&pipe, &order);
    return ech_order_in_flight(&order) == chunks * MICRO_BATCHES;
}

/* An order written by hand is only known to be synchronous. */
static ech_partition_needs needs_of(const chooser *c)
{
    const ech_config *config = c->config;
    const ech_generator *generator = c->choice->generator;
    ech_partition_needs needs = {.turns = 1,
                                 .versions = 1,
                                 .placement = ech_schedule_placement(c->choice),
                                 .filter = &c->filter};
    if (config->memory.offload_delayed_from > 0) needs.versions = 2;
    if (!generator) return needs;
    int chunks = generator->chunks ? generator->chunks : (int)config->parallel.virtual_stages;
    needs.keeps_all = keeps_all(generator, chunks);
    needs.divides = !ech_weights_are_synchronous(generator->weights);
    if (needs.divides)
        needs.turns =
            config->parallel.flush_every == ECH_AUTO ? SPAN : (int)config->parallel.flush_every;
    if (generator->weights == ECH_WEIGHTS_BUFFERED) needs.versions = 2;
    if (generator->weights == ECH_WEIGHTS_STASHED)
        needs.versions = config->parallel.weight_stashing == 1 ? 0 : 1;
    return needs;
}

ech_status ech_simulate_choice(ech_config *config, const ech_model *model,
                               const ech_profile *profile, const ech_kernels *kernels, int world,
                               ech_schedule_choice *choice)
{
    chooser c = {.config = config,
                 .model = model,
                 .profile = profile,
                 .kernels = kernels,
                 .world = world,
                 .choice = choice,
                 .filter = {.accepts = ech_schedule_accepts, .context = choice}};
    ech_partition_needs needs = needs_of(&c);
    ECH_CLEANUP(ech_proposals_free) ech_proposals all = {0};
    if (config->parallel.partition.word != ECH_PARTITION_AUTO) return ECH_OK;
    ECH_TRY(ech_layout_propose(config, model, profile, &needs, world, &all));
    set_limits(&c, &needs, all.n);
    return choose(&c, &all);
}
