/* SPDX-License-Identifier: Apache-2.0
 *
 * The partitioner: costs of stages, and the dynamic program over stages, workers and blocks.
 */
#include "layout/partition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Steps of the innermost loop, at about a nanosecond each. */
static const double MOST_STEPS = 2e9;

/* ---- costs ---- */

typedef struct sums {
    double forward, backward, params, activations;
} sums;

typedef struct costs {
    const ech_partition_problem *problem;
    sums *before; /* [blocks + 1] over the blocks before each */
} costs;

/* costs.before. */
static sums *sum_up_blocks(const ech_partition_problem *problem)
{
    sums *before = ech_calloc((size_t)problem->blocks + 1, sizeof *before);
    for (int b = 0; b < problem->blocks; b++) {
        const ech_profile_block *block = &problem->block[b];
        sums all = before[b];
        all.forward += block->seconds[ECH_FORWARD];
        for (int phase = ECH_FORWARD + 1; phase < ECH_PROFILE_PHASES; phase++)
            all.backward += block->seconds[phase];
        all.params += (double)block->param_bytes;
        all.activations += (double)block->activation_bytes;
        before[b + 1] = all;
    }
    return before;
}

/* Sums over a stage of blocks i .. j - 1. */
static sums sums_of(const costs *c, int i, int j)
{
    const sums *from = &c->before[i], *to = &c->before[j];
    return (sums){to->forward - from->forward, to->backward - from->backward,
                  to->params - from->params, to->activations - from->activations};
}

static int64_t own_micro_batches(const costs *c, int q)
{
    return (c->problem->micro_batches + q - 1) / q;
}

/* Seconds of a message over the boundary after block j - 1, between workers a and b. */
static double crossing(const costs *c, int j, int a, int b)
{
    if (j == 0 || j == c->problem->blocks) return 0;
    return ech_cost_message(&c->problem->rates, (double)c->problem->block[j - 1].boundary_bytes, a,
                            b);
}

/* Tied parameters count at the first block; a stage with only the last block has a copy. */
static double own_params(const costs *c, int i, int j)
{
    double copy = i > 0 && j == c->problem->blocks ? c->problem->tied_bytes : 0;
    return sums_of(c, i, j).params + copy;
}

/* Number of ranks of a stage of q replicas that share data which ZeRO shards from stage `zero`
 * on. */
static double shared_by(const ech_partition_problem *p, int zero, int q)
{
    return p->zero >= zero ? q * p->copies : 1;
}

/* Checks the bytes of a worker of the stage, whose first worker is `first`. */
static bool fits(const costs *c, int i, int j, int first, int q)
{
    const ech_partition_problem *p = c->problem;
    if (p->memory == 0) return true;
    int64_t n = own_micro_batches(c, q), in_flight = (p->workers - first + q - 1) / q;
    int64_t versions = p->versions;
    if (p->keeps_all || in_flight > n * p->turns) in_flight = p->keeps_all ? n : n * p->turns;
    if (versions == 0) versions = 1 + (in_flight - 1 + n - 1) / n;
    double held = (double)versions / shared_by(p, 3, q) + (p->zero > 2 && p->zero_keep ? 1 : 0) +
                  p->gradients / shared_by(p, 2, q) + p->states / shared_by(p, 1, q);
    return (double)in_flight * sums_of(c, i, j).activations + held * own_params(c, i, j) <=
           (double)p->memory;
}

/* The longest sleep of workers first .. first + q - 1 in a step. */
static double longest_delay(const ech_partition_problem *p, int first, int q)
{
    double most = 0;
    for (int w = first; p->delay && w < first + q; w++) most = fmax(most, p->delay[w]);
    return most;
}

/* Seconds that the stage i .. j - 1 of workers first .. first + q - 1 adds to a micro-batch's pass
 * through all stages. */
static double stage_cost(const costs *c, int i, int j, int first, int q)
{
    const ech_partition_problem *p = c->problem;
    int last = first + q - 1;
    double turns = p->turns, n = (double)own_micro_batches(c, q);
    sums own = sums_of(c, i, j);
    double bytes = own_params(c, i, j), both = own.forward + own.backward, tied = 0;
    if ((i == 0) != (j == p->blocks)) tied = p->tied_bytes;
    double summed = p->wire * (bytes - tied);
    int members = q * p->copies;
    double sum =
        (p->zero ? ech_cost_half : ech_cost_reduction)(&p->rates, summed, members, first, last);
    double gather = p->zero ? ech_cost_half(&p->rates, bytes, members, first, last) : 0;
    double update = ech_cost_norm(&p->rates, bytes / members) +
                    ech_cost_update(&p->rates, bytes / shared_by(p, 1, q));
    if (p->versions != 1) update += ech_cost_stash(&p->rates, bytes);
    double each = p->zero > 1 ? sum : 0;     /* during each micro-batch's backward */
    double whole = p->zero > 2 ? gather : 0; /* during each forward, and each backward */
    double again = p->zero_keep ? 0 : whole; /* all but the first forward */
    double forward = fmax(own.forward, again), backward = fmax(own.backward, each + again);
    double busy = (n - 1) * (forward + backward) + fmax(own.forward, whole) +
                  fmax(own.backward, sum + again) + update + gather - whole +
                  longest_delay(p, first, q);
    /* Over both stages, when the first is done; the other stage counts as one rank. */
    if (tied > 0)
        busy +=
            ech_cost_reduction(&p->rates, p->wire * tied, (q + 1) * p->copies, 0, p->workers - 1);
    double links = crossing(c, i, first - 1, last) + crossing(c, j, first, last + 1);
    return fmax(turns * busy - both, (turns * n - 1) * links);
}

/* A lower bound of stage_cost for this stage and all longer ones. */
static double least_cost(const costs *c, int i, int j, int q)
{
    double runs = (double)c->problem->turns * (double)own_micro_batches(c, q) - 1;
    sums own = sums_of(c, i, j);
    return runs * (own.forward + own.backward);
}

static double step_seconds(const costs *c, int stages, const int *first_block, const int *replicas)
{
    const ech_partition_problem *p = c->problem;
    double pass = c->before[p->blocks].forward + c->before[p->blocks].backward, most = 0;
    for (int s = 0, first = 0; s < stages; first += replicas[s++]) {
        if (!fits(c, first_block[s], first_block[s + 1], first, replicas[s]))
            return (double)INFINITY;
        most = fmax(most, stage_cost(c, first_block[s], first_block[s + 1], first, replicas[s]));
        pass += 2 * crossing(c, first_block[s + 1], first, first + replicas[s]);
    }
    return (pass + most) / p->turns + p->rates.other_seconds;
}

double ech_partition_seconds(const ech_partition_problem *problem, int stages,
                             const int *first_block, const int *replicas)
{
    ECH_FREED sums *before = sum_up_blocks(problem);
    costs c = {problem, before};
    return step_seconds(&c, stages, first_block, replicas);
}

/* ---- the search ---- */

/* A stage, and the largest cost of it and of the stages after it. */
typedef struct choice {
    double most;
    int end, replicas; /* end: the block after the stage */
} choice;

/* Partitions of up to `stages` stages, of `only` replicas each; 0: of any. */
typedef struct table {
    costs *costs;
    int stages, only;
    /* [stages][workers + 1, or 1 with `only`][blocks]: for index + 1 stages on the last workers,
     * for the blocks from one on. */
    choice *best;
} table;

static size_t rows_of(const table *t)
{
    return t->only ? 1 : (size_t)t->costs->problem->workers + 1;
}

static choice *choice_of(const table *t, int stages, int workers, int block)
{
    const ech_partition_problem *p = t->costs->problem;
    size_t row = (size_t)(stages - 1) * rows_of(t) + (t->only ? 0 : (size_t)workers);
    return &t->best[row * (size_t)p->blocks + (size_t)block];
}

/* True if a stage may have q replicas. */
static bool may_have(const table *t, int q)
{
    const ech_partition_problem *p = t->costs->problem;
    return q <= p->micro_batches && (p->micro_batches % q == 0 || !p->divides);
}

static void try_stage(const table *t, int stages, int workers, int i, int j, int q, choice *best)
{
    const costs *c = t->costs;
    int first = c->problem->workers - workers;
    double rest = stages > 1 ? choice_of(t, stages - 1, workers - q, j)->most : 0;
    if (rest > best->most || !fits(c, i, j, first, q)) return;
    double most = fmax(rest, stage_cost(c, i, j, first, q));
    bool as_good = most <= best->most && isfinite(most);
    if (!as_good || (most >= best->most && j >= best->end && isfinite(best->most))) return;
    *best = (choice){most, j, q};
}

static void find_stage(const table *t, int stages, int workers, int i)
{
    const costs *c = t->costs;
    int blocks = c->problem->blocks;
    choice best = {.most = (double)INFINITY};
    int least = t->only ? t->only : 1, most = t->only ? t->only : workers - stages + 1;
    if (stages == 1) least = workers;
    for (int q = least; q <= most; q++) {
        int j = stages == 1 ? blocks : i + 1, last = blocks - stages + 1;
        for (; may_have(t, q) && j <= last && least_cost(c, i, j, q) <= best.most; j++)
            try_stage(t, stages, workers, i, j, q, &best);
    }
    *choice_of(t, stages, workers, i) = best;
}

static void fill(table *t)
{
    const ech_partition_problem *p = t->costs->problem;
    for (int stages = 1; stages <= t->stages; stages++)
        for (int workers = 1; workers <= p->workers; workers++) {
            if (workers < stages || (t->only && workers != stages * t->only)) continue;
            for (int i = 0; i <= p->blocks - stages; i++) find_stage(t, stages, workers, i);
        }
}

/* Reads the best partition with that number of stages from the table, if there is one. */
static void take(const table *t, int stages, ech_partitions *out)
{
    const ech_partition_problem *p = t->costs->problem;
    ech_partition found = {.stages = stages};
    if (!isfinite(choice_of(t, stages, p->workers, 0)->most)) return;
    found.first_block = ech_calloc((size_t)stages + 1, sizeof *found.first_block);
    found.replicas = ech_calloc((size_t)stages, sizeof *found.replicas);
    for (int s = 0, workers = p->workers; s < stages; workers -= found.replicas[s++]) {
        const choice *c = choice_of(t, stages - s, workers, found.first_block[s]);
        found.first_block[s + 1] = c->end;
        found.replicas[s] = c->replicas;
    }
    found.seconds = step_seconds(t->costs, stages, found.first_block, found.replicas);
    for (size_t i = 0; i < out->n; i++) { /* the same from another table */
        const ech_partition *other = &out->at[i];
        size_t n = (size_t)stages;
        if (other->stages != stages ||
            memcmp(other->first_block, found.first_block, n * sizeof *found.first_block) ||
            memcmp(other->replicas, found.replicas, n * sizeof *found.replicas))
            continue;
        free(found.first_block);
        free(found.replicas);
        return;
    }
    ECH_PUSH(*out, found);
}

static void search(costs *c, int stages, int only, ech_partitions *out)
{
    const ech_partition_problem *p = c->problem;
    table t = {.costs = c, .stages = stages, .only = only};
    size_t cells = (size_t)stages * rows_of(&t) * (size_t)p->blocks;
    if (stages == 0) return;
    ECH_FREED choice *best = t.best = ech_calloc(cells, sizeof *best);
    for (size_t i = 0; i < cells; i++) t.best[i].most = (double)INFINITY;
    fill(&t);
    for (int s = only ? stages : 1; s <= stages; s++) take(&t, s, out);
}

/* The most stages with arbitrary replicas that can be searched in time. */
static int most_stages(const ech_partition_problem *p)
{
    double W = p->workers, N = p->blocks, most = fmin(W, N);
    return (int)fmin(most, MOST_STEPS / (W * W * N * N / 4));
}

/* ---- the entry points ---- */

static ech_status check(const ech_partition_problem *p)
{
    ECH_ASSERT(p->blocks > 0 && p->workers > 0 && p->micro_batches > 0 && p->turns > 0);
    bool known = p->rates.inside >= 1 && p->rates.between >= 1;
    if (!known)
        ECH_FAIL(ECH_EUSAGE,
                 "parallel.partition = auto: %g and %g bytes per second between ranks of one "
                 "machine and of two; set parallel.node_bandwidth and parallel.network_bandwidth",
                 p->rates.inside, p->rates.between);
    if (p->stages > p->blocks)
        ECH_FAIL(ECH_EUSAGE,
                 "parallel.partition = auto: %d stages of %d blocks; set parallel.pipeline to at "
                 "most %d",
                 p->stages, p->blocks, p->blocks);
    if (p->stages > 0 && p->workers % p->stages)
        ECH_FAIL(ECH_EUSAGE,
                 "parallel.partition = auto: %d stages do not divide %d workers, and all stages "
                 "need the same number of replicas; set parallel.pipeline to a divisor",
                 p->stages, p->workers);
    if ((double)p->blocks * p->blocks * fmin(p->workers, p->blocks) > 10 * MOST_STEPS)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "parallel.partition = auto: %d blocks on %d workers are too many to search; use "
                 "parallel.partition = even",
                 p->blocks, p->workers);
    return ECH_OK;
}

static int by_seconds(const void *a, const void *b)
{
    const ech_partition *x = a, *y = b;
    if (x->seconds < y->seconds || x->seconds > y->seconds) return x->seconds < y->seconds ? -1 : 1;
    if (x->stages != y->stages) return x->stages - y->stages;
    for (int s = 0; s < x->stages; s++) {
        if (x->first_block[s + 1] != y->first_block[s + 1])
            return x->first_block[s + 1] - y->first_block[s + 1];
        if (x->replicas[s] != y->replicas[s]) return x->replicas[s] - y->replicas[s];
    }
    return 0;
}

ech_status ech_partition_search(const ech_partition_problem *problem, ech_partitions *out)
{
    ECH_TRY(check(problem));
    ech_partitions found = {0};
    int first = problem->stages ? problem->stages : 1;
    int last = problem->stages ? problem->stages : problem->blocks;
    ECH_FREED sums *before = sum_up_blocks(problem);
    costs c = {problem, before};
    if (!problem->stages) search(&c, most_stages(problem), 0, &found);
    for (int p = first; p <= last && p <= problem->workers; p++)
        if (problem->workers % p == 0) search(&c, p, problem->workers / p, &found);
    if (found.n == 0 && problem->memory == 0)
        ECH_FAIL(ECH_EUSAGE,
                 "parallel.partition = auto: %s of %s cannot be divided among %s; use another "
                 "training.global_batch_size or fewer ranks",
                 ECH_COUNT(problem->micro_batches, "micro-batch"),
                 ECH_COUNT(problem->blocks, "block"), ECH_COUNT(problem->workers, "worker"));
    if (found.n == 0)
        ECH_FAIL(ECH_EUSAGE,
                 "parallel.partition = auto: no partition%s fits into %s a worker; use more ranks, "
                 "a smaller training.micro_batch_size%s, or a higher memory.device_limit",
                 problem->stages ? " of that many stages" : "", ECH_BYTES(problem->memory),
                 problem->stages ? ", another parallel.pipeline" : "");
    qsort(found.at, found.n, sizeof *found.at, by_seconds);
    *out = found;
    return ECH_OK;
}

void ech_partitions_free(ech_partitions *partitions)
{
    for (size_t i = 0; i < partitions->n; i++) {
        free(partitions->at[i].first_block);
        free(partitions->at[i].replicas);
    }
    free(partitions->at);
    *partitions = (ech_partitions){0};
}
