/* SPDX-License-Identifier: Apache-2.0
 *
 * The partitioner against brute force: every partition of small problems is written out, timed by
 * the definition and compared to the bit. Costs are whole numbers, so that sums are exact and ties
 * are common.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "layout/partition.h"

enum { MOST_BLOCKS = 8 };

static int be_quiet(void **state)
{
    (void)state;
    ech_log_set_quiet(true);
    return 0;
}

/* ---- brute force ---- */

typedef struct plan {
    int stages, cut[MOST_BLOCKS + 1], replicas[MOST_BLOCKS];
    double seconds;
} plan;

typedef struct plans {
    plan *at;
    size_t n, capacity;
} plans;

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double block_seconds(const ech_block_cost *block)
{
    return block->seconds[0] + block->seconds[1] + block->seconds[2];
}

static double sync_seconds(const ech_partition_problem *problem, int i, int j, int q, double B)
{
    double bytes = 0;
    for (int l = i; l < j; l++) bytes += (double)problem->block[l].param_bytes;
    return 2.0 * (q - 1) * bytes / B;
}

static double boundary_seconds(const ech_partition_problem *problem, int j, double B)
{
    return 2.0 * (double)problem->block[j - 1].boundary_bytes / B;
}

static void list_pipelines(const ech_partition_problem *problem, int k, int i, int j, int w,
                           plans *out);

/* One stage i .. j - 1 on q components of level k: every way to run it inside of one of them. */
static plans list_stages(const ech_partition_problem *problem, int k, int i, int j, int q)
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

static plan join_plans(const plan *first, const plan *rest, double boundary)
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
static void list_pipelines(const ech_partition_problem *problem, int k, int i, int j, int w,
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
static double bandwidth_between(const ech_partition_problem *problem, int a, int b)
{
    int size = 1;
    for (int k = 0; k < problem->levels; k++) {
        size *= problem->workers[k];
        if (a / size == b / size) return problem->bandwidth[k];
    }
    fail();
    return 0;
}

static double time_uniform(const ech_partition_problem *problem, const plan *one)
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
static plans list_uniform(const ech_partition_problem *problem, int workers)
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

static bool fits(const ech_partition_problem *problem, const plan *one)
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
static bool is_better(const plan *a, const plan *b)
{
    if (a->seconds != b->seconds) return a->seconds < b->seconds;
    if (a->stages != b->stages) return a->stages < b->stages;
    for (int s = 0; s < a->stages; s++) {
        if (a->cut[s + 1] != b->cut[s + 1]) return a->cut[s + 1] < b->cut[s + 1];
        if (a->replicas[s] != b->replicas[s]) return a->replicas[s] < b->replicas[s];
    }
    return false;
}

static bool is_same(const plan *a, const ech_partition *b)
{
    size_t stages = (size_t)a->stages;
    return a->stages == b->stages && a->seconds == b->seconds &&
           memcmp(a->cut, b->cut, (stages + 1) * sizeof *a->cut) == 0 &&
           memcmp(a->replicas, b->replicas, stages * sizeof *a->replicas) == 0;
}

static void describe(const ech_partition_problem *problem, const ech_partition *found)
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
static void compare_with(const ech_partition_problem *problem, const plans *all, bool exactly)
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

/* ---- problems ---- */

static int draw(uint32_t stream, int i, int n)
{
    return (int)(ech_random_word((ech_random_key){.seed = 7, .stream = stream}, (uint64_t)i) %
                 (uint32_t)n);
}

enum { COST_SETS = 8 };

/* Block costs of different kinds: all equal, few values (many ties), wide, with heavy or light
 * parameters, with blocks that cost nothing. */
static void make_costs(int set, ech_block_cost *block)
{
    static const int seconds[COST_SETS] = {1, 3, 3, 1000, 1000, 1000, 12, 2};
    static const int params[COST_SETS] = {1, 2, 50, 10, 1000, 100000, 12, 3};
    static const int boundary[COST_SETS] = {1, 2, 5, 1000, 10, 1000, 12, 3};
    for (int l = 0; l < MOST_BLOCKS; l++) {
        uint32_t stream = (uint32_t)(set * 8);
        block[l] = (ech_block_cost){.activation_bytes = draw(stream, l, 5),
                                    .boundary_bytes = draw(stream + 1, l, boundary[set]),
                                    .param_bytes = draw(stream + 2, l, params[set])};
        for (uint32_t p = 0; p < ECH_PHASES; p++)
            block[l].seconds[p] = draw(stream + 3 + p, l, seconds[set]) + (set == 0);
    }
}

static const double bandwidths[] = {1, 3, 64, 1e18, (double)INFINITY};
enum { BANDWIDTHS = sizeof bandwidths / sizeof *bandwidths };

/* The same problem with no limit, and with limits that leave much, little and nothing. */
static void compare_with_limits(ech_partition_problem problem, const plans *all, bool exactly)
{
    static const struct {
        int memory, states, in_flight;
    } limits[] = {{0, 0, 0}, {60, 0, 0}, {25, 0, 0}, {14, 0, 0}, {8, 0, 2}, {20, 0, 1}, {30, 3, 0}};
    for (size_t m = 0; m < sizeof limits / sizeof *limits; m++) {
        problem.memory = limits[m].memory;
        problem.states = limits[m].states;
        problem.in_flight = limits[m].in_flight;
        compare_with(&problem, all, exactly);
    }
}

static void test_flat(void **state)
{
    (void)state;
    for (int set = 0; set < COST_SETS; set++) {
        ech_block_cost block[MOST_BLOCKS];
        make_costs(set, block);
        for (int blocks = 1; blocks <= MOST_BLOCKS; blocks++)
            for (int workers = 1; workers <= 4; workers++)
                for (int b = 0; b < BANDWIDTHS; b++) {
                    ech_partition_problem problem = {.blocks = blocks,
                                                     .block = block,
                                                     .levels = 1,
                                                     .workers = &workers,
                                                     .bandwidth = &bandwidths[b]};
                    plans all = {0};
                    list_pipelines(&problem, 0, 0, blocks, workers, &all);
                    compare_with_limits(problem, &all, true);
                    for (int s = 1; s <= blocks && s <= workers; s++) {
                        problem.stages = s;
                        compare_with_limits(problem, &all, true);
                    }
                    free(all.at);
                }
    }
}

static void compare_levels(int levels, const int *workers, int most_blocks)
{
    for (int set = 0; set < COST_SETS; set++) {
        ech_block_cost block[MOST_BLOCKS];
        make_costs(set, block);
        for (int blocks = 1; blocks <= most_blocks; blocks++)
            for (int b = 0; b < BANDWIDTHS * 2; b++) {
                /* Slower outside mostly, but nothing depends on that. */
                double bandwidth[3] = {bandwidths[(b + 2) % BANDWIDTHS], bandwidths[b / 2], 2};
                ech_partition_problem problem = {.blocks = blocks,
                                                 .block = block,
                                                 .levels = levels,
                                                 .workers = workers,
                                                 .bandwidth = bandwidth};
                int product = 1;
                for (int k = 0; k < levels; k++) product *= workers[k];
                plans all = {0};
                list_pipelines(&problem, levels - 1, 0, blocks, workers[levels - 1], &all);
                compare_with_limits(problem, &all, false);
                for (int s = 1; s <= blocks && s <= product; s++) {
                    problem.stages = s;
                    compare_with_limits(problem, &all, false);
                }
                free(all.at);
            }
    }
}

static void test_two_levels(void **state)
{
    (void)state;
    compare_levels(2, (int[]){2, 2}, MOST_BLOCKS);
    compare_levels(2, (int[]){3, 2}, 6);
    compare_levels(2, (int[]){2, 3}, 6);
}

static void test_three_levels(void **state)
{
    (void)state;
    compare_levels(3, (int[]){2, 2, 2}, 4);
}

static void test_levels_of_one_component(void **state)
{
    (void)state;
    compare_levels(2, (int[]){1, 3}, 5);
    compare_levels(2, (int[]){3, 1}, 5);
    compare_levels(3, (int[]){2, 1, 2}, 5);
    compare_levels(2, (int[]){1, 1}, 3);
}

static void compare_uniform(int levels, const int *workers)
{
    int product = 1;
    for (int k = 0; k < levels; k++) product *= workers[k];
    for (int set = 0; set < COST_SETS; set++) {
        ech_block_cost block[MOST_BLOCKS];
        make_costs(set, block);
        for (int blocks = 1; blocks <= MOST_BLOCKS; blocks++)
            for (int b = 0; b < BANDWIDTHS; b++) {
                double bandwidth[2] = {bandwidths[b], bandwidths[(b + 3) % BANDWIDTHS]};
                ech_partition_problem problem = {.blocks = blocks,
                                                 .block = block,
                                                 .levels = levels,
                                                 .workers = workers,
                                                 .bandwidth = bandwidth,
                                                 .uniform = true};
                plans all = list_uniform(&problem, product);
                compare_with_limits(problem, &all, true);
                for (int s = 1; s <= blocks; s++) {
                    if (product % s) continue;
                    problem.stages = s;
                    compare_with_limits(problem, &all, true);
                }
                free(all.at);
            }
    }
}

static void test_uniform(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 8; workers++) compare_uniform(1, &workers);
    compare_uniform(2, (int[]){2, 2});
    compare_uniform(2, (int[]){3, 4});
}

/* ---- known answers ---- */

static void assert_partition(const ech_partition_problem *problem, double seconds, int stages,
                             const int *cut, const int *replicas)
{
    ech_partition found = {0};
    assert_int_equal(ech_partition_solve(problem, &found), ECH_OK);
    assert_int_equal(found.stages, stages);
    assert_int_equal(found.cut[0], 0);
    for (int s = 0; s < stages; s++) {
        assert_int_equal(found.cut[s + 1], cut[s]);
        assert_int_equal(found.replicas[s], replicas[s]);
    }
    assert_true(fabs(found.seconds - seconds) <= 1e-12 * seconds);
    ech_partition_free(&found);
}

static void test_equal_blocks(void **state)
{
    (void)state;
    ech_block_cost block[MOST_BLOCKS];
    for (int l = 0; l < MOST_BLOCKS; l++)
        block[l] = (ech_block_cost){.seconds = {1, 1, 1}, .param_bytes = 100, .boundary_bytes = 1};
    int workers = 4;
    double bandwidth = 1e9;
    ech_partition_problem problem = {
        .blocks = 8, .block = block, .levels = 1, .workers = &workers, .bandwidth = &bandwidth};
    /* Where exchanges are cheap, replicas are as good as stages, and fewer stages are preferred. */
    assert_partition(&problem, 6, 1, (int[]){8}, (int[]){4});
    /* Where gradients cost more than boundaries, even cuts are best. */
    bandwidth = 1;
    assert_partition(&problem, 6, 4, (int[]){2, 4, 6, 8}, (int[]){1, 1, 1, 1});
    problem.stages = 2;
    problem.uniform = true;
    assert_partition(&problem, 400, 2, (int[]){4, 8}, (int[]){2, 2});
}

static void test_one_giant_block(void **state)
{
    (void)state;
    ech_block_cost block[6];
    for (int l = 0; l < 6; l++) block[l] = (ech_block_cost){.seconds = {0.5, 0.5, 0}};
    block[3] = (ech_block_cost){.seconds = {50, 50, 0}, .param_bytes = 1000};
    int workers = 4;
    double bandwidth = 1;
    ech_partition_problem problem = {
        .blocks = 6, .block = block, .levels = 1, .workers = &workers, .bandwidth = &bandwidth};
    /* Its gradients are too many to exchange, so it stands alone, and nothing else matters. */
    assert_partition(&problem, 100, 3, (int[]){3, 4, 6}, (int[]){1, 1, 2});
    /* With fewer it is replicated, together with all others. */
    block[3].param_bytes = 10;
    assert_partition(&problem, 105.0 / 4, 1, (int[]){6}, (int[]){4});
}

/* Convolutions compute much and have few parameters, fully connected layers the opposite: replicas
 * for those, one worker for these (PipeDream's 15-1 for VGG-16). */
static void test_vgg(void **state)
{
    (void)state;
    ech_block_cost block[16];
    for (int l = 0; l < 13; l++)
        block[l] = (ech_block_cost){
            .seconds = {1, 1, 1}, .param_bytes = 4000000, .boundary_bytes = 3000000};
    for (int l = 13; l < 16; l++)
        block[l] = (ech_block_cost){.seconds = {0.25, 0.25, 0.25}, .boundary_bytes = 16000};
    block[13].param_bytes = 410000000;
    block[14].param_bytes = 67000000;
    block[15].param_bytes = 16000000;
    int workers = 16;
    double bandwidth = 1e8;
    ech_partition_problem problem = {
        .blocks = 16, .block = block, .levels = 1, .workers = &workers, .bandwidth = &bandwidth};
    assert_partition(&problem, 39.0 / 15, 2, (int[]){13, 16}, (int[]){15, 1});
    /* Over links inside of machines alone all is replicated. */
    bandwidth = 1e12;
    assert_partition(&problem, 41.25 / 16, 1, (int[]){16}, (int[]){16});
}

/* Two machines: parameters stay inside of one, where they are exchanged fast. */
static void test_two_machines(void **state)
{
    (void)state;
    ech_block_cost block[4];
    for (int l = 0; l < 4; l++)
        block[l] = (ech_block_cost){.seconds = {1, 0, 0}, .param_bytes = 1000, .boundary_bytes = 1};
    int workers[2] = {4, 2};
    double bandwidth[2] = {1e9, 10};
    ech_partition_problem problem = {
        .blocks = 4, .block = block, .levels = 2, .workers = workers, .bandwidth = bandwidth};
    assert_partition(&problem, 0.5, 2, (int[]){2, 4}, (int[]){4, 4});
}

/* ---- larger ---- */

enum { LONG = 40, WORKERS = 6 };

/* The definition as a plain recursion over suffixes: all first stages, the best of the rest. */
static double best_flat(const ech_partition_problem *problem)
{
    static double best[WORKERS + 1][LONG];
    double B = problem->bandwidth[0];
    for (int w = 1; w <= WORKERS; w++)
        for (int i = 0; i < LONG; i++) {
            best[w][i] = (double)INFINITY;
            for (int q = 1; q <= w; q++) {
                double time = 0;
                for (int j = i + 1; j <= LONG; j++) {
                    time += block_seconds(&problem->block[j - 1]);
                    if ((q == w) != (j == LONG)) continue;
                    double stage = larger(time, sync_seconds(problem, i, j, q, B)) / q;
                    if (j < LONG)
                        stage =
                            larger(stage, larger(best[w - q][j], boundary_seconds(problem, j, B)));
                    if (stage < best[w][i]) best[w][i] = stage;
                }
            }
        }
    return best[WORKERS][0];
}

static void test_long(void **state)
{
    (void)state;
    const int workers = WORKERS;
    for (uint32_t set = 0; set < 60; set++) {
        ech_block_cost block[LONG];
        for (int l = 0; l < LONG; l++)
            block[l] =
                (ech_block_cost){.seconds = {draw(100 + set, l, 30), draw(200 + set, l, 3), 1},
                                 .param_bytes = draw(300 + set, l, 1 + 20 * ((int)set % 4)),
                                 .boundary_bytes = draw(400 + set, l, 200)};
        const double bandwidth = 1 + set % 5;
        const ech_partition_problem problem = {.blocks = LONG,
                                               .block = block,
                                               .levels = 1,
                                               .workers = &workers,
                                               .bandwidth = &bandwidth};
        ech_partition found = {0};
        assert_int_equal(ech_partition_solve(&problem, &found), ECH_OK);
        assert_true(found.seconds == best_flat(&problem));
        ech_partition_free(&found);
    }
}

/* More than can be written out: the parts that are promised of any answer. */
static void test_large(void **state)
{
    (void)state;
    enum { BLOCKS = 200 };
    static ech_block_cost block[BLOCKS];
    for (int l = 0; l < BLOCKS; l++)
        block[l] = (ech_block_cost){.seconds = {1 + draw(90, l, 9), 1, 1},
                                    .param_bytes = draw(91, l, 1000),
                                    .boundary_bytes = draw(92, l, 100)};
    int workers[2] = {8, 4};
    double bandwidth[2] = {100, 10}, before = 0;
    ech_partition_problem problem = {
        .blocks = BLOCKS, .block = block, .levels = 2, .workers = workers, .bandwidth = bandwidth};
    for (int network = 10; network <= 1000; network *= 10) {
        bandwidth[1] = network;
        ech_partition found = {0};
        assert_int_equal(ech_partition_solve(&problem, &found), ECH_OK);
        int sum = 0;
        for (int s = 0; s < found.stages; s++) {
            sum += found.replicas[s];
            assert_true(found.cut[s] < found.cut[s + 1]);
        }
        assert_int_equal(sum, 32);
        assert_int_equal(found.cut[found.stages], BLOCKS);
        /* No faster with a slower network; given the number of stages, the same again. */
        assert_true(before == 0 || found.seconds <= before);
        before = found.seconds;
        ech_partition again = {0};
        problem.stages = found.stages;
        assert_int_equal(ech_partition_solve(&problem, &again), ECH_OK);
        assert_true(again.seconds == found.seconds);
        problem.stages = 0;
        ech_partition_free(&again);
        ech_partition_free(&found);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    ech_block_cost block[3] = {{.seconds = {1, 1, 1}, .activation_bytes = 1000}};
    int workers = 4;
    double bandwidth = 1;
    const ech_partition_problem good = {
        .blocks = 3, .block = block, .levels = 1, .workers = &workers, .bandwidth = &bandwidth};
    ech_partition found = {0};
    ech_partition_problem problem = good;
    problem.stages = 4;
    assert_int_equal(ech_partition_solve(&problem, &found), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "4 stages of 3 blocks"));
    workers = 2;
    problem.stages = 3;
    assert_int_equal(ech_partition_solve(&problem, &found), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "3 stages on 2 workers"));
    workers = 4;
    problem.uniform = true;
    assert_int_equal(ech_partition_solve(&problem, &found), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "3 stages do not divide 4 workers"));
    problem = good;
    problem.memory = 999;
    assert_int_equal(ech_partition_solve(&problem, &found), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "no partition fits into 999 B a worker"));
    problem.uniform = true;
    assert_int_equal(ech_partition_solve(&problem, &found), ECH_EUSAGE);
    problem.memory = 4000;
    assert_int_equal(ech_partition_solve(&problem, &found), ECH_OK);
    ech_partition_free(&found);
    const double wrong[] = {0, -1, (double)NAN, 0.5};
    for (int i = 0; i < 4; i++) {
        bandwidth = wrong[i];
        assert_int_equal(ech_partition_solve(&good, &found), ECH_EUSAGE);
        assert_non_null(strstr(ech_last_error(), "set parallel.node_bandwidth"));
    }
    bandwidth = 1;
    workers = 1 << 20;
    assert_int_equal(ech_partition_solve(&good, &found), ECH_EUNSUPPORTED);
    assert_non_null(strstr(ech_last_error(), "3 blocks on 1048576 workers are too many to search"));
    assert_null(found.cut);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flat),
        cmocka_unit_test(test_two_levels),
        cmocka_unit_test(test_three_levels),
        cmocka_unit_test(test_levels_of_one_component),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_equal_blocks),
        cmocka_unit_test(test_one_giant_block),
        cmocka_unit_test(test_vgg),
        cmocka_unit_test(test_two_machines),
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, be_quiet, NULL);
}
