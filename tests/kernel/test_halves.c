/* SPDX-License-Identifier: Apache-2.0
 *
 * Every row of the definition in bf16 and fp16: each element of a result is the number that fp64
 * finds from the same inputs, rounded once, in every combination of tensors that are real or wide.
 */
#include "kernel/places.h"
#include "kernel/trial.h"

enum { R = 7, C = 37, B = 2, T = 9, H = 4, G = 2, D = 6 };

static const ech_dtype halves[] = {ECH_BF16, ECH_F16};

/* ---- calls ---- */

static const ech_dropout fifth = {.p = 0.2, .key = {1, 2, 3}};
static const ech_rows rows = {.whole = R, .tokens = R, .split = R};
static const ech_rows tokens = {.whole = T, .tokens = T, .split = T};
static const ech_attention_shard at = {.query = {.whole = T, .tokens = T, .split = T},
                                       .key = {.whole = T, .tokens = T, .split = T},
                                       .heads = H};
static double whole_number = 1;
static const ech_tensor whole = {.data = &whole_number, .dtype = ECH_F64};
static const ech_update update = {.learning_rate = 0.01,
                                  .weight_decay = 0.1,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .momentum = 0.8,
                                  .nesterov = true,
                                  .count = 51,
                                  .grad_scale = 0.7};
static const bool yes = true, no = false;

#define CALL(name, ...)                                                                            \
    static void call_##name(const ech_kernels *kernels, ech_kernel_context *context,               \
                            const ech_tensor *const *t, const void *options)                       \
    {                                                                                              \
        const bool flag = *(const bool *)options;                                                  \
        (void)flag;                                                                                \
        kernels->name(context, __VA_ARGS__);                                                       \
    }
CALL(bias_backward, t[0], flag, t[1])
CALL(layernorm_forward, t[0], t[1], t[2], 1e-5, t[3], t[4], t[5])
CALL(layernorm_backward, t[0], t[1], t[2], t[3], t[4], t[5], t[6], flag, t[7], t[8])
CALL(rmsnorm_forward, t[0], t[1], t[2], 0, 1e-5, t[3], t[4])
CALL(rmsnorm_backward, t[0], t[1], t[2], 0, t[3], t[4], t[5], t[6], flag, t[7])
CALL(squares_forward, t[0], 0.3, t[1])
CALL(squares_backward, t[0], t[1], 0.3, t[2], t[3])
#define CALLS_1(name) CALL(name##_forward, t[0], t[1]) CALL(name##_backward, t[0], t[1], t[2])
#define CALLS_2(name)                                                                              \
    CALL(name##_forward, t[0], t[1], t[2]) CALL(name##_backward, t[0], t[1], t[2], t[3], t[4])
#define CALLS(NAME, name, operands, ...) CALLS_##operands(name)
ECH_ACTIVATIONS(CALLS)
/* Rows of activations that other tests have. */
#define ELSEWHERE_1(name) [ECH_OP_matmul_##name] = true, [ECH_OP_##name##_backward_bias] = true,
#define ELSEWHERE_2(name)
#define ELSEWHERE(NAME, name, operands, ...)                                                       \
    ELSEWHERE_##operands(name)[ECH_OP_grouped_##name##_forward] = true,                            \
    [ECH_OP_grouped_##name##_backward] = true,
CALL(rotary, t[0], (const double[]){1, 0.1, 0.01}, t[0]->shape[3] / 2 * 2, flag, 1.3, &tokens, NULL,
     false, t[1])
CALL(attention_forward, t[0], t[1], t[2], &place_rule, &at, NULL, &fifth, flag, t[3], t[4])
CALL(attention_backward, t[0], t[1], t[2], t[3], t[4], t[5], &place_rule, &at, NULL, &fifth, flag,
     flag, t[6], t[7], t[8])
CALL(sinks_forward, t[0], t[1], t[2])
CALL(sinks_backward, t[0], t[1], t[2], t[3], flag, t[4])
CALL(embedding_forward, t[0], t[1], 2, t[2])
CALL(embedding_backward, t[0], t[1], 2, flag, t[2])
CALL(position_forward, t[0], t[1], &rows, NULL, t[2])
CALL(position_backward, t[0], &rows, NULL, flag, t[1])
CALL(dropout, t[0], &fifth, &rows, t[1])
CALL(add, t[0], t[1], t[2])
CALL(subtract, t[0], t[1], t[2])
CALL(scale, t[0], 0.7, flag ? 3 : 0, t[1])
CALL(copy, t[0], t[1])
CALL(sum_heads, t[0], t[1])
CALL(append, t[0], &tokens, t[1])
CALL(loss_statistics, t[0], t[1], 3, t[2])
CALL(loss_gradient, t[0], t[1], t[2], 3, t[3], t[4], 0.7, 4, flag ? t[5] : NULL, t[6])
CALL(smooth_statistics, t[0], 0.1, t[1])
CALL(smooth_gradient, t[0], t[1], t[2], 0.1, t[3])
CALL(adamw, t[0], t[1], t[2], t[3], &update, NULL)
CALL(sgd, t[0], t[1], t[2], &update, NULL)
CALL(sgd_shared, t[0], t[1], &update)
CALL(copy_shared, t[0], t[1])
CALL(relay_shared, t[0], t[1], t[2], 0.6, 0.4, 1, 0, 0)
CALL(adafactor_sums, t[0], t[1], &update, t[2], t[3], t[4])
CALL(adafactor_factors, t[0], &update, t[1], t[2], t[3])
CALL(adafactor_squares, t[0], t[1], t[2], &update, t[3])
CALL(adafactor, t[0], t[1], t[2], t[3], t[4], &whole, &whole, &whole, 1, &update, NULL)
CALL(sm3_maxima, t[0], t[1], t[2], &update, t[3], t[4])
CALL(sm3, t[0], t[1], t[2], t[3], t[4], t[5], t[6], &update, NULL)
CALL(scaled_sum, t[0], 0.7, flag ? 0.3 : 0, 0.1, NULL, NULL, t[1])
CALL(square_sums, t[0], t[1])
CALL(find_nonfinite, t[0], t[1])
CALL(fill_normal, t[0], ((ech_random_key){.seed = 5, .stream = 77}), 6, 0.1, 2)
CALL(fill_truncated, t[0], ((ech_random_key){.seed = 5, .stream = 77}), 6, 0.1, 2)
CALL(fill_uniform, t[0], ((ech_random_key){.seed = 5, .stream = 77}), 6, -0.1, 2)
CALL(fill, t[0], 0.3)

typedef struct flags {
    bool a_transposed, b_transposed, accumulate;
} flags;

TRIAL_CALL_WITH(flags, matmul, t[0], o->a_transposed, t[1], o->b_transposed, t[2],
                o->accumulate ? t[3] : NULL, t[3])

/* ---- comparison ---- */

static ech_dtype half_now;

/* Inputs are numbers that the type of 16 bits has, also those that are wide. */
static void round_inputs(const trial *t, const ech_tensor *views)
{
    for (int i = 0; i < TRIAL_TENSORS; i++) {
        bool is_input = t->tensor[i].role == TRIAL_IN || t->tensor[i].role == TRIAL_IN_OUT;
        if (!is_input || t->tensor[i].type == TRIAL_FIXED) continue;
        for (int64_t e = 0, n = ech_tensor_count(&views[i]); e < n; e++) {
            int64_t place = trial_place(&views[i], e);
            double value = trial_get(&views[i], place);
            uint16_t half;
            ech_convert(&value, ECH_F64, &half, half_now, 1);
            ech_convert(&half, half_now, &value, ECH_F64, 1);
            trial_set(&views[i], place, value);
        }
    }
}

/* Half a unit, and fp64's own rounding by the largest of the tensor, that of fp32 where it is wide,
 * or the tolerance of what is computed from rounded numbers. */
static void check_combination(const trial *t, const trial_run *exact, trial_way way)
{
    char what[80];
    trial_run run = trial_execute(t, ech_kernels_ref(half_now), way);
    snprintf(what, sizeof what, "%s (wide %x) and fp64", ech_dtype_name(half_now), way.wide);
    for (int i = 0; i < TRIAL_TENSORS; i++) {
        if (t->tensor[i].role == TRIAL_ABSENT) continue;
        int64_t n = ech_tensor_count(&run.view[i]);
        double own = run.view[i].dtype == ECH_F32 ? 0x1p-24 : 1e-13;
        own = t->tolerance > 0 ? t->tolerance : own;
        own *= largest(n, exact->result[i], 1e-3);
        for (int64_t e = 0; e < n; e++) {
            double x = run.result[i][e], y = exact->result[i][e];
            double bound = trial_unit(y, run.view[i].dtype) / 2 + own;
            if (!(fabs(x - y) <= bound)) trial_differ(t, what, i, e, x, y, bound);
        }
    }
    trial_free(&run);
}

static void check(const trial *t)
{
    for (size_t h = 0; h < TRIAL_COUNT(halves); h++) {
        trial_way way = {.threads = 1, .is_odd = true, .prepare = round_inputs};
        unsigned either = 0;
        for (int i = 0; i < TRIAL_TENSORS; i++)
            if (t->tensor[i].role != TRIAL_ABSENT && t->tensor[i].type == TRIAL_EITHER)
                either |= 1U << i;
        half_now = halves[h];
        trial_run exact = trial_execute(t, ech_kernels_ref(ECH_F64), way);
        do { /* every subset of `either` */
            check_combination(t, &exact, way);
            way.wide = (way.wide - either) & either;
        } while (way.wide);
        trial_free(&exact);
    }
}

/* ---- rows ---- */

TEST(products_are_rounded_once)
{
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
                TRIAL_INPUT(TRIAL_1D(N), .type = TRIAL_WIDE),
                TRIAL_RESULT(TRIAL_2D(M, N), .gap = gap, .type = TRIAL_EITHER)}};
        if (!(bits & 8)) t.tensor[2] = (trial_tensor){0};
        if (f.accumulate) t.tensor[3].role = TRIAL_IN_OUT;
        if (f.accumulate) t.tensor[3].low = -1;
        check(&t);
    }
}

static trial_tensor typed(trial_tensor x, trial_type type)
{
    x.type = type;
    return x;
}

TEST(rows_are_rounded_once)
{
    /* Products are above. Scalars are fp64, and gates have no tensors of 16 bits. These files test
     * other rows: tests/optim/test_adamw8.c states of 8 bits, test_parts.c reductions,
     * test_composed.c composed rows, test_orthogonalize.c and test_choose.c rows that are only
     * wide, test_experts.c and test_grouped.c experts, test_logistic.c logistic regression,
     * test_codes.c codes, and test_update.c listed rows. Rows of images have no fast version in 16
     * bits. */
    bool seen[ECH_OPS] = {ECH_ACTIVATIONS(ELSEWHERE)[ECH_OP_matmul] = true,
                          [ECH_OP_row_gate_forward] = true,
                          [ECH_OP_add_bias] = true,
                          [ECH_OP_row_gate_backward] = true,
                          [ECH_OP_sparse_logits] = true,
                          [ECH_OP_sparse_logits_backward] = true,
                          [ECH_OP_logistic_loss] = true,
                          [ECH_OP_logistic_loss_backward] = true,
                          [ECH_OP_adamw8] = true,
                          [ECH_OP_total] = true,
                          [ECH_OP_loss_combine] = true,
                          [ECH_OP_orthogonalize] = true,
                          [ECH_OP_clear_columns] = true,
                          [ECH_OP_count_columns] = true,
                          [ECH_OP_choose] = true,
                          [ECH_OP_encode_bits] = true,
                          [ECH_OP_decode_bits] = true,
                          [ECH_OP_encode_sparse] = true,
                          [ECH_OP_decode_sparse] = true,
                          [ECH_OP_encode_places] = true,
                          [ECH_OP_decode_places] = true,
                          [ECH_OP_encode_narrow] = true,
                          [ECH_OP_decode_narrow] = true,
                          [ECH_OP_add_chosen] = true,
                          [ECH_OP_sgd_shared_rows] = true,
                          [ECH_OP_copy_shared_rows] = true,
                          [ECH_OP_square_sums_rows] = true,
                          [ECH_OP_hash] = true,
                          [ECH_OP_hash_parts] = true,
                          [ECH_OP_fold] = true,
                          [ECH_OP_add_parts] = true,
                          [ECH_OP_convert] = true,
                          [ECH_OP_clip] = true,
                          [ECH_OP_add_layernorm] = true,
                          [ECH_OP_add_rmsnorm] = true,
                          [ECH_OP_gate_forward] = true,
                          [ECH_OP_gate_backward] = true,
                          [ECH_OP_gate_load] = true,
                          [ECH_OP_gate_balance] = true,
                          [ECH_OP_router_forward] = true,
                          [ECH_OP_router_backward_input] = true,
                          [ECH_OP_router_backward_weight] = true,
                          [ECH_OP_route] = true,
                          [ECH_OP_slice_counts] = true,
                          [ECH_OP_dispatch_forward] = true,
                          [ECH_OP_dispatch_backward] = true,
                          [ECH_OP_dispatch_index] = true,
                          [ECH_OP_combine_forward] = true,
                          [ECH_OP_combine_backward] = true,
                          [ECH_OP_grouped_matmul] = true,
                          [ECH_OP_grouped_matmul_weight] = true,
                          [ECH_OP_grouped_bias] = true,
                          [ECH_OP_grouped_bias_backward] = true,
                          [ECH_OP_grouped_dropout] = true};
    const trial_tensor x = TRIAL_INPUT(TRIAL_2D(R, C)), y = TRIAL_RESULT(TRIAL_2D(R, C));
    const trial_tensor ex = typed(x, TRIAL_EITHER), ey = typed(y, TRIAL_EITHER);
    const trial_tensor esum = TRIAL_CHANGED(TRIAL_1D(C), .type = TRIAL_EITHER);
    const trial_tensor column = TRIAL_INPUT(TRIAL_1D(C), .type = TRIAL_WIDE);
    const trial_tensor row = TRIAL_RESULT(TRIAL_1D(R), .type = TRIAL_WIDE);
    const trial_tensor kept = {
        .role = TRIAL_IN, .low = 0.5, .high = 2, TRIAL_1D(R), .type = TRIAL_WIDE};
    const trial_tensor ids = {
        .role = TRIAL_IN, TRIAL_1D(R), .high = 9, .type = TRIAL_FIXED, .dtype = ECH_I32};
    const trial_tensor table = TRIAL_CHANGED(TRIAL_2D(4, C), .type = TRIAL_EITHER);
    const trial_tensor positions = TRIAL_CHANGED(TRIAL_2D(R + 2, C), .type = TRIAL_EITHER);
    const trial_tensor q = TRIAL_INPUT(TRIAL_4D(B, T, H, D), .gap = 5);
    const trial_tensor k = TRIAL_INPUT(TRIAL_4D(B, T, G, D), .gap = 5);
    const trial_tensor packed = TRIAL_INPUT(TRIAL_4D(B, T, H, D));
    const trial_tensor out = TRIAL_CHANGED(TRIAL_4D(B, T, H, D), .type = TRIAL_EITHER);
    const trial_tensor turned = TRIAL_RESULT(TRIAL_4D(B, T, H, D), .gap = 2);
    const trial_tensor dk = TRIAL_CHANGED(TRIAL_4D(B, T, G, D), .gap = 3, .type = TRIAL_EITHER);
    const trial_tensor lse = {
        .role = TRIAL_IN_OUT, .low = 1, .high = 3, TRIAL_3D(B, H, T), .type = TRIAL_WIDE};
    const trial_tensor sinks = TRIAL_INPUT(TRIAL_1D(H), .type = TRIAL_WIDE);
    const trial_tensor dsinks = TRIAL_CHANGED(TRIAL_1D(H), .type = TRIAL_EITHER);
    const trial_tensor made = TRIAL_RESULT(TRIAL_4D(B, T, H, D), .type = TRIAL_EITHER);
    const trial_tensor heads = TRIAL_RESULT(TRIAL_3D(B, H, T), .type = TRIAL_WIDE);
    const trial_tensor eout = TRIAL_INPUT(TRIAL_4D(B, T, H, D), .type = TRIAL_EITHER);
    trial_tensor known = lse;
    known.role = TRIAL_IN;
#define FP64 .low = 1, .high = 3, .type = TRIAL_FIXED, .dtype = ECH_F64
    const trial_tensor number = {.role = TRIAL_OUT, TRIAL_1D(1), FP64};
    const trial_tensor scale = {.role = TRIAL_IN, TRIAL_1D(1), FP64};
    const trial_tensor total = {.role = TRIAL_IN_OUT, TRIAL_1D(ECH_LOSS_SUMS), FP64};
    const trial_tensor stats = {.role = TRIAL_IN, TRIAL_2D(R, ECH_LOSS_STATS), FP64};
    const trial_tensor found = {.role = TRIAL_OUT, TRIAL_2D(R, ECH_LOSS_STATS), FP64};
    const trial_tensor known_stats = {.role = TRIAL_IN_OUT, TRIAL_2D(R, ECH_LOSS_STATS), FP64};
    const trial_tensor row_sums = {.role = TRIAL_OUT, TRIAL_1D(R), FP64};
    const trial_tensor column_sums = {.role = TRIAL_OUT, TRIAL_1D(C), FP64};
    const trial_tensor known_sums = {.role = TRIAL_IN, TRIAL_1D(C), FP64};
    const trial_tensor scalar = {.role = TRIAL_OUT, FP64};
    const trial_tensor means = {
        .role = TRIAL_IN_OUT, .low = 0.5, .high = 2, TRIAL_1D(C), .type = TRIAL_WIDE};
    const trial_tensor factors = TRIAL_RESULT(TRIAL_1D(C), .type = TRIAL_WIDE);
    const trial_tensor known_rows = {.role = TRIAL_IN, TRIAL_1D(R), FP64};
    trial_tensor row_state = kept;
    row_state.role = TRIAL_IN_OUT;
#undef FP64
    trial_tensor weights = ids;
    weights.dtype = ECH_F32;
    const trial_tensor w = TRIAL_CHANGED(TRIAL_2D(R, C), .type = TRIAL_WIDE);
    trial_tensor v = w;
    v.low = 0.01;
    const trial_tensor none = {0};
#define ROW(row, flag, ...)                                                                        \
    {                                                                                              \
        .name = "rounding", .op = ECH_OP_##row, .call = call_##row, .options = &(flag),            \
        .dims = {R, C}, .tensor = {                                                                \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
    trial trials[] = {
        ROW(bias_backward, no, ex, TRIAL_RESULT(TRIAL_1D(C), .type = TRIAL_EITHER)),
        ROW(bias_backward, yes, ex, esum),
        ROW(layernorm_forward, no, ex, column, column, y, row, row),
        ROW(layernorm_backward, yes, x, ex, column, kept, kept, ex, ey, esum, esum),
        ROW(rmsnorm_forward, no, ex, none, column, y, row),
        ROW(rmsnorm_forward, no, ex, kept, column, y, row),
        ROW(rmsnorm_backward, yes, x, ex, column, kept, ex, ey, none, esum),
        ROW(rmsnorm_backward, yes, x, ex, column, kept, ex, ey, row, esum),
        ROW(squares_forward, no, ex, row),
        ROW(squares_backward, no, kept, ex, ex, ey),
#define ROWS_1(name)                                                                               \
    ROW(name##_forward, no, x, y), ROW(name##_backward, no, x, x, y),
#define ROWS_2(name)                                                                               \
    ROW(name##_forward, no, x, x, y), ROW(name##_backward, no, x, x, x, y, y),
#define ROWS(NAME, name, operands, ...) ROWS_##operands(name)
        ECH_ACTIVATIONS(ROWS) ROW(rotary, no, q, turned),
        ROW(rotary, yes, q, turned),
        ROW(attention_forward, no, q, k, k, typed(out, TRIAL_REAL), lse),
        ROW(attention_forward, yes, q, k, k, out, lse),
        ROW(attention_backward, no, packed, q, k, k, out, lse, out, dk, dk),
        ROW(attention_backward, yes, packed, q, k, k, out, lse, out, dk, dk),
        ROW(sinks_forward, no, sinks, made, heads),
        ROW(sinks_backward, no, packed, eout, known, sinks, dsinks),
        ROW(sinks_backward, yes, packed, eout, known, sinks, dsinks),
        ROW(embedding_forward, no, TRIAL_INPUT(TRIAL_2D(4, C)), ids, ey),
        ROW(embedding_backward, no, ex, ids, table),
        ROW(embedding_backward, yes, ex, ids, table),
        ROW(position_forward, no, ex, x, ey),
        ROW(position_backward, no, ex, positions),
        ROW(position_backward, yes, ex, positions),
        ROW(dropout, no, ex, ey),
        ROW(add, no, ex, ex, ey),
        ROW(subtract, no, ex, ex, ey),
        ROW(scale, no, ex, ey),
        ROW(scale, yes, ex, ey),
        ROW(copy, no, typed(q, TRIAL_EITHER), typed(turned, TRIAL_EITHER)),
        ROW(sum_heads, no, typed(q, TRIAL_EITHER),
            TRIAL_RESULT(TRIAL_3D(B, T, D), .type = TRIAL_EITHER)),
        ROW(append, no, typed(q, TRIAL_EITHER), typed(turned, TRIAL_EITHER)),
        ROW(loss_statistics, no, ex, ids, found),
        ROW(loss_gradient, no, ex, ids, weights, stats, scale, {0}, total),
        ROW(loss_gradient, yes, ex, ids, weights, stats, scale, y, total),
        ROW(smooth_statistics, no, ex, known_stats),
        ROW(smooth_gradient, no, ids, weights, scale, TRIAL_CHANGED(TRIAL_2D(R, C))),
        ROW(adamw, no, w, ex, w, v),
        ROW(sgd, no, w, ex, w),
        ROW(sgd_shared, no, w, ex),
        ROW(copy_shared, no, typed(x, TRIAL_WIDE), typed(y, TRIAL_WIDE)),
        ROW(relay_shared, no, w, w, w),
        ROW(adafactor_sums, no, typed(x, TRIAL_WIDE), ex, row_sums, column_sums, scalar),
        ROW(adafactor_factors, no, known_sums, means, factors, scalar),
        ROW(adafactor_squares, no, ex, kept, column, scalar),
        ROW(adafactor, no, w, ex, kept, column, w),
        ROW(sm3_maxima, no, ex, kept, column, row_sums, column_sums),
        ROW(sm3, no, w, ex, row_state, means, known_rows, known_sums, w),
        ROW(scaled_sum, no, ex, typed(y, TRIAL_WIDE)),
        ROW(scaled_sum, yes, ex, w),
        ROW(square_sums, no, ex, number),
        ROW(find_nonfinite, no, ex, scalar),
        ROW(fill_normal, no, ey),
        ROW(fill_truncated, no, ey),
        ROW(fill_uniform, no, ey),
        ROW(fill, no, ey),
    };
#undef ROW
    for (size_t i = 0; i < TRIAL_COUNT(trials); i++) {
        trial *t = &trials[i];
        int64_t attention[] = {B, T, T, H, G, D, D};
        bool attends = t->op == ECH_OP_attention_forward || t->op == ECH_OP_attention_backward;
        if (attends) memcpy(t->dims, attention, sizeof attention);
        if (t->op == ECH_OP_adafactor_factors) t->tolerance = 2e-7;
        check(t);
        seen[t->op] = true;
    }
    /* rows of images, which tests of their own compare */
    seen[ECH_OP_class_hits] = true;
    for (ech_op op = ECH_OP_conv2d_forward; op <= ECH_OP_batch_norm_commit; op++) seen[op] = true;
    for (ech_op op = 0; op < ECH_OPS; op++) /* `user` computes nothing itself */
        assert_true(seen[op] || op == ECH_OP_user);
}

/* The copies of the parameters are those that are kept, rounded; nothing else changes by making
 * them. */
TEST(copies_are_the_parameters_rounded)
{
    enum { N = 100 };
    float memory[2][3][N], grad[N];
    uint16_t rounded[N], expected[N];
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int way = 0; way < 4; way++) {
        ech_dtype half = halves[way % 2];
        const ech_kernels *kernels = ech_kernels_ref(half);
        const ech_tensor copy = ech_tensor_1d(rounded, half, N);
        const ech_tensor g = ech_tensor_1d(grad, ECH_F32, N);
        for (int i = 0; i < N; i++) {
            for (int k = 0; k < 3; k++)
                memory[0][k][i] = memory[1][k][i] = (float)value_at((uint32_t)k, i, 0.1, 1);
            grad[i] = (float)value_at(3, i, -1, 1);
            rounded[i] = 0x7f7f;
        }
        for (int run = 0; run < 2; run++) {
            ech_tensor x[3];
            for (int k = 0; k < 3; k++) x[k] = ech_tensor_1d(memory[run][k], ECH_F32, N);
            if (way / 2)
                kernels->sgd(context, &x[0], &g, &x[1], &update, run ? &copy : NULL);
            else
                kernels->adamw(context, &x[0], &g, &x[1], &x[2], &update, run ? &copy : NULL);
        }
        ech_convert(memory[1][0], ECH_F32, expected, half, N);
        assert_memory_equal(memory[0], memory[1], sizeof *memory);
        assert_memory_equal(rounded, expected, sizeof expected);
    }
    ech_kernel_context_destroy(context);
}

/* The gradient of each row of wide logits may replace it, in the first half of its memory. */
TEST(gradients_replace_logits)
{
    double known[R * ECH_LOSS_STATS], one = 0.5, sum[2][2] = {{0}};
    int32_t ids[R];
    float logits[2][R * C], weight[R];
    uint16_t apart[R * C];
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    const ech_tensor targets = ech_tensor_1d(ids, ECH_I32, R);
    const ech_tensor weights = ech_tensor_1d(weight, ECH_F32, R);
    const ech_tensor stats = ech_tensor_2d(known, ECH_F64, R, ECH_LOSS_STATS);
    const ech_tensor scale = ech_tensor_1d(&one, ECH_F64, 1);
    for (size_t h = 0; h < TRIAL_COUNT(halves); h++) {
        const ech_kernels *kernels = ech_kernels_ref(halves[h]);
        for (int i = 0; i < R * C; i++) logits[0][i] = logits[1][i] = (float)value_at(1, i, -3, 3);
        for (int r = 0; r < R; r++) {
            ids[r] = 5 * r;
            weight[r] = (float)(r % 3);
        }
        for (int run = 0; run < 2; run++) {
            const ech_tensor x = ech_tensor_2d(logits[run], ECH_F32, R, C);
            ech_tensor gradient = ech_tensor_2d(apart, halves[h], R, C);
            const ech_tensor sums = ech_tensor_1d(sum[run], ECH_F64, ECH_LOSS_SUMS);
            if (run) gradient.data = x.data;
            if (run) gradient.stride[0] *= 2;
            kernels->loss_statistics(context, &x, &targets, 0, &stats);
            kernels->loss_gradient(context, &x, &targets, &weights, 0, &stats, &scale, 1, 0,
                                   &gradient, &sums);
        }
        for (int r = 0; r < R; r++)
            assert_memory_equal((const uint16_t *)logits[1] + 2 * r * C, apart + r * C,
                                C * sizeof *apart);
        assert_true(apart[C + 5] != 0 && sum[0][0] == sum[1][0]);
    }
    ech_kernel_context_destroy(context);
}

/* 1 + half a unit lies between two neighbours, of which the even one is 1; 1 and a half units above
 * it the upper one is; a little more than half a unit is rounded up. */
TEST(ties_go_to_the_even)
{
    static const double unit[] = {0x1p-7, 0x1p-10}, more[] = {0x1.02p-8, 0x1.01p-11};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (size_t h = 0; h < TRIAL_COUNT(halves); h++) {
        const double sum[][2] = {
            {unit[h] / 2, 1}, {unit[h] * 1.5, 1 + 2 * unit[h]}, {more[h], 1 + unit[h]}};
        for (size_t i = 0; i < TRIAL_COUNT(sum); i++) {
            uint16_t x[3] = {0};
            ech_tensor a = ech_tensor_1d(&x[0], halves[h], 1), b = a, y = a;
            b.data = &x[1];
            y.data = &x[2];
            trial_set(&a, 0, 1);
            trial_set(&b, 0, sum[i][0]);
            ech_kernels_ref(halves[h])->add(context, &a, &b, &y);
            assert_true(trial_get(&y, 0) == sum[i][1]);
        }
    }
    ech_kernel_context_destroy(context);
}

TEST(bad_numbers_are_found)
{
    uint16_t memory[C];
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (size_t h = 0; h < TRIAL_COUNT(halves); h++) {
        ech_tensor x = ech_tensor_1d(memory, halves[h], C);
        const ech_kernels *kernels = ech_kernels_ref(halves[h]);
        double first = 5;
        const ech_tensor found = ech_tensor_view(&first, ECH_F64, 0, NULL);
        for (int64_t i = 0; i < C; i++) trial_set(&x, i, i % 2 ? 65504 : 6e-8);
        kernels->find_nonfinite(context, &x, &found);
        assert_int_equal((int)first, -1);
        trial_set(&x, 30, (double)NAN);
        kernels->find_nonfinite(context, &x, &found);
        assert_int_equal((int)first, 30);
        trial_set(&x, 11, -(double)INFINITY);
        kernels->find_nonfinite(context, &x, &found);
        assert_int_equal((int)first, 11);
    }
    ech_kernel_context_destroy(context);
}
