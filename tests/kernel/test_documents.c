/* SPDX-License-Identifier: Apache-2.0
 *
 * Several documents in a sample: what the kernels that know of positions make of them is what they
 * make of each document by itself.
 */
#include "kernel/rope.h"
#include "kernel/places.h"
#include "kernel/trial.h"

enum { FIRST_SAMPLE = 3 };

/* B, T, H, G, D. */
static const int64_t shapes[][5] = {
    {1, 1, 1, 1, 2}, {2, 7, 3, 1, 6}, {3, 49, 4, 2, 8}, {2, 130, 2, 1, 16}, {1, 97, 2, 2, 4}};
/* Lengths of documents, over and over: one token, a tile, a block of angles, whatever. */
static const int64_t lengths[][3] = {
    {1, 1, 1}, {48, 48, 48}, {64, 64, 64}, {7, 1, 90}, {500, 3, 2}};

static double draw(uint32_t series, int64_t i)
{
    return value_at(series, i, -1, 1);
}

/* A contiguous tensor; series 0 is left unwritten (NaN). */
static ech_tensor make(ech_dtype dtype, uint32_t series, int dims, const int64_t *shape)
{
    ech_tensor x = ech_tensor_view(NULL, dtype, dims, shape);
    x.data = malloc(ech_tensor_bytes(&x) + 1);
    assert_non_null(x.data);
    memset(x.data, 0xff, ech_tensor_bytes(&x));
    for (int64_t i = 0; i < ech_tensor_count(&x) && series; i++) trial_set(&x, i, draw(series, i));
    return x;
}

/* Tokens [first, first + n) of sample b. */
static ech_tensor part_of(const ech_tensor *x, int64_t b, int64_t first, int64_t n)
{
    ech_tensor part = *x;
    part.shape[0] = 1;
    part.shape[1] = n;
    part.data = (char *)x->data +
                (size_t)(b * x->stride[0] + first * x->stride[1]) * ech_dtype_bytes(x->dtype);
    return part;
}

static int64_t length_at(const ech_tensor *starts, int64_t b, int64_t first)
{
    int64_t T = starts->shape[1], n = 1;
    while (first + n < T && ech_document_start(starts, b, first + n) == first) n++;
    return n;
}

static void assert_near(const char *what, const ech_tensor *x, const ech_tensor *y, double bound)
{
    assert_int_equal(ech_tensor_count(x), ech_tensor_count(y));
    for (int64_t i = 0; i < ech_tensor_count(x); i++) {
        double a = trial_get(x, trial_place(x, i)), b = trial_get(y, trial_place(y, i));
        if (!(fabs(a - b) <= bound))
            fail_msg("%s: element %lld is %.15g, of the document alone %.15g", what, (long long)i,
                     a, b);
    }
}

static ech_kernel_context *open_context(const ech_kernels *kernels, ech_op op, const int64_t *dims)
{
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    context->scratch_bytes = ech_kernel_scratch(kernels, op, context->threads, dims);
    context->scratch = malloc(context->scratch_bytes + 1);
    memset(context->scratch, 0xff, context->scratch_bytes);
    return context;
}

static void close_context(ech_kernel_context *context)
{
    free(context->scratch);
    ech_kernel_context_destroy(context);
}

/* ---- attention ---- */

typedef enum operand { Q, K, V, DOUT, OUT, DQ, DK, DV, LSE, OPERANDS } operand;

typedef struct attention {
    ech_tensor x[OPERANDS];
    ech_attention_shard at;
    ech_dropout dropout;
} attention;

static void attend(const ech_kernels *kernels, const attention *a, const ech_tensor *starts)
{
    const ech_tensor *x = a->x;
    int64_t dims[] = {x[Q].shape[0], x[Q].shape[1], x[K].shape[1], x[Q].shape[2],
                      x[K].shape[2], x[Q].shape[3], x[V].shape[3]};
    ech_kernel_context *context = open_context(kernels, ECH_OP_attention_forward, dims);
    kernels->attention_forward(context, &x[Q], &x[K], &x[V], &place_rule, &a->at, starts,
                               &a->dropout, false, &x[OUT], &x[LSE]);
    close_context(context);
    context = open_context(kernels, ECH_OP_attention_backward, dims);
    kernels->attention_backward(context, &x[DOUT], &x[Q], &x[K], &x[V], &x[OUT], &x[LSE],
                                &place_rule, &a->at, starts, &a->dropout, false, false, &x[DQ],
                                &x[DK], &x[DV]);
    close_context(context);
}

static attention make_attention(ech_dtype dtype, const int64_t s[5], double p)
{
    int64_t queries[] = {s[0], s[1], s[2], s[4]}, keys[] = {s[0], s[1], s[3], s[4]};
    attention a = {.at = place_uncut(FIRST_SAMPLE, s[1], s[2]),
                   .dropout = {.p = p, .key = {1, 2, 3}}};
    for (operand i = Q; i < LSE; i++) {
        bool key = i == K || i == V || i == DK || i == DV;
        a.x[i] = make(dtype, i < OUT ? 1 + (uint32_t)i : 0, 4, key ? keys : queries);
    }
    a.x[LSE] = make(dtype, 0, 3, (int64_t[]){s[0], s[2], s[1]});
    return a;
}

static void free_attention(attention *a)
{
    for (operand i = Q; i < OPERANDS; i++) free(a->x[i].data);
}

/* One document of sample b where it lies in the sample, so that it drops what it drops there. */
static void compare_document(const ech_kernels *kernels, const attention *whole, int64_t b,
                             int64_t first, int64_t n, double bound)
{
    attention a = {.dropout = whole->dropout, .at = whole->at};
    int64_t H = whole->x[Q].shape[2];
    a.at.query = a.at.key = rows_piece(FIRST_SAMPLE + b, whole->at.query.whole, first, n);
    for (operand i = Q; i < OUT; i++) a.x[i] = part_of(&whole->x[i], b, first, n);
    for (operand i = OUT; i < LSE; i++) {
        ech_tensor found = part_of(&whole->x[i], b, first, n);
        a.x[i] = make(kernels->dtype, 0, 4, found.shape);
    }
    a.x[LSE] = make(kernels->dtype, 0, 3, (int64_t[]){1, H, n});
    attend(kernels, &a, NULL);
    for (operand i = OUT; i < LSE; i++) {
        ech_tensor found = part_of(&whole->x[i], b, first, n);
        assert_near("attention", &found, &a.x[i], bound);
        free(a.x[i].data);
    }
    ech_tensor lse = part_of(&whole->x[LSE], b, 0, H);
    for (int64_t h = 0; h < H; h++)
        for (int64_t t = 0; t < n; t++)
            assert_true(fabs(trial_get(&lse, h * lse.stride[1] + first + t) -
                             trial_get(&a.x[LSE], h * n + t)) <= bound);
    free(a.x[LSE].data);
}

TEST(attention_of_each_document)
{
    const ech_kernels *tables[] = {ech_kernels_ref(ECH_F64), ech_kernels_fast(ECH_F32)};
    for (int k = 0; k < 2; k++)
        for (size_t s = 0; s < TRIAL_COUNT(shapes); s++)
            for (size_t d = 0; d < TRIAL_COUNT(lengths); d++) {
                ech_tensor starts = starts_of(shapes[s][0], shapes[s][1], lengths[d], 3);
                attention a = make_attention(tables[k]->dtype, shapes[s], d % 2 ? 0.2 : 0);
                attend(tables[k], &a, &starts);
                for (int64_t b = 0; b < shapes[s][0]; b++)
                    for (int64_t t = 0, n; t < shapes[s][1]; t += n) {
                        n = length_at(&starts, b, t);
                        compare_document(tables[k], &a, b, t, n, k ? 2e-6 : 1e-12);
                    }
                free_attention(&a);
                free(starts.data);
            }
}

/* Who sees itself alone gets its own value, and gives nothing to queries and keys. */
TEST(documents_of_one_token)
{
    const int64_t shape[] = {2, 55, 2, 2, 4}, one[] = {1};
    ech_tensor starts = starts_of(2, 55, one, 1);
    attention a = make_attention(ECH_F32, shape, 0);
    attend(ech_kernels_fast(ECH_F32), &a, &starts);
    assert_near("value", &a.x[OUT], &a.x[V], 1e-6);
    assert_near("its gradient", &a.x[DV], &a.x[DOUT], 1e-6);
    for (int64_t i = 0; i < ech_tensor_count(&a.x[DQ]); i++) {
        assert_true(fabs(trial_get(&a.x[DQ], i)) < 1e-6);
        assert_true(fabs(trial_get(&a.x[DK], i)) < 1e-6);
    }
    free_attention(&a);
    free(starts.data);
}

/* Tiles before every query's document are not looked at: what is not a number there goes
 * nowhere. */
TEST(tiles_of_other_documents_are_skipped)
{
    enum { TILE = 64, T = 6 * TILE };
    const int64_t shape[] = {1, T, 2, 1, 16}, two[] = {2 * TILE, T};
    ech_tensor starts = starts_of(1, T, two, 2);
    attention a = make_attention(ECH_F32, shape, 0.1);
    ech_tensor k = part_of(&a.x[K], 0, 0, 2 * TILE), v = part_of(&a.x[V], 0, 0, 2 * TILE);
    memset(k.data, 0xff, ech_tensor_bytes(&k));
    memset(v.data, 0xff, ech_tensor_bytes(&v));
    attend(ech_kernels_fast(ECH_F32), &a, &starts);
    for (operand i = OUT; i < LSE; i++) {
        ech_tensor first = part_of(&a.x[i], 0, 0, 2 * TILE);
        ech_tensor second = part_of(&a.x[i], 0, 2 * TILE, T - 2 * TILE);
        assert_true(isnan(trial_get(&first, 0)));
        for (int64_t e = 0; e < ech_tensor_count(&second); e++)
            assert_true(isfinite(trial_get(&second, e)));
    }
    free_attention(&a);
    free(starts.data);
}

/* ---- positions ---- */

static void rotate(const ech_kernels *kernels, const ech_tensor *x, const ech_rows *rows,
                   const ech_tensor *starts, bool inverse, const ech_tensor *y)
{
    int64_t dims[] = {x->shape[1], x->shape[3]};
    ech_kernel_context *context = open_context(kernels, ECH_OP_rotary, dims);
    double frequency[64];
    assert_true(x->shape[3] <= 128);
    ech_rope_frequencies(&(ech_rope){.theta = 10000}, x->shape[3], frequency);
    kernels->rotary(context, x, frequency, x->shape[3], false, 1, rows, starts, inverse, y);
    close_context(context);
}

/* Every document is rotated as if it began its sample, to the bit; and a rank's two runs of tokens
 * are rotated as in the whole sample. */
static void check_rotary(const ech_kernels *kernels, const int64_t s[5], const ech_tensor *starts,
                         bool inverse)
{
    int64_t B = s[0], T = s[1], shape[] = {B, T, s[2], s[4]};
    ech_tensor x = make(kernels->dtype, 1, 4, shape), y = make(kernels->dtype, 0, 4, shape);
    ech_tensor z = make(kernels->dtype, 0, 4, shape);
    ech_rows whole = rows_uncut(FIRST_SAMPLE, T);
    rotate(kernels, &x, &whole, starts, inverse, &y);
    for (int64_t b = 0; b < B; b++)
        for (int64_t t = 0, n; t < T; t += n) {
            n = length_at(starts, b, t);
            ech_rows alone = rows_uncut(0, n);
            ech_tensor in = part_of(&x, b, t, n), out = part_of(&z, b, t, n);
            rotate(kernels, &in, &alone, NULL, inverse, &out);
        }
    assert_near("rotary", &y, &z, 0);
    /* The first third and the last, of all samples. */
    int64_t third = T / 3, run[] = {B, 2 * third, s[2], s[4]};
    ech_rows ends = rows_pair(FIRST_SAMPLE, T, 0, third, T - third, third);
    ech_tensor some = make(kernels->dtype, 0, 4, run);
    for (int64_t b = 0; b < B && third; b++)
        for (int late = 0; late < 2; late++) {
            ech_tensor from = part_of(&x, b, late ? T - third : 0, third);
            ech_tensor to = part_of(&some, b, late * third, third);
            memcpy(to.data, from.data, ech_tensor_bytes(&from));
        }
    if (third) rotate(kernels, &some, &ends, starts, inverse, &some);
    for (int64_t b = 0; b < B && third; b++)
        for (int late = 0; late < 2; late++) {
            ech_tensor wanted = part_of(&y, b, late ? T - third : 0, third);
            ech_tensor got = part_of(&some, b, late * third, third);
            assert_near("rotary of two runs", &got, &wanted, 0);
        }
    free(x.data);
    free(y.data);
    free(z.data);
    free(some.data);
}

TEST(rotation_of_each_document)
{
    const ech_kernels *tables[] = {ech_kernels_ref(ECH_F64), ech_kernels_fast(ECH_F32)};
    for (int k = 0; k < 2; k++)
        for (size_t s = 0; s < TRIAL_COUNT(shapes); s++)
            for (size_t d = 0; d < TRIAL_COUNT(lengths); d++) {
                ech_tensor starts = starts_of(shapes[s][0], shapes[s][1], lengths[d], 3);
                check_rotary(tables[k], shapes[s], &starts, d % 2);
                free(starts.data);
            }
}

/* Rows [first, first + n) of all, as a tensor rank has a share of them. */
static void check_positions(const ech_kernels *kernels, const ech_tensor *starts, int64_t C,
                            int64_t first, int64_t n)
{
    int64_t T = starts->shape[1], P = T + 2, shape[] = {n, C}, tables[] = {P, C};
    ech_rows rows = rows_uncut(FIRST_SAMPLE, T);
    ech_tensor x = make(kernels->dtype, 1, 2, shape), table = make(kernels->dtype, 2, 2, tables);
    ech_tensor y = make(kernels->dtype, 0, 2, shape), dtable = make(kernels->dtype, 3, 2, tables);
    ech_tensor sums = make(ECH_F64, 0, 2, tables);
    ech_kernel_context *context =
        open_context(kernels, ECH_OP_position_backward, (const int64_t[]){n, P, C});
    rows.first = first;
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        for (int64_t i = 0; i < P * C; i++)
            trial_set(&sums, i, accumulate ? trial_get(&dtable, i) : 0);
        kernels->position_forward(context, &x, &table, &rows, starts, &y);
        kernels->position_backward(context, &x, &rows, starts, accumulate, &dtable);
        for (int64_t i = 0; i < n * C; i++) {
            int64_t row = (first + i / C) / T, t = (first + i / C) % T, c = i % C;
            int64_t at = (t - ech_document_start(starts, row, t)) * C + c;
            double wanted = trial_get(&x, i) + trial_get(&table, at);
            assert_true(fabs(trial_get(&y, i) - wanted) < 1e-6);
            trial_set(&sums, at, trial_get(&sums, at) + trial_get(&x, i));
        }
        assert_near("gradient of positions", &dtable, &sums,
                    kernels->dtype == ECH_F64 ? 1e-12 : 1e-4);
    }
    close_context(context);
    ech_tensor all[] = {x, table, y, dtable, sums};
    for (int i = 0; i < 5; i++) free(all[i].data);
}

TEST(positions_of_each_document)
{
    const ech_kernels *tables[] = {ech_kernels_ref(ECH_F64), ech_kernels_fast(ECH_F32)};
    for (int k = 0; k < 2; k++)
        for (size_t s = 0; s < TRIAL_COUNT(shapes); s++)
            for (size_t d = 0; d < TRIAL_COUNT(lengths); d++) {
                int64_t B = shapes[s][0], T = shapes[s][1], half = B * T / 2;
                ech_tensor starts = starts_of(B, T, lengths[d], 3);
                for (int64_t C = 1; C < 200; C += 132) {
                    check_positions(tables[k], &starts, C, 0, B * T);
                    check_positions(tables[k], &starts, C, half, B * T - half);
                }
                free(starts.data);
            }
}
