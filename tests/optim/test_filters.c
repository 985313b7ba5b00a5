/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters (O,C,KH,KW) of convolutions: what optimizers and compression keep of them, and updates
 * against naive loops. app/filters trains them on layouts.
 */
#include <math.h>
#include <string.h>

#include "base/random.h"
#include "optim/optimized.h"
#include "unit.h"

enum { O = 5, C = 3, KH = 3, KW = 2, PATCH = C * KH * KW, ALL = O * PATCH, STEPS = 4 };

static ech_shape filters(void)
{
    return (ech_shape){
        .dims = 4,
        .axis = {ECH_AXIS_CHANNELS, ECH_AXIS_CHANNELS, ECH_AXIS_HEIGHT, ECH_AXIS_WIDTH},
        .size = {O, C, KH, KW}};
}

static double draw(uint64_t i)
{
    return 2 * ech_random_unit(ech_random_word((ech_random_key){.seed = 3}, i)) - 1;
}

static void assert_near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-13 * fabs(wanted))) fail_msg("%.17g, not %.17g", got, wanted);
}

/* ---- what is kept ---- */

static void assert_shape(const ech_shape *shape, int dims, const int64_t *size)
{
    assert_int_equal(shape->dims, dims);
    for (int d = 0; d < dims; d++) assert_int_equal(shape->size[d], size[d]);
}

static ech_config *config_of(const char *optimizer, const char *word)
{
    ech_config *config = optimized_config(optimizer);
    if (*word) assert_int_equal(ech_config_set(config, word), ECH_OK);
    return config;
}

/* Rows are filters, columns the numbers that a filter reads; element-wise states are filters. */
TEST(test_kept)
{
    static const struct {
        const char *optimizer, *word, *name;
        int state, dims;
        int64_t size[4];
    } kept[] = {{"sgd", "optimizer.momentum=0.9", "momentum_buffer", 0, 4, {O, C, KH, KW}},
                {"adamw", "", "exp_avg_sq", 1, 4, {O, C, KH, KW}},
                {"adafactor", "optimizer.momentum=0.9", "row_var", 0, 1, {O}},
                {"adafactor", "optimizer.momentum=0.9", "col_var", 1, 1, {PATCH}},
                {"adafactor", "optimizer.momentum=0.9", "exp_avg", 2, 4, {O, C, KH, KW}},
                {"sm3", "", "column_accumulator", 0, 1, {PATCH}},
                {"sm3", "", "row_accumulator", 1, 1, {O}},
                {"adamw8", "optimizer.block=9", "exp_avg", 0, 4, {O, C, KH, KW}},
                {"adamw8", "optimizer.block=9", "exp_avg_max", 2, 2, {O, 2}},
                {"muon", "optimizer.momentum=0.9", "momentum_buffer", 0, 4, {O, C, KH, KW}}};
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        ech_config *config = config_of(kept[i].optimizer, kept[i].word);
        ech_param param = {.name = "w", .shape = filters(), .type = ECH_TYPE_COMPUTE};
        ech_optimizer_needs needs = ech_optimizer_needs_of(config, &param);
        assert_true(kept[i].state < needs.states);
        assert_string_equal(needs.state[kept[i].state].name, kept[i].name);
        assert_shape(&needs.state[kept[i].state].shape, kept[i].dims, kept[i].size);
        ech_config_destroy(config);
    }
}

/* With an axis of replicas in front, filters are the matrix. */
TEST(test_replicas)
{
    static const char *const words[] = {"parallel.strategy=diloco", "parallel.compression=powersgd",
                                        "parallel.compression=topk"};
    const int64_t each[] = {2, O, PATCH}, whole[] = {O, C, KH, KW}, basis[] = {PATCH, 4};
    for (int i = 0; i < 3; i++) {
        ech_config *config = config_of("muon", words[i]);
        config->parallel.data = 2;
        ech_param param = {.name = "w", .shape = filters(), .type = ECH_TYPE_COMPUTE};
        ech_optimizer_needs needs = ech_optimizer_needs_of(config, &param);
        const ech_state *momentum = &needs.state[0], *next = &needs.state[1];
        assert_shape(&momentum->shape, i == 0 ? 3 : 4, i == 0 ? each : whole);
        assert_string_equal(next->name, i == 0 ? "anchor" : "residual");
        assert_shape(&next->shape, i == 0 ? 4 : 3, i == 0 ? whole : each);
        if (i == 1) assert_shape(&needs.state[2].shape, 2, basis);
        assert_int_equal(ech_compression_chosen(config, &param), i == 2 ? 1 : 0);
        ech_config_destroy(config);
    }
}

/* ZeRO's cuts: whole filters where a state has a number per filter, and each number of a state
 * belongs to one part. */
TEST(test_units)
{
    static const struct {
        const char *optimizer, *word;
        int state;
        int64_t unit, numbers; /* of the state per unit */
    } cut[] = {{"adamw", "", 0, 1, 1},
               {"adafactor", "", 0, PATCH, 1},
               {"sm3", "", 1, PATCH, 1},
               {"adamw8", "optimizer.block=9", 2, 9, 1},
               {"adamw8", "optimizer.block=4", 2, PATCH, 5}};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        ech_config *config = config_of(cut[i].optimizer, cut[i].word);
        ech_param param = {.name = "w", .shape = filters(), .type = ECH_TYPE_COMPUTE};
        ech_optimizer_needs needs = ech_optimizer_needs_of(config, &param);
        const int64_t size[] = {O, PATCH};
        int64_t counted = 0, from;
        assert_int_equal(ech_optimizer_unit(&needs, &param, size), cut[i].unit);
        for (int64_t at = 0; at < ALL; at += cut[i].unit) {
            const ech_state *of = &needs.state[cut[i].state];
            int64_t n = ech_state_part(of, &param, size, at, cut[i].unit, &from);
            assert_int_equal(n, cut[i].numbers);
            assert_int_equal(from, counted);
            counted += n;
        }
        ech_config_destroy(config);
    }
}

/* ---- updates ---- */

/* Calls `use` for each element, with its filter o, and its place p in the filter. */
#define EACH(o, p)                                                                                 \
    for (int o = 0; o < O; o++)                                                                    \
        for (int c = 0, p = 0; c < C; c++)                                                         \
            for (int h = 0; h < KH; h++)                                                           \
                for (int v = 0; v < KW; v++, p++)

static double gradient(int step, int o, int p)
{
    return draw((uint64_t)(1000 * step + o * PATCH + p)) * exp(o) * (p % 4 + 1);
}

static optimized create(const ech_config *config, double w[O][PATCH])
{
    optimized x = optimized_create_of(config, ech_kernels_ref(ECH_F64), filters());
    EACH(o, p) optimized_set(&x.param, o * PATCH + p, w[o][p] = draw((uint64_t)(o * PATCH + p)));
    return x;
}

static void step_and_compare(optimized *x, int step, double w[O][PATCH])
{
    EACH(o, p) optimized_set(&x->gradient, o * PATCH + p, gradient(step, o, p));
    optimized_step(x, 0.01, 1);
    EACH(o, p) assert_near(optimized_get(&x->param, o * PATCH + p), w[o][p]);
}

static void adafactor_by_hand(int step, double w[O][PATCH], double *row, double *column)
{
    double beta = 1 - pow(step, -0.8), sum = 0, weights = 0, updates = 0, u[O][PATCH];
    for (int o = 0; o < O; o++) row[o] *= beta;
    for (int p = 0; p < PATCH; p++) column[p] *= beta;
    EACH(o, p)
    {
        double square = (1 - beta) * (pow(gradient(step, o, p), 2) + 1e-30);
        row[o] += square;
        column[p] += square;
        sum += w[o][p] * w[o][p];
    }
    for (int o = 0; o < O; o++) weights += row[o];
    EACH(o, p)
    {
        u[o][p] = gradient(step, o, p) / sqrt(row[o] * column[p] / weights);
        updates += u[o][p] * u[o][p];
    }
    double scale = 0.01 * fmax(1e-3, sqrt(sum / ALL)) / fmax(1, sqrt(updates / ALL));
    EACH(o, p) w[o][p] -= scale * u[o][p];
}

TEST(test_adafactor)
{
    ech_config *config = config_of("adafactor", "optimizer.weight_decay=0");
    double w[O][PATCH], row[O] = {0}, column[PATCH] = {0};
    optimized x = create(config, w);
    for (int step = 1; step <= STEPS; step++) {
        adafactor_by_hand(step, w, row, column);
        step_and_compare(&x, step, w);
    }
    optimized_free(&x);
    ech_config_destroy(config);
}

static void sm3_by_hand(int step, double w[O][PATCH], double *row, double *column)
{
    double rows[O] = {0}, columns[PATCH] = {0};
    EACH(o, p)
    {
        double g = gradient(step, o, p), sum = fmin(row[o], column[p]) + g * g;
        w[o][p] -= 0.01 * g / sqrt(sum);
        rows[o] = fmax(rows[o], sum);
        columns[p] = fmax(columns[p], sum);
    }
    memcpy(row, rows, sizeof rows);
    memcpy(column, columns, sizeof columns);
}

TEST(test_sm3)
{
    ech_config *config = config_of("sm3", "optimizer.weight_decay=0");
    double w[O][PATCH], row[O] = {0}, column[PATCH] = {0};
    optimized x = create(config, w);
    for (int step = 1; step <= STEPS; step++) {
        sm3_by_hand(step, w, row, column);
        step_and_compare(&x, step, w);
    }
    optimized_free(&x);
    ech_config_destroy(config);
}

/* Muon and 8-bit AdamW update filters as the matrix whose rows are filters. */
TEST(test_as_matrix)
{
    static const char *const words[][2] = {{"muon", "optimizer.momentum=0.9"},
                                           {"adamw8", "optimizer.block=9"}};
    for (int i = 0; i < 2; i++) {
        ech_config *config = config_of(words[i][0], words[i][1]);
        double w[O][PATCH];
        optimized x = create(config, w);
        optimized matrix = optimized_create(config, ech_kernels_ref(ECH_F64), O, PATCH);
        EACH(o, p) optimized_set(&matrix.param, o * PATCH + p, w[o][p]);
        for (int step = 1; step <= STEPS; step++) {
            EACH(o, p) optimized_set(&matrix.gradient, o * PATCH + p, gradient(step, o, p));
            optimized_step(&matrix, 0.01, 1);
            EACH(o, p) w[o][p] = optimized_get(&matrix.param, o * PATCH + p);
            step_and_compare(&x, step, w);
        }
        assert_string_equal(ech_optimizer_rule_of(config, &x.of).name, words[i][0]);
        optimized_free(&x);
        optimized_free(&matrix);
        ech_config_destroy(config);
    }
}
