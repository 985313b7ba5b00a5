/* SPDX-License-Identifier: Apache-2.0
 *
 * The partitioner against brute force: every partition of small problems is written out, timed by
 * the definition and compared. Costs are whole numbers, so that ties are common.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/random.h"
#include "layout/partition.h"
#include "unit.h"

enum { MOST_BLOCKS = 6 };

/* ---- the definition, in words of its own ---- */

typedef struct shape {
    int stages, first_block[MOST_BLOCKS + 1], replicas[MOST_BLOCKS];
    double cost[MOST_BLOCKS], seconds; /* of each stage; of a step */
} shape;

static double link_of(const ech_partition_problem *p, int a, int b)
{
    bool together = a / p->rates.node == b / p->rates.node;
    return together ? p->rates.inside : p->rates.between;
}

/* Fills most and seconds; false: refused. */
static bool time_shape(const ech_partition_problem *p, shape *one)
{
    int first = 0;
    double pass = 0, most = 0;
    for (int s = 0; s < one->stages; first += one->replicas[s++]) {
        int q = one->replicas[s], last = first + q - 1, i = one->first_block[s],
            j = one->first_block[s + 1];
        double f = 0, b = 0, w = 0, a = 0, M = (double)p->micro_batches, turns = p->turns;
        for (int l = i; l < j; l++) {
            f += p->block[l].seconds[0];
            for (int part = 1; part < ECH_PROFILE_PHASES; part++) b += p->block[l].seconds[part];
            w += (double)p->block[l].param_bytes;
            a += (double)p->block[l].activation_bytes;
        }
        if (q > M) return false;
        if (p->divides && fmod(M, q) != 0) return false;
        double n = ceil(M / q), members = q * p->copies, sum = 0;
        bool split = (i == 0) != (j == p->blocks);
        if (i > 0 && j == p->blocks) w += p->tied_bytes;
        double own = split ? w - p->tied_bytes : w, tied = 0;
        double parts = p->zero ? 1 : 2, gather = 0; /* halves of a sum */
        if (members > 1) {
            double link = link_of(p, first, last), others = (members - 1) / members;
            sum = p->rates.latency + parts * others * p->wire * own / link;
            if (p->zero) gather = p->rates.latency + others * w / link;
        }
        double shares[4];
        for (int zero = 0; zero < 4; zero++) shares[zero] = p->zero >= zero ? members : 1;
        double counted = w / members;
        members = (q + 1) * p->copies;
        if (split && p->tied_bytes > 0)
            tied = p->rates.latency + 2 * (members - 1) / members * p->wire * p->tied_bytes /
                                          link_of(p, 0, p->workers - 1);
        double sleeps = 0;
        for (int k = first; p->delay && k <= last; k++) sleeps = fmax(sleeps, p->delay[k]);
        double updated = counted + 2 * w / shares[1] + (p->versions == 1 ? 0 : w);
        double update = updated * p->rates.update_seconds / 3, links = 0, busy;
        if (p->zero < 2)
            busy = n * f + (n - 1) * b + fmax(b, sum) + update + tied + gather;
        else if (p->zero == 2)
            busy = n * f + n * fmax(b, sum) + update + tied + gather;
        else
            busy = p->zero_keep ? fmax(f, gather) + (n - 1) * f + n * fmax(b, sum) + update + tied
                                : n * fmax(f, gather) + n * fmax(b, sum + gather) + update + tied;
        busy += sleeps;
        if (i > 0)
            links += p->rates.latency +
                     (double)p->block[i - 1].boundary_bytes / link_of(p, first - 1, last);
        if (j < p->blocks) {
            double out = (double)p->block[j - 1].boundary_bytes;
            links += p->rates.latency + out / link_of(p, first, last + 1);
            pass += 2 * (p->rates.latency + out / link_of(p, first, last + 1));
        }
        pass += f + b;
        one->cost[s] = fmax(turns * busy - f - b, (turns * n - 1) * links);
        most = fmax(most, one->cost[s]);
        if (p->memory == 0) continue;
        double in_flight = fmin(ceil((double)(p->workers - first) / q), n * turns);
        if (p->keeps_all) in_flight = n;
        double versions = p->versions ? p->versions : 1 + ceil((in_flight - 1) / n);
        double held = p->states / shares[1] + p->gradients / shares[2] + versions / shares[3];
        if (p->zero == 3 && p->zero_keep) held += 1;
        if (in_flight * a + held * w > (double)p->memory) return false;
    }
    one->seconds = (pass + most) / p->turns + p->rates.other_seconds;
    return true;
}

typedef struct trial {
    const ech_partition_problem *problem;
    shape now, best; /* best.stages 0: none yet */
    bool equal;      /* only shapes with as many replicas at each stage */
} trial;

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(1, fabs(b));
}

/* The most of a stage and those after it. */
static double most_from(const shape *one, int stage)
{
    double most = 0;
    for (int s = stage; s < one->stages; s++) most = fmax(most, one->cost[s]);
    return most;
}

/* A smaller maximum, then an earlier first boundary, then fewer first replicas; likewise of what
 * comes after. */
static bool is_better(const shape *a, const shape *b)
{
    for (int s = 0; s < a->stages; s++) {
        double of_a = most_from(a, s), of_b = most_from(b, s);
        if (!is_near(of_a, of_b)) return of_a < of_b;
        if (a->first_block[s + 1] != b->first_block[s + 1])
            return a->first_block[s + 1] < b->first_block[s + 1];
        if (a->replicas[s] != b->replicas[s]) return a->replicas[s] < b->replicas[s];
    }
    return false;
}

static void try_shapes(trial *t, int stage, int workers)
{
    shape *now = &t->now;
    const ech_partition_problem *p = t->problem;
    if (stage == now->stages) {
        bool whole = workers == 0 && now->first_block[stage] == p->blocks;
        if (whole && time_shape(p, now) && (!t->best.stages || is_better(now, &t->best)))
            t->best = *now;
        return;
    }
    int only = t->equal ? p->workers / now->stages : 0;
    for (int j = now->first_block[stage] + 1; j <= p->blocks; j++)
        for (int q = 1; q <= workers; q++) {
            if (only && q != only) continue;
            now->first_block[stage + 1] = j;
            now->replicas[stage] = q;
            try_shapes(t, stage + 1, workers - q);
        }
}

static shape best_of(const ech_partition_problem *problem, int stages, bool equal)
{
    trial t = {.problem = problem, .now = {.stages = stages}, .equal = equal};
    if (!equal || problem->workers % stages == 0) try_shapes(&t, 0, problem->workers);
    return t.best;
}

/* ---- comparing ---- */

static bool has(const ech_partitions *found, const shape *one)
{
    for (size_t i = 0; i < found->n; i++) {
        const ech_partition *f = &found->at[i];
        if (f->stages != one->stages) continue;
        bool same = is_near(f->seconds, one->seconds);
        for (int s = 0; s < one->stages; s++)
            same &= f->first_block[s + 1] == one->first_block[s + 1] &&
                    f->replicas[s] == one->replicas[s];
        if (same) return true;
    }
    return false;
}

/* For each number of stages the search finds the best of all shapes and the best of equal replicas,
 * and no other partition. */
static void compare(const ech_partition_problem *problem)
{
    ech_partitions found = {0};
    ech_status status = ech_partition_search(problem, &found);
    size_t expected = 0;
    for (int stages = 1; stages <= problem->blocks && stages <= problem->workers; stages++) {
        if (problem->stages && stages != problem->stages) continue;
        shape any = best_of(problem, stages, false), equal = best_of(problem, stages, true);
        if (problem->stages) any = equal;
        bool same = any.stages == equal.stages &&
                    memcmp(any.first_block, equal.first_block, sizeof any.first_block) == 0 &&
                    memcmp(any.replicas, equal.replicas, sizeof any.replicas) == 0;
        if (any.stages && !has(&found, &any))
            fail_msg("%d stages: not the first of %g", stages, any.seconds);
        if (equal.stages && !has(&found, &equal))
            fail_msg("%d equal stages: not the first of %g", stages, equal.seconds);
        expected += any.stages > 0;
        expected += equal.stages > 0 && !same;
    }
    assert_int_equal(status, expected ? ECH_OK : ECH_EUSAGE);
    assert_int_equal(found.n, expected);
    for (size_t i = 0; i < found.n; i++) {
        const ech_partition *f = &found.at[i];
        assert_true(i == 0 || found.at[i - 1].seconds <= f->seconds);
        assert_true(ech_partition_seconds(problem, f->stages, f->first_block, f->replicas) ==
                    f->seconds);
    }
    ech_partitions_free(&found);
}

static int draw(uint32_t stream, int i, int n)
{
    return (int)(ech_random_word((ech_random_key){.seed = 7, .stream = stream}, (uint64_t)i) %
                 (uint32_t)n);
}

/* All equal, few values (many ties), wide, with heavy or light parameters, with blocks that cost
 * nothing. */
static void make_costs(int set, ech_profile_block *block)
{
    static const int seconds[] = {1, 3, 3, 1000, 1000, 2}, params[] = {1, 2, 50, 10, 1000, 3};
    static const int boundary[] = {1, 2, 5, 1000, 10, 3};
    for (int l = 0; l < MOST_BLOCKS; l++) {
        uint32_t stream = (uint32_t)(set * 8);
        int kind = set % 6;
        block[l] = (ech_profile_block){.activation_bytes = draw(stream, l, 5),
                                       .boundary_bytes = draw(stream + 1, l, boundary[kind]),
                                       .param_bytes = draw(stream + 2, l, params[kind])};
        for (uint32_t p = 0; p < ECH_PROFILE_PHASES; p++)
            block[l].seconds[p] = draw(stream + 3 + p, l, seconds[kind]) + (kind == 0);
    }
}

TEST(test_brute_force)
{
    for (int set = 0; set < 600; set++) {
        ech_profile_block block[MOST_BLOCKS];
        double delay[6];
        uint32_t stream = 5000 + (uint32_t)set;
        make_costs(set, block);
        for (int w = 0; w < 6; w++) delay[w] = 4 * draw(stream + 10000, w, 3);
        ech_partition_problem problem = {
            .blocks = 1 + draw(stream, 0, MOST_BLOCKS),
            .block = block,
            .delay = draw(stream, 22, 3) ? NULL : delay,
            .workers = 1 + draw(stream, 1, 6),
            .rates = {.node = 1 + draw(stream, 2, 6),
                      .inside = (double[]){1, 3, 64, (double)INFINITY}[draw(stream, 3, 4)],
                      .between = (double[]){1, 2, 16}[draw(stream, 4, 3)],
                      .latency = draw(stream, 5, 3),
                      .update_seconds = 0.75 * draw(stream, 6, 3),
                      .other_seconds = draw(stream, 7, 2)},
            .copies = 1 + draw(stream, 8, 2),
            .wire = 0.5 * (1 + draw(stream, 18, 3)),
            .micro_batches = 1 + draw(stream, 9, 12),
            .turns = 1 + 3 * draw(stream, 10, 2),
            .divides = draw(stream, 11, 3) == 0,
            .memory = draw(stream, 12, 2) ? draw(stream, 13, 80) + 1 : 0,
            .keeps_all = draw(stream, 14, 4) == 0,
            .gradients = draw(stream, 19, 2),
            .states = draw(stream, 15, 3),
            .zero = draw(stream, 20, 4),
            .zero_keep = draw(stream, 21, 2) == 1,
            .versions = draw(stream, 16, 3)};
        /* A part of the first block's parameters. */
        problem.tied_bytes = draw(stream, 17, (int)block[0].param_bytes + 1);
        compare(&problem);
        for (int s = 1; s <= problem.blocks && s <= problem.workers; s++) {
            problem.stages = s;
            if (problem.workers % s == 0) compare(&problem);
        }
    }
}

/* ---- known answers ---- */

static void assert_first(const ech_partition_problem *problem, int stages, const int *first_block,
                         const int *replicas)
{
    ech_partitions found = {0};
    assert_int_equal(ech_partition_search(problem, &found), ECH_OK);
    const ech_partition *first = &found.at[0];
    assert_int_equal(first->stages, stages);
    for (int s = 0; s < stages; s++) {
        assert_int_equal(first->first_block[s + 1], first_block[s]);
        assert_int_equal(first->replicas[s], replicas[s]);
    }
    ech_partitions_free(&found);
}

TEST(test_equal_blocks)
{
    ech_profile_block block[8];
    for (int l = 0; l < 8; l++)
        block[l] =
            (ech_profile_block){.seconds = {1, 1, 1}, .param_bytes = 100, .boundary_bytes = 1};
    ech_partition_problem problem = {.blocks = 8,
                                     .block = block,
                                     .workers = 4,
                                     .rates = {.node = 4, .inside = 1e9, .between = 1e9},
                                     .copies = 1,
                                     .wire = 1,
                                     .micro_batches = 8,
                                     .turns = 1,
                                     .versions = 1};
    /* Where sums are cheap replicas have no bubble; where they cost more than that, stages are
     * better. */
    assert_first(&problem, 1, (int[]){8}, (int[]){4});
    problem.rates.inside = problem.rates.between = 10;
    assert_first(&problem, 4, (int[]){2, 4, 6, 8}, (int[]){1, 1, 1, 1});
    /* And the more micro-batches there are for one sum, the less it counts. */
    problem.micro_batches = 400;
    problem.rates.inside = problem.rates.between = 64;
    assert_first(&problem, 1, (int[]){8}, (int[]){4});
}

/* ---- VGG-16 ---- */

/* Simonyan and Zisserman 2015, configuration D: thirteen convolutions of 3 x 3, halved by pooling
 * after some, and three fully connected layers, on images of 224 x 224; each layer's bias included.
 * In batches of 64, of which one worker computes one in 0.28 s, shared out by multiply-adds; the
 * backward is twice the forward. */
static void make_vgg(ech_profile_block *block)
{
    static const struct {
        int in, out, side; /* channels; pixels along each side of what it puts out */
        bool pools;
    } layer[16] = {{3, 64, 224, false},   {64, 64, 224, true},     {64, 128, 112, false},
                   {128, 128, 112, true}, {128, 256, 56, false},   {256, 256, 56, false},
                   {256, 256, 56, true},  {256, 512, 28, false},   {512, 512, 28, false},
                   {512, 512, 28, true},  {512, 512, 14, false},   {512, 512, 14, false},
                   {512, 512, 14, true},  {25088, 4096, 1, false}, {4096, 4096, 1, false},
                   {4096, 1000, 1, false}};
    double work[16], all = 0, params = 0;
    for (int l = 0; l < 16; l++) {
        double window = l < 13 ? 9 : 1, pixels = (double)layer[l].side * layer[l].side;
        double weights = window * layer[l].in * layer[l].out;
        work[l] = weights * pixels;
        all += work[l];
        params += weights + layer[l].out;
        double out = layer[l].out * pixels / (layer[l].pools ? 4 : 1);
        block[l] =
            (ech_profile_block){.param_bytes = (int64_t)(4 * (weights + layer[l].out)),
                                .boundary_bytes = (int64_t)(4 * 64 * out),
                                .activation_bytes = (int64_t)(4 * 64 * layer[l].out * pixels)};
    }
    assert_true(fabs(all / 1e9 - 15.47) < 0.005 && fabs(params / 1e6 - 138.36) < 0.005);
    for (int l = 0; l < 16; l++)
        for (int p = 0; p < ECH_RECOMPUTE; p++) block[l].seconds[p] = 0.28 * work[l] / all / 3;
}

/* Convolutions compute much and have few parameters, fully connected layers the opposite: on 16
 * workers over 10 Gbit/s fifteen replicas for those and one worker for these (Narayanan et al.
 * 2019, Table 1), whether updates are synchronous or not. */
TEST(test_vgg)
{
    ech_profile_block block[16];
    make_vgg(block);
    ech_partition_problem problem = {.blocks = 16,
                                     .block = block,
                                     .workers = 16,
                                     .rates = {.node = 16, .inside = 1.25e9, .between = 1.25e9},
                                     .copies = 1,
                                     .wire = 1,
                                     .versions = 1};
    for (int turns = 1; turns <= 64; turns *= 64)
        for (int k = 1; k <= 16; k *= 2) {
            problem.turns = turns;
            problem.divides = turns > 1;
            problem.versions = turns == 1;
            problem.states = 2;
            problem.memory = (int64_t)16 << 30; /* of a V100 */
            problem.micro_batches = 15 * k;
            assert_first(&problem, 2, (int[]){13, 16}, (int[]){15, 1});
        }
    /* Over links inside of machines alone all is replicated. */
    problem.rates.inside = problem.rates.between = 1e12;
    problem.micro_batches = 240;
    assert_first(&problem, 1, (int[]){16}, (int[]){16});
}

/* Two machines of four: parameters are summed inside of one, where that is fast. */
TEST(test_two_machines)
{
    ech_profile_block block[4];
    for (int l = 0; l < 4; l++)
        block[l] =
            (ech_profile_block){.seconds = {1, 1, 1}, .param_bytes = 1000, .boundary_bytes = 1};
    ech_partition_problem problem = {.blocks = 4,
                                     .block = block,
                                     .workers = 8,
                                     .rates = {.node = 4, .inside = 1e9, .between = 10},
                                     .copies = 1,
                                     .wire = 1,
                                     .micro_batches = 32,
                                     .turns = 1,
                                     .versions = 1};
    assert_first(&problem, 2, (int[]){2, 4}, (int[]){4, 4});
}

/* What a step of PipeDream's stages keeps of weights: as many versions as there are updates under
 * way. */
TEST(test_versions)
{
    ech_profile_block block[4];
    for (int l = 0; l < 4; l++)
        block[l] = (ech_profile_block){.seconds = {1, 1, 1}, .param_bytes = 10};
    ech_partition_problem problem = {.blocks = 4,
                                     .block = block,
                                     .workers = 4,
                                     .rates = {.node = 4, .inside = 1, .between = 1},
                                     .copies = 1,
                                     .wire = 1,
                                     .micro_batches = 1,
                                     .turns = 8,
                                     .divides = true,
                                     .stages = 4,
                                     .memory = 40,
                                     .versions = 0};
    const int first_block[] = {0, 1, 2, 3, 4}, ones[] = {1, 1, 1, 1};
    /* Four, three, two and one. */
    assert_true(isfinite(ech_partition_seconds(&problem, 4, first_block, ones)));
    problem.memory = 39;
    assert_true(isinf(ech_partition_seconds(&problem, 4, first_block, ones)));
    /* With an update for two micro-batches, three for four in flight; 2BW keeps two. */
    problem.micro_batches = 2;
    problem.memory = 30;
    assert_true(isfinite(ech_partition_seconds(&problem, 4, first_block, ones)));
    problem.memory = 29;
    assert_true(isinf(ech_partition_seconds(&problem, 4, first_block, ones)));
    problem.versions = 2;
    problem.memory = 20;
    assert_true(isfinite(ech_partition_seconds(&problem, 4, first_block, ones)));
}

/* More than can be written out: the parts that are promised of any answer. */
TEST(test_large)
{
    enum { BLOCKS = 100 };
    static ech_profile_block block[BLOCKS];
    for (int l = 0; l < BLOCKS; l++)
        block[l] = (ech_profile_block){.seconds = {1 + draw(90, l, 9), 1, 1},
                                       .param_bytes = draw(91, l, 1000),
                                       .boundary_bytes = draw(92, l, 100)};
    ech_partition_problem problem = {.blocks = BLOCKS,
                                     .block = block,
                                     .workers = 32,
                                     .rates = {.node = 8, .inside = 1000, .between = 10},
                                     .copies = 1,
                                     .wire = 1,
                                     .micro_batches = 96,
                                     .turns = 1,
                                     .versions = 1};
    double before = 0;
    for (int network = 10; network <= 1000; network *= 10) {
        ech_partitions found = {0};
        problem.rates.between = network;
        assert_int_equal(ech_partition_search(&problem, &found), ECH_OK);
        for (size_t i = 0; i < found.n; i++) {
            int sum = 0;
            for (int s = 0; s < found.at[i].stages; s++) {
                sum += found.at[i].replicas[s];
                assert_true(found.at[i].first_block[s] < found.at[i].first_block[s + 1]);
            }
            assert_int_equal(sum, 32);
            assert_int_equal(found.at[i].first_block[found.at[i].stages], BLOCKS);
        }
        assert_true(before == 0 || found.at[0].seconds <= before); /* a faster network */
        before = found.at[0].seconds;
        ech_partitions_free(&found);
    }
}

TEST(test_refusals)
{
    ech_profile_block block[3] = {{.seconds = {1, 1, 1}, .activation_bytes = 1000}};
    const ech_partition_problem good = {.blocks = 3,
                                        .block = block,
                                        .workers = 4,
                                        .rates = {.node = 4, .inside = 1, .between = 1},
                                        .copies = 1,
                                        .wire = 1,
                                        .micro_batches = 4,
                                        .turns = 1,
                                        .versions = 1};
    ech_partitions found = {0};
    ech_partition_problem problem = good;
    problem.stages = 4;
    assert_int_equal(ech_partition_search(&problem, &found), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "4 stages of 3 blocks"));
    problem.stages = 3;
    assert_int_equal(ech_partition_search(&problem, &found), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "3 stages do not divide 4 workers"));
    problem = good;
    problem.memory = 999;
    assert_int_equal(ech_partition_search(&problem, &found), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "no partition fits into 999 B a worker"));
    problem = good;
    problem.micro_batches = 1;
    assert_int_equal(ech_partition_search(&problem, &found), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "1 micro-batch of 3 blocks cannot be divided among"));
    const double wrong[] = {0, -1, (double)NAN, 0.5};
    for (int i = 0; i < 4; i++) {
        problem = good;
        problem.rates.between = wrong[i];
        assert_int_equal(ech_partition_search(&problem, &found), ECH_EUSAGE);
        assert_non_null(strstr(ech_last_error(), "set parallel.node_bandwidth"));
    }
    problem = good;
    problem.blocks = problem.workers = 1 << 20;
    assert_int_equal(ech_partition_search(&problem, &found), ECH_EUNSUPPORTED);
    assert_non_null(strstr(ech_last_error(), "are too many to search"));
    assert_null(found.at);
}
