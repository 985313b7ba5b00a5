/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in parts: queries, keys and heads shared out in many ways, every table, with and without
 * dropout, of samples of one document and of several. Merged results and summed gradients are those of the uncut call in fp64.
 */
#include "kernel/places.h"
#include "kernel/trial.h"

enum { B = 2, T = 110, H = 4, G = 2, D = 12, FIRST_SAMPLE = 3, MOST_PARTS = 8 };

typedef enum operand { Q, K, V, OUT, LSE, DOUT, DQ, DK, DV, OPERANDS } operand;

/* The uncut problem: all operands in fp64. lse is (B,H,T), the others (B,T,heads,D). */
typedef struct problem {
    ech_dropout dropout;
    ech_tensor starts; /* without data: one document a sample */
    double *whole[OPERANDS];
} problem;

static const ech_tensor *starts_in(const problem *p)
{
    return p->starts.data ? &p->starts : NULL;
}

/* How tokens are shared out: each part's rows. */
typedef struct cutting {
    const char *name;
    int parts;
    ech_rows part[MOST_PARTS];
} cutting;

static int64_t heads_of(operand x)
{
    return x == K || x == V || x == DK || x == DV ? G : H;
}

static int64_t count_of(operand x)
{
    return x == LSE ? B * H * T : B * T * heads_of(x) * D;
}

/* One call's tensors, of some rows of queries and keys and a share of the heads. */
typedef struct part {
    const ech_kernels *kernels;
    ech_attention_shard at;
    int64_t H, G; /* of this share */
    ech_tensor x[OPERANDS];
} part;

static bool has_keys(operand x)
{
    return x == K || x == V || x == DK || x == DV;
}

static ech_tensor make(const part *p, operand x)
{
    const ech_rows *rows = has_keys(x) ? &p->at.key : &p->at.query;
    int64_t heads = has_keys(x) ? p->G : p->H;
    const int64_t shape[] = {B, rows->tokens, heads, D}, lse[] = {B, p->H, rows->tokens};
    ech_tensor t = x == LSE ? ech_tensor_view(NULL, p->kernels->dtype, 3, lse)
                            : ech_tensor_view(NULL, p->kernels->dtype, 4, shape);
    t.data = malloc(ech_tensor_bytes(&t) + 1);
    assert_non_null(t.data);
    memset(t.data, 0xff, ech_tensor_bytes(&t)); /* NaN */
    return t;
}

/* Where element i of a part's operand is in the whole. */
static int64_t whole_index(const part *p, operand x, int64_t i)
{
    const ech_rows *rows = has_keys(x) ? &p->at.key : &p->at.query;
    int64_t heads = has_keys(x) ? p->G : p->H, all = heads_of(x), n = rows->tokens;
    int64_t first = p->at.first_head * all / H;
    if (x == LSE) {
        int64_t t = i % n, h = i / n % heads, b = i / n / heads;
        return (b * H + first + h) * T + ech_row_position(rows, t);
    }
    int64_t d = i % D, h = i / D % heads, t = i / D / heads % n, b = i / D / heads / n;
    return ((b * T + ech_row_position(rows, t)) * all + first + h) * D + d;
}

static void take(part *p, operand x, const problem *from)
{
    p->x[x] = make(p, x);
    for (int64_t i = 0; i < ech_tensor_count(&p->x[x]); i++)
        trial_set(&p->x[x], i, from->whole[x][whole_index(p, x, i)]);
}

static ech_kernel_context *open_context(const part *p, ech_op op, int threads)
{
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(threads, &context), ECH_OK);
    const int64_t dims[] = {B, p->at.query.tokens, p->at.key.tokens, p->H, p->G, D};
    context->scratch_bytes = ech_kernel_scratch(p->kernels, op, context->threads, dims);
    context->scratch = malloc(context->scratch_bytes);
    assert_non_null(context->scratch);
    memset(context->scratch, 0xff, context->scratch_bytes);
    return context;
}

static void close_context(ech_kernel_context *context)
{
    free(context->scratch);
    ech_kernel_context_destroy(context);
}

static void forward(part *p, const problem *from, bool merge, int threads)
{
    ech_kernel_context *context = open_context(p, ECH_OP_attention_forward, threads);
    p->kernels->attention_forward(context, &p->x[Q], &p->x[K], &p->x[V], 0.3, &p->at, NULL,
                                  &from->dropout, merge, &p->x[OUT], &p->x[LSE]);
    close_context(context);
}

static void backward(part *p, const problem *from, bool add_q, bool add_kv, int threads)
{
    ech_kernel_context *context = open_context(p, ECH_OP_attention_backward, threads);
    p->kernels->attention_backward(context, &p->x[DOUT], &p->x[Q], &p->x[K], &p->x[V], &p->x[OUT],
                                   &p->x[LSE], 0.3, &p->at, starts_in(from), &from->dropout, add_q,
                                   add_kv, &p->x[DQ], &p->x[DK], &p->x[DV]);
    close_context(context);
}

static void drop(part *p, operand x)
{
    free(p->x[x].data);
    p->x[x] = (ech_tensor){0};
}

static part whole_part(const ech_kernels *kernels)
{
    return (part){.kernels = kernels, .at = place_uncut(FIRST_SAMPLE, T, H), .H = H, .G = G};
}

static problem make_problem(double p, bool documents)
{
    static const operand given[] = {Q, K, V, DOUT}, found[] = {OUT, LSE, DQ, DK, DV};
    problem made = {.dropout = {.p = p, .key = {7, 8, 9}}};
    if (documents) made.starts = starts_of(B, T, (int64_t[]){9, 48, 1, 30}, 4);
    for (int x = 0; x < OPERANDS; x++)
        made.whole[x] = ech_calloc((size_t)count_of((operand)x), sizeof(double));
    part all = whole_part(ech_kernels_ref(ECH_F64));
    for (int g = 0; g < 4; g++) {
        double range = given[g] == Q || given[g] == K ? 2 : 1;
        for (int64_t i = 0; i < count_of(given[g]); i++)
            made.whole[given[g]][i] = value_at((uint32_t)given[g], i, -range, range);
        take(&all, given[g], &made);
    }
    for (int f = 0; f < 5; f++) all.x[found[f]] = make(&all, found[f]);
    forward(&all, &made, false, 1);
    backward(&all, &made, false, false, 1);
    for (int f = 0; f < 5; f++)
        for (int64_t i = 0; i < count_of(found[f]); i++)
            made.whole[found[f]][i] = trial_get(&all.x[found[f]], i);
    for (int x = 0; x < OPERANDS; x++) drop(&all, (operand)x);
    return made;
}

static void free_problem(problem *from)
{
    free(from->starts.data);
    for (int x = 0; x < OPERANDS; x++) free(from->whole[x]);
}

/* The part's operand is its slice of the whole. */
static void check(const part *p, operand x, const problem *from, const char *what)
{
    double tolerance = p->kernels->dtype == ECH_F64 ? 1e-13 : 5e-6;
    double bound = tolerance * largest(count_of(x), from->whole[x], 1e-3);
    for (int64_t i = 0; i < ech_tensor_count(&p->x[x]); i++) {
        double got = trial_get(&p->x[x], i), wanted = from->whole[x][whole_index(p, x, i)];
        if (!(fabs(got - wanted) <= bound))
            fail_msg("%s: operand %d, element %lld: %.9g, not %.9g", what, x, (long long)i, got,
                     wanted);
    }
}

/* ---- ways to cut ---- */

static cutting pieces(const char *name, int parts, const int64_t *sizes)
{
    cutting made = {.name = name, .parts = parts};
    for (int64_t i = 0, start = 0; i < parts; start += sizes[i++])
        made.part[i] = rows_piece(FIRST_SAMPLE, T, start, sizes[i]);
    return made;
}

/* Rank r of c has pieces r and 2c - 1 - r of 2c: the same work for all under a causal mask. */
static cutting zigzag(int c)
{
    cutting made = {.name = "zig-zag", .parts = c};
    for (int r = 0; r < c; r++) {
        int64_t n = 2 * c, early = T * r / n, late = T * (n - 1 - r) / n;
        made.part[r] = rows_pair(FIRST_SAMPLE, T, early, T * (r + 1) / n - early, late,
                                 T * (n - r) / n - late);
    }
    return made;
}

/* ---- checks ---- */

/* A rank's queries visit all parts of the keys, in the order first, first + step, ... ; with
 * `from_nothing` the first result is merged as well, with that over no key. */
static void attend_all(part *p, const cutting *keys, const problem *from, int first, int step,
                       bool from_nothing, int threads)
{
    p->x[OUT] = make(p, OUT);
    p->x[LSE] = make(p, LSE);
    for (int64_t i = 0; from_nothing && i < ech_tensor_count(&p->x[OUT]); i++)
        trial_set(&p->x[OUT], i, 0);
    for (int64_t i = 0; from_nothing && i < ech_tensor_count(&p->x[LSE]); i++)
        trial_set(&p->x[LSE], i, -(double)INFINITY);
    for (int i = 0; i < keys->parts; i++) {
        p->at.key = keys->part[(first + i * step) % keys->parts];
        take(p, K, from);
        take(p, V, from);
        forward(p, from, i > 0 || from_nothing, threads);
        drop(p, K);
        drop(p, V);
    }
}

/* The gradients of one part of the queries: dq over all parts of the keys, dk and dv (one pair a part of
 * the keys, in `sums`) added to where a query has been before. */
static void descend_all(part *p, const cutting *keys, const problem *from, bool add_kv,
                        ech_tensor sums[MOST_PARTS][2], int threads)
{
    take(p, DOUT, from);
    p->x[DQ] = make(p, DQ);
    for (int i = 0; i < keys->parts; i++) {
        p->at.key = keys->part[i];
        take(p, K, from);
        take(p, V, from);
        p->x[DK] = add_kv ? sums[i][0] : make(p, DK);
        p->x[DV] = add_kv ? sums[i][1] : make(p, DV);
        backward(p, from, i > 0, add_kv, threads);
        sums[i][0] = p->x[DK];
        sums[i][1] = p->x[DV];
        drop(p, K);
        drop(p, V);
    }
}

static void check_cut(const ech_kernels *kernels, const problem *from, const cutting *queries,
                      const cutting *keys, int step, int threads)
{
    ech_tensor sums[MOST_PARTS][2];
    part p = whole_part(kernels);
    for (int i = 0; i < queries->parts; i++) {
        p.at.query = queries->part[i];
        take(&p, Q, from);
        attend_all(&p, keys, from, i % keys->parts, step, i % 2, threads);
        check(&p, OUT, from, queries->name);
        check(&p, LSE, from, queries->name);
        descend_all(&p, keys, from, i > 0, sums, threads);
        check(&p, DQ, from, queries->name);
        static const operand used[] = {Q, OUT, LSE, DOUT, DQ};
        for (size_t u = 0; u < TRIAL_COUNT(used); u++) drop(&p, used[u]);
    }
    for (int i = 0; i < keys->parts; i++) {
        p.at.key = keys->part[i];
        p.x[DK] = sums[i][0];
        p.x[DV] = sums[i][1];
        check(&p, DK, from, keys->name);
        check(&p, DV, from, keys->name);
        drop(&p, DK);
        drop(&p, DV);
    }
}

static const ech_kernels *table_of(int k)
{
    return k == 0   ? ech_kernels_ref(ECH_F64)
           : k == 1 ? ech_kernels_ref(ECH_F32)
                    : ech_kernels_fast(ECH_F32);
}

/* Every rank meets every part of the keys, also those that none or some of its queries see. */
static void parts_are_the_whole(void **state)
{
    (void)state;
    const cutting cuttings[] = {pieces("whole", 1, (int64_t[]){T}),
                                pieces("halves", 2, (int64_t[]){55, 55}),
                                pieces("tiles", 3, (int64_t[]){48, 48, 14}),
                                pieces("a tile", 2, (int64_t[]){64, 46}),
                                pieces("odd", 4, (int64_t[]){1, 27, 80, 2}),
                                zigzag(2),
                                zigzag(3),
                                zigzag(4)};
    for (int way = 0; way < 4; way++) {
        int dropped = way % 2;
        problem from = make_problem(dropped ? 0.2 : 0, way / 2);
        /* Builds without fast rows have the definition as their last table again. */
        for (int k = 0; k < (table_of(2) == table_of(1) ? 2 : 3); k++)
            for (size_t q = 0; q < TRIAL_COUNT(cuttings); q++)
                for (size_t j = 0; j < TRIAL_COUNT(cuttings); j++) {
                    /* The definition is slow; the fast rows meet every pair. */
                    if (k < 2 && j != (q + 1) % TRIAL_COUNT(cuttings) && (q < 4 || q != j))
                        continue;
                    int step = cuttings[j].parts - 1; /* backwards; of one part itself */
                    check_cut(table_of(k), &from, &cuttings[q], &cuttings[j],
                              dropped || step < 1 ? 1 : step, 1 + (int)(q + j) % 2);
                }
        free_problem(&from);
    }
}

/* Sampling: one query at a time against the keys so far, and against more than it sees. */
static void one_query_against_a_cache(void **state)
{
    (void)state;
    problem from = make_problem(0.2, true);
    for (int k = 0; k < 3; k++)
        for (int64_t t = 0; t < T; t += 7)
            for (int more = 0; more < 2; more++) {
                part p = whole_part(table_of(k));
                p.at.query = rows_piece(FIRST_SAMPLE, T, t, 1);
                p.at.key = rows_piece(FIRST_SAMPLE, T, 0, more ? T : t + 1);
                for (int x = Q; x <= V; x++) take(&p, (operand)x, &from);
                p.x[OUT] = make(&p, OUT);
                p.x[LSE] = make(&p, LSE);
                forward(&p, &from, false, 2);
                check(&p, OUT, &from, "one query");
                check(&p, LSE, &from, "one query");
                for (int x = Q; x <= LSE; x++) drop(&p, (operand)x);
            }
    free_problem(&from);
}

/* Tensor ranks have shares of the heads; their random numbers are those of the uncut heads. */
static void shares_of_heads(void **state)
{
    (void)state;
    problem from = make_problem(0.2, true);
    for (int k = 0; k < 3; k++)
        for (int share = 0; share < 2; share++) {
            part p = whole_part(table_of(k));
            p.H = H / 2;
            p.G = G / 2;
            p.at.first_head = share * p.H;
            for (int x = Q; x <= V; x++) take(&p, (operand)x, &from);
            take(&p, DOUT, &from);
            static const operand found[] = {OUT, LSE, DQ, DK, DV};
            for (int f = 0; f < 5; f++) p.x[found[f]] = make(&p, found[f]);
            forward(&p, &from, false, 2);
            backward(&p, &from, false, false, 2);
            for (int f = 0; f < 5; f++) check(&p, found[f], &from, "heads");
            for (int x = 0; x < OPERANDS; x++) drop(&p, (operand)x);
        }
    free_problem(&from);
}

/* Queries before all keys: nothing is seen, alone and merged; gradients are zero or stay. Values that
 * are not seen may be anything. */
static void rows_that_see_nothing(void **state)
{
    (void)state;
    problem from = make_problem(0, false);
    for (int64_t i = 0; i < count_of(V); i++)
        if (i / D / G % T >= 60) from.whole[V][i] = (double)NAN;
    for (int k = 0; k < 3; k++) {
        part p = whole_part(table_of(k));
        p.at.query = rows_piece(FIRST_SAMPLE, T, 0, 60);
        p.at.key = rows_piece(FIRST_SAMPLE, T, 60, T - 60);
        for (int x = Q; x <= V; x++) take(&p, (operand)x, &from);
        p.x[OUT] = make(&p, OUT);
        p.x[LSE] = make(&p, LSE);
        for (int merged = 0; merged < 2; merged++) {
            forward(&p, &from, merged, 2);
            for (int64_t i = 0; i < ech_tensor_count(&p.x[OUT]); i++)
                assert_true(trial_get(&p.x[OUT], i) == 0);
            for (int64_t i = 0; i < ech_tensor_count(&p.x[LSE]); i++)
                assert_true(trial_get(&p.x[LSE], i) == -(double)INFINITY);
        }
        take(&p, DOUT, &from);
        static const operand found[] = {DQ, DK, DV};
        for (int f = 0; f < 3; f++) p.x[found[f]] = make(&p, found[f]);
        backward(&p, &from, false, false, 2);
        for (int add = 0; add < 2; add++) {
            if (add) backward(&p, &from, true, true, 2);
            for (int f = 0; f < 3; f++)
                for (int64_t i = 0; i < ech_tensor_count(&p.x[found[f]]); i++)
                    assert_true(trial_get(&p.x[found[f]], i) == 0);
        }
        drop(&p, OUT);
        drop(&p, LSE);
        take(&p, OUT, &from);
        take(&p, LSE, &from);
        forward(&p, &from, true, 2); /* what was there stays, to the bit */
        for (int64_t i = 0; i < ech_tensor_count(&p.x[OUT]); i++) {
            double was = from.whole[OUT][whole_index(&p, OUT, i)];
            double rounded = p.kernels->dtype == ECH_F64 ? was : (double)(float)was;
            assert_true(trial_get(&p.x[OUT], i) == rounded);
        }
        for (int x = 0; x < OPERANDS; x++) drop(&p, (operand)x);
    }
    free_problem(&from);
}

/* The same call with one, two and three threads: the same bits, merged and added as well. */
static void threads_do_not_matter(void **state)
{
    (void)state;
    problem from = make_problem(0.2, true);
    const cutting cut = zigzag(3);
    double *kept[5] = {0};
    for (int threads = 1; threads <= 3; threads++) {
        part p = whole_part(ech_kernels_fast(ECH_F32));
        ech_tensor sums[MOST_PARTS][2];
        p.at.query = cut.part[1];
        take(&p, Q, &from);
        attend_all(&p, &cut, &from, 0, 1, false, threads);
        descend_all(&p, &cut, &from, false, sums, threads);
        ech_tensor found[] = {p.x[OUT], p.x[LSE], p.x[DQ], sums[0][0], sums[2][1]};
        for (int f = 0; f < 5; f++) {
            size_t bytes = ech_tensor_bytes(&found[f]);
            double *copy = ech_calloc(bytes, 1);
            memcpy(copy, found[f].data, bytes);
            if (threads == 1)
                kept[f] = copy;
            else
                assert_memory_equal(kept[f], copy, bytes);
            if (threads > 1) free(copy);
        }
        for (int i = 0; i < cut.parts; i++) {
            free(sums[i][0].data);
            free(sums[i][1].data);
        }
        static const operand used[] = {Q, OUT, LSE, DOUT, DQ};
        for (size_t u = 0; u < TRIAL_COUNT(used); u++) drop(&p, used[u]);
    }
    for (int f = 0; f < 5; f++) free(kept[f]);
    free_problem(&from);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_the_whole),   cmocka_unit_test(one_query_against_a_cache),
        cmocka_unit_test(shares_of_heads),       cmocka_unit_test(rows_that_see_nothing),
        cmocka_unit_test(threads_do_not_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
