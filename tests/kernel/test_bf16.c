/* SPDX-License-Identifier: Apache-2.0
 *
 * The rows that the definition has for bf16: each element of a result is the number that fp64 finds from
 * the same inputs, rounded once. The rows that it lacks are NULL.
 */
#include "kernel/places.h"
#include "kernel/trial.h"

enum { R = 7, C = 37 };

static void table_says_what_it_has(void **state)
{
    (void)state;
    static const ech_op has[] = {
#define X(op) ECH_OP_##op,
#include "kernel/ref/bf16.def"
#undef X
    };
    const ech_kernels *half = ech_kernels_ref(ECH_BF16);
    assert_int_equal(half->dtype, ECH_BF16);
    const bool present[ECH_OPS] = {
#define X(op, ...) half->op != NULL,
#include "kernel/kernel.def"
#undef X
    };
    size_t found = 0;
    for (ech_op op = 0; op < ECH_OPS; op++) {
        bool listed = false;
        for (size_t i = 0; i < TRIAL_COUNT(has); i++) listed = listed || has[i] == op;
        assert_true(present[op] == listed);
        found += listed;
    }
    assert_int_equal(found, TRIAL_COUNT(has));
    assert_non_null(half->matmul);
    assert_null(half->adamw);
    assert_null(half->attention_forward);
}

/* ---- calls ---- */

static const ech_dropout fifth = {.p = 0.2, .key = {1, 2, 3}};
static const bool yes = true, no = false;

#define CALL(name, ...)                                                                            \
    static void call_##name(const ech_kernels *kernels, ech_kernel_context *context,               \
                            const ech_tensor *const *t, const void *options)                       \
    {                                                                                              \
        (void)options;                                                                             \
        kernels->name(context, __VA_ARGS__);                                                       \
    }
CALL(bias_backward, t[0], *(const bool *)options, t[1])
CALL(gelu_forward, t[0], t[1])
CALL(gelu_backward, t[0], t[1], t[2])
CALL(swiglu_forward, t[0], t[1], t[2])
CALL(swiglu_backward, t[0], t[1], t[2], t[3], t[4])
CALL(rotary, t[0], (const double[]){1, 0.1, 0.01}, &(ech_rows){.whole = 9, .tokens = 9, .split = 9},
     NULL, false, t[1])
CALL(embedding_forward, t[0], t[1], 2, t[2])
CALL(dropout, t[0], &fifth, &(ech_rows){.whole = R, .tokens = R, .split = R}, t[1])
CALL(position_forward, t[0], t[1], &(ech_rows){.whole = R, .tokens = R, .split = R}, NULL, t[2])
CALL(add, t[0], t[1], t[2])
CALL(copy, t[0], t[1])
CALL(square_sums, t[0], t[1])
CALL(fill, t[0], 0.3)
CALL(fill_normal, t[0], ((ech_random_key){.seed = 5, .stream = 77}), 6, 0.1, 2)

typedef struct flags {
    bool a_transposed, b_transposed, accumulate;
} flags;

static void call_matmul(const ech_kernels *kernels, ech_kernel_context *context,
                        const ech_tensor *const *t, const void *options)
{
    const flags *f = options;
    kernels->matmul(context, t[0], f->a_transposed, t[1], f->b_transposed, t[2],
                    f->accumulate ? t[3] : NULL, t[3]);
}

/* ---- comparison ---- */

/* fp64 begins from the same numbers. */
static void round_inputs(const trial *t, const ech_tensor *views)
{
    for (int i = 0; i < TRIAL_TENSORS; i++) {
        bool is_input = t->tensor[i].role == TRIAL_IN || t->tensor[i].role == TRIAL_IN_OUT;
        if (!is_input || t->tensor[i].is_fixed) continue;
        for (int64_t e = 0, n = ech_tensor_count(&views[i]); e < n; e++) {
            int64_t place = trial_place(&views[i], e);
            double value = trial_get(&views[i], place);
            uint16_t half;
            ech_convert(&value, ECH_F64, &half, ECH_BF16, 1);
            ech_convert(&half, ECH_BF16, &value, ECH_F64, 1);
            trial_set(&views[i], place, value);
        }
    }
}

/* Half a unit in the last of eight places, and nothing but fp64's own rounding above it. */
static void check(const trial *t)
{
    const trial_way way = {.threads = 1, .is_odd = true, .prepare = round_inputs};
    trial_run exact = trial_execute(t, ech_kernels_ref(ECH_F64), way);
    trial_run half = trial_execute(t, ech_kernels_ref(ECH_BF16), way);
    for (int i = 0; i < TRIAL_TENSORS; i++) {
        if (t->tensor[i].role == TRIAL_ABSENT) continue;
        for (int64_t e = 0, n = ech_tensor_count(&exact.view[i]); e < n; e++) {
            double x = half.result[i][e], y = exact.result[i][e];
            double bound = t->tensor[i].is_fixed ? 1e-14 * fabs(y) : 0x1.0001p-8 * fabs(y) + 1e-15;
            if (!(fabs(x - y) <= bound)) trial_differ(t, "bf16 and fp64", i, e, x, y, bound);
        }
    }
    trial_free(&exact);
    trial_free(&half);
}

static void products_are_rounded_once(void **state)
{
    (void)state;
    enum { M = 9, N = 17, K = 130 };
    for (int bits = 0; bits < 32; bits++) {
        flags f = {bits & 1, bits & 2, bits & 4};
        int64_t gap = bits & 16 ? 3 : 0;
        trial t = {
            .name = "product",
            .op = ECH_OP_matmul,
            .call = call_matmul,
            .options = &f,
            .dims = {M, N, K, f.a_transposed, f.b_transposed, bits & 8, f.accumulate},
            .tensor = {
                TRIAL_INPUT(TRIAL_2D(f.a_transposed ? K : M, f.a_transposed ? M : K), .gap = gap),
                TRIAL_INPUT(TRIAL_2D(f.b_transposed ? N : K, f.b_transposed ? K : N), .gap = gap),
                TRIAL_INPUT(TRIAL_1D(N)), TRIAL_RESULT(TRIAL_2D(M, N), .gap = gap)}};
        if (!(bits & 8)) t.tensor[2] = (trial_tensor){0};
        if (f.accumulate) t.tensor[3] = (trial_tensor)TRIAL_CHANGED(TRIAL_2D(M, N), .gap = gap);
        check(&t);
    }
}

static void rows_are_rounded_once(void **state)
{
    (void)state;
    const trial_tensor x = TRIAL_INPUT(TRIAL_2D(R, C)), y = TRIAL_RESULT(TRIAL_2D(R, C));
    const trial_tensor ids = {
        .role = TRIAL_IN, TRIAL_1D(R), .high = 9, .is_fixed = true, .dtype = ECH_I32};
    const trial_tensor heads = TRIAL_INPUT(TRIAL_4D(2, 9, 3, 6), .gap = 5);
    const trial_tensor turned = TRIAL_RESULT(TRIAL_4D(2, 9, 3, 6), .gap = 2);
    const trial_tensor sums = TRIAL_RESULT(TRIAL_1D(1), .is_fixed = true, .dtype = ECH_F64);
#define ROW(row, ...)                                                                              \
    {                                                                                              \
        .name = "rounding", .op = ECH_OP_##row, .call = call_##row, .options = &no,                \
        .dims = {R, C}, .tensor = {                                                                \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
    const trial trials[] = {
        ROW(bias_backward, x, TRIAL_RESULT(TRIAL_1D(C))),
        ROW(gelu_forward, x, y),
        ROW(gelu_backward, x, x, y),
        ROW(swiglu_forward, x, x, y),
        ROW(swiglu_backward, x, x, x, y, y),
        ROW(rotary, heads, turned),
        ROW(embedding_forward, TRIAL_INPUT(TRIAL_2D(4, C)), ids, y),
        ROW(position_forward, x, x, y),
        ROW(dropout, x, y),
        ROW(add, x, x, y),
        ROW(copy, heads, turned),
        ROW(square_sums, x, sums),
        ROW(fill, y),
        ROW(fill_normal, y),
    };
#undef ROW
    for (size_t i = 0; i < TRIAL_COUNT(trials); i++) check(&trials[i]);
    trial added = trials[0];
    added.options = &yes;
    added.tensor[1] = (trial_tensor)TRIAL_CHANGED(TRIAL_1D(C));
    check(&added);
}

/* 1 + 2^-8 lies between two neighbours, of which the even one is 1; 3 · 2^-8 above 1 the upper one is. */
static void ties_go_to_the_even(void **state)
{
    (void)state;
    static const double sum[][2] = {{0x1p-8, 1}, {0x3p-8, 1 + 0x1p-6}, {0x1.02p-8, 1 + 0x1p-7}};
    for (size_t i = 0; i < TRIAL_COUNT(sum); i++) {
        uint16_t x[3] = {0};
        ech_tensor a = ech_tensor_1d(&x[0], ECH_BF16, 1), b = ech_tensor_1d(&x[1], ECH_BF16, 1);
        ech_tensor y = ech_tensor_1d(&x[2], ECH_BF16, 1);
        ech_kernel_context *context;
        assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
        trial_set(&a, 0, 1);
        trial_set(&b, 0, sum[i][0]);
        ech_kernels_ref(ECH_BF16)->add(context, &a, &b, &y);
        ech_kernel_context_destroy(context);
        assert_true(trial_get(&y, 0) == sum[i][1]);
    }
}

static void bad_numbers_are_found(void **state)
{
    (void)state;
    uint16_t memory[C];
    ech_tensor x = ech_tensor_1d(memory, ECH_BF16, C);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int64_t i = 0; i < C; i++) trial_set(&x, i, i % 2 ? 3e38 : 1e-40);
    int64_t first = 5;
    ech_kernels_ref(ECH_BF16)->find_nonfinite(context, &x, &first);
    assert_int_equal(first, -1);
    trial_set(&x, 30, (double)NAN);
    ech_kernels_ref(ECH_BF16)->find_nonfinite(context, &x, &first);
    assert_int_equal(first, 30);
    trial_set(&x, 11, -(double)INFINITY);
    ech_kernels_ref(ECH_BF16)->find_nonfinite(context, &x, &first);
    assert_int_equal(first, 11);
    ech_kernel_context_destroy(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_says_what_it_has), cmocka_unit_test(products_are_rounded_once),
        cmocka_unit_test(rows_are_rounded_once),  cmocka_unit_test(ties_go_to_the_even),
        cmocka_unit_test(bad_numbers_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
