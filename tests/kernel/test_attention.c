/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention: fast rows against the definition, and the definition against a softmax over the whole
 * T x T matrix. The cases have grouped heads, strides of fused projections, dropout, gaps between
 * samples, and several documents.
 */
#include "kernel/places.h"
#include "kernel/trial.h"

/* What a call is told besides its tensors. */
typedef struct attention_case {
    ech_attention_shard at;
    ech_dropout dropout;
    const ech_tensor *starts;
    ech_attention_rule rule;
} attention_case;

TRIAL_CALL_WITH(attention_case, attention_forward, t[0], t[1], t[2], &o->rule, &o->at, o->starts,
                &o->dropout, false, t[3], t[4])
TRIAL_CALL_WITH(attention_case, attention_backward, t[5], t[0], t[1], t[2], t[3], t[4], &o->rule,
                &o->at, o->starts, &o->dropout, false, false, t[6], t[7], t[8])

/* Backward takes what forward left, in the same table. */
static void call_both(const ech_kernels *kernels, ech_kernel_context *context,
                      const ech_tensor *const *t, const void *options)
{
    call_attention_forward(kernels, context, t, options);
    call_attention_backward(kernels, context, t, options);
}

/* A trial of forward, then backward: q, k, v, out, lse, dout, dq, dk, dv. */
static trial make_trial(const int64_t s[6], int64_t gap, const attention_case *options)
{
    int64_t B = s[0], T = s[1], H = s[2], G = s[3], D = s[4], E = s[5];
    trial t = {
        .name = "attention",
        .op = ECH_OP_attention_backward,
        .call = call_both,
        .options = options,
        .dims = {B, T, T, H, G, D, E},
        .tolerance = 1e-5,
        .spreads = true,
        .depends_on_threads = true, /* in how many parts a head's keys are dealt */
        .large = 3,
        .tensor = {{.role = TRIAL_IN, TRIAL_4D(B, T, H, D), .low = -2, .high = 2, .gap = gap},
                   {.role = TRIAL_IN, TRIAL_4D(B, T, G, D), .low = -2, .high = 2, .gap = 2 * gap},
                   TRIAL_INPUT(TRIAL_4D(B, T, G, E), .gap = 3 * gap),
                   TRIAL_RESULT(TRIAL_4D(B, T, H, E), .type = TRIAL_EITHER),
                   TRIAL_RESULT(TRIAL_3D(B, H, T), .type = TRIAL_WIDE),
                   TRIAL_INPUT(TRIAL_4D(B, T, H, E)),
                   TRIAL_RESULT(TRIAL_4D(B, T, H, D), .gap = gap, .type = TRIAL_EITHER),
                   TRIAL_RESULT(TRIAL_4D(B, T, G, D), .gap = 2 * gap, .type = TRIAL_EITHER),
                   TRIAL_RESULT(TRIAL_4D(B, T, G, E), .gap = gap, .type = TRIAL_EITHER)}};
    return t;
}

/* B, T, H, G, D, and E of values. */
static const int64_t shapes[][6] = {
    {0, 7, 2, 1, 8, 8}, /* no samples */
    {1, 1, 1, 1, 2, 2},
    {2, 7, 3, 1, 5, 5},
    {1, 48, 2, 2, 16, 16},
    {2, 49, 4, 2, 8, 8},
    {1, 130, 2, 1, 64, 64},
    {5, 33, 4, 4, 20, 20},
    {1, 97, 1, 1, 128, 128},
    {3, 100, 6, 3, 32, 32},
    /* Around the tiles of tokens, the blocks of rows in them, the vectors of a head, chunks of
     * tiles. */
    {1, 63, 2, 1, 15, 15},
    {1, 64, 1, 1, 17, 17},
    {2, 65, 2, 2, 4, 4},
    {1, 72, 2, 1, 48, 48},
    {1, 127, 2, 2, 33, 33},
    {1, 128, 1, 1, 1, 1},
    {1, 129, 2, 1, 80, 80},
    {1, 330, 1, 1, 24, 24},
    /* Values narrower and wider than keys, by less and more than a vector or a slice. */
    {2, 40, 4, 2, 24, 16},
    {1, 70, 2, 2, 15, 40},
    {1, 66, 1, 1, 72, 33},
    {1, 34, 1, 1, 130, 100},
    {1, 20, 2, 1, 60, 150},
};
static const ech_dropout off = {.p = 0}, tenth = {.p = 0.1, .key = {3, 5, 7}},
                         half = {.p = 0.5, .key = {UINT64_MAX, 1, 2}};

/* Whole samples and all heads; samples from first_sample on. */
static attention_case uncut(const int64_t s[6], int64_t first_sample, const ech_dropout *dropout)
{
    return (attention_case){place_uncut(first_sample, s[1], s[2]), *dropout, NULL, place_rule};
}

/* Lengths of documents: of a token or two, of a tile each, short and long, nearly a tile. */
static const int64_t lengths[][3] = {{1, 2, 1}, {64, 64, 64}, {7, 1, 90}, {63, 65, 2}};

TEST(fast_agrees_with_the_definition)
{
    for (size_t s = 0; s < TRIAL_COUNT(shapes); s++)
        for (int way = 0; way < 4; way++) {
            /* dq and dk are differences of equal products, which dropout rounds */
            if (shapes[s][1] == 1 && way > 1) continue;
            attention_case options = way < 2    ? uncut(shapes[s], 0, &off)
                                     : way == 2 ? uncut(shapes[s], 11, &tenth)
                                                : uncut(shapes[s], 1 << 30, &half);
            trial t = make_trial(shapes[s], way % 2 * 7, &options);
            trial_check(&t);
        }
}

TEST(fast_agrees_within_documents)
{
    for (size_t s = 0; s < TRIAL_COUNT(shapes); s++)
        for (size_t d = 0; d < TRIAL_COUNT(lengths); d++) {
            ech_tensor starts = starts_of(shapes[s][0], shapes[s][1], lengths[d], 3);
            attention_case options = uncut(shapes[s], 11, d % 2 ? &tenth : &off);
            options.starts = &starts;
            trial t = make_trial(shapes[s], d % 2 * 7, &options);
            trial_check(&t);
            free(starts.data);
        }
}

/* Windows inside a tile, of a tile, over tiles, and caps that bend many scores and few. */
static const ech_attention_rule rules[] = {
    {.scale = 0.3, .window = 2},  {.scale = 0.3, .window = 33},
    {.scale = 0.3, .window = 64}, {.scale = 0.5, .window = 100, .cap = 1.5},
    {.scale = 0.3, .cap = 20},    {.scale = 0.01, .window = 65},
};

TEST(fast_agrees_under_rules)
{
    for (size_t s = 0; s < TRIAL_COUNT(shapes); s++)
        for (size_t r = 0; r < TRIAL_COUNT(rules); r++) {
            if (shapes[s][1] == 1) continue; /* as above */
            ech_tensor starts = starts_of(shapes[s][0], shapes[s][1], lengths[r % 4], 3);
            attention_case options = uncut(shapes[s], 11, r % 3 ? &off : &tenth);
            options.rule = rules[r];
            if ((s + r) % 3 == 0) options.starts = &starts;
            trial t = make_trial(shapes[s], r % 2 * 7, &options);
            trial_check(&t);
            free(starts.data);
        }
}

/* Forward alone asks for its own scratch. */
TEST(forward_alone)
{
    for (size_t s = 0; s < TRIAL_COUNT(shapes); s++) {
        attention_case options = uncut(shapes[s], 11, &tenth);
        if (s % 2) options.rule.window = 1;
        trial t = make_trial(shapes[s], 0, &options);
        t.op = ECH_OP_attention_forward;
        t.call = call_attention_forward;
        for (int i = 5; i < 9; i++) t.tensor[i] = (trial_tensor){0};
        trial_check(&t);
    }
}

/* Keys come in two parts, as they go round a ring. */
static void call_merged(const ech_kernels *kernels, ech_kernel_context *context,
                        const ech_tensor *const *t, const void *options)
{
    const attention_case *o = options;
    int64_t T = t[1]->shape[1], cut = (2 * T + 2) / 3;
    for (int part = 0; part < 2; part++) {
        int64_t first = part ? cut : 0, n = part ? T - cut : cut;
        ech_tensor k = ech_tensor_narrow(t[1], 1, first, n);
        ech_tensor v = ech_tensor_narrow(t[2], 1, first, n);
        ech_attention_shard at = o->at;
        at.key = rows_piece(o->at.key.first_sample, T, first, n);
        if (n > 0)
            kernels->attention_forward(context, t[0], &k, &v, &o->rule, &at, o->starts, &o->dropout,
                                       part > 0, t[3], t[4]);
    }
}

TEST(parts_of_keys_are_merged)
{
    for (size_t s = 0; s < TRIAL_COUNT(shapes); s++) {
        const int64_t *n = shapes[s];
        attention_case options = uncut(n, 11, s % 2 ? &tenth : &off);
        if (s % 4 > 1) options.rule = rules[s % TRIAL_COUNT(rules)];
        trial t = make_trial(n, 0, &options);
        t.op = ECH_OP_attention_forward;
        for (int i = 5; i < 9; i++) t.tensor[i] = (trial_tensor){0};
        t.call = call_attention_forward;
        trial_run whole = trial_execute(&t, ech_kernels_ref(ECH_F64), (trial_way){.threads = 1});
        t.call = call_merged;
        trial_run parts = trial_execute(&t, ech_kernels_ref(ECH_F64), (trial_way){.threads = 1});
        for (int64_t i = 0; i < n[0] * n[1] * n[2] * n[5]; i++)
            assert_true(fabs(parts.result[3][i] - whole.result[3][i]) < 1e-12);
        trial_free(&whole);
        trial_free(&parts);
        trial_check(&t);
    }
}

/* Of pairs the probabilities and the scores' gradients are rounded, too. Where another order of
 * sums has an output rounded the other way, by one part in 256 in bf16, the gradients of all its
 * row's scores move: by the row's sum of dy times output. */
TEST(halves_agree_with_the_definition)
{
    for (size_t s = 0; s < TRIAL_COUNT(shapes); s++) {
        ech_tensor starts = starts_of(shapes[s][0], shapes[s][1], lengths[s % 4], 3);
        attention_case options = uncut(shapes[s], 11, s % 2 ? &tenth : &off);
        if (s % 3 == 0) options.starts = &starts;
        if (s % 4 > 1) options.rule = rules[s % TRIAL_COUNT(rules)];
        trial t = make_trial(shapes[s], s % 2 * 7, &options);
        t.depends_on_threads = false;
        trial_check_halves(&t, 3e-5, TRIAL_BOUND(1e-2, 1.2e-2));
        free(starts.data);
    }
}

/* softmax(scale q kT) v, all scores of one head in one matrix. */
static void naive_head(const trial_run *run, const int64_t s[6], int64_t b, int64_t h,
                       const attention_case *options, double *p, double *out)
{
    int64_t T = s[1], H = s[2], G = s[3], D = s[4], E = s[5], g = h / (H / G);
    const ech_dropout *dropout = &options->dropout;
    const double *q = run->result[0], *k = run->result[1], *v = run->result[2];
    for (int64_t i = 0; i < T; i++) {
        double sum = 0;
        for (int64_t j = 0; j < T; j++) {
            double score = 0;
            for (int64_t d = 0; d < D; d++)
                score += q[((b * T + i) * H + h) * D + d] * k[((b * T + j) * G + g) * D + d];
            const ech_attention_rule *rule = &options->rule;
            int64_t start = ech_document_start(options->starts, b, i);
            bool seen = j <= i && j >= start && (rule->window == 0 || j > i - rule->window);
            score *= rule->scale;
            if (rule->cap > 0) score = rule->cap * tanh(score / rule->cap);
            p[i * T + j] = seen ? exp(score) : 0;
            sum += p[i * T + j];
        }
        for (int64_t j = 0; j < T; j++) {
            int64_t element = (((options->at.query.first_sample + b) * H + h) * T + i) * T + j;
            double unit = ech_random_unit(ech_random_word(dropout->key, (uint64_t)element));
            p[i * T + j] *= (unit < dropout->p ? 0 : 1 / (1 - dropout->p)) / sum;
        }
        for (int64_t d = 0; d < E; d++) {
            out[i * E + d] = 0;
            for (int64_t j = 0; j < T; j++)
                out[i * E + d] += p[i * T + j] * v[((b * T + j) * G + g) * E + d];
        }
    }
}

TEST(definition_is_softmax_over_all_keys)
{
    for (size_t s = 0; s < 4 * TRIAL_COUNT(shapes); s++) {
        const int64_t *shape = shapes[s / 4], T = shape[1], H = shape[2], E = shape[5];
        attention_case options = uncut(shape, 11, &tenth);
        ech_tensor starts = starts_of(shape[0], T, lengths[2], 3);
        if (s % 2) options.starts = &starts;
        if (s % 4 > 1) options.rule = rules[s / 4 % TRIAL_COUNT(rules)];
        trial t = make_trial(shape, 3, &options);
        trial_run run = trial_execute(&t, ech_kernels_ref(ECH_F64), (trial_way){.threads = 1});
        double *p = ech_calloc((size_t)(T * T), sizeof *p);
        double *out = ech_calloc((size_t)(T * E), sizeof *out);
        for (int64_t b = 0; b < shape[0]; b++)
            for (int64_t h = 0; h < H; h++) {
                naive_head(&run, shape, b, h, &options, p, out);
                for (int64_t i = 0; i < T; i++)
                    for (int64_t d = 0; d < E; d++)
                        assert_true(fabs(run.result[3][((b * T + i) * H + h) * E + d] -
                                         out[i * E + d]) < 1e-12);
            }
        free(p);
        free(out);
        free(starts.data);
        trial_free(&run);
    }
}

/* The first value and the last query's gradient are NaN. */
static void poison(const trial *t, const ech_tensor *x)
{
    int64_t T = t->dims[1], H = t->dims[3], D = t->dims[5];
    for (int64_t d = 0; d < D; d++) {
        trial_set(&x[2], d, NAN);
        trial_set(&x[5], (T - 1) * H * D + d, NAN);
    }
}

/* NaN reaches what is computed with it, and that is only what is near the window. */
TEST(outside_of_windows_nothing_is_computed)
{
    enum { T = 520, D = 8, W = 70, TILE = 128 /* at most */ };
    const int64_t s[] = {1, T, 1, 1, D, D};
    attention_case options = uncut(s, 0, &off);
    options.rule.window = W;
    for (int table = 0; table < 2; table++) {
        const ech_kernels *k = table ? ech_kernels_fast(ECH_F32) : ech_kernels_ref(ECH_F64);
        trial t = make_trial(s, 0, &options);
        trial_run run = trial_execute(&t, k, (trial_way){.threads = 2, .prepare = poison});
        const double *out = run.result[3], *dk = run.result[7], *dv = run.result[8];
        assert_true(isnan(out[0]) && isnan(dk[(T - 1) * D]) && isnan(dv[(T - 1) * D]));
        for (int64_t i = (W + TILE) * D; i < T * D; i++) assert_true(isfinite(out[i]));
        for (int64_t i = (W + TILE) * D; i < (T - W - TILE) * D; i++)
            assert_true(isfinite(dk[i]) && isfinite(dv[i]));
        trial_free(&run);
    }
}

/* As a layer calls them: q, k, v, out, lse, dout, dq, dk, dv, sinks, and the sinks' gradient. */
static void call_with_sinks(const ech_kernels *kernels, ech_kernel_context *context,
                            const ech_tensor *const *t, const void *options)
{
    const attention_case *o = options;
    kernels->sinks_forward(context, t[9], t[3], t[4]);
    kernels->attention_forward(context, t[0], t[1], t[2], &o->rule, &o->at, o->starts, &o->dropout,
                               true, t[3], t[4]);
    call_attention_backward(kernels, context, t, options);
    kernels->sinks_backward(context, t[5], t[3], t[4], t[9], false, t[10]);
    kernels->sinks_backward(context, t[5], t[3], t[4], t[9], true, t[10]);
}

static trial make_sinks(const int64_t s[6], const attention_case *options)
{
    trial t = make_trial(s, 0, options);
    t.call = call_with_sinks;
    t.tensor[9] = (trial_tensor){
        .role = TRIAL_IN, .dims = 1, .shape = {s[2]}, .low = -1, .high = 3, .type = TRIAL_WIDE};
    t.tensor[10] =
        (trial_tensor){.role = TRIAL_OUT, .dims = 1, .shape = {s[2]}, .type = TRIAL_EITHER};
    return t;
}

TEST(sinks_agree_with_the_definition)
{
    for (size_t s = 0; s < TRIAL_COUNT(shapes); s++) {
        if (shapes[s][1] == 1) continue;
        ech_tensor starts = starts_of(shapes[s][0], shapes[s][1], lengths[s % 4], 3);
        attention_case options = uncut(shapes[s], 11, s % 2 ? &tenth : &off);
        if (s % 3 == 0) options.starts = &starts;
        if (s % 4 > 1) options.rule = rules[s % TRIAL_COUNT(rules)];
        trial t = make_sinks(shapes[s], &options);
        trial_check(&t);
        t.depends_on_threads = false;
        trial_check_halves(&t, 3e-5, TRIAL_BOUND(1e-2, 1.2e-2));
        free(starts.data);
    }
}

/* exp(sink) in the denominator, and the loss sum dout·out by a sink numerically. */
TEST(sinks_join_the_denominator)
{
    for (size_t s = 1; s < TRIAL_COUNT(shapes); s++) {
        int64_t T = shapes[s][1], H = shapes[s][2], E = shapes[s][5];
        attention_case options = uncut(shapes[s], 11, &tenth);
        options.rule = rules[s % TRIAL_COUNT(rules)];
        trial t = make_sinks(shapes[s], &options);
        trial_run run = trial_execute(&t, ech_kernels_ref(ECH_F64), (trial_way){.threads = 1});
        const double *lse = run.result[4], *dout = run.result[5], *sinks = run.result[9];
        double *p = ech_calloc((size_t)(T * T), sizeof *p);
        double *out = ech_calloc((size_t)(T * E), sizeof *out);
        for (int64_t h = 0; h < H; h++) {
            double slope = 0;
            for (int64_t b = 0; b < shapes[s][0]; b++) {
                naive_head(&run, shapes[s], b, h, &options, p, out);
                for (int64_t i = 0; i < T; i++) {
                    /* lse has the sink in it: of the keys alone it is log(exp(lse) - exp(sink)). */
                    double share = exp(sinks[h] - lse[(b * H + h) * T + i]);
                    for (int64_t d = 0; d < E; d++) {
                        int64_t at = ((b * T + i) * H + h) * E + d;
                        double mixed = (1 - share) * out[i * E + d];
                        assert_true(fabs(run.result[3][at] - mixed) < 1e-11);
                        slope -= 2 * share * mixed * dout[at]; /* called twice */
                    }
                }
            }
            assert_true(fabs(run.result[10][h] - slope) < 1e-9 * (1 + fabs(slope)));
        }
        free(p);
        free(out);
        trial_free(&run);
    }
}

/* Sample 1 of two gives the bits that it gives alone with first_sample one higher. */
TEST(samples_do_not_mix)
{
    enum { T = 60, H = 2, D = 16, N = T * H * D };
    const ech_kernels *fast = ech_kernels_fast(ECH_F32);
    static float q[2 * N], out[2 * N], alone[N], lse[2 * T * H];
    for (int64_t i = 0; i < 2 * N; i++) q[i] = (float)value_at(1, i, -1, 1);
    ech_dropout dropout = {.p = 0.2, .key = {1, 2, 3}};
    ech_attention_shard first = place_uncut(4, T, H), second = place_uncut(5, T, H);
    const int64_t both[] = {2, T, H, D}, one[] = {1, T, H, D}, dims[] = {2, T, T, H, H, D, D};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    context->scratch_bytes =
        ech_kernel_scratch(fast, ECH_OP_attention_forward, context->threads, dims);
    context->scratch = ech_calloc(context->scratch_bytes, 1);
    ech_tensor x = ech_tensor_view(q, ECH_F32, 4, both), y = ech_tensor_view(out, ECH_F32, 4, both);
    ech_tensor x1 = ech_tensor_view(q + N, ECH_F32, 4, one);
    ech_tensor y1 = ech_tensor_view(alone, ECH_F32, 4, one);
    ech_tensor l = ech_tensor_view(lse, ECH_F32, 3, (const int64_t[]){2, H, T});
    ech_tensor l1 = ech_tensor_view(lse, ECH_F32, 3, (const int64_t[]){1, H, T});
    fast->attention_forward(context, &x, &x, &x, &place_rule, &first, NULL, &dropout, false, &y,
                            &l);
    fast->attention_forward(context, &x1, &x1, &x1, &place_rule, &second, NULL, &dropout, false,
                            &y1, &l1);
    assert_memory_equal(out + N, alone, sizeof alone);
    free(context->scratch);
    ech_kernel_context_destroy(context);
}
