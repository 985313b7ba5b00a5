/* SPDX-License-Identifier: Apache-2.0
 *
 * A NaN or an infinity that goes in is seen in what comes out, where it belongs and (for rows,
 * samples and earlier tokens) not elsewhere. Every table is asked.
 */
#include "kernel/places.h"
#include "kernel/trial.h"

enum { R = 5, C = 70 };

/* Where the bad number is put: tensor, element, which number. */
static int bad_tensor;
static int64_t bad_element;
static double bad_value;

static void put_bad_number(const trial *t, const ech_tensor *views)
{
    (void)t;
    const ech_tensor *x = &views[bad_tensor];
    trial_set(x, trial_place(x, bad_element), bad_value);
}

/* Runs with the bad number; returns tensor `out` as doubles. */
static double *run_bad(const trial *t, int table, int tensor, int64_t element, double value,
                       int out)
{
    const ech_kernels *tables[] = {ech_kernels_ref(ECH_F64), ech_kernels_ref(ECH_F32),
                                   ech_kernels_fast(ECH_F32)};
    bad_tensor = tensor;
    bad_element = element;
    bad_value = value;
    trial_run run =
        trial_execute(t, tables[table], (trial_way){.threads = 2, .prepare = put_bad_number});
    double *result = run.result[out];
    run.result[out] = NULL;
    trial_free(&run);
    return result;
}

/* The element's row of `out` is all bad where `row_wide`, otherwise the element is; the rest is
 * good. */
static void check_rows(const trial *t, int tensor, int out, bool row_wide)
{
    static const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    int64_t element = 2 * C + 33;
    for (int table = 0; table < 3; table++)
        for (int kind = 0; kind < 3; kind++) {
            double *y = run_bad(t, table, tensor, element, bad[kind], out);
            for (int64_t i = 0; i < R * C; i++) {
                bool in_row = i / C == 2, must = i == element || (in_row && row_wide);
                /* An infinity may become an honest number: gelu(-inf) is 0, 1/rms is 0. */
                if (must && kind == 0) assert_true(isnan(y[i]));
                if (!in_row || (!row_wide && !must)) assert_true(isfinite(y[i]));
            }
            if (kind == 1) assert_true(!isfinite(y[element]));
            free(y);
        }
}

TRIAL_CALL(add, t[0], t[1], t[2])
TRIAL_CALL(gelu_forward, t[0], t[2])
TRIAL_CALL(gelu_backward, t[0], t[1], t[2])
TRIAL_CALL(swiglu_forward, t[0], t[1], t[2])

TEST(elements_keep_their_place)
{
    static const trial_call calls[] = {call_add, call_gelu_forward, call_swiglu_forward,
                                       call_gelu_backward};
    static const ech_op ops[] = {ECH_OP_add, ECH_OP_gelu_forward, ECH_OP_swiglu_forward,
                                 ECH_OP_gelu_backward};
    for (size_t c = 0; c < TRIAL_COUNT(calls); c++) {
        trial t = {.name = "elements",
                   .op = ops[c],
                   .call = calls[c],
                   .tensor = {{.role = TRIAL_IN, TRIAL_2D(R, C), .low = 1, .high = 2},
                              {.role = TRIAL_IN, TRIAL_2D(R, C), .low = 1, .high = 2},
                              TRIAL_RESULT(TRIAL_2D(R, C))}};
        check_rows(&t, 0, 2, false);
    }
}

/* A NaN in either input of a backward reaches every gradient of that element. */
TRIAL_CALL(swiglu_backward, t[0], t[1], t[2], t[3], t[4])

TEST(swiglu_backward_passes_nan)
{
    trial t = {.name = "swiglu",
               .op = ECH_OP_swiglu_backward,
               .call = call_swiglu_backward,
               .tensor = {TRIAL_INPUT(TRIAL_1D(50)), TRIAL_INPUT(TRIAL_1D(50)),
                          TRIAL_INPUT(TRIAL_1D(50)), TRIAL_RESULT(TRIAL_1D(50)),
                          TRIAL_RESULT(TRIAL_1D(50))}};
    for (int table = 0; table < 3; table++)
        for (int tensor = 0; tensor < 3; tensor++)
            for (int out = 3; out < 5; out++) {
                double *y = run_bad(&t, table, tensor, 21, (double)NAN, out);
                bool wanted = !(tensor == 2 && out == 4); /* up's gradient does not read up */
                for (int64_t i = 0; i < 50; i++) assert_true(isnan(y[i]) == (wanted && i == 21));
                free(y);
            }
}

TRIAL_CALL(layernorm_forward, t[0], t[1], t[1], 1e-5, t[2], t[3], t[4])
TRIAL_CALL(rmsnorm_forward, t[0], NULL, t[1], 0, 1e-5, t[2], t[3])

TEST(norms_keep_to_their_row)
{
    trial t = {.name = "norm",
               .op = ECH_OP_layernorm_forward,
               .call = call_layernorm_forward,
               .tensor = {TRIAL_INPUT(TRIAL_2D(R, C)), TRIAL_INPUT(TRIAL_1D(C)),
                          TRIAL_RESULT(TRIAL_2D(R, C)), TRIAL_RESULT(TRIAL_1D(R)),
                          TRIAL_RESULT(TRIAL_1D(R))}};
    check_rows(&t, 0, 2, true);
    t.op = ECH_OP_rmsnorm_forward;
    t.call = call_rmsnorm_forward;
    t.tensor[4] = (trial_tensor){0};
    check_rows(&t, 0, 2, true);
}

TRIAL_CALL(matmul, t[0], false, t[1], true, NULL, NULL, t[2])

TEST(products_keep_to_their_row)
{
    trial t = {.name = "product",
               .op = ECH_OP_matmul,
               .call = call_matmul,
               .dims = {R, C, C, false, true, false, false},
               .tensor = {TRIAL_INPUT(TRIAL_2D(R, C)), TRIAL_INPUT(TRIAL_2D(C, C)),
                          TRIAL_RESULT(TRIAL_2D(R, C))}};
    check_rows(&t, 0, 2, true);
}

static void call_attention(const ech_kernels *kernels, ech_kernel_context *context,
                           const ech_tensor *const *t, const void *options)
{
    const ech_dropout *dropout = options;
    ech_attention_shard at = place_uncut(0, t[0]->shape[1], t[0]->shape[2]);
    kernels->attention_forward(context, t[0], t[1], t[2], &place_rule, &at, NULL, dropout, false,
                               t[3], t[4]);
    kernels->attention_backward(context, t[5], t[0], t[1], t[2], t[3], t[4], &place_rule, &at, NULL,
                                dropout, false, false, t[6], t[7], t[8]);
}

/* A NaN in q, k or v of token 60 of sample 1, head 0: tokens from there on (for q: that one) are
 * NaN, other samples and other heads are not. Earlier tokens of the same tile may be. */
TEST(attention_keeps_to_its_head)
{
    enum { B = 2, T = 100, H = 2, D = 8 };
    ech_dropout dropout = {.p = 0};
    trial_tensor in = TRIAL_INPUT(TRIAL_4D(B, T, H, D)), out = TRIAL_RESULT(TRIAL_4D(B, T, H, D));
    trial t = {.name = "attention",
               .op = ECH_OP_attention_backward,
               .call = call_attention,
               .options = &dropout,
               .dims = {B, T, T, H, H, D, D},
               .tensor = {in, in, in, out, TRIAL_RESULT(TRIAL_3D(B, H, T)), in, out, out, out}};
    int64_t element = ((T + 60) * H + 0) * D + 3;
    for (int table = 0; table < 3; table++)
        for (int tensor = 0; tensor < 3; tensor++)
            for (int y = 3; y < 9; y += y == 3 ? 3 : 1) {
                double *got = run_bad(&t, table, tensor, element, (double)NAN, y);
                int64_t seen = 0;
                for (int64_t i = 0; i < B * T * H * D; i++) {
                    int64_t h = i / D % H, b = i / D / H / T, token = i / D / H % T;
                    if (b == 0 || h == 1) assert_true(isfinite(got[i]));
                    if (y == 3 && tensor < 2 && b == 1 && h == 0 &&
                        (token == 60 || (token > 60 && tensor == 1)))
                        assert_true(isnan(got[i]));
                    if (y == 3 && token < 48) assert_true(isfinite(got[i]));
                    seen += isnan(got[i]) != 0;
                }
                /* dv does not read v. */
                assert_true(seen > 0 || (tensor == 2 && y == 8));
                free(got);
            }
}

/* Nothing takes denormals for zero: sums, and half of each (gelu of a number near 0). */
TEST(denormals_are_kept)
{
    static const trial_call calls[] = {call_add, call_gelu_forward};
    static const ech_op ops[] = {ECH_OP_add, ECH_OP_gelu_forward};
    for (size_t c = 0; c < TRIAL_COUNT(calls); c++)
        for (ech_isa isa = 0; isa < ECH_ISAS; isa++) {
            trial t = {.name = "denormals",
                       .op = ops[c],
                       .call = calls[c],
                       .tensor = {{.role = TRIAL_IN, TRIAL_1D(C), .low = 1e-40, .high = 5e-39},
                                  {.role = TRIAL_IN, TRIAL_1D(C), .low = 1e-40, .high = 5e-39},
                                  TRIAL_RESULT(TRIAL_1D(C))}};
            if (!ech_kernels_of(isa, ECH_F32)) continue;
            trial_run run =
                trial_execute(&t, ech_kernels_of(isa, ECH_F32), (trial_way){.threads = 1});
            for (int64_t i = 0; i < C; i++) {
                double a = run.result[0][i], b = run.result[1][i];
                assert_true(fabs(run.result[2][i] - (c == 0 ? a + b : a / 2)) < 2e-45);
            }
            trial_free(&run);
        }
}

static void call_attention_forward(const ech_kernels *kernels, ech_kernel_context *context,
                                   const ech_tensor *const *t, const void *options)
{
    const ech_dropout *dropout = options;
    ech_attention_shard at = place_uncut(0, t[0]->shape[1], t[0]->shape[2]);
    kernels->attention_forward(context, t[0], t[1], t[2], &place_rule, &at, NULL, dropout, false,
                               t[3], t[4]);
}

/* With an infinite element of q or k, a score may be infinite: alone (token 0's only one), in the
 * first tile of keys or in a later one. Which results are numbers, and which, is as in the
 * definition. */
TEST(infinite_scores_are_as_defined)
{
    enum { T = 150, H = 2, D = 8 };
    static const int64_t tokens[] = {0, 1, 60, 64, 149};
    ech_dropout dropout = {.p = 0};
    trial_tensor in = TRIAL_INPUT(TRIAL_4D(1, T, H, D));
    trial t = {.name = "attention",
               .op = ECH_OP_attention_forward,
               .call = call_attention_forward,
               .options = &dropout,
               .dims = {1, T, T, H, H, D, D},
               .tensor = {in, in, in, TRIAL_RESULT(TRIAL_4D(1, T, H, D)),
                          TRIAL_RESULT(TRIAL_3D(1, H, T))}};
    for (size_t place = 0; place < TRIAL_COUNT(tokens) * 4 * D; place++) {
        int64_t element = tokens[place / (4 * D)] * H * D + (int64_t)(place % D);
        int tensor = (int)(place / D % 2);
        double value = place / (2 * D) % 2 ? (double)INFINITY : -(double)INFINITY;
        for (int y = 3; y < 5; y++) {
            double *exact = run_bad(&t, 0, tensor, element, value, y);
            double *got = run_bad(&t, 2, tensor, element, value, y);
            for (int64_t i = 0; i < (y == 3 ? T * H * D : H * T); i++) {
                assert_true(isnan(got[i]) == isnan(exact[i]));
                if (isfinite(exact[i])) assert_true(fabs(got[i] - exact[i]) < 1e-5);
            }
            free(exact);
            free(got);
        }
    }
}

TRIAL_CALL(adamw, t[0], t[1], t[2], t[2], options, NULL)

TEST(updates_show_bad_gradients)
{
    ech_update update = {
        .learning_rate = 0.1, .beta1 = 0.9, .beta2 = 0.9, .eps = 1e-8, .count = 1, .grad_scale = 1};
    trial t = {.name = "adamw",
               .op = ECH_OP_adamw,
               .call = call_adamw,
               .options = &update,
               .tensor = {TRIAL_CHANGED(TRIAL_1D(40)),
                          TRIAL_INPUT(TRIAL_1D(40)),
                          {.role = TRIAL_IN_OUT, TRIAL_1D(40), .low = 0.5, .high = 1}}};
    for (int table = 0; table < 3; table++) {
        double *p = run_bad(&t, table, 1, 17, (double)NAN, 0);
        for (int64_t i = 0; i < 40; i++) assert_true(isnan(p[i]) == (i == 17));
        free(p);
    }
}
