/* SPDX-License-Identifier: Apache-2.0
 *
 * Products, activations and dropout of rows by expert, in buffers of splits: experts without rows,
 * all rows to one, odd shapes. Rows after the counts are NaN before each call and untouched after
 * it.
 */
#include "kernel/trial.h"

enum { MOST_COUNTS = 32 };
/* The distance between the numbers of choices, which do not fit into 32 bits. */
static const int64_t distance = 987654321987;
static const ech_dropout drawn = {.p = 0.4, .key = {.seed = 11, .step = 4, .stream = 9}}, none;

/* Counts (P,X), and whether a call accumulates or takes b transposed. */
typedef struct group {
    int64_t P, X, Q;
    int32_t counts[MOST_COUNTS];
    bool transposed, accumulate;
    int64_t first, whole; /* of dropout's columns */
    unsigned buffers; /* bit i: tensor i is a buffer */
} group;

static bool is_used(const group *g, int64_t row)
{
    int64_t used = 0;
    for (int64_t i = 0; i < g->X; i++) used += g->counts[row / g->Q * g->X + i];
    return row % g->Q < used;
}

/* Makes unused rows NaN; or, after the call, checks that they are, and makes them 0, since NaN have
 * no size. */
static void poison(const group *g, const ech_tensor *const *t, bool after)
{
    for (int i = 0; i < TRIAL_TENSORS; i++) {
        if (!(g->buffers >> i & 1)) continue;
        int64_t width = t[i]->shape[1];
        for (int64_t e = 0; e < ech_tensor_count(t[i]); e++) {
            if (is_used(g, e / width)) continue;
            if (after) assert_true(isnan(trial_get(t[i], e)));
            trial_set(t[i], e, after ? 0 : (double)NAN);
        }
    }
}

/* The counts of a call: tensor `at` of all. */
static void put_counts(const group *g, const ech_tensor *counts)
{
    for (int64_t i = 0; i < g->P * g->X; i++) ((int32_t *)counts->data)[i] = g->counts[i];
}

#define CALL(op, counts, ...)                                                                      \
    static void call_##op(const ech_kernels *kernels, ech_kernel_context *context,                 \
                          const ech_tensor *const *t, const void *options)                         \
    {                                                                                              \
        const group *g = options;                                                                  \
        put_counts(g, counts);                                                                     \
        poison(g, t, false);                                                                       \
        kernels->grouped_##op(context, __VA_ARGS__);                                               \
        poison(g, t, true);                                                                        \
    }
CALL(matmul, t[2], t[0], t[1], g->transposed, t[2], g->accumulate, t[3])
CALL(matmul_weight, t[2], t[0], t[1], t[2], g->accumulate, t[3])
CALL(bias, t[1], t[0], t[1], t[2])
CALL(bias_backward, t[1], t[0], t[1], g->accumulate, t[2])
#define CALLS_1(name)                                                                              \
    CALL(name##_forward, t[1], t[0], t[1], t[2])                                                   \
    CALL(name##_backward, t[2], t[0], t[1], t[2], t[3])
#define CALLS_2(name)                                                                              \
    CALL(name##_forward, t[2], t[0], t[1], t[2], t[3])                                             \
    CALL(name##_backward, t[3], t[0], t[1], t[2], t[3], t[4], t[5])
#define CALLS(NAME, name, operands, ...) CALLS_##operands(name)
ECH_ACTIVATIONS(CALLS)

/* The counts, and the number of each used row's choice. */
static void call_dropout(const ech_kernels *kernels, ech_kernel_context *context,
                         const ech_tensor *const *t, const void *options)
{
    const group *g = options;
    put_counts(g, t[2]);
    for (int64_t r = 0; r < g->P * g->Q; r++) {
        int64_t number = is_used(g, r) ? r * distance : -1;
        ((int32_t *)t[1]->data)[2 * r] = (int32_t)(uint32_t)number;
        ((int32_t *)t[1]->data)[2 * r + 1] = (int32_t)(number >> 32);
    }
    poison(g, t, false);
    kernels->grouped_dropout(context, t[0], &drawn, t[1], g->first, g->whole, t[2], t[3]);
    poison(g, t, true);
}

static void call_no_dropout(const ech_kernels *kernels, ech_kernel_context *context,
                            const ech_tensor *const *t, const void *options)
{
    const group *g = options;
    put_counts(g, t[1]);
    poison(g, t, false);
    kernels->grouped_dropout(context, t[0], &none, NULL, g->first, g->whole, t[1], t[2]);
    poison(g, t, true);
}

#define INDEX(g)                                                                                   \
    TRIAL_RESULT(TRIAL_2D((g)->P *(g)->Q, 2), .type = TRIAL_FIXED, .dtype = ECH_I32)

#define COUNTS(g) TRIAL_RESULT(TRIAL_2D((g)->P, (g)->X), .type = TRIAL_FIXED, .dtype = ECH_I32)

#define BUFFER(kind, g, width, of) kind(TRIAL_2D((g)->P *(g)->Q, width), .type = TRIAL_##of)

static const group groups[] = {
    {.P = 1, .X = 1, .Q = 1, .counts = {1}},
    {.P = 1, .X = 1, .Q = 3, .counts = {0}},
    {.P = 1, .X = 3, .Q = 12, .counts = {4, 0, 5}},
    {.P = 2, .X = 2, .Q = 9, .counts = {9, 0, 0, 9}}, /* all to one, in each split to another */
    {.P = 3, .X = 4, .Q = 20, .counts = {0, 0, 0, 0, 1, 7, 0, 3, 5, 5, 5, 5}},
    {.P = 1, .X = 4, .Q = 160, .counts = {17, 70, 1, 65}},
    {.P = 2, .X = 3, .Q = 50, .counts = {40, 3, 7, 0, 34, 0}},
};

static void check_product(group g, int64_t N, int64_t K)
{
    for (int way = 0; way < 4; way++) {
        g.transposed = way & 1;
        g.accumulate = way >> 1;
        g.buffers = 1 << 0 | 1 << 3;
        int64_t rows = g.transposed ? N : K, columns = g.transposed ? K : N;
        trial t = {.name = "product by expert",
                   .op = ECH_OP_grouped_matmul,
                   .call = call_matmul,
                   .options = &g,
                   .dims = {g.P * g.Q, N, K, g.P, g.X, g.transposed},
                   .tensor = {BUFFER(TRIAL_INPUT, &g, K, REAL),
                              TRIAL_INPUT(TRIAL_3D(g.X, rows, columns)), COUNTS(&g),
                              BUFFER(TRIAL_RESULT, &g, N, EITHER)},
                   .tolerance = 4e-6,
                   .depends_on_threads = true,
                   .depends_on_address = true,
                   .spreads = true};
        if (g.accumulate) {
            t.tensor[3].role = TRIAL_IN_OUT;
            t.tensor[3].low = -1;
            t.tensor[3].high = 1;
        }
        trial_check(&t);
        trial_check_halves(&t, TRIAL_HALF_PRODUCTS, 1e-2);
    }
}

static void check_weight(group g, int64_t M, int64_t N)
{
    for (int way = 0; way < 2; way++) {
        g.accumulate = way;
        g.buffers = 1 << 0 | 1 << 1;
        trial t = {.name = "gradient of weights by expert",
                   .op = ECH_OP_grouped_matmul_weight,
                   .call = call_matmul_weight,
                   .options = &g,
                   .dims = {g.P * g.Q, M, N, g.P, g.X},
                   .tensor = {BUFFER(TRIAL_INPUT, &g, M, REAL),
                              BUFFER(TRIAL_INPUT, &g, N, REAL),
                              COUNTS(&g),
                              {.role = way ? TRIAL_IN_OUT : TRIAL_OUT,
                               TRIAL_3D(g.X, M, N),
                               .type = TRIAL_EITHER,
                               .low = -1,
                               .high = 1}},
                   .tolerance = 4e-6,
                   .depends_on_threads = true,
                   .depends_on_address = true,
                   .spreads = true};
        trial_check(&t);
        trial_check_halves(&t, TRIAL_HALF_PRODUCTS, 1e-2);
    }
}

static void check_bias(group g, int64_t N)
{
    for (int way = 0; way < 3; way++) {
        bool forward = way == 0;
        g.accumulate = way == 2;
        g.buffers = forward ? 1 << 2 : 1 << 0;
        trial t = {.name = forward ? "bias by expert" : "gradient of biases by expert",
                   .op = forward ? ECH_OP_grouped_bias : ECH_OP_grouped_bias_backward,
                   .call = forward ? call_bias : call_bias_backward,
                   .options = &g,
                   .tensor = {BUFFER(TRIAL_INPUT, &g, N, REAL),
                              COUNTS(&g),
                              {.role = g.accumulate ? TRIAL_IN_OUT : TRIAL_OUT,
                               TRIAL_2D(g.X, N),
                               .type = TRIAL_EITHER,
                               .low = -1,
                               .high = 1}},
                   .tolerance = 4e-6,
                   .halves = true};
        if (forward) {
            t.tensor[0] = (trial_tensor)TRIAL_INPUT(TRIAL_2D(g.X, N));
            t.tensor[2] = (trial_tensor)BUFFER(TRIAL_RESULT, &g, N, REAL);
        }
        trial_check(&t);
    }
}

TEST(biases_agree)
{
    static const int64_t widths[] = {1, 5, 16, 37};
    for (size_t i = 0; i < TRIAL_COUNT(groups); i++)
        for (size_t n = 0; n < TRIAL_COUNT(widths); n++) check_bias(groups[i], widths[n]);
}

/* Experts of several blocks, the last of which is the largest possible, and c of several. */
TEST(products_of_many_rows_agree)
{
    static const group many[] = {{.P = 1, .X = 1, .Q = 255, .counts = {255}},
                                 {.P = 1, .X = 2, .Q = 390, .counts = {383, 2}},
                                 {.P = 1, .X = 1, .Q = 3, .counts = {3}}};
    static const int64_t widths[] = {5, 3, 499};
    for (size_t i = 0; i < TRIAL_COUNT(many); i++) check_product(many[i], widths[i], 6);
}

TEST(products_agree)
{
    static const int64_t shapes[][2] = {{1, 1}, {7, 5}, {33, 18}, {70, 130}};
    for (size_t i = 0; i < TRIAL_COUNT(groups); i++)
        for (size_t s = 0; s < TRIAL_COUNT(shapes); s++) {
            if ((s == 3) != (i >= TRIAL_COUNT(groups) - 2)) continue; /* many rows: wide alone */
            check_product(groups[i], shapes[s][0], shapes[s][1]);
            check_weight(groups[i], shapes[s][0], shapes[s][1]);
        }
}

#define IN(g)  BUFFER(TRIAL_INPUT, g, F, REAL)
#define OUT(g) BUFFER(TRIAL_RESULT, g, F, REAL)
#define OVER(g)                                                                                    \
    {                                                                                              \
        .role = TRIAL_IN_OUT, TRIAL_2D((g)->P * (g)->Q, F), .low = -1, .high = 1, .alias = 1       \
    }
#define ROW(row, ...)                                                                              \
    {.name = #row, .op = ECH_OP_grouped_##row, .call = call_##row, .tensor = {__VA_ARGS__}},
#define ACTIVATION_1(name)                                                                         \
    ROW(name##_forward, IN(&g), COUNTS(&g), OUT(&g))                                               \
    ROW(name##_forward, BUFFER(TRIAL_CHANGED, &g, F, REAL), COUNTS(&g), OVER(&g))                  \
    ROW(name##_backward, IN(&g), IN(&g), COUNTS(&g), OUT(&g))
#define ACTIVATION_2(name)                                                                         \
    ROW(name##_forward, IN(&g), IN(&g), COUNTS(&g), OUT(&g))                                       \
    ROW(name##_backward, IN(&g), IN(&g), IN(&g), COUNTS(&g), OUT(&g), OUT(&g))
#define ACTIVATION(NAME, name, operands, ...) ACTIVATION_##operands(name)

static void check_activations(group g, int64_t F)
{
    const trial trials[] = {
        ECH_ACTIVATIONS(ACTIVATION){.name = "dropout",
                                    .op = ECH_OP_grouped_dropout,
                                    .call = call_dropout,
                                    .tensor = {BUFFER(TRIAL_INPUT, &g, F, REAL), INDEX(&g),
                                               COUNTS(&g), BUFFER(TRIAL_RESULT, &g, F, REAL)}},
        {.name = "dropout in place",
         .op = ECH_OP_grouped_dropout,
         .call = call_dropout,
         .tensor =
             {BUFFER(TRIAL_CHANGED, &g, F, REAL),
              INDEX(&g),
              COUNTS(&g),
              {.role = TRIAL_IN_OUT, TRIAL_2D(g.P * g.Q, F), .low = -1, .high = 1, .alias = 1}}},
        {.name = "no dropout",
         .op = ECH_OP_grouped_dropout,
         .call = call_no_dropout,
         .tensor = {BUFFER(TRIAL_INPUT, &g, F, REAL), COUNTS(&g),
                    BUFFER(TRIAL_RESULT, &g, F, REAL)}},
    };
    g.first = 3 * F;
    g.whole = 5 * F;
    for (size_t i = 0; i < TRIAL_COUNT(trials); i++) {
        trial t = trials[i];
        group own = g;
        for (int n = 0; n < TRIAL_TENSORS; n++)
            if (t.tensor[n].role != TRIAL_ABSENT && t.tensor[n].type != TRIAL_FIXED &&
                !t.tensor[n].alias)
                own.buffers |= 1U << n;
        t.options = &own;
        t.tolerance = 2e-6;
        t.has_limits = true;
        t.halves = true;
        t.large = 1e12;
        trial_check(&t);
    }
}

TEST(activations_agree)
{
    for (size_t i = 0; i < TRIAL_COUNT(groups); i++) {
        check_activations(groups[i], 1);
        check_activations(groups[i], 7);
        check_activations(groups[i], 133);
    }
}

/* ---- the definition against loops over rows ---- */

enum { P = 2, X = 3, Q = 6, N = 4, K = 5, R = P * Q };

static void expect(double x, double y)
{
    assert_true(fabs(x - y) <= 1e-12);
}

/* The expert of a buffer's row; -1: it is not used. */
static int expert_of(const int32_t counts[P][X], int64_t row)
{
    int64_t at = row % Q;
    for (int i = 0; i < X; i++)
        if ((at -= counts[row / Q][i]) < 0) return i;
    return -1;
}

/* Every row knows its expert, and is multiplied by that one's matrix alone; relu of a number. */
TEST(definition_is_what_it_says)
{
    static const int32_t counts[P][X] = {{2, 0, 3}, {0, 0, 6}};
    static const int64_t shape_b[] = {X, K, N}, shape_counts[] = {P, X};
    double a[R * K], b[X * K * N], c[R * N], weight[X * K * N], y[R * K], dx[R * K];
    const ech_kernels *ref = ech_kernels_ref(ECH_F64);
    const ech_tensor view_a = ech_tensor_2d(a, ECH_F64, R, K),
                     view_c = ech_tensor_2d(c, ECH_F64, R, N);
    const ech_tensor view_b = ech_tensor_view(b, ECH_F64, 3, shape_b);
    const ech_tensor view_weight = ech_tensor_view(weight, ECH_F64, 3, shape_b);
    const ech_tensor view_y = ech_tensor_2d(y, ECH_F64, R, K),
                     view_dx = ech_tensor_2d(dx, ECH_F64, R, K);
    const ech_tensor table = ech_tensor_view((void *)counts, ECH_I32, 2, shape_counts);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int i = 0; i < R * K; i++)
        a[i] = expert_of(counts, i / K) < 0 ? (double)NAN : value_at(1, i, -1, 1);
    for (int i = 0; i < X * K * N; i++) b[i] = value_at(2, i, -1, 1);
    for (int i = 0; i < R * N; i++) c[i] = (double)NAN;
    for (int i = 0; i < R * K; i++) y[i] = dx[i] = 7;
    ref->grouped_matmul(context, &view_a, &view_b, false, &table, false, &view_c);
    ref->grouped_relu_forward(context, &view_a, &table, &view_y);
    ref->grouped_relu_backward(context, &view_a, &view_a, &table, &view_dx);
    for (int r = 0; r < R; r++) {
        int e = expert_of(counts, r);
        for (int n = 0; n < N; n++) {
            double sum = 0;
            for (int k = 0; e >= 0 && k < K; k++) sum += a[r * K + k] * b[(e * K + k) * N + n];
            assert_true(e >= 0 || isnan(c[r * N + n]));
            if (e >= 0) expect(c[r * N + n], sum);
        }
        for (int i = r * K; i < r * K + K; i++) {
            assert_true(y[i] == (e < 0 ? 7 : a[i] > 0 ? a[i] : 0));
            assert_true(dx[i] == (e < 0 ? 7 : a[i] > 0 ? a[i] : 0));
        }
    }
    for (int i = 0; i < X * K * N; i++) weight[i] = (double)NAN;
    ref->grouped_matmul_weight(context, &view_a, &view_c, &table, false, &view_weight);
    for (int i = 0; i < X * K * N; i++) {
        double sum = 0;
        for (int r = 0; r < R; r++)
            if (expert_of(counts, r) == i / (K * N)) sum += a[r * K + i / N % K] * c[r * N + i % N];
        expect(weight[i], sum);
    }
    ech_kernel_context_destroy(context);
}
