/* SPDX-License-Identifier: Apache-2.0
 *
 * Bounds of a candidate's step from the costs that simulations have. Calls of a block cost the same
 * in all candidates with the same degrees within layers, so one plan without a pipeline has them.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/search/search.h"
#include "base/log.h"
#include "base/text.h"

/* The keys that costs of blocks depend on. */
static const ech_search_key depends[] = {ECH_SEARCH_tensor,   ECH_SEARCH_context,
                                         ECH_SEARCH_expert,   ECH_SEARCH_micro,
                                         ECH_SEARCH_sequence, ECH_SEARCH_recompute};
enum { DEPENDS = sizeof depends / sizeof *depends };

enum { FORWARD, BACKWARD, WAYS }; /* backward: with R and W */

/* Seconds of a micro-batch. */
struct ech_search_costs {
    int64_t value[DEPENDS];
    double all[ECH_PHASES];   /* what all blocks compute */
    double least[ECH_PHASES]; /* the cheapest block between the first and the last */
    double waits[WAYS];       /* of each of these blocks, for collectives, at least */
};

static bool is_of(const ech_search_costs *costs, const ech_candidate *c)
{
    for (int i = 0; i < DEPENDS; i++)
        if (costs->value[i] != c->value[depends[i]]) return false;
    return true;
}

/* One replica of the candidate's layers, with as many data ranks as share experts. */
static ech_config *config_of(const ech_search *search, const ech_candidate *c)
{
    ech_config *config = ech_search_config(search, c);
    char batch[64];
    snprintf(batch, sizeof batch, "training.global_batch_size=%lld",
             (long long)(c->value[ECH_SEARCH_micro] * c->value[ECH_SEARCH_expert]));
    const char *const words[] = {"parallel.pipeline=1",
                                 "parallel.virtual_stages=1",
                                 "parallel.schedule=1f1b",
                                 "parallel.zero=0",
                                 "memory.offload_optimizer=none",
                                 "memory.device_limit=" ECH_SEARCH_NO_LIMIT,
                                 batch};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        ech_status status = ech_config_set(config, words[i]);
        ECH_ASSERT(status == ECH_OK);
    }
    return config;
}

/* What a block computes, and when its first step in that direction begins. */
typedef struct block_times {
    double phase[ECH_PHASES], begin[WAYS];
} block_times;

static int way_of(int phase)
{
    return phase == ECH_FORWARD ? FORWARD : BACKWARD;
}

static void time_blocks(const ech_plan *plan, const ech_simulation *simulation, block_times *of)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        int phase = ech_step_kind_phase(step->kind);
        if (phase < 0) continue;
        block_times *block = &of[step->block];
        double begin = simulation->begin[0][s], *first = &block->begin[way_of(phase)];
        block->phase[phase] += simulation->finish[0][s] - begin;
        *first = fmin(*first, begin);
    }
}

/* The time between the beginnings of a block and the one that follows it in that direction, besides
 * what the block computes. */
static double wait_of(const block_times *of, int block, int way)
{
    const block_times *at = &of[block], *next = way == FORWARD ? at + 1 : at - 1;
    double computes = 0;
    for (int phase = 0; phase < ECH_PHASES; phase++)
        if (way_of(phase) == way) computes += at->phase[phase];
    return next->begin[way] - at->begin[way] - computes;
}

static void sum_up(const block_times *of, int blocks, ech_search_costs *out)
{
    for (int phase = 0; phase < ECH_PHASES; phase++) {
        out->least[phase] = blocks > 2 ? INFINITY : 0;
        for (int b = 0; b < blocks; b++) {
            out->all[phase] += of[b].phase[phase];
            if (b > 0 && b < blocks - 1)
                out->least[phase] = fmin(out->least[phase], of[b].phase[phase]);
        }
    }
    for (int way = 0; way < WAYS; way++) {
        double least = blocks > 3 ? INFINITY : 0;
        for (int b = 2; b < blocks - 1; b++) least = fmin(least, wait_of(of, b, way));
        out->waits[way] = isfinite(least) ? fmax(least, 0) : 0;
    }
}

/* Simulates one micro-batch. */
static void measure(const ech_search *search, const ech_design *design, ech_search_costs *out)
{
    const ech_classes *classes = &design->layout->classes;
    int n = classes->n, blocks = (int)design->model->block.n;
    ech_costs costs = ech_costs_of(design->config, NULL, &search->cluster);
    ech_simulation simulation;
    ECH_FREED ech_plan **plans = ech_calloc((size_t)n, sizeof *plans);
    ECH_FREED block_times *of = ech_calloc((size_t)blocks, sizeof *of);
    for (int c = 0; c < n; c++) plans[c] = ech_design_sketch(design, classes->first[c], true);
    for (int b = 0; b < blocks; b++) of[b].begin[FORWARD] = of[b].begin[BACKWARD] = INFINITY;
    if (ech_simulate((const ech_plan *const *)plans, n, ECH_LIST_TRAIN, &costs, &simulation) ==
        ECH_OK) {
        time_blocks(plans[0], &simulation, of);
        sum_up(of, blocks, out);
        ech_simulation_free(&simulation);
    }
    for (int c = 0; c < n; c++) ech_plan_destroy(plans[c]);
}

/* Costs of blocks are zero if the layers cannot be had without the rest of the layout. */
static ech_search_costs make(const ech_search *search, const ech_candidate *c)
{
    ech_search_costs out = {0};
    ech_design design = {0};
    ECH_CLEANUP(ech_config_destroy_at) ech_config *config = config_of(search, c);
    int ranks = (int)(c->value[ECH_SEARCH_tensor] * c->value[ECH_SEARCH_context] *
                      c->value[ECH_SEARCH_expert]);
    for (int i = 0; i < DEPENDS; i++) out.value[i] = c->value[depends[i]];
    bool quiet = ech_log_set_quiet(true);
    ech_status status = ech_design_create(config, search->run->tokenizer, ranks, ranks, &design);
    ech_log_set_quiet(quiet);
    if (status == ECH_OK) {
        ech_design_set_cluster(&design, &search->cluster);
        measure(search, &design, &out);
    }
    ech_design_destroy(&design);
    return out;
}

static double backward_of(const double *phase)
{
    return phase[ECH_BACKWARD_INPUT] + phase[ECH_BACKWARD_WEIGHT];
}

/* As the bound of space.c counts products, this counts all that ranks compute, and their waits for
 * collectives within layers: by the mean rank, and by the last stage between the ends of the
 * pipeline. */
static double compute_bound(const ech_search_space *space, const ech_candidate *c,
                            const ech_search_costs *costs)
{
    double p = (double)c->value[ECH_SEARCH_pipeline], m = (double)c->micro_batches;
    double parts = p * (double)c->value[ECH_SEARCH_chunks], blocks = (double)space->blocks;
    const double *all = costs->all, *least = costs->least, *waits = costs->waits;
    double more = least[ECH_RECOMPUTE] + waits[FORWARD] + waits[BACKWARD];
    double mean = m / p * (all[ECH_FORWARD] + backward_of(all) + (blocks - 2) * more);
    double each = floor((blocks - 2) / parts), mine = m * each * parts / p;
    double fill = (p - 1) * each * (least[ECH_FORWARD] + waits[FORWARD]);
    double drain = (p - 1) * each * least[ECH_BACKWARD_INPUT];
    double work = mine * (least[ECH_FORWARD] + backward_of(least) + more);
    double delayed = ech_search_delays_weights(c) /* W may come during the drain */
                         ? mine * (least[ECH_BACKWARD_WEIGHT] + waits[BACKWARD])
                         : 0;
    return fmax(mean, fill + fmax(work, work - delayed + drain));
}

/* With the optimizer on the host, each micro-batch's gradients go there, of the mean rank. */
static double copy_bound(const ech_search_space *space, const ech_candidate *c)
{
    double ranks = (double)(c->value[ECH_SEARCH_pipeline] * c->value[ECH_SEARCH_tensor]);
    double shared = space->in_experts / (double)c->value[ECH_SEARCH_expert];
    double own = (space->parameters - space->in_experts + shared) / ranks;
    double sent = c->value[ECH_SEARCH_zero] >= 2 ? own / (double)c->data : own;
    double bytes = sent * space->bytes / space->parameters;
    if (!c->value[ECH_SEARCH_offload]) return 0;
    return bytes * (double)c->micro_batches / space->cluster->device_host;
}

void ech_search_tighten(const ech_search *search, const ech_search_space *space,
                        ech_search_costs_list *known, ech_candidate *c)
{
    size_t i = 0;
    while (i < known->n && !is_of(&known->at[i], c)) i++;
    if (i == known->n) ECH_PUSH(*known, make(search, c));
    double bound = compute_bound(space, c, &known->at[i]);
    c->bound = fmax(c->bound, fmax(bound, copy_bound(space, c)));
}
