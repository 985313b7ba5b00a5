/* SPDX-License-Identifier: Apache-2.0
 *
 * Adafactor and SM3, fast against definition: matrices and vectors, with and without momentum.
 */
#include "kernel/trial.h"

typedef struct factoring {
    ech_update update;
    bool vector; /* no factors or states of rows */
} factoring;

static const ech_tensor *unless(bool missing, const ech_tensor *x)
{
    return missing ? NULL : x;
}

TRIAL_CALL_WITH(factoring, adafactor_sums, t[0], t[1], &o->update, unless(o->vector, t[2]), t[3],
                t[4])
TRIAL_CALL_WITH(factoring, adafactor_squares, t[0], unless(o->vector, t[1]), t[2], &o->update,
                t[3])

static void call_adafactor(const ech_kernels *kernels, ech_kernel_context *context,
                           const ech_tensor *const *t, const void *options)
{
    const factoring *o = options;
    enum { ELEMENTS = 10 };
    double number[] = {0.7, 35, 0.1};
    ech_tensor n[3];
    for (int i = 0; i < 3; i++) n[i] = ech_tensor_view(&number[i], ECH_F64, 0, NULL);
    kernels->adafactor(context, t[0], t[1], unless(o->vector, t[2]), t[3],
                       unless(o->update.momentum <= 0, t[4]), unless(o->vector, &n[0]), &n[1],
                       &n[2], ELEMENTS, &o->update, t[5]);
}

TRIAL_CALL_WITH(factoring, sm3_maxima, t[0], unless(o->vector, t[1]), t[2], &o->update,
                unless(o->vector, t[3]), t[4])
TRIAL_CALL_WITH(factoring, sm3, t[0], t[1], unless(o->vector, t[2]), t[3], unless(o->vector, t[4]),
                t[5], unless(o->update.momentum <= 0, t[6]), &o->update, t[7])

#define WIDE(role_, low_, high_, ...)                                                              \
    {                                                                                              \
        .role = role_, .low = low_, .high = high_, .type = TRIAL_WIDE, __VA_ARGS__                 \
    }
#define FP64(role_, low_, high_, ...)                                                              \
    {                                                                                              \
        .role = role_, .low = low_, .high = high_, .type = TRIAL_FIXED, .dtype = ECH_F64,          \
        __VA_ARGS__                                                                                \
    }

static void check(int64_t R, int64_t C, const factoring *o)
{
    trial_tensor matrix = WIDE(TRIAL_IN_OUT, -1, 1, TRIAL_2D(R, C));
    trial_tensor grad = TRIAL_INPUT(TRIAL_2D(R, C), .type = TRIAL_EITHER);
    trial_tensor rounded = TRIAL_RESULT(TRIAL_2D(R, C));
    trial_tensor rows = WIDE(TRIAL_IN, 0.1, 2, TRIAL_1D(R));
    trial_tensor columns = WIDE(TRIAL_IN, 0.1, 2, TRIAL_1D(C));
    trial_tensor row_sums = FP64(TRIAL_OUT, 0, 0, TRIAL_1D(R));
    trial_tensor column_sums = FP64(TRIAL_OUT, 0, 0, TRIAL_1D(C));
    trial_tensor one = FP64(TRIAL_OUT, 0, 0, .dims = 0);
    if (o->vector) row_sums.role = TRIAL_IN;
    /* The definition adds all squares one by one: of n its error is at most n 2^-53 (Higham 2002,
     * section 4.2), 4.4e-12 of 40,000. It comes near to that, since low bits of fp32 numbers'
     * squares are not random. */
    trial sums = {.name = "adafactor_sums",
                  .op = ECH_OP_adafactor_sums,
                  .call = call_adafactor_sums,
                  .options = o,
                  .dims = {R, C},
                  .tolerance = 2e-6,
                  .tolerance_f64 = TRIAL_BOUND(1e-12, 3e-12),
                  .tensor = {matrix, grad, row_sums, column_sums, one}};
    sums.tensor[0].role = TRIAL_IN;
    trial squares = {.name = "adafactor_squares",
                     .op = ECH_OP_adafactor_squares,
                     .call = call_adafactor_squares,
                     .options = o,
                     .dims = {R, C},
                     .tolerance = 2e-6,
                     .tensor = {grad, rows, columns, one}};
    trial adafactor = {.name = "adafactor",
                       .op = ECH_OP_adafactor,
                       .call = call_adafactor,
                       .options = o,
                       .tolerance = 1e-6,
                       .tensor = {matrix, grad, rows, columns, matrix, rounded}};
    trial maxima = {.name = "sm3_maxima",
                    .op = ECH_OP_sm3_maxima,
                    .call = call_sm3_maxima,
                    .options = o,
                    .dims = {R, C},
                    .tolerance = 1e-6,
                    .tensor = {grad, rows, columns, row_sums, column_sums}};
    trial sm3 = {.name = "sm3",
                 .op = ECH_OP_sm3,
                 .call = call_sm3,
                 .options = o,
                 .tolerance = 1e-6,
                 .tensor = {matrix, grad, rows, columns, row_sums, column_sums, matrix, rounded}};
    for (int i = 2; i < 4; i++) sm3.tensor[i].role = TRIAL_IN_OUT;
    for (int i = 4; i < 6; i++) {
        sm3.tensor[i].role = TRIAL_IN;
        sm3.tensor[i].low = 0.1;
        sm3.tensor[i].high = 2;
    }
    sums.large = squares.large = maxima.large = sm3.large = 1e8; /* squares are summed */
    trial *const all[] = {&sums, &squares, &adafactor, &maxima, &sm3};
    for (size_t i = 0; i < TRIAL_COUNT(all); i++) {
        all[i]->halves = R * C < 100 || (R > 1 && o->update.momentum > 0);
        trial_check(all[i]);
    }
}

TEST(factored_updates_agree)
{
    static const int64_t sizes[][2] = {{1, 1}, {3, 17}, {11, 2500}, {700, 33}, {1, 40000}};
    for (size_t s = 0; s < TRIAL_COUNT(sizes); s++)
        for (int way = 0; way < 2; way++) {
            factoring o = {.update = {.learning_rate = 0.01,
                                    .weight_decay = way ? 0.1 : 0,
                                    .momentum = way ? 0.8 : 0,
                                    .eps = 1e-30,
                                    .count = 3,
                                    .grad_scale = 0.7},
                         .vector = sizes[s][0] == 1};
            check(sizes[s][0], sizes[s][1], &o);
        }
}
