/* SPDX-License-Identifier: Apache-2.0
 *
 * Partition problems: checked, summed up, and handed to the search that fits.
 */
#include "layout/partition.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "layout/partition_costs.h"

/* Steps of the searches' inner loops, at some ns each, and bytes of their tables. */
static const double MOST_STEPS = 5e10, MOST_BYTES = 4e9;

/* ---- costs ---- */

static void sum_up_blocks(const ech_partition_problem *problem, ech_partition_costs *costs)
{
    size_t n = (size_t)problem->blocks + 1;
    costs->blocks = problem->blocks;
    costs->seconds = ech_calloc(n, sizeof *costs->seconds);
    costs->params = ech_calloc(n, sizeof *costs->params);
    costs->activations = ech_calloc(n, sizeof *costs->activations);
    costs->crossing = ech_calloc(n, sizeof *costs->crossing);
    for (int l = 0; l < problem->blocks; l++) {
        const ech_block_cost *block = &problem->block[l];
        double seconds = 0;
        for (int p = 0; p < ECH_PHASES; p++) seconds += block->seconds[p];
        ECH_ASSERT(seconds >= 0 && block->param_bytes >= 0 && block->activation_bytes >= 0);
        costs->seconds[l + 1] = costs->seconds[l] + seconds;
        costs->params[l + 1] = costs->params[l] + (double)block->param_bytes;
        costs->activations[l + 1] = costs->activations[l] + (double)block->activation_bytes;
        costs->crossing[l + 1] = 2.0 * (double)block->boundary_bytes;
    }
}

/* A level of one component adds nothing to what is below it. */
static void take_levels(const ech_partition_problem *problem, ech_partition_costs *costs)
{
    costs->all_workers = 1;
    for (int k = 0; k < problem->levels; k++) {
        costs->all_workers *= problem->workers[k];
        if (problem->workers[k] == 1) continue;
        costs->workers[costs->levels] = problem->workers[k];
        costs->bandwidth[costs->levels++] = problem->bandwidth[k];
    }
    if (costs->levels > 0) return;
    costs->levels = costs->workers[0] = 1;
    costs->bandwidth[0] = problem->bandwidth[0];
}

static void free_costs(ech_partition_costs *costs)
{
    free(costs->seconds);
    free(costs->params);
    free(costs->activations);
    free(costs->crossing);
}

/* ---- checks ---- */

static ech_status check_levels(const ech_partition_problem *problem)
{
    int64_t workers = 1;
    ECH_ASSERT(problem->blocks > 0 && problem->levels > 0 && problem->levels <= ECH_MOST_LEVELS);
    for (int k = 0; k < problem->levels; k++) {
        ECH_ASSERT(problem->workers[k] > 0);
        workers *= problem->workers[k];
        ECH_ASSERT(workers <= INT32_MAX);
        if (!(problem->bandwidth[k] >= 1))
            ECH_FAIL(ECH_EUSAGE,
                     "parallel.partition = auto: %g bytes per second between ranks; set "
                     "parallel.node_bandwidth and parallel.network_bandwidth",
                     problem->bandwidth[k]);
    }
    return ECH_OK;
}

static ech_status check_stages(const ech_partition_problem *problem, int64_t workers)
{
    int stages = problem->stages;
    if (stages > problem->blocks)
        ECH_FAIL(ECH_EUSAGE,
                 "parallel.partition = auto: %d stages of %d blocks; at most %d are "
                 "possible",
                 stages, problem->blocks, problem->blocks);
    if (stages > workers)
        ECH_FAIL(ECH_EUSAGE,
                 "parallel.partition = auto: %d stages on %lld workers; use more ranks "
                 "or fewer stages",
                 stages, (long long)workers);
    if (problem->uniform && stages > 0 && workers % stages)
        ECH_FAIL(ECH_EUSAGE,
                 "parallel.partition = auto: %d stages do not divide %lld workers, and all stages "
                 "are to have as many replicas",
                 stages, (long long)workers);
    return ECH_OK;
}

/* The searches' loops, counted roughly. */
static ech_status check_size(const ech_partition_problem *problem, const ech_partition_costs *costs)
{
    double N = costs->blocks, steps = 0, bytes = 0, tables = 1;
    double size = (double)costs->all_workers; /* of a component of the level above */
    for (int k = costs->levels - 1; k >= 0 && !problem->uniform; k--) {
        double W = costs->workers[k], ends = k < costs->levels - 1 ? N : 1;
        double layers = fmax(1, fmin(problem->stages, size));
        /* On the innermost level the best cut is found without trying all. */
        steps += tables * ends * N * W * W / 2 * layers * (k > 0 ? N * layers : 4);
        bytes += 8 * layers * N * (W + (ends > 1 ? tables * N / 2 : 0));
        tables *= isinf(costs->memory) ? W : W * W / 2;
        size /= W;
    }
    if (problem->uniform) steps = N * N / 2 * fmin(N, size);
    if (steps <= MOST_STEPS && bytes <= MOST_BYTES) return ECH_OK;
    ECH_FAIL(ECH_EUNSUPPORTED,
             "parallel.partition = auto: %d blocks on %lld workers are too many to search; %s",
             costs->blocks, (long long)costs->all_workers,
             problem->uniform ? "use parallel.partition = even"
                              : "set parallel.pipeline and parallel.data");
}

/* ---- solving ---- */

void ech_partition_add(ech_partition *partition, int end, int64_t replicas)
{
    partition->replicas[partition->stages++] = (int)replicas;
    partition->cut[partition->stages] = end;
}

void ech_partition_free(ech_partition *partition)
{
    free(partition->cut);
    free(partition->replicas);
    *partition = (ech_partition){0};
}

static ech_partition make_partition(int blocks)
{
    return (ech_partition){.cut = ech_calloc((size_t)blocks + 1, sizeof(int)),
                           .replicas = ech_calloc((size_t)blocks, sizeof(int))};
}

/* Of all numbers of stages that divide the workers, the best; the fewest of those that are as good. */
static bool find_uniform(const ech_partition_costs *costs, int stages, ech_partition *best)
{
    bool found = false;
    int first = stages ? stages : 1, last = stages ? stages : costs->blocks;
    for (int p = first; p <= last && p <= costs->all_workers; p++) {
        if (costs->all_workers % p) continue;
        ech_partition partition = make_partition(costs->blocks);
        if (!ech_partition_uniform(costs, p, &partition) ||
            (found && partition.seconds >= best->seconds)) {
            ech_partition_free(&partition);
            continue;
        }
        ech_partition_free(best);
        *best = partition;
        found = true;
    }
    return found;
}

static ech_status search(const ech_partition_problem *problem, const ech_partition_costs *costs,
                         ech_partition *out)
{
    ECH_TRY(check_stages(problem, costs->all_workers));
    ECH_TRY(check_size(problem, costs));
    ech_partition found = make_partition(costs->blocks);
    if (problem->uniform ? find_uniform(costs, problem->stages, &found)
                         : ech_partition_levels(costs, problem->stages, &found)) {
        *out = found;
        return ECH_OK;
    }
    ech_partition_free(&found);
    char limit[32];
    ECH_FAIL(ECH_EUSAGE,
             "parallel.partition = auto: no partition%s fits into %s a worker; use more ranks, a "
             "smaller training.micro_batch_size%s, or a higher memory.device_limit",
             problem->stages ? " of that many stages" : "",
             ech_text_from_bytes(problem->memory, limit, sizeof limit),
             problem->stages ? ", another parallel.pipeline" : "");
}

ech_status ech_partition_solve(const ech_partition_problem *problem, ech_partition *out)
{
    ECH_TRY(check_levels(problem));
    ech_partition_costs costs = {
        .memory = problem->memory > 0 ? (double)problem->memory : (double)INFINITY,
        .states = problem->states,
        .in_flight = problem->in_flight > 0 ? problem->in_flight : INT64_MAX,
    };
    sum_up_blocks(problem, &costs);
    take_levels(problem, &costs);
    ech_status st = search(problem, &costs, out);
    free_costs(&costs);
    return st;
}
