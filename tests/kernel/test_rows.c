/* SPDX-License-Identifier: Apache-2.0
 *
 * Norms, activations, rotary, tables, copies and sums: the fast fp32 rows against the definition,
 * over odd shapes, one row, one column, aliases, and optional arguments present and absent.
 */
#include "kernel/places.h"
#include "kernel/trial.h"

static const bool yes = true, no = false;

/* ---- norms ---- */

TRIAL_CALL(layernorm_forward, t[0], t[1], t[2], 1e-5, t[3], t[4], t[5])
TRIAL_CALL(layernorm_backward, t[0], t[1], t[2], t[3], t[4], t[5], t[6], *(const bool *)options,
           t[7], t[8])
/* An RMSNorm whose gradients are accumulated has an offset, too. */
TRIAL_CALL_WITH(bool, rmsnorm_forward, t[0], t[1], t[2], *o ? 1 : 0, 1e-5, t[3], t[4])
TRIAL_CALL_WITH(bool, rmsnorm_backward, t[0], t[1], t[2], *o ? 1 : 0, t[3], t[4], t[5], t[6], *o,
                t[7])
TRIAL_CALL(squares_forward, t[0], 0.3, t[1])
TRIAL_CALL(squares_backward, t[0], t[1], 0.3, t[2], t[3])

enum { NO_ADD, ADD, ADD_IN_PLACE };

static void check_norms(int64_t R, int64_t C, int add, const bool *accumulate)
{
    trial_tensor dy = TRIAL_INPUT(TRIAL_2D(R, C)), y = TRIAL_RESULT(TRIAL_2D(R, C)), none = {0};
    trial_tensor x = TRIAL_INPUT(TRIAL_2D(R, C), .type = TRIAL_EITHER);
    trial_tensor row = TRIAL_INPUT(TRIAL_1D(C), .type = TRIAL_WIDE);
    trial_tensor rows = TRIAL_RESULT(TRIAL_1D(R), .type = TRIAL_WIDE);
    trial_tensor kept = {.role = TRIAL_IN, .low = 0.5, .high = 2, TRIAL_1D(R), .type = TRIAL_WIDE};
    trial_tensor sum = {.role = *accumulate ? TRIAL_IN_OUT : TRIAL_OUT,
                        .low = -1,
                        .high = 1,
                        TRIAL_1D(C),
                        .type = TRIAL_EITHER};
    trial_tensor dx = {.role = TRIAL_OUT, TRIAL_2D(R, C), .type = TRIAL_EITHER};
    trial_tensor more = add ? x : none;
    const bool halves = R * C < 10000 || (add == ADD_IN_PLACE && *accumulate);
    /* the squares of a row's numbers can be added up in fp32 */
    const double large = C > 300 ? 1e16 : 0;
    trial layernorm = {.name = "forward",
                       .op = ECH_OP_layernorm_forward,
                       .call = call_layernorm_forward,
                       .tensor = {x, row, row, y, rows, rows},
                       .tolerance = 3e-6,
                       .large = large,
                       .halves = halves};
    trial rmsnorm = {.name = "forward",
                     .op = ECH_OP_rmsnorm_forward,
                     .call = call_rmsnorm_forward,
                     .options = accumulate,
                     .tensor = {x, none, row, y, rows},
                     .tolerance = 3e-6,
                     .large = large,
                     .halves = halves};
    if (add == ADD_IN_PLACE) {
        dx = more;
        dx.alias = 6;
    }
    trial layernorm_back = {.name = "backward",
                            .op = ECH_OP_layernorm_backward,
                            .call = call_layernorm_backward,
                            .options = accumulate,
                            .dims = {R, C},
                            .tensor = {dy, x, row, kept, kept, more, dx, sum, sum},
                            .tolerance = 3e-6,
                            .large = large,
                            .halves = halves};
    if (add == ADD_IN_PLACE) dx.alias = 5;
    trial rmsnorm_back = {.name = "backward",
                          .op = ECH_OP_rmsnorm_backward,
                          .call = call_rmsnorm_backward,
                          .options = accumulate,
                          .dims = {R, C},
                          .tensor = {dy, x, row, kept, more, dx, none, sum},
                          .tolerance = 3e-6,
                          .large = large,
                          .halves = halves};
    trial_check(&layernorm);
    trial_check(&rmsnorm);
    trial_check(&layernorm_back);
    trial_check(&rmsnorm_back);
    layernorm_back.tensor[7] = none; /* frozen: the gain, then the bias, too */
    trial_check(&layernorm_back);
    layernorm_back.tensor[8] = none;
    trial_check(&layernorm_back);
    rmsnorm_back.tensor[7] = none;
    trial_check(&rmsnorm_back);
    rmsnorm_back.tensor[7] = sum;
    rmsnorm.tensor[1] = kept; /* rows that are parts */
    rmsnorm_back.tensor[6] = rows;
    trial_check(&rmsnorm);
    trial_check(&rmsnorm_back);
    if (add == ADD_IN_PLACE) dx.alias = 3;
    trial squares = {.name = "forward",
                     .op = ECH_OP_squares_forward,
                     .call = call_squares_forward,
                     .tensor = {x, rows},
                     .tolerance = 3e-6,
                     .large = large,
                     .halves = halves};
    trial squares_back = {.name = "backward",
                          .op = ECH_OP_squares_backward,
                          .call = call_squares_backward,
                          .tensor = {kept, x, more, dx},
                          .tolerance = 3e-6,
                          .halves = halves};
    trial_check(&squares);
    trial_check(&squares_back);
}

TEST(norms_agree)
{
    static const int64_t shapes[][2] = {{1, 1},     {1, 37}, {41, 1},   {7, 128},
                                        {130, 257}, {0, 3},  {19, 4105}};
    for (size_t s = 0; s < TRIAL_COUNT(shapes); s++)
        for (int add = NO_ADD; add <= ADD_IN_PLACE; add++) {
            check_norms(shapes[s][0], shapes[s][1], add, &no);
            check_norms(shapes[s][0], shapes[s][1], add, &yes);
        }
}

/* ---- activations ---- */

#define CALLS_1(name)                                                                              \
    TRIAL_CALL(name##_forward, t[0], t[1])                                                         \
    TRIAL_CALL(name##_backward, t[0], t[1], t[2])
#define CALLS_2(name)                                                                              \
    TRIAL_CALL(name##_forward, t[0], t[1], t[2])                                                   \
    TRIAL_CALL(name##_backward, t[0], t[1], t[2], t[3], t[4])
#define CALLS(NAME, name, operands, ...) CALLS_##operands(name)
ECH_ACTIVATIONS(CALLS)

static void check_activations(int64_t a, int64_t b, double range, bool alias)
{
    trial_tensor x = {.role = TRIAL_IN, TRIAL_2D(a, b), .low = -range, .high = range};
    trial_tensor dy = {
        .role = alias ? TRIAL_IN_OUT : TRIAL_IN, TRIAL_2D(a, b), .low = -1, .high = 1};
    trial_tensor out = TRIAL_RESULT(TRIAL_2D(a, b)), over = dy;
    over.alias = alias ? 1 : 0;
    over.role = alias ? TRIAL_IN_OUT : TRIAL_OUT;
    trial_tensor changed = x, second = x, third = x;
    changed.role = second.role = third.role = TRIAL_IN_OUT;
    second.alias = 2;
    third.alias = 3;
#define ROW(text, row, ...)                                                                        \
    {.name = text, .op = ECH_OP_##row, .call = call_##row, .tensor = {__VA_ARGS__}},
#define ROWS_1(name)                                                                               \
    ROW(#name " over x", name##_backward, dy, changed, second)                                     \
    ROW(#name, name##_forward, x, out)                                                             \
    ROW(#name, name##_backward, dy, x, over)
#define ROWS_2(name)                                                                               \
    ROW(#name " over gate and up", name##_backward, dy, changed, changed, second, third)           \
    ROW(#name, name##_forward, x, x, out)                                                          \
    ROW(#name " into dgate", name##_backward, dy, x, x, over, out)                                 \
    ROW(#name " into dup", name##_backward, dy, x, x, out, over)
#define ROWS(NAME, name, operands, ...) ROWS_##operands(name)
    const trial trials[] = {ECH_ACTIVATIONS(ROWS)};
#undef ROW
#undef ROWS
#undef ROWS_1
#undef ROWS_2
    for (size_t i = 0; i < TRIAL_COUNT(trials); i++) {
        trial t = trials[i];
        t.tolerance = 5e-7;
        t.halves = alias || a * b < 10000;
        t.has_limits = true;
        trial_check(&t);
    }
}

TEST(activations_agree)
{
    for (int alias = 0; alias < 2; alias++) {
        check_activations(0, 37, 1, alias);
        check_activations(1, 1, 1, alias);
        check_activations(3, 37, 4, alias);
        check_activations(7, 2500, 12, alias);
        check_activations(5, 101, 200, alias);
    }
}

/* The definition against the formulas of PyTorch and transformers, written out. */
TEST(activations_by_hand)
{
    static const double xs[] = {-9, -2.5, -0.3, 0, 0.4, 1, 6.5, 8}, us[] = {-8, 7.5, 2, -1};
    ech_kernel_context *context;
    const ech_kernels *k = ech_kernels_ref(ECH_F64);
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (size_t i = 0; i < TRIAL_COUNT(xs); i++)
        for (size_t j = 0; j < TRIAL_COUNT(us); j++) {
            double x = xs[i], u = us[j], y;
            ech_tensor from = ech_tensor_1d(&x, ECH_F64, 1), up = ech_tensor_1d(&u, ECH_F64, 1);
            ech_tensor to = ech_tensor_1d(&y, ECH_F64, 1);
            double exact = x / 2 * (1 + erf(x / sqrt(2)));
            double tangent = x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
            double g = fmin(x, 7), w = fmin(fmax(u, -7), 7);
            k->relu2_forward(context, &from, &to);
            assert_true(y == (x > 0 ? x * x : 0));
            k->gelu_exact_forward(context, &from, &to);
            assert_true(fabs(y - exact) < 1e-14);
            k->geglu_exact_forward(context, &from, &up, &to);
            assert_true(fabs(y - exact * u) < 1e-13);
            k->geglu_forward(context, &from, &up, &to);
            assert_true(fabs(y - tangent * u) < 1e-13);
            k->swiglu_clamped_forward(context, &from, &up, &to);
            assert_true(fabs(y - (w + 1) * g / (1 + exp(-1.702 * g))) < 1e-13);
        }
    ech_kernel_context_destroy(context);
}

/* ---- rotary ---- */

enum { WIDEST_HEAD = 256 };

typedef struct turn {
    double theta; /* of a head that is as wide as x's */
    ech_rows rows;
    bool inverse;
    int64_t width; /* 0: all of a head */
    bool neighbours;
    double factor; /* 0: 1 */
} turn;

static void call_rotary(const ech_kernels *kernels, ech_kernel_context *context,
                        const ech_tensor *const *t, const void *options)
{
    const turn *o = options;
    const ech_rope rope = {.theta = o->theta};
    double frequency[WIDEST_HEAD / 2];
    int64_t width = o->width ? o->width : t[0]->shape[3];
    assert_true(width <= WIDEST_HEAD);
    ech_rope_frequencies(&rope, width, frequency);
    kernels->rotary(context, t[0], frequency, width, o->neighbours, o->factor > 0 ? o->factor : 1,
                    &o->rows, NULL, o->inverse, t[1]);
}

TEST(rotary_agrees)
{
#define TURN(base, of_rows, ...)                                                                   \
    {                                                                                              \
        .theta = base, .rows = of_rows, __VA_ARGS__                                                \
    }
    const turn one = TURN(10000, rows_uncut(0, 1), ), plain = TURN(10000, rows_uncut(0, 70), ),
               later = TURN(10000, rows_piece(0, 300, 61, 200), ),
               back = TURN(500000, rows_piece(0, 259, 130, 129), .inverse = true),
               pair = TURN(10000, rows_pair(0, 500, 60, 70, 200, 59), ),
               second = TURN(10000, rows_pair(0, 99, 9, 0, 64, 3), .inverse = true),
               part = TURN(10000, rows_uncut(0, 70), .width = 4),
               near = TURN(10000, rows_uncut(0, 70), .inverse = true, .neighbours = true,
                           .factor = 1.25),
               near_part = TURN(10000, rows_uncut(0, 200), .width = 22, .neighbours = true),
               scaled_part =
                   TURN(10000, rows_uncut(0, 200), .inverse = true, .width = 50, .factor = 1.5);
#undef TURN
#define CASE(o, B, T, H, D, space, y)                                                              \
    {                                                                                              \
        .name = #o, .op = ECH_OP_rotary, .call = call_rotary, .options = &(o), .dims = {T, D},     \
        .tolerance = 1e-6, .halves = true, .tensor = {                                             \
            TRIAL_CHANGED(TRIAL_4D(B, T, H, D), .gap = space),                                     \
            y                                                                                      \
        }                                                                                          \
    }
    const trial trials[] = {
        CASE(one, 1, 1, 1, 2, 0, TRIAL_RESULT(TRIAL_4D(1, 1, 1, 2))),
        CASE(plain, 2, 70, 3, 6, 5, TRIAL_RESULT(TRIAL_4D(2, 70, 3, 6), .gap = 9)),
        CASE(later, 2, 200, 2, 64, 0, TRIAL_CHANGED(TRIAL_4D(2, 200, 2, 64), .alias = 1)),
        CASE(back, 1, 129, 2, 34, 68,
             TRIAL_CHANGED(TRIAL_4D(1, 129, 2, 34), .gap = 68, .alias = 1)),
        CASE(pair, 2, 129, 2, 34, 0, TRIAL_RESULT(TRIAL_4D(2, 129, 2, 34))),
        CASE(second, 2, 3, 2, 4, 0, TRIAL_RESULT(TRIAL_4D(2, 3, 2, 4))),
        CASE(part, 2, 70, 3, 6, 5, TRIAL_RESULT(TRIAL_4D(2, 70, 3, 6), .gap = 9)),
        CASE(part, 2, 70, 3, 6, 5, TRIAL_CHANGED(TRIAL_4D(2, 70, 3, 6), .gap = 5, .alias = 1)),
        CASE(near, 2, 70, 3, 6, 5, TRIAL_RESULT(TRIAL_4D(2, 70, 3, 6), .gap = 9)),
        CASE(near, 1, 70, 1, 200, 0, TRIAL_CHANGED(TRIAL_4D(1, 70, 1, 200), .alias = 1)),
        CASE(near_part, 2, 200, 2, 64, 3, TRIAL_RESULT(TRIAL_4D(2, 200, 2, 64))),
        CASE(scaled_part, 2, 200, 2, 64, 0, TRIAL_CHANGED(TRIAL_4D(2, 200, 2, 64), .alias = 1)),
    };
#undef CASE
    trial_check_all(trials, TRIAL_COUNT(trials));
}

/* Of 6 numbers 4, as neighbours or halves, against the formula. */
TEST(rotary_by_hand)
{
    enum { T = 3, D = 6 };
    static const double frequency[] = {0.7, 0.1};
    const ech_rows rows = rows_uncut(0, T);
    double x[T * D], y[T * D];
    ech_tensor from = ech_tensor_view(x, ECH_F64, 4, (int64_t[]){1, T, 1, D}), to = from;
    to.data = y;
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int i = 0; i < T * D; i++) x[i] = value_at(1, i, -1, 1);
    for (int near = 0; near < 2; near++) {
        ech_kernels_ref(ECH_F64)->rotary(context, &from, frequency, 4, near, 2, &rows, NULL, false,
                                         &to);
        for (int t = 0; t < T; t++) {
            const double *a = x + t * D, *b = y + t * D;
            for (int i = 0; i < 2; i++) {
                int p = near ? 2 * i : i, q = near ? 2 * i + 1 : i + 2;
                double c = cos(t * frequency[i]), s = sin(t * frequency[i]);
                assert_true(fabs(b[p] - 2 * (a[p] * c - a[q] * s)) < 1e-14);
                assert_true(fabs(b[q] - 2 * (a[q] * c + a[p] * s)) < 1e-14);
            }
            assert_true(b[4] == a[4] && b[5] == a[5]);
        }
    }
    ech_kernel_context_destroy(context);
}

/* ---- tables ---- */

/* The ids that a table holds begin here. */
typedef struct share {
    int64_t first_id;
    bool accumulate;
} share;

TRIAL_CALL(embedding_forward, t[0], t[1], ((const share *)options)->first_id, t[2])
TRIAL_CALL_WITH(share, embedding_backward, t[0], t[1], o->first_id, o->accumulate, t[2])

typedef struct place {
    ech_rows rows;
    bool accumulate;
} place;

TRIAL_CALL(position_forward, t[0], t[1], &((const place *)options)->rows, NULL, t[2])
TRIAL_CALL_WITH(place, position_backward, t[0], &o->rows, NULL, o->accumulate, t[1])

/* Ids of the whole vocabulary, V; the table holds n of them from first_id on. */
static void check_tables(int64_t R, int64_t V, int64_t first_id, int64_t n, int64_t C)
{
    const share written = {first_id, false}, accumulated = {first_id, true};
    const trial_tensor dy = TRIAL_INPUT(TRIAL_2D(R, C), .type = TRIAL_EITHER);
    const trial_tensor y = TRIAL_RESULT(TRIAL_2D(R, C), .type = TRIAL_EITHER);
    trial_tensor ids = {.role = TRIAL_IN,
                        TRIAL_1D(R),
                        .low = 0,
                        .high = (double)V,
                        .type = TRIAL_FIXED,
                        .dtype = ECH_I32};
    const trial trials[] = {
        {.name = "rows",
         .op = ECH_OP_embedding_forward,
         .call = call_embedding_forward,
         .options = &written,
         .tensor = {TRIAL_INPUT(TRIAL_2D(n, C)), ids, y}},
        {.name = "written",
         .op = ECH_OP_embedding_backward,
         .call = call_embedding_backward,
         .options = &written,
         .dims = {R, n, C},
         .tensor = {dy, ids, TRIAL_RESULT(TRIAL_2D(n, C), .type = TRIAL_EITHER)}},
        {.name = "accumulated",
         .op = ECH_OP_embedding_backward,
         .call = call_embedding_backward,
         .options = &accumulated,
         .dims = {R, n, C},
         .tensor = {dy, ids, TRIAL_CHANGED(TRIAL_2D(n, C), .type = TRIAL_EITHER)}},
    };
    for (size_t i = 0; i < TRIAL_COUNT(trials); i++) {
        trial t = trials[i];
        t.tolerance = 2e-6;
        t.halves = true;
        trial_check(&t);
    }
}

static void check_positions(int64_t R, int64_t C, int64_t P, place at)
{
    const trial trials[] = {
        {.name = "positions",
         .op = ECH_OP_position_forward,
         .call = call_position_forward,
         .options = &at,
         .tolerance = 1e-6,
         .halves = true,
         .tensor = {TRIAL_INPUT(TRIAL_2D(R, C), .type = TRIAL_EITHER), TRIAL_INPUT(TRIAL_2D(P, C)),
                    TRIAL_RESULT(TRIAL_2D(R, C), .type = TRIAL_EITHER)}},
        {.name = "positions in place",
         .op = ECH_OP_position_forward,
         .call = call_position_forward,
         .options = &at,
         .tolerance = 1e-6,
         .halves = true,
         .tensor = {TRIAL_CHANGED(TRIAL_2D(R, C), .type = TRIAL_EITHER),
                    TRIAL_INPUT(TRIAL_2D(P, C)), TRIAL_CHANGED(TRIAL_2D(R, C), .alias = 1)}},
        {.name = "positions",
         .op = ECH_OP_position_backward,
         .call = call_position_backward,
         .options = &at,
         .dims = {R, P, C},
         .tolerance = 1e-6,
         .halves = true,
         .tensor = {TRIAL_INPUT(TRIAL_2D(R, C), .type = TRIAL_EITHER),
                    {.role = at.accumulate ? TRIAL_IN_OUT : TRIAL_OUT,
                     .type = TRIAL_EITHER,
                     TRIAL_2D(P, C),
                     .low = -1,
                     .high = 1}}},
    };
    trial_check_all(trials, TRIAL_COUNT(trials));
}

TEST(tables_agree)
{
    check_tables(1, 1, 0, 1, 1);
    check_tables(50, 7, 0, 7, 5);
    check_tables(50, 7, 2, 3, 5);
    check_tables(64, 130, 0, 130, 300);
    check_tables(64, 130, 97, 40, 300);
    check_tables(0, 3, 0, 3, 2);
    check_tables(300, 1, 0, 1, 3);        /* one id, of which the last piece is short */
    check_tables(257, 1, 0, 1, 8);        /* or has a row */
    check_tables(700, 3, 1, 2, 16);       /* pieces of some ids, and rows of others */
    check_tables(1100, 700, 90, 600, 10); /* a sort by two digits, of more than a block's rows */
    check_tables(40, 70000, 1, 69999, 1); /* by three */
    check_positions(1, 1, 1, (place){rows_uncut(0, 1), false});
    check_positions(15, 7, 9, (place){rows_piece(0, 9, 2, 5), false});
    check_positions(15, 7, 9, (place){rows_piece(5, 9, 4, 5), true});
    check_positions(200, 130, 41, (place){rows_piece(0, 41, 1, 40), true});
    check_positions(450, 9, 3, (place){rows_uncut(0, 3), false});
    check_positions(120, 150, 99, (place){rows_pair(0, 99, 7, 11, 70, 29), false});
    ech_rows cut = rows_pair(3, 99, 7, 11, 70, 29);
    for (int64_t first = 0; first < 120; first += 30) {
        cut.first = first; /* the rows of a tensor rank begin and end within samples */
        check_positions(30, 150, 99, (place){cut, first % 20 > 0});
        check_positions(90, 200, 99, (place){cut, first % 20 > 0});
    }
}

/* ---- sums ---- */

TRIAL_CALL(add, t[0], t[1], t[2])
TRIAL_CALL(fill, t[0], 0.3)
TRIAL_CALL(copy, t[0], t[1])

TRIAL_CALL(add_bias, t[0], t[1], t[2])

TEST(biases_are_added)
{
    static const int64_t shapes[][2] = {{1, 1}, {7, 130}, {37, 700}, {0, 3}};
    for (size_t s = 0; s < 2 * TRIAL_COUNT(shapes); s++) {
        int64_t R = shapes[s / 2][0], N = shapes[s / 2][1];
        trial t = {.name = "bias",
                   .op = ECH_OP_add_bias,
                   .call = call_add_bias,
                   .tensor = {TRIAL_INPUT(TRIAL_2D(R, N), .type = TRIAL_EITHER),
                              TRIAL_INPUT(TRIAL_1D(N), .type = TRIAL_EITHER),
                              TRIAL_RESULT(TRIAL_2D(R, N), .type = TRIAL_EITHER)},
                   .tolerance = 2e-7,
                   .halves = true};
        if (s % 2) {
            t.tensor[2] = t.tensor[0];
            t.tensor[0].role = t.tensor[2].role = TRIAL_IN_OUT;
            t.tensor[2].alias = 1;
        }
        trial_check(&t);
    }
}

TRIAL_CALL(row_gate_forward, t[0], t[1], t[2])
TRIAL_CALL(row_gate_backward, t[0], t[1], t[2], t[3], t[4])

TEST(row_gates_agree)
{
    static const int64_t shapes[][2] = {{1, 1}, {7, 130}, {37, 700}, {0, 3}};
    for (size_t s = 0; s < TRIAL_COUNT(shapes); s++) {
        int64_t R = shapes[s][0], C = shapes[s][1];
        const trial_tensor x = TRIAL_INPUT(TRIAL_2D(R, C), .type = TRIAL_EITHER);
        const trial_tensor y = TRIAL_RESULT(TRIAL_2D(R, C), .type = TRIAL_EITHER);
        const trial_tensor logits = TRIAL_INPUT(TRIAL_2D(R, 1), .type = TRIAL_WIDE);
        const trial_tensor dlogits = TRIAL_RESULT(TRIAL_2D(R, 1), .type = TRIAL_WIDE);
        trial_tensor changed = x, over = x;
        changed.role = over.role = TRIAL_IN_OUT;
        over.alias = 1;
        const trial trials[] = {{.name = "forward",
                                 .op = ECH_OP_row_gate_forward,
                                 .call = call_row_gate_forward,
                                 .tensor = {x, logits, y}},
                                {.name = "backward",
                                 .op = ECH_OP_row_gate_backward,
                                 .call = call_row_gate_backward,
                                 .tensor = {x, x, logits, y, dlogits}},
                                {.name = "over dy",
                                 .op = ECH_OP_row_gate_backward,
                                 .call = call_row_gate_backward,
                                 .tensor = {changed, x, logits, over, dlogits}}};
        for (size_t i = 0; i < TRIAL_COUNT(trials); i++) {
            trial t = trials[i];
            t.tolerance = 3e-6;
            t.halves = true;
            t.spreads = true;
            trial_check(&t);
        }
    }
}

TRIAL_CALL_WITH(double, scale, t[0], o[0], o[1], t[1])

TEST(scales_agree)
{
    static const double plain[] = {0.7, 0}, capped[] = {1.3, 5}, tight[] = {-3, 0.25};
    static const double *const all[] = {plain, capped, tight};
    for (size_t i = 0; i < TRIAL_COUNT(all); i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            trial t = {.name = "scale",
                       .op = ECH_OP_scale,
                       .call = call_scale,
                       .options = all[i],
                       .tolerance = 1e-6,
                       .halves = true,
                       .has_limits = true,
                       .tensor = {TRIAL_INPUT(TRIAL_2D(7, 2500), .type = TRIAL_EITHER),
                                  TRIAL_RESULT(TRIAL_2D(7, 2500), .type = TRIAL_EITHER)}};
            t.tensor[0].low = -20;
            t.tensor[0].high = 20;
            if (in_place) {
                t.tensor[0].role = TRIAL_IN_OUT;
                t.tensor[1] = t.tensor[0];
                t.tensor[1].alias = 1;
            }
            trial_check(&t);
        }
}

TEST(copies_agree)
{
#define CASE(text, B, T, H, D, from, to)                                                           \
    {                                                                                              \
        .name = text, .op = ECH_OP_copy, .call = call_copy, .tolerance = 1e-6, .halves = true,     \
        .tensor = {                                                                                \
            TRIAL_INPUT(TRIAL_4D(B, T, H, D), .gap = from, .type = TRIAL_EITHER),                  \
            TRIAL_RESULT(TRIAL_4D(B, T, H, D), .gap = to, .type = TRIAL_EITHER)                    \
        }                                                                                          \
    }
    static const trial trials[] = {
        CASE("one", 1, 1, 1, 1, 0, 0),       CASE("packed", 2, 3, 4, 5, 17, 0),
        CASE("spread", 2, 3, 4, 5, 0, 6),    CASE("both", 3, 70, 2, 48, 96, 5),
        CASE("many", 2, 300, 3, 64, 192, 0), CASE("none", 2, 0, 3, 4, 0, 0),
    };
#undef CASE
    trial_check_all(trials, TRIAL_COUNT(trials));
}

TRIAL_CALL(sum_heads, t[0], t[1])

TEST(heads_are_summed)
{
#define CASE(text, B, T, H, D, from)                                                               \
    {                                                                                              \
        .name = text, .op = ECH_OP_sum_heads, .call = call_sum_heads, .tolerance = 1e-5,           \
        .halves = true, .tensor = {                                                                \
            TRIAL_INPUT(TRIAL_4D(B, T, H, D), .gap = from, .type = TRIAL_EITHER),                  \
            TRIAL_RESULT(TRIAL_3D(B, T, D), .type = TRIAL_EITHER)                                  \
        }                                                                                          \
    }
    static const trial trials[] = {CASE("one", 1, 1, 1, 1, 0), CASE("packed", 2, 3, 4, 5, 17),
                                   CASE("many", 2, 100, 16, 64, 0), CASE("wide", 1, 3, 5, 1100, 3),
                                   CASE("none", 2, 0, 3, 4, 0)};
#undef CASE
    trial_check_all(trials, TRIAL_COUNT(trials));
}

TRIAL_CALL(append, t[0], options, t[1])

TEST(appends_agree)
{
    static const ech_rows whole = {.whole = 7, .tokens = 7, .split = 7};
    static const ech_rows later = {.whole = 90, .tokens = 70, .split = 70, .start = {20}};
    static const ech_rows pair = {.whole = 9, .tokens = 5, .split = 2, .start = {1, 6}};
    static const ech_rows late = {.whole = 9, .tokens = 3, .split = 0, .start = {0, 6}};
#define CASE(text, B, rows, H, D, from, to)                                                        \
    {                                                                                              \
        .name = text, .op = ECH_OP_append, .call = call_append, .options = &(rows),                \
        .tolerance = 1e-6, .halves = true, .tensor = {                                             \
            TRIAL_INPUT(TRIAL_4D(B, (rows).tokens, H, D), .gap = from, .type = TRIAL_EITHER),      \
            TRIAL_CHANGED(TRIAL_4D(B, (rows).whole, H, D), .gap = to, .type = TRIAL_EITHER)        \
        }                                                                                          \
    }
    static trial trials[] = {CASE("whole", 2, whole, 2, 5, 0, 3), CASE("late", 1, late, 1, 1, 0, 0),
                             CASE("pair", 3, pair, 4, 5, 17, 0),
                             CASE("later", 2, later, 3, 64, 9, 0)};
#undef CASE
    trial_check_all(trials, TRIAL_COUNT(trials));
}

/* Copies every second head of a tensor, and back. */
TEST(copies_of_heads)
{
    enum { B = 2, T = 3, H = 3, D = 5, N = B * T * 2 * H * D };
    const ech_kernels *fast = ech_kernels_fast(ECH_F32);
    float whole[N], half[N / 2], back[N] = {0};
    for (int64_t i = 0; i < N; i++) whole[i] = (float)(i + 1);
    const int64_t shape[] = {B, T, H, D};
    ech_tensor x = ech_tensor_view(whole, ECH_F32, 4, shape), y = x, z = x;
    y.data = half;
    z.data = back;
    for (int d = 0; d < 3; d++) x.stride[d] *= 2;
    for (int d = 0; d < 3; d++) z.stride[d] *= 2;
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    fast->copy(context, &x, &y);
    fast->copy(context, &y, &z);
    for (int64_t i = 0; i < N; i++) assert_true(back[i] == (i / D % 2 ? 0 : whole[i]));
    ech_kernel_context_destroy(context);
}

/* alpha, beta and the number on the diagonal. */
TRIAL_CALL_WITH(double, scaled_sum, t[0], o[0], o[1], o[2], NULL, NULL, t[1])

TEST(scaled_sums_agree)
{
    static const double both[] = {0.7, -0.3, 1.5}, one[] = {-2, 0, 0};
#define CASE(text, R, C, factors, y)                                                               \
    {                                                                                              \
        .name = text, .op = ECH_OP_scaled_sum, .call = call_scaled_sum, .options = factors,        \
        .tolerance = 1e-6, .halves = true, .tensor = {                                             \
            TRIAL_INPUT(TRIAL_2D(R, C), .type = TRIAL_EITHER),                                     \
            y(TRIAL_2D(R, C), .type = TRIAL_WIDE)                                                  \
        }                                                                                          \
    }
    static const trial trials[] = {
        CASE("wide", 40, 70, both, TRIAL_CHANGED),     CASE("tall", 70, 40, both, TRIAL_CHANGED),
        CASE("square", 129, 129, both, TRIAL_CHANGED), CASE("scaled", 40, 70, one, TRIAL_RESULT),
        CASE("large", 300, 301, one, TRIAL_RESULT),
    };
#undef CASE
    trial_check_all(trials, TRIAL_COUNT(trials));
}

TEST(sums_agree)
{
#define CASE(text, n, a, b, y)                                                                     \
    {                                                                                              \
        .name = text, .op = ECH_OP_add, .call = call_add, .tolerance = 1e-6, .halves = true,       \
        .tensor = {                                                                                \
            a,                                                                                     \
            b,                                                                                     \
            y                                                                                      \
        }                                                                                          \
    }
    static const trial trials[] = {
        CASE("one", 1, TRIAL_INPUT(TRIAL_1D(1), .type = TRIAL_EITHER),
             TRIAL_INPUT(TRIAL_1D(1), .type = TRIAL_EITHER),
             TRIAL_RESULT(TRIAL_1D(1), .type = TRIAL_EITHER)),
        CASE("many", 50001, TRIAL_INPUT(TRIAL_1D(50001), .type = TRIAL_EITHER),
             TRIAL_INPUT(TRIAL_1D(50001), .type = TRIAL_EITHER),
             TRIAL_RESULT(TRIAL_1D(50001), .type = TRIAL_EITHER)),
        CASE("into a", 777, TRIAL_CHANGED(TRIAL_1D(777), .type = TRIAL_EITHER),
             TRIAL_INPUT(TRIAL_1D(777), .type = TRIAL_EITHER),
             TRIAL_CHANGED(TRIAL_1D(777), .type = TRIAL_EITHER, .alias = 1)),
        CASE("into b", 777, TRIAL_INPUT(TRIAL_1D(777), .type = TRIAL_EITHER),
             TRIAL_CHANGED(TRIAL_1D(777), .type = TRIAL_EITHER),
             TRIAL_CHANGED(TRIAL_1D(777), .type = TRIAL_EITHER, .alias = 2)),
        {.name = "fill",
         .op = ECH_OP_fill,
         .call = call_fill,
         .tolerance = 1e-6,
         .halves = true,
         .tensor = {TRIAL_RESULT(TRIAL_2D(3, 11), .type = TRIAL_EITHER)}},
    };
#undef CASE
    trial_check_all(trials, TRIAL_COUNT(trials));
}
