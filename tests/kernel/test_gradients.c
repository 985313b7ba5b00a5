/* SPDX-License-Identifier: Apache-2.0
 *
 * Every backward of the definition, in fp64, against finite differences of its forward. The scalar
 * that is differentiated is the sum of forward's output times fixed numbers, which are then what
 * backward receives as the output's gradient.
 */
#include "kernel/finite.h"
#include "kernel/places.h"
#include "kernel/trial.h"

enum { MAX_INPUTS = 3, MAX_ELEMENTS = 800 };

/* One operation: inputs, an output, its gradient, the inputs' gradients. */
typedef struct subject {
    int inputs;
    ech_tensor input[MAX_INPUTS], gradient[MAX_INPUTS], output, doutput;
    void (*forward)(struct subject *subject);
    void (*backward)(struct subject *subject);
    double kept[3][MAX_ELEMENTS]; /* what forward keeps for backward */
    ech_dropout dropout;
    ech_kernel_context *context;
    const ech_kernels *kernels;
    ech_tensor ids;
    ech_rows rows;
    double low, high; /* range of the inputs */
    int64_t width;    /* of rotary */
    bool neighbours;
} subject;

static ech_tensor make_tensor(const ech_tensor *like, uint32_t series, double low, double high)
{
    ech_tensor x = ech_tensor_view(NULL, ECH_F64, like->dims, like->shape);
    double *memory = ech_calloc((size_t)ech_tensor_count(&x), sizeof *memory);
    for (int64_t i = 0; i < ech_tensor_count(&x); i++) memory[i] = value_at(series, i, low, high);
    x.data = memory;
    return x;
}

static double weighed_output(void *state)
{
    subject *s = state;
    s->forward(s);
    const double *y = s->output.data, *w = s->doutput.data;
    double sum = 0;
    for (int64_t i = 0; i < ech_tensor_count(&s->output); i++) sum += y[i] * w[i];
    return sum;
}

static void check_gradients(subject *s)
{
    s->kernels = ech_kernels_ref(ECH_F64);
    assert_int_equal(ech_kernel_context_create(1, &s->context), ECH_OK);
    s->context->scratch_bytes = 1 << 16;
    s->context->scratch = ech_calloc(1, s->context->scratch_bytes);
    if (s->low == 0 && s->high == 0) s->low = -1, s->high = 1;
    for (int i = 0; i < s->inputs; i++) {
        s->input[i] = make_tensor(&s->input[i], (uint32_t)i, s->low, s->high);
        s->gradient[i] = make_tensor(&s->input[i], 7, 5, 9); /* backward overwrites it */
    }
    s->doutput = make_tensor(&s->output, 8, -1, 1);
    s->output = make_tensor(&s->output, 9, -1, 1);
    s->forward(s);
    s->backward(s);
    for (int i = 0; i < s->inputs; i++) {
        double error = finite_error(weighed_output, s, ech_tensor_count(&s->input[i]),
                                    s->input[i].data, s->gradient[i].data);
        if (!(error < 1e-9)) fail_msg("input %d: error %.3g", i, error);
    }
    for (int i = 0; i < s->inputs; i++) {
        free(s->input[i].data);
        free(s->gradient[i].data);
    }
    free(s->output.data);
    free(s->doutput.data);
    free(s->context->scratch);
    ech_kernel_context_destroy(s->context);
}

/* A kept tensor of n numbers. */
static ech_tensor kept_of(subject *s, int which, int64_t n)
{
    assert_true(n <= MAX_ELEMENTS);
    return ech_tensor_1d(s->kept[which], ECH_F64, n);
}

#define SHAPE(...)                                                                                 \
    {                                                                                              \
        .dims = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .shape = {              \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static void matmul_forward(subject *s)
{
    s->kernels->matmul(s->context, &s->input[0], true, &s->input[1], true, &s->input[2], NULL,
                       &s->output);
}

static void matmul_backward(subject *s)
{
    /* y = aT bT + bias: da = bT dyT (as (K,M)), db = dyT aT. */
    s->kernels->matmul(s->context, &s->input[1], true, &s->doutput, true, NULL, NULL,
                       &s->gradient[0]);
    s->kernels->matmul(s->context, &s->doutput, true, &s->input[0], true, NULL, NULL,
                       &s->gradient[1]);
    s->kernels->bias_backward(s->context, &s->doutput, false, &s->gradient[2]);
}

TEST(matmul_gradients)
{
    subject s = {.inputs = 3,
                 .input = {SHAPE(4, 5), SHAPE(3, 4), SHAPE(3)},
                 .output = SHAPE(5, 3),
                 .forward = matmul_forward,
                 .backward = matmul_backward};
    check_gradients(&s);
}

static void layernorm_forward(subject *s)
{
    int64_t R = s->input[0].shape[0];
    ech_tensor mean = kept_of(s, 0, R), rstd = kept_of(s, 1, R);
    s->kernels->layernorm_forward(s->context, &s->input[0], &s->input[1], &s->input[2], 1e-5,
                                  &s->output, &mean, &rstd);
}

static void layernorm_backward(subject *s)
{
    int64_t R = s->input[0].shape[0];
    ech_tensor mean = kept_of(s, 0, R), rstd = kept_of(s, 1, R);
    s->kernels->layernorm_backward(s->context, &s->doutput, &s->input[0], &s->input[1], &mean,
                                   &rstd, NULL, &s->gradient[0], false, &s->gradient[1],
                                   &s->gradient[2]);
}

static void rmsnorm_forward(subject *s)
{
    ech_tensor rstd = kept_of(s, 0, s->input[0].shape[0]);
    s->kernels->rmsnorm_forward(s->context, &s->input[0], NULL, &s->input[1], 0.7, 1e-5, &s->output,
                                &rstd);
}

static void rmsnorm_backward(subject *s)
{
    ech_tensor rstd = kept_of(s, 0, s->input[0].shape[0]);
    s->kernels->rmsnorm_backward(s->context, &s->doutput, &s->input[0], &s->input[1], 0.7, &rstd,
                                 NULL, &s->gradient[0], NULL, false, &s->gradient[1]);
}

static void squares_forward(subject *s)
{
    s->kernels->squares_forward(s->context, &s->input[0], 0.3, &s->output);
}

static void squares_backward(subject *s)
{
    s->kernels->squares_backward(s->context, &s->doutput, &s->input[0], 0.3, NULL, &s->gradient[0]);
}

/* Of the squares, the second input, the norm's part is x rstd gain. */
static void part_forward(subject *s)
{
    ech_tensor rstd = kept_of(s, 0, s->input[0].shape[0]);
    s->kernels->rmsnorm_forward(s->context, &s->input[0], &s->input[1], &s->input[2], 0.7, 30,
                                &s->output, &rstd);
}

static void part_backward(subject *s)
{
    ech_tensor rstd = kept_of(s, 0, s->input[0].shape[0]);
    s->kernels->rmsnorm_backward(s->context, &s->doutput, &s->input[0], &s->input[2], 0.7, &rstd,
                                 NULL, &s->gradient[0], &s->gradient[1], false, &s->gradient[2]);
}

TEST(norm_gradients)
{
    subject layernorm = {.inputs = 3,
                         .input = {SHAPE(4, 7), SHAPE(7), SHAPE(7)},
                         .output = SHAPE(4, 7),
                         .forward = layernorm_forward,
                         .backward = layernorm_backward};
    subject rmsnorm = {.inputs = 2,
                       .input = {SHAPE(4, 7), SHAPE(7)},
                       .output = SHAPE(4, 7),
                       .forward = rmsnorm_forward,
                       .backward = rmsnorm_backward};
    subject squares = {.inputs = 1,
                       .input = {SHAPE(4, 7)},
                       .output = SHAPE(4),
                       .forward = squares_forward,
                       .backward = squares_backward};
    subject part = {.inputs = 3,
                    .input = {SHAPE(4, 7), SHAPE(4), SHAPE(7)},
                    .output = SHAPE(4, 7),
                    .forward = part_forward,
                    .backward = part_backward};
    check_gradients(&layernorm);
    check_gradients(&rmsnorm);
    check_gradients(&squares);
    check_gradients(&part);
}

#define CALLS_1(name)                                                                              \
    static void name##_forward(subject *s)                                                         \
    {                                                                                              \
        s->kernels->name##_forward(s->context, &s->input[0], &s->output);                          \
    }                                                                                              \
    static void name##_backward(subject *s)                                                        \
    {                                                                                              \
        s->kernels->name##_backward(s->context, &s->doutput, &s->input[0], &s->gradient[0]);       \
    }
#define CALLS_2(name)                                                                              \
    static void name##_forward(subject *s)                                                         \
    {                                                                                              \
        s->kernels->name##_forward(s->context, &s->input[0], &s->input[1], &s->output);            \
    }                                                                                              \
    static void name##_backward(subject *s)                                                        \
    {                                                                                              \
        s->kernels->name##_backward(s->context, &s->doutput, &s->input[0], &s->input[1],           \
                                    &s->gradient[0], &s->gradient[1]);                             \
    }
#define CALLS(NAME, name, operands, ...) CALLS_##operands(name)
ECH_ACTIVATIONS(CALLS)

/* Up to 8: clamped operands are beyond their bounds, too. */
TEST(activation_gradients)
{
#define SUBJECT(NAME, name, operands, ...)                                                         \
    {.inputs = operands,                                                                           \
     .input = {SHAPE(60), SHAPE(60)},                                                              \
     .output = SHAPE(60),                                                                          \
     .forward = name##_forward,                                                                    \
     .backward = name##_backward,                                                                  \
     .low = -8,                                                                                    \
     .high = 8},
    subject subjects[] = {ECH_ACTIVATIONS(SUBJECT)};
    for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++) check_gradients(&subjects[i]);
}

/* Against the formula, written out. */
TEST(rmsnorm_with_offset)
{
    enum { R = 3, C = 5 };
    double x[R * C], gain[C], y[R * C], rstd[R];
    for (int i = 0; i < R * C; i++) x[i] = value_at(1, i, -2, 2);
    for (int c = 0; c < C; c++) gain[c] = value_at(2, c, -1, 1);
    ech_tensor from = ech_tensor_2d(x, ECH_F64, R, C), to = ech_tensor_2d(y, ECH_F64, R, C);
    ech_tensor w = ech_tensor_1d(gain, ECH_F64, C), kept = ech_tensor_1d(rstd, ECH_F64, R);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    ech_kernels_ref(ECH_F64)->rmsnorm_forward(context, &from, NULL, &w, 1, 1e-3, &to, &kept);
    for (int i = 0; i < R * C; i++) {
        double squares = 0;
        for (int c = 0; c < C; c++) squares += x[i / C * C + c] * x[i / C * C + c];
        double expected = x[i] / sqrt(squares / C + 1e-3) * (1 + gain[i % C]);
        assert_true(fabs(y[i] - expected) < 1e-14);
    }
    ech_kernel_context_destroy(context);
}

enum { PART_R = 3, PART_C = 7, PARTS = 3 };

/* What a norm of whole rows has, and columns [first, end) of it by their parts' functions, whose
 * squares are summed between. */
typedef struct norm_run {
    double y[PART_R * PART_C], dx[PART_R * PART_C], dgain[PART_C];
} norm_run;

static ech_tensor columns_of(double *from, double *to, int first, int end, bool back)
{
    int n = end - first;
    for (int i = 0; i < PART_R * n; i++) {
        double *whole = &from[i / n * PART_C + first + i % n];
        if (back)
            *whole = to[i];
        else
            to[i] = *whole;
    }
    return ech_tensor_2d(to, ECH_F64, PART_R, n);
}

static void run_parts(ech_kernel_context *context, double *x, double *dy, double *gain, int parts,
                      norm_run *out)
{
    const ech_kernels *kernels = ech_kernels_ref(ECH_F64);
    double squares[PART_R] = {0}, dsquares[PART_R] = {0}, one[PART_R], rstd[PART_R];
    double a[4][PART_R * PART_C];
    ech_tensor sum = ech_tensor_1d(squares, ECH_F64, PART_R);
    ech_tensor dsum = ech_tensor_1d(dsquares, ECH_F64, PART_R);
    ech_tensor own = ech_tensor_1d(one, ECH_F64, PART_R);
    ech_tensor kept = ech_tensor_1d(rstd, ECH_F64, PART_R);
    for (int step = 0; step < 4; step++)
        for (int p = 0; p < parts; p++) {
            int first = p * PART_C / parts, end = (p + 1) * PART_C / parts;
            ech_tensor v = columns_of(x, a[0], first, end, false);
            ech_tensor d = columns_of(dy, a[1], first, end, false);
            ech_tensor y = columns_of(out->y, a[2], first, end, false);
            ech_tensor dx = columns_of(out->dx, a[3], first, end, false);
            ech_tensor w = ech_tensor_1d(gain + first, ECH_F64, end - first);
            ech_tensor dw = ech_tensor_1d(out->dgain + first, ECH_F64, end - first);
            if (step == 0) kernels->squares_forward(context, &v, 1.0 / PART_C, &own);
            if (step == 1) kernels->rmsnorm_forward(context, &v, &sum, &w, 0.5, 1e-2, &y, &kept);
            if (step == 2)
                kernels->rmsnorm_backward(context, &d, &v, &w, 0.5, &kept, NULL, &dx, &own, false,
                                          &dw);
            if (step == 3) kernels->squares_backward(context, &dsum, &v, 1.0 / PART_C, &dx, &dx);
            for (int r = 0; r < PART_R && step % 2 == 0; r++)
                (step ? dsquares : squares)[r] += one[r];
            columns_of(out->y, a[2], first, end, true);
            columns_of(out->dx, a[3], first, end, true);
        }
}

/* Against the formula, written out: parts of rows, in one to three parts. */
TEST(rmsnorm_of_parts)
{
    double x[PART_R * PART_C], dy[PART_R * PART_C], gain[PART_C];
    for (int i = 0; i < PART_R * PART_C; i++) x[i] = value_at(1, i, -2, 2);
    for (int i = 0; i < PART_R * PART_C; i++) dy[i] = value_at(3, i, -2, 2);
    for (int c = 0; c < PART_C; c++) gain[c] = value_at(2, c, -1, 1);
    ech_kernel_context *context;
    double scratch[PART_C];
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    context->scratch = scratch;
    context->scratch_bytes = sizeof scratch;
    norm_run expected = {0};
    for (int r = 0; r < PART_R; r++) {
        double squares = 0, mean = 0, *v = x + r * PART_C, *d = dy + r * PART_C;
        for (int c = 0; c < PART_C; c++) squares += v[c] * v[c] / PART_C;
        double rms = sqrt(squares + 1e-2);
        for (int c = 0; c < PART_C; c++) mean += d[c] * (gain[c] + 0.5) * v[c] / PART_C;
        for (int c = 0; c < PART_C; c++) {
            expected.y[r * PART_C + c] = v[c] / rms * (gain[c] + 0.5);
            expected.dx[r * PART_C + c] =
                d[c] * (gain[c] + 0.5) / rms - v[c] * mean / (rms * rms * rms);
            expected.dgain[c] += d[c] * v[c] / rms;
        }
    }
    for (int parts = 1; parts <= PARTS; parts++) {
        norm_run run = {0};
        run_parts(context, x, dy, gain, parts, &run);
        for (int i = 0; i < PART_R * PART_C; i++) {
            assert_true(fabs(run.y[i] - expected.y[i]) < 1e-13);
            assert_true(fabs(run.dx[i] - expected.dx[i]) < 1e-13);
            assert_true(fabs(run.dgain[i % PART_C] - expected.dgain[i % PART_C]) < 1e-13);
        }
    }
    ech_kernel_context_destroy(context);
}

static const double frequency[] = {1, 0.2, 0.05};

/* Against the formula, written out. */
TEST(scaled_and_capped)
{
    double x[9], y[9];
    ech_tensor from = ech_tensor_1d(x, ECH_F64, 9), to = ech_tensor_1d(y, ECH_F64, 9);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int capped = 0; capped < 2; capped++) {
        for (int i = 0; i < 9; i++) x[i] = i == 8 ? 1e3 : value_at(1, i, -9, 9);
        ech_kernels_ref(ECH_F64)->scale(context, &from, 0.5, capped ? 3 : 0, &to);
        for (int i = 0; i < 9; i++) {
            double e = exp(x[i] / 3), tangent = (e - 1) / (e + 1);
            double capped_at = 3 * (i == 8 ? 1 : tangent);
            assert_true(fabs(y[i] - (capped ? capped_at : x[i] / 2)) < 1e-12);
        }
    }
    ech_kernel_context_destroy(context);
}

static void rotary_forward(subject *s)
{
    s->kernels->rotary(s->context, &s->input[0], frequency, s->width, s->neighbours, 1.3, &s->rows,
                       NULL, false, &s->output);
}

static void rotary_backward(subject *s)
{
    s->kernels->rotary(s->context, &s->doutput, frequency, s->width, s->neighbours, 1.3, &s->rows,
                       NULL, true, &s->gradient[0]);
}

static void row_gate_forward(subject *s)
{
    s->kernels->row_gate_forward(s->context, &s->input[0], &s->input[1], &s->output);
}

static void row_gate_backward(subject *s)
{
    s->kernels->row_gate_backward(s->context, &s->doutput, &s->input[0], &s->input[1],
                                  &s->gradient[0], &s->gradient[1]);
}

TEST(row_gate_gradients)
{
    subject s = {.inputs = 2,
                 .input = {SHAPE(5, 7), SHAPE(5, 1)},
                 .output = SHAPE(5, 7),
                 .forward = row_gate_forward,
                 .backward = row_gate_backward,
                 .low = -2,
                 .high = 2};
    check_gradients(&s);
}

static void dropout_forward(subject *s)
{
    s->kernels->dropout(s->context, &s->input[0], &s->dropout, &s->rows, &s->output);
}

static void dropout_backward(subject *s)
{
    s->kernels->dropout(s->context, &s->doutput, &s->dropout, &s->rows, &s->gradient[0]);
}

TEST(rotary_and_dropout_gradients)
{
    subject rotary = {.inputs = 1,
                      .input = {SHAPE(2, 3, 2, 6)},
                      .output = SHAPE(2, 3, 2, 6),
                      .forward = rotary_forward,
                      .backward = rotary_backward,
                      .rows = rows_pair(0, 20, 3, 1, 17, 2)};
    subject dropout = {.inputs = 1,
                       .input = {SHAPE(5, 9)},
                       .output = SHAPE(5, 9),
                       .forward = dropout_forward,
                       .backward = dropout_backward,
                       .dropout = {.p = 0.4, .key = {1, 2, 3}},
                       .rows = rows_uncut(3, 1)};
    for (int way = 0; way < 4; way++) {
        subject own = rotary;
        own.width = way < 2 ? 6 : 4;
        own.neighbours = way % 2;
        check_gradients(&own);
    }
    check_gradients(&dropout);
}

static ech_attention_rule rule;

static void attention_forward(subject *s)
{
    const int64_t *q = s->input[0].shape;
    ech_tensor lse = ech_tensor_view(s->kept[0], ECH_F64, 3, (int64_t[]){q[0], q[2], q[1]});
    ech_attention_shard at = place_uncut(2, q[1], q[2]);
    s->kernels->attention_forward(s->context, &s->input[0], &s->input[1], &s->input[2], &rule, &at,
                                  NULL, &s->dropout, false, &s->output, &lse);
}

static void attention_backward(subject *s)
{
    const int64_t *q = s->input[0].shape;
    ech_tensor lse = ech_tensor_view(s->kept[0], ECH_F64, 3, (int64_t[]){q[0], q[2], q[1]});
    ech_attention_shard at = place_uncut(2, q[1], q[2]);
    s->kernels->attention_backward(s->context, &s->doutput, &s->input[0], &s->input[1],
                                   &s->input[2], &s->output, &lse, &rule, &at, NULL, &s->dropout,
                                   false, false, &s->gradient[0], &s->gradient[1], &s->gradient[2]);
}

TEST(attention_gradients)
{
    for (int way = 0; way < 4; way++) {
        bool dropped = way % 2;
        rule = (ech_attention_rule){.scale = 0.7};
        if (way > 1) rule = (ech_attention_rule){.scale = 0.9, .cap = 0.8, .window = 3};
        subject s = {.inputs = 3,
                     .input = {SHAPE(2, 6, 4, 3), SHAPE(2, 6, 2, 3), SHAPE(2, 6, 2, 3)},
                     .output = SHAPE(2, 6, 4, 3),
                     .forward = attention_forward,
                     .backward = attention_backward,
                     .dropout = {.p = dropped ? 0.3 : 0, .key = {4, 5, 6}}};
        check_gradients(&s);
    }
}

static int32_t few_ids[6] = {3, 0, 3, 2, 3, 0};

static void embedding_forward(subject *s)
{
    s->kernels->embedding_forward(s->context, &s->input[0], &s->ids, 0, &s->output);
}

static void embedding_backward(subject *s)
{
    s->kernels->embedding_backward(s->context, &s->doutput, &s->ids, 0, false, &s->gradient[0]);
}

static void position_forward(subject *s)
{
    s->kernels->position_forward(s->context, &s->input[0], &s->input[1], &s->rows, NULL,
                                 &s->output);
}

static void position_backward(subject *s)
{
    memcpy(s->gradient[0].data, s->doutput.data, ech_tensor_bytes(&s->doutput));
    s->kernels->position_backward(s->context, &s->doutput, &s->rows, NULL, false, &s->gradient[1]);
}

TEST(table_gradients)
{
    subject embedding = {.inputs = 1,
                         .input = {SHAPE(5, 3)},
                         .output = SHAPE(6, 3),
                         .forward = embedding_forward,
                         .backward = embedding_backward,
                         .ids = ech_tensor_1d(few_ids, ECH_I32, 6)};
    subject position = {.inputs = 2,
                        .input = {SHAPE(12, 5), SHAPE(7, 5)},
                        .output = SHAPE(12, 5),
                        .forward = position_forward,
                        .backward = position_backward,
                        .rows = rows_piece(0, 7, 2, 4)};
    check_gradients(&embedding);
    check_gradients(&position);
}

/* A million rows have ids of their own. A row that looked at all rows for each one, as rounding
 * types need, would take a million million steps and run into the suite's limit. */
TEST(table_gradients_read_each_row_once)
{
    enum { ROWS = 1 << 20, STEP = 524287 };
    int32_t *id = ech_calloc(ROWS, sizeof *id);
    double *dy = ech_calloc(ROWS, sizeof *dy), *sum = ech_calloc(ROWS, sizeof *sum);
    for (int64_t r = 0; r < ROWS; r++) {
        id[r] = (int32_t)(r * STEP % ROWS);
        dy[r] = (double)r;
    }
    ech_tensor ids = ech_tensor_1d(id, ECH_I32, ROWS), of = ech_tensor_2d(dy, ECH_F64, ROWS, 1);
    ech_tensor to = ech_tensor_2d(sum, ECH_F64, ROWS, 1);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    ech_kernels_ref(ECH_F64)->embedding_backward(context, &of, &ids, 0, false, &to);
    for (int64_t r = 0; r < ROWS; r++) assert_true(sum[id[r]] == (double)r);
    ech_kernel_context_destroy(context);
    free(id), free(dy), free(sum);
}

/* The loss is its own scalar: sums x scale. The gradient replaces the logits, which have a factor
 * and a cap. */
typedef struct loss {
    double logits[5 * 7];
    float weights[5];
    int32_t targets[5];
} loss;

static double loss_of(const loss *at, double *gradient)
{
    double copy[5 * 7], sums[ECH_LOSS_SUMS] = {0}, scale = 0.25;
    memcpy(copy, at->logits, sizeof copy);
    float weights[5];
    int32_t targets[5];
    memcpy(weights, at->weights, sizeof weights);
    memcpy(targets, at->targets, sizeof targets);
    ech_tensor x = ech_tensor_2d(copy, ECH_F64, 5, 7), t = ech_tensor_1d(targets, ECH_I32, 5);
    ech_tensor w = ech_tensor_1d(weights, ECH_F32, 5), sum = ech_tensor_1d(sums, ECH_F64, 2);
    ech_tensor factor = ech_tensor_1d(&scale, ECH_F64, 1);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    double stats[5 * ECH_LOSS_STATS];
    ech_tensor known = ech_tensor_2d(stats, ECH_F64, 5, ECH_LOSS_STATS);
    const ech_kernels *kernels = ech_kernels_ref(ECH_F64);
    kernels->scale(context, &x, 1.7, 2.5, &x);
    kernels->loss_statistics(context, &x, &t, 0, &known);
    kernels->loss_gradient(context, &x, &t, &w, 0, &known, &factor, 1.7, 2.5, gradient ? &x : NULL,
                           &sum);
    ech_kernel_context_destroy(context);
    if (gradient) memcpy(gradient, copy, sizeof copy);
    return scale * sums[ECH_LOSS_SUM];
}

static double loss_function(void *state)
{
    return loss_of(state, NULL);
}

TEST(loss_gradients)
{
    loss at = {.weights = {1, 0, 2, 0.5F, 1}, .targets = {6, 0, 3, 3, 1}};
    double gradient[5 * 7];
    for (int64_t i = 0; i < 5 * 7; i++) at.logits[i] = value_at(0, i, -2, 2);
    assert_true(loss_of(&at, gradient) == loss_of(&at, NULL));
    assert_true(finite_error(loss_function, &at, 5 * 7, at.logits, gradient) < 1e-9);
}
