/* SPDX-License-Identifier: Apache-2.0
 *
 * Dropout and normal numbers: golden values from an independent Philox, element indices across
 * samples and cuts, and the lanes and the exponential that the fast rows are made of.
 */
#include <float.h>

#include "kernel/cpu/dropout.h"
#include "kernel/places.h"
#include "kernel/trial.h"

typedef struct tables {
    const ech_kernels *of[3];
} tables;

static tables all_tables(void)
{
    return (tables){
        {ech_kernels_ref(ECH_F64), ech_kernels_ref(ECH_F32), ech_kernels_fast(ECH_F32)}};
}

static ech_kernel_context *make_context(void)
{
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    return context;
}

static ech_tensor make_tensor(ech_dtype dtype, int64_t rows, int64_t columns)
{
    void *memory = ech_calloc((size_t)(rows * columns), ech_dtype_bytes(dtype));
    return ech_tensor_2d(memory, dtype, rows, columns);
}

/* 8 samples of 5 elements, samples 7 to 14 of the batch: bit i says that element i is kept. */
TEST(golden_dropout)
{
    const uint64_t golden = UINT64_C(0x786ff6feeb);
    ech_dropout dropout = {.p = 0.3, .key = {.seed = 42, .step = 3, .stream = 0x500}};
    ech_rows rows = rows_uncut(7, 1);
    ech_kernel_context *context = make_context();
    for (int k = 0; k < 3; k++) {
        const ech_kernels *kernels = all_tables().of[k];
        ech_tensor x = make_tensor(kernels->dtype, 8, 5), y = make_tensor(kernels->dtype, 8, 5);
        kernels->fill(context, &x, 3.5);
        kernels->dropout(context, &x, &dropout, &rows, &y);
        for (int64_t i = 0; i < 40; i++) {
            double expected = golden >> i & 1 ? 5.0 : 0.0;
            assert_true(fabs(trial_get(&y, i) - expected) < 1e-6);
        }
        free(x.data);
        free(y.data);
    }
    ech_kernel_context_destroy(context);
}

/* Large enough for several threads, in place, compared element by element. */
TEST(dropout_by_element)
{
    enum { SAMPLES = 3, EACH = 21845 };
    static const double rates[] = {0, 1e-9, 0.1, 0.5, 0.999};
    ech_kernel_context *context = make_context();
    for (int k = 0; k < 3; k++)
        for (size_t r = 0; r < TRIAL_COUNT(rates); r++) {
            const ech_kernels *kernels = all_tables().of[k];
            ech_dropout dropout = {.p = rates[r], .key = {.seed = 1, .stream = 9}};
            ech_rows rows = rows_uncut(1 << 20, 1);
            ech_tensor x = make_tensor(kernels->dtype, SAMPLES, EACH);
            kernels->fill(context, &x, 1);
            kernels->dropout(context, &x, &dropout, &rows, &x);
            for (int64_t i = 0; i < SAMPLES * EACH; i++) {
                uint64_t element = (uint64_t)((INT64_C(1) << 20) * EACH + i);
                double unit = ech_random_unit(ech_random_word(dropout.key, element));
                double expected = unit < rates[r] ? 0 : 1 / (1 - rates[r]);
                assert_true(fabs(trial_get(&x, i) - expected) <= 1e-6 * expected);
            }
            free(x.data);
        }
    ech_kernel_context_destroy(context);
}

/* Columns of a row, as a tensor rank has them, are dropped as in the whole row. */
TEST(dropout_of_columns)
{
    enum { R = 5, C = 12, SHARDS = 3, OWN = C / SHARDS };
    ech_kernel_context *context = make_context();
    for (int k = 0; k < 3; k++) {
        const ech_kernels *kernels = all_tables().of[k];
        ech_dropout dropout = {.p = 0.4, .key = {.seed = 1, .stream = 9}};
        ech_rows rows = rows_uncut(3, 1);
        ech_tensor whole = make_tensor(kernels->dtype, R, C),
                   own = make_tensor(kernels->dtype, R, OWN);
        kernels->fill(context, &whole, 1);
        kernels->dropout(context, &whole, &dropout, &rows, &whole);
        dropout.columns = C;
        for (int s = 0; s < SHARDS; s++) {
            dropout.first_column = s * OWN;
            kernels->fill(context, &own, 1);
            kernels->dropout(context, &own, &dropout, &rows, &own);
            for (int64_t i = 0; i < R * OWN; i++)
                assert_true(trial_get(&own, i) ==
                            trial_get(&whole, i / OWN * C + s * OWN + i % OWN));
        }
        free(whole.data);
        free(own.data);
    }
    ech_kernel_context_destroy(context);
}

TEST(golden_normals)
{
    static const double low[] = {-0.26588401045128901, 1.0881508807400693,    0.98565398726841136,
                                 -0.15259943877613719, -0.076113483921336642, -0.21771621168686919,
                                 0.73049916503836643,  0.32167041455655754};
    static const double high[] = {0.96028848922635579, -0.15795310050298159, -0.58884943257573397,
                                  -0.74037644595589691};
    const ech_random_key key = {.seed = 42, .stream = 0x180};
    ech_kernel_context *context = make_context();
    for (int k = 0; k < 3; k++) {
        const ech_kernels *kernels = all_tables().of[k];
        double tolerance = kernels->dtype == ECH_F64 ? 1e-14 : 1e-7;
        ech_tensor x = make_tensor(kernels->dtype, 1, 8), y = make_tensor(kernels->dtype, 2, 2);
        kernels->fill_normal(context, &x, key, 6, 0, 1);
        kernels->fill_normal(context, &y, key, (INT64_C(1) << 34) - 2, 0.5, 2);
        for (int64_t i = 0; i < 8; i++) assert_true(fabs(trial_get(&x, i) - low[i]) <= tolerance);
        for (int64_t i = 0; i < 4; i++)
            assert_true(fabs(trial_get(&y, i) - 0.5 - 2 * high[i]) <= 2 * tolerance);
        free(x.data);
        free(y.data);
    }
    ech_kernel_context_destroy(context);
}

/* A cut of a tensor gets what the whole has there; fp32 is fp64 rounded, in every row. */
TEST(normals_do_not_depend_on_cuts)
{
    enum { N = 40001, CUT = 16387 };
    const ech_random_key key = {.seed = 5, .stream = 77};
    ech_kernel_context *context = make_context();
    ech_tensor exact = make_tensor(ECH_F64, 1, N);
    ech_kernels_ref(ECH_F64)->fill_normal(context, &exact, key, 0, 0.1, 0.02);
    for (int k = 1; k < 3; k++) {
        ech_tensor x = make_tensor(ECH_F32, 1, N),
                   rest = ech_tensor_narrow(&x, x.dims - 1, CUT, N - CUT);
        ech_tensor first = ech_tensor_narrow(&x, x.dims - 1, 0, CUT);
        all_tables().of[k]->fill_normal(context, &first, key, 0, 0.1, 0.02);
        all_tables().of[k]->fill_normal(context, &rest, key, CUT, 0.1, 0.02);
        for (int64_t i = 0; i < N; i++)
            assert_true(((float *)x.data)[i] == (float)((double *)exact.data)[i]);
        free(x.data);
    }
    free(exact.data);
    ech_kernel_context_destroy(context);
}

/* By the element's word, whatever the cut; fp32 is fp64 rounded. */
TEST(uniform_numbers)
{
    enum { N = 40001, CUT = 16387 };
    const ech_random_key key = {.seed = 5, .stream = 77};
    const double low = -0.125, high = 0.5;
    ech_kernel_context *context = make_context();
    for (int k = 0; k < 3; k++) {
        const ech_kernels *kernels = all_tables().of[k];
        ech_tensor x = make_tensor(kernels->dtype, 1, N);
        ech_tensor first = ech_tensor_narrow(&x, x.dims - 1, 0, CUT);
        ech_tensor rest = ech_tensor_narrow(&x, x.dims - 1, CUT, N - CUT);
        kernels->fill_uniform(context, &first, key, 3, low, high);
        kernels->fill_uniform(context, &rest, key, 3 + CUT, low, high);
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < N; i++) {
            double unit = ech_random_unit(ech_random_word(key, (uint64_t)(3 + i)));
            double value = low + (high - low) * unit, drawn = trial_get(&x, i);
            assert_true(drawn == (kernels->dtype == ECH_F64 ? value : (float)value));
            sum += unit / N;
            squares += unit * unit / N;
        }
        assert_true(fabs(sum - 0.5) < 0.006 && fabs(squares - sum * sum - 1 / 12.0) < 0.002);
        free(x.data);
    }
    ech_kernel_context_destroy(context);
}

/* Within two deviations; the first draw where that is; a deviation of 0.88; a cut gets what the
 * whole has. */
TEST(truncated_normals)
{
    enum { N = 40000, CUT = 12345 };
    const double mean = 0.5, std = sqrt(0.1 / 64);
    const ech_random_key key = {.seed = 9, .stream = 0x281};
    ech_kernel_context *context = make_context();
    for (int k = 0; k < 3; k++) {
        const ech_kernels *kernels = all_tables().of[k];
        double tolerance = kernels->dtype == ECH_F64 ? 1e-14 : 1e-7, sum = 0, squares = 0;
        int64_t again = 0;
        ech_tensor x = make_tensor(kernels->dtype, 1, N), plain = make_tensor(kernels->dtype, 1, N);
        ech_tensor first = ech_tensor_narrow(&x, x.dims - 1, 0, CUT);
        ech_tensor rest = ech_tensor_narrow(&x, x.dims - 1, CUT, N - CUT);
        kernels->fill_normal(context, &plain, key, 0, mean, std);
        kernels->fill_truncated(context, &first, key, 0, mean, std);
        kernels->fill_truncated(context, &rest, key, CUT, mean, std);
        for (int64_t i = 0; i < N; i++) {
            double value = (trial_get(&x, i) - mean) / std, drawn = trial_get(&plain, i);
            assert_true(fabs(value) <= 2 + 2 * tolerance / std);
            if (fabs(drawn - mean) < 1.9999 * std)
                assert_true(fabs(trial_get(&x, i) - drawn) <= tolerance);
            again += fabs(drawn - mean) > 2 * std;
            sum += value / N;
            squares += value * value / N;
        }
        assert_true(fabs((double)again / N - 0.0455) < 0.0035); /* 3 sigma */
        assert_true(fabs(sum) < 0.015 && fabs(sqrt(squares) - 0.8796) < 0.01);
        free(x.data);
        free(plain.data);
    }
    ech_kernel_context_destroy(context);
}

TEST(lanes_draw_the_same_words)
{
    static const uint64_t firsts[] = {0, 5, 0xfffffff9u, UINT64_C(0x123456789abcdef0)};
    const ech_random_key key = {
        .seed = UINT64_C(0xfedcba9876543210), .step = 9, .stream = 1u << 31};
    for (size_t f = 0; f < TRIAL_COUNT(firsts); f++) {
        uint32_t words[4 * ECH_DRAWS], expected[4];
        ech_lane_words(key, firsts[f], words);
        for (uint64_t l = 0; l < ECH_DRAWS; l++) {
            ech_random_words(key, firsts[f] + l, expected);
            assert_memory_equal(&words[4 * l], expected, sizeof expected);
        }
    }
}

/* The integer threshold decides as the comparison of units does, at the edge itself. */
TEST(thresholds_are_exact)
{
    static const double rates[] = {1e-12, 0x1p-33, 0x1p-32, 0.1, 0.25, 1.0 / 3, 0.5, 0.999999999};
    for (size_t r = 0; r < TRIAL_COUNT(rates); r++) {
        int64_t edge = ech_drop_threshold(rates[r]);
        for (int64_t w = edge - 2; w <= edge + 2; w++)
            if (w >= 0 && w <= UINT32_MAX)
                assert_true((ech_random_unit((uint32_t)w) < rates[r]) == (w < edge));
    }
}

/* The distance of an fp32 result from the exact one, in units of the last place there. */
static double ulps(float got, double exact)
{
    int exponent;
    if (isnan(exact) || isinf(got))
        return (double)(isnan(exact) ? !isnan(got) : got != (float)exact);
    frexp(exact, &exponent);
    return fabs((double)got - exact) / ldexp(1, (exponent > -125 ? exponent : -125) - 24);
}

static double exact_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Numbers of all magnitudes, subnormal ones, infinities and NaN. */
TEST(exponentials_are_close)
{
    double worst[3] = {0};
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 4093) {
        float x = ech_float_of_bits((uint32_t)bits);
        worst[0] = fmax(worst[0], ulps(ech_exp(x), exp((double)x)));
        worst[1] = fmax(worst[1], ulps(ech_sigmoid(x), exact_sigmoid((double)x)));
        worst[2] = fmax(worst[2], ulps(ech_tanh(x), tanh((double)x)));
    }
    assert_true(worst[0] < 1.1 && worst[1] < 2.4 && worst[2] < 2);
    assert_true(ech_exp(0) == 1);
    assert_true(ech_exp(-INFINITY) == 0);
    assert_true(isinf(ech_exp(INFINITY)) && isinf(ech_exp(88.8F)) && isinf(ech_exp(FLT_MAX)));
    assert_true(isnan(ech_exp(NAN)) && isnan(ech_tanh(NAN)) && isnan(ech_sigmoid(NAN)));
    assert_true(ech_tanh(INFINITY) == 1 && ech_tanh(-INFINITY) == -1);
    assert_true(ech_sigmoid(-INFINITY) == 0 && ech_sigmoid(INFINITY) == 1);
}
