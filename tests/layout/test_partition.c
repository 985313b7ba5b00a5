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

#include "base/log.h"
#include "base/random.h"
#include "layout/brute_force.h"

static int be_quiet(void **state)
{
    (void)state;
    ech_log_set_quiet(true);
    return 0;
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
