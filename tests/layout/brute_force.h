/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the partitioner: every partition of a small problem, written out and timed by the
 * definition.
 */
#ifndef ECH_TESTS_LAYOUT_BRUTE_FORCE_H
#define ECH_TESTS_LAYOUT_BRUTE_FORCE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "layout/partition.h"

enum { MOST_BLOCKS = 8 };

typedef struct plan {
    int stages, cut[MOST_BLOCKS + 1], replicas[MOST_BLOCKS];
    double seconds;
} plan;

typedef struct plans {
    plan *at;
    size_t n, capacity;
} plans;

static inline double larger(double a, double b)
{
    return a > b ? a : b;
}

static inline double block_seconds(const ech_block_cost *block)
{
    return block->seconds[0] + block->seconds[1] + block->seconds[2];
}

static inline double sync_seconds(const ech_partition_problem *problem, int i, int j, int q,
                                  double B)
{
    double bytes = 0;
    for (int l = i; l < j; l++) bytes += (double)problem->block[l].param_bytes;
    return 2.0 * (q - 1) * bytes / B;
}

static inline double boundary_seconds(const ech_partition_problem *problem, int j, double B)
{
    return 2.0 * (double)problem->block[j - 1].boundary_bytes / B;
}

static inline void list_pipelines(const ech_partition_problem *problem, int k, int i, int j, int w,
                                  plans *out);

/* One stage i .. j - 1 on q components of level k: every way to run it inside of one of them. */
static inline plans list_stages(const ech_partition_problem *problem, int k, int i, int j, int q)
{
    plans inside = {0};
    if (k > 0) {
        list_pipelines(problem, k - 1, i, j, problem->workers[k - 1], &inside);
    } else {
        plan alone = {.stages = 1, .cut = {i, j}, .replicas = {1}};
        for (int l = i; l < j; l++) alone.seconds += block_seconds(&problem->block[l]);
        ECH_PUSH(inside, alone);
    }
    double B = problem->bandwidth[k];
    for (size_t p = 0; p < inside.n; p++) {
        plan *one = &inside.at[p];
        for (int s = 0; s < one->stages; s++) one->replicas[s] *= q;
        one->seconds = larger(one->seconds, sync_seconds(problem, i, j, q, B)) / q;
    }
    return inside;
}

static inline plan join_plans(const plan *first, const plan *rest, double boundary)
{
    plan both = *first;
    for (int s = 0; s < rest->stages; s++) {
        both.replicas[both.stages] = rest->replicas[s];
        both.cut[++both.stages] = rest->cut[s + 1];
    }
    both.seconds = larger(larger(first->seconds, rest->seconds), boundary);
    return both;
}

/* Every way to run blocks i .. j - 1 on w components of level k, appended. */
static inline void list_pipelines(const ech_partition_problem *problem, int k, int i, int j, int w,
                                  plans *out)
{
    plans whole = list_stages(problem, k, i, j, w);
    for (size_t p = 0; p < whole.n; p++) ECH_PUSH(*out, whole.at[p]);
    free(whole.at);
    for (int q = 1; q < w; q++)
        for (int c = i + 1; c < j; c++) {
            plans first = list_stages(problem, k, i, c, q), rest = {0};
            list_pipelines(problem, k, c, j, w - q, &rest);
            double boundary = boundary_seconds(problem, c, problem->bandwidth[k]);
            for (size_t a = 0; a < first.n; a++)
                for (size_t b = 0; b < rest.n; b++)
                    ECH_PUSH(*out, join_plans(&first.at[a], &rest.at[b], boundary));
            free(first.at);
            free(rest.at);
        }
}

/* The innermost level inside of which both ranks are. */
static inline double bandwidth_between(const ech_partition_problem *problem, int a, int b)
{
    int size = 1;
    for (int k = 0; k < problem->levels; k++) {
        size *= problem->workers[k];
        if (a / size == b / size) return problem->bandwidth[k];
    }
    fail();
    return 0;
}

static inline double time_uniform(const ech_partition_problem *problem, const plan *one)
{
    double seconds = 0;
    for (int s = 0; s < one->stages; s++) {
        int q = one->replicas[s], i = one->cut[s], j = one->cut[s + 1];
        double time = 0, B = bandwidth_between(problem, s * q, s * q + q - 1);
        for (int l = i; l < j; l++) time += block_seconds(&problem->block[l]);
        seconds = larger(seconds, larger(time, sync_seconds(problem, i, j, q, B)) / q);
        if (s == 0) continue;
        B = bandwidth_between(problem, (s - 1) * q, s * q + q - 1);
        seconds = larger(seconds, boundary_seconds(problem, i, B));
    }
    return seconds;
}

/* All cuts, q replicas everywhere. */
static inline plans list_uniform(const ech_partition_problem *problem, int workers)
{
    plans out = {0};
    for (int set = 0; set < 1 << (problem->blocks - 1); set++) {
        plan one = {0};
        for (int j = 1; j <= problem->blocks; j++)
            if (j == problem->blocks || set >> (j - 1) & 1) one.cut[++one.stages] = j;
        if (workers % one.stages) continue;
        for (int s = 0; s < one.stages; s++) one.replicas[s] = workers / one.stages;
        one.seconds = time_uniform(problem, &one);
        ECH_PUSH(out, one);
    }
    return out;
}

static inline bool fits(const ech_partition_problem *problem, const plan *one)
{
    if (problem->memory == 0) return true;
    int behind = 0;
    for (int s = one->stages - 1; s >= 0; s--) {
        behind += one->replicas[s];
        int in_flight = behind / one->replicas[s] + (behind % one->replicas[s] > 0);
        if (problem->in_flight > 0 && in_flight > problem->in_flight)
            in_flight = problem->in_flight;
        int64_t bytes = 0;
        for (int l = one->cut[s]; l < one->cut[s + 1]; l++)
            bytes += in_flight * problem->block[l].activation_bytes +
                     problem->states * problem->block[l].param_bytes;
        if (bytes > problem->memory) return false;
    }
    return true;
}

/* Whether a is to be preferred: shorter, then of fewer stages, then of earlier first cuts, fewer
 * first replicas. */
static inline bool is_better(const plan *a, const plan *b)
{
    if (a->seconds != b->seconds) return a->seconds < b->seconds;
    if (a->stages != b->stages) return a->stages < b->stages;
    for (int s = 0; s < a->stages; s++) {
        if (a->cut[s + 1] != b->cut[s + 1]) return a->cut[s + 1] < b->cut[s + 1];
        if (a->replicas[s] != b->replicas[s]) return a->replicas[s] < b->replicas[s];
    }
    return false;
}

static inline bool is_same(const plan *a, const ech_partition *b)
{
    size_t stages = (size_t)a->stages;
    return a->stages == b->stages && a->seconds == b->seconds &&
           memcmp(a->cut, b->cut, (stages + 1) * sizeof *a->cut) == 0 &&
           memcmp(a->replicas, b->replicas, stages * sizeof *a->replicas) == 0;
}

static inline void describe(const ech_partition_problem *problem, const ech_partition *found)
{
    for (int l = 0; l < problem->blocks; l++)
        print_error("block %d: %g s, %g boundary, %g params, %g activations\n", l,
                    block_seconds(&problem->block[l]), (double)problem->block[l].boundary_bytes,
                    (double)problem->block[l].param_bytes,
                    (double)problem->block[l].activation_bytes);
    for (int k = 0; k < problem->levels; k++)
        print_error("level %d: %d at %g\n", k, problem->workers[k], problem->bandwidth[k]);
    print_error("stages %d uniform %d in flight %d memory %g\n", problem->stages, problem->uniform,
                problem->in_flight, (double)problem->memory);
    for (int s = 0; s < found->stages; s++)
        print_error("found %d x %d\n", found->cut[s + 1], found->replicas[s]);
}

/* Of several levels ties go by the outermost level's cuts first, which the flattened form does not
 * show: there any of the best is right. */
static inline void compare_with(const ech_partition_problem *problem, const plans *all,
                                bool exactly)
{
    const plan *best = NULL;
    for (size_t p = 0; p < all->n; p++) {
        const plan *one = &all->at[p];
        if (problem->stages > 0 && one->stages != problem->stages) continue;
        if (fits(problem, one) && (!best || is_better(one, best))) best = one;
    }
    ech_partition found = {0};
    ech_status st = ech_partition_solve(problem, &found);
    if (!best) {
        assert_int_equal(st, ECH_EUSAGE);
        return;
    }
    assert_int_equal(st, ECH_OK);
    bool right = exactly && is_same(best, &found);
    for (size_t p = 0; p < all->n && !exactly; p++)
        right |= fits(problem, &all->at[p]) && is_same(&all->at[p], &found) &&
                 found.seconds == best->seconds && found.stages == best->stages;
    if (!right) {
        describe(problem, &found);
        fail_msg("%.17g in %d stages, not %.17g in %d", found.seconds, found.stages, best->seconds,
                 best->stages);
    }
    ech_partition_free(&found);
}

#endif
