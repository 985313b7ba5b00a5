/* SPDX-License-Identifier: Apache-2.0
 *
 * The router's product, where rows go, and their way to experts and back: of choices that are even,
 * that are all one, and that are none. Buffers' rows that nobody has are NaN before each call, and
 * untouched after it.
 */
#include "kernel/places.h"
#include "kernel/trial.h"

/* S rows of C numbers choose k of E experts, e splits of `bound` rows. */
typedef struct shape {
    int64_t S, k, e, X, C, bound;
    enum { EVEN, ALL_ONE, NONE, SOME } choices;
    ech_rows rows;
    ech_dropout drawn;
    bool accumulate;
    unsigned buffers; /* bit i: tensor i is a buffer of e·bound rows */
} shape;

static int64_t experts(const shape *s)
{
    return s->e * s->X;
}

static int32_t chosen(const shape *s, int64_t i)
{
    uint32_t word = ech_random_word((ech_random_key){.seed = 3}, (uint64_t)i);
    if (s->choices == NONE || (s->choices == SOME && word % 3 == 0)) return -1;
    if (s->choices == ALL_ONE) return (int32_t)experts(s) - 1;
    return (int32_t)(word / 3 % (uint32_t)experts(s));
}

/* The slot of choice i, by looking at every other one. */
static int32_t slot_of(const shape *s, int64_t i)
{
    int32_t own = chosen(s, i), before = 0;
    if (own < 0) return -1;
    for (int64_t j = 0; j < s->S * s->k; j++) {
        int32_t other = chosen(s, j);
        if (other < 0 || other / s->X != own / s->X) continue;
        before += other < own || (other == own && j < i);
    }
    return (int32_t)(own / s->X * s->bound) + before;
}

static void put_slots(const shape *s, const ech_tensor *slot)
{
    for (int64_t i = 0; i < s->S * s->k; i++) ((int32_t *)slot->data)[i] = slot_of(s, i);
}

/* Makes the rows of buffers that no slot names NaN; or, after the call, checks that they are, and
 * makes them 0. */
static void poison(const shape *s, const ech_tensor *const *t, bool after)
{
    for (int i = 0; i < TRIAL_TENSORS; i++) {
        if (!(s->buffers >> i & 1)) continue;
        int64_t R = s->e * s->bound;
        bool *is_used = ech_calloc((size_t)R + 1, sizeof *is_used);
        for (int64_t j = 0; j < s->S * s->k; j++)
            if (slot_of(s, j) >= 0) is_used[slot_of(s, j)] = true;
        for (int64_t e = 0; e < R * s->C; e++) {
            if (is_used[e / s->C]) continue;
            if (after) assert_true(isnan(trial_get(t[i], e)));
            trial_set(t[i], e, after ? 0 : (double)NAN);
        }
        free(is_used);
    }
}

/* `slot`: the tensor of slots, which are put there; NULL: there is none. */
#define CALL(op, slot, ...)                                                                        \
    static void call_##op(const ech_kernels *kernels, ech_kernel_context *context,                 \
                          const ech_tensor *const *t, const void *options)                         \
    {                                                                                              \
        const shape *s = options;                                                                  \
        const ech_tensor *slots = slot;                                                            \
        if (slots) put_slots(s, slots);                                                            \
        poison(s, t, false);                                                                       \
        kernels->op(context, __VA_ARGS__);                                                         \
        poison(s, t, true);                                                                        \
    }
CALL(router_forward, NULL, t[0], t[1], &s->drawn, &s->rows, t[2])
CALL(router_backward_input, NULL, t[0], t[1], &s->drawn, &s->rows, t[2], t[3])
CALL(router_backward_weight, NULL, t[0], t[1], &s->drawn, &s->rows, s->accumulate, t[2])
CALL(dispatch_forward, t[1], t[0], t[1], t[2])
CALL(dispatch_backward, t[1], t[0], t[1], t[2], t[3])
CALL(combine_forward, t[2], t[0], t[1], t[2], t[3])
CALL(combine_backward, t[3], t[0], t[1], t[2], t[3], t[4], t[5])

#define ROWS(kind, s, of)   kind(TRIAL_2D((s)->S, (s)->C), .type = TRIAL_##of)
#define LOGITS(kind, s)     kind(TRIAL_2D((s)->S, experts(s)), .type = TRIAL_WIDE)
#define WEIGHT(kind, s, of) kind(TRIAL_2D(experts(s), (s)->C), .type = TRIAL_##of)
#define BUFFER(kind, s, of) kind(TRIAL_2D((s)->e *(s)->bound, (s)->C), .type = TRIAL_##of)
#define GATES(kind, s)      kind(TRIAL_2D((s)->S, (s)->k), .type = TRIAL_WIDE)

#define SLOTS(s) TRIAL_RESULT(TRIAL_2D((s)->S, (s)->k), .type = TRIAL_FIXED, .dtype = ECH_I32)

static void check_one(trial t, shape s, unsigned buffers)
{
    s.buffers = buffers;
    t.options = &s;
    t.tolerance = 4e-6;
    t.halves = true;
    t.large = 1e9;
    t.spreads = true; /* a sum of all rows, times a 0 */
    trial_check(&t);
}

static void check_router(shape s)
{
    const trial trials[] = {
        {.name = "router",
         .op = ECH_OP_router_forward,
         .call = call_router_forward,
         .dims = {s.S, experts(&s), s.C},
         .tensor = {ROWS(TRIAL_INPUT, &s, REAL), WEIGHT(TRIAL_INPUT, &s, WIDE),
                    LOGITS(TRIAL_RESULT, &s)}},
        {.name = "router, added",
         .op = ECH_OP_router_backward_input,
         .call = call_router_backward_input,
         .dims = {s.S, experts(&s), s.C},
         .tensor = {LOGITS(TRIAL_INPUT, &s), WEIGHT(TRIAL_INPUT, &s, WIDE),
                    ROWS(TRIAL_INPUT, &s, EITHER), ROWS(TRIAL_RESULT, &s, EITHER)}},
        {.name = "router",
         .op = ECH_OP_router_backward_input,
         .call = call_router_backward_input,
         .dims = {s.S, experts(&s), s.C},
         .tensor = {LOGITS(TRIAL_INPUT, &s),
                    WEIGHT(TRIAL_INPUT, &s, WIDE),
                    {0},
                    ROWS(TRIAL_RESULT, &s, EITHER)}},
        {.name = "router",
         .op = ECH_OP_router_backward_weight,
         .call = call_router_backward_weight,
         .dims = {s.S, experts(&s), s.C},
         .tensor = {LOGITS(TRIAL_INPUT, &s),
                    ROWS(TRIAL_INPUT, &s, REAL),
                    {.role = s.accumulate ? TRIAL_IN_OUT : TRIAL_OUT,
                     TRIAL_2D(experts(&s), s.C),
                     .type = TRIAL_EITHER,
                     .low = -1,
                     .high = 1}}},
    };
    for (size_t i = 0; i < TRIAL_COUNT(trials); i++) check_one(trials[i], s, 0);
}

static void check_ways(shape s)
{
    const trial trials[] = {
        {.name = "dispatch",
         .op = ECH_OP_dispatch_forward,
         .call = call_dispatch_forward,
         .tensor = {ROWS(TRIAL_INPUT, &s, REAL), SLOTS(&s), BUFFER(TRIAL_RESULT, &s, REAL)}},
        {.name = "dispatch",
         .op = ECH_OP_dispatch_backward,
         .call = call_dispatch_backward,
         .tensor = {BUFFER(TRIAL_INPUT, &s, REAL), SLOTS(&s), {0}, ROWS(TRIAL_RESULT, &s, EITHER)}},
        {.name = "dispatch, added",
         .op = ECH_OP_dispatch_backward,
         .call = call_dispatch_backward,
         .tensor = {BUFFER(TRIAL_INPUT, &s, REAL), SLOTS(&s), ROWS(TRIAL_INPUT, &s, EITHER),
                    ROWS(TRIAL_RESULT, &s, EITHER)}},
        {.name = "combine",
         .op = ECH_OP_combine_forward,
         .call = call_combine_forward,
         .tensor = {BUFFER(TRIAL_INPUT, &s, REAL), GATES(TRIAL_INPUT, &s), SLOTS(&s),
                    ROWS(TRIAL_RESULT, &s, EITHER)}},
        {.name = "combine",
         .op = ECH_OP_combine_backward,
         .call = call_combine_backward,
         .tensor = {ROWS(TRIAL_INPUT, &s, EITHER), BUFFER(TRIAL_INPUT, &s, REAL),
                    GATES(TRIAL_INPUT, &s), SLOTS(&s), BUFFER(TRIAL_RESULT, &s, REAL),
                    GATES(TRIAL_RESULT, &s)}},
        {.name = "combine in place",
         .op = ECH_OP_combine_backward,
         .call = call_combine_backward,
         .tensor = {ROWS(TRIAL_INPUT, &s, EITHER),
                    BUFFER(TRIAL_CHANGED, &s, REAL),
                    GATES(TRIAL_INPUT, &s),
                    SLOTS(&s),
                    {.role = TRIAL_IN_OUT,
                     TRIAL_2D(s.e * s.bound, s.C),
                     .low = -1,
                     .high = 1,
                     .alias = 2},
                    GATES(TRIAL_RESULT, &s)}},
    };
    static const unsigned buffers[] = {1 << 2, 1 << 0, 1 << 0, 1 << 0, 1 << 1 | 1 << 4, 1 << 1};
    for (size_t i = 0; i < TRIAL_COUNT(trials); i++) check_one(trials[i], s, buffers[i]);
}

static const ech_dropout drawn = {.p = 0.3, .key = {.seed = 11, .step = 4, .stream = 9}};

TEST(routers_agree)
{
    check_router((shape){.S = 1, .e = 1, .X = 1, .C = 1, .rows = rows_uncut(0, 1)});
    check_router(
        (shape){.S = 6, .e = 1, .X = 5, .C = 33, .rows = rows_uncut(2, 3), .drawn = drawn});
    check_router((shape){
        .S = 40, .e = 1, .X = 8, .C = 130, .rows = rows_piece(1, 41, 7, 20), .accumulate = true});
    check_router((shape){.S = 70,
                         .e = 1,
                         .X = 19,
                         .C = 260,
                         .rows = rows_pair(0, 99, 7, 11, 70, 24),
                         .drawn = drawn,
                         .accumulate = true});
}

TEST(ways_agree)
{
    static const int64_t sizes[][6] = {
        {1, 1, 1, 1, 1, 1}, {9, 2, 2, 3, 7, 18}, {40, 3, 1, 8, 133, 120}, {60, 2, 4, 2, 200, 130}};
    for (size_t i = 0; i < 4 * TRIAL_COUNT(sizes); i++) {
        const int64_t *of = sizes[i / 4];
        check_ways((shape){.S = of[0],
                           .k = of[1],
                           .e = of[2],
                           .X = of[3],
                           .C = of[4],
                           .bound = of[5],
                           .choices = i % 4});
    }
}

/* Of every table, against slots by looking at all others. */
TEST(routes_are_by_expert)
{
    static const shape shapes[] = {
        {.S = 1, .k = 1, .e = 1, .X = 1, .bound = 1},
        {.S = 5, .k = 2, .e = 1, .X = 4, .bound = 10},
        {.S = 17, .k = 3, .e = 3, .X = 2, .bound = 51},
        {.S = 300, .k = 2, .e = 4, .X = 16, .bound = 600},
        {.S = 64, .k = 1, .e = 2, .X = 150, .bound = 64},
        {.S = 0, .k = 2, .e = 2, .X = 2, .bound = 3},
    };
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    for (size_t i = 0; i < 4 * TRIAL_COUNT(shapes); i++) {
        shape s = shapes[i / 4];
        s.choices = i % 4;
        const int64_t n = s.S * s.k, of_counts[] = {s.e, s.X}, of_slots[] = {s.S, s.k};
        int32_t *choice = ech_calloc((size_t)n + 1, sizeof *choice);
        int32_t *slot = ech_calloc((size_t)n + 1, sizeof *slot);
        int32_t *counts = ech_calloc((size_t)experts(&s), sizeof *counts);
        for (int64_t j = 0; j < n; j++) choice[j] = chosen(&s, j);
        for (int64_t e = 0; e < experts(&s); e++) counts[e] = 77;
        const ech_tensor from = ech_tensor_view(choice, ECH_I32, 2, of_slots);
        const ech_tensor to = ech_tensor_view(slot, ECH_I32, 2, of_slots);
        const ech_tensor counted = ech_tensor_view(counts, ECH_I32, 2, of_counts);
        ech_kernels_fast(ECH_F32)->route(context, &from, s.bound, &to, &counted);
        for (int64_t j = 0; j < n; j++) {
            assert_int_equal(slot[j], slot_of(&s, j));
            if (choice[j] >= 0) counts[choice[j]]--;
        }
        for (int64_t e = 0; e < experts(&s); e++) assert_int_equal(counts[e], 0);
        free(choice);
        free(slot);
        free(counts);
    }
    ech_kernel_context_destroy(context);
}

/* Each row of a split looked at. */
TEST(slices_count_their_rows)
{
    enum { P = 3, X = 5 };
    static const int32_t counts[P * X] = {2, 0, 7, 1, 4, 0, 0, 0, 0, 0, 0, 9, 0, 0, 3};
    static const int64_t of_counts[] = {P, X};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    for (int64_t rows = 0; rows < 16; rows++)
        for (int64_t first = 0; first < 16; first++) {
            int32_t slice[P * X], wanted[P * X] = {0};
            const ech_tensor from =
                ech_tensor_view((void *)(uintptr_t)counts, ECH_I32, 2, of_counts);
            const ech_tensor to = ech_tensor_view(slice, ECH_I32, 2, of_counts);
            for (int i = 0; i < P * X; i++) slice[i] = 77;
            for (int p = 0; p < P; p++)
                for (int64_t x = 0, at = 0; x < X; x++)
                    for (int32_t n = 0; n < counts[p * X + x]; n++, at++)
                        wanted[p * X + x] += at >= first && at < first + rows;
            ech_kernels_fast(ECH_F32)->slice_counts(context, &from, first, rows, &to);
            assert_memory_equal(slice, wanted, sizeof slice);
        }
    ech_kernel_context_destroy(context);
}

/* Each choice's number lies where its row does; other places are left alone. first_sample: so
 * large that a number has two words. */
TEST(numbers_lie_where_rows_do)
{
    enum { ROWS = 41, CHOSEN = 3, BOUND = ROWS * CHOSEN, SPLITS = 2, UNTOUCHED = 77 };
    static const int64_t firsts[] = {0, 3, (int64_t)1 << 40};
    const int64_t of_slots[] = {ROWS, CHOSEN}, of_index[] = {SPLITS * BOUND, 2};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    for (size_t i = 0; i < 4 * TRIAL_COUNT(firsts); i++) {
        const shape s = {.S = ROWS,
                         .k = CHOSEN,
                         .e = SPLITS,
                         .X = 4,
                         .bound = BOUND,
                         .choices = i % 4,
                         .rows = rows_pair(firsts[i / 4], 99, 7, 11, 70, 9)};
        int32_t slot[BOUND], index[SPLITS * BOUND][2], used = 0;
        for (int64_t j = 0; j < SPLITS * BOUND; j++) index[j][0] = index[j][1] = UNTOUCHED;
        const ech_tensor from = ech_tensor_view(slot, ECH_I32, 2, of_slots);
        const ech_tensor to = ech_tensor_view(index, ECH_I32, 2, of_index);
        put_slots(&s, &from);
        ech_kernels_fast(ECH_F32)->dispatch_index(context, &from, &s.rows, &to);
        for (int64_t j = 0; j < BOUND; j++) {
            if (slot[j] < 0) continue;
            int64_t row = j / CHOSEN, sample = firsts[i / 4] + row / 20, t = row % 20;
            int64_t number = (sample * 99 + (t < 11 ? 7 + t : 70 + t - 11)) * CHOSEN + j % CHOSEN;
            uint64_t low = (uint32_t)index[slot[j]][0], high = (uint32_t)index[slot[j]][1];
            assert_int_equal(high << 32 | low, number);
            used++;
        }
        for (int64_t j = 0; j < SPLITS * BOUND; j++)
            used -= index[j][0] != UNTOUCHED || index[j][1] != UNTOUCHED;
        assert_int_equal(used, 0);
    }
    ech_kernel_context_destroy(context);
}

/* ---- all of them, against a sum over experts that knows no buffer ---- */

enum {
    S = 7,
    CHOICES = 2,
    E = 6,
    C = 5,
    F = 4,
    SPLITS = 2,
    BOUND = S * CHOICES,
    R = SPLITS * BOUND
};

static void expect(double x, double y)
{
    assert_true(fabs(x - y) <= 1e-12);
}

/* Of column f of the width of choice i of all. */
static double kept(int64_t i, int64_t f)
{
    uint32_t word = ech_random_word(drawn.key, (uint64_t)(i * F + f));
    return ech_random_unit(word) < drawn.p ? 0 : 1 / (1 - drawn.p);
}

/* Numbers in the buffers: those of x's width, and of the experts' width. */
typedef struct buffers {
    double sent[R * C], hidden[R * F], dropped[R * F], y[R * C];
    double dy[R * C], ddropped[R * F], dhidden[R * F], dsent[R * C];
    int32_t index[R * 2];
} buffers;

/* A split's experts are this rank's: one call a rank, as they would make it. Half of the columns
 * of the experts' width are dropped by one call, and half by another, as two tensor ranks would. */
typedef struct split {
    ech_tensor counts, into, out_of; /* (1,X), (X,C,F), (X,F,C) */
    ech_tensor index;
    int64_t first;
} split;

static ech_tensor split_rows(const split *p, double *all, int64_t columns)
{
    return ech_tensor_2d(all + p->first * columns, ECH_F64, BOUND, columns);
}

static void drop_halves(ech_kernel_context *context, const split *p, const double *from, double *to)
{
    double half[2][BOUND * F / 2];
    for (int h = 0; h < 2; h++) {
        for (int i = 0; i < BOUND * F / 2; i++)
            half[h][i] = from[(p->first + i / (F / 2)) * F + h * F / 2 + i % (F / 2)];
        const ech_tensor x = ech_tensor_2d(half[h], ECH_F64, BOUND, F / 2);
        ech_kernels_ref(ECH_F64)->grouped_dropout(context, &x, &drawn, &p->index, h * F / 2, F,
                                                  &p->counts, &x);
        for (int i = 0; i < BOUND * F / 2; i++)
            to[(p->first + i / (F / 2)) * F + h * F / 2 + i % (F / 2)] = half[h][i];
    }
}

static void work_forward(ech_kernel_context *context, const split *p, buffers *b)
{
    const ech_kernels *ref = ech_kernels_ref(ECH_F64);
    const ech_tensor sent = split_rows(p, b->sent, C), hidden = split_rows(p, b->hidden, F),
                     dropped = split_rows(p, b->dropped, F), y = split_rows(p, b->y, C);
    ref->grouped_matmul(context, &sent, &p->into, false, &p->counts, false, &hidden);
    drop_halves(context, p, b->hidden, b->dropped);
    ref->grouped_matmul(context, &dropped, &p->out_of, false, &p->counts, false, &y);
}

static void work_backward(ech_kernel_context *context, const split *p, buffers *b)
{
    const ech_kernels *ref = ech_kernels_ref(ECH_F64);
    const ech_tensor dsent = split_rows(p, b->dsent, C), dhidden = split_rows(p, b->dhidden, F),
                     ddropped = split_rows(p, b->ddropped, F), dy = split_rows(p, b->dy, C);
    ref->grouped_matmul(context, &dy, &p->out_of, true, &p->counts, false, &ddropped);
    drop_halves(context, p, b->ddropped, b->dhidden);
    ref->grouped_matmul(context, &dhidden, &p->into, true, &p->counts, false, &dsent);
}

/* out = sum over j of gate (dropped (x into) out_of), by the matrices of its expert; and the
 * gradients of x and gates for dout. */
TEST(ways_are_a_sum_over_experts)
{
    static const shape of = {.S = S,
                             .k = CHOICES,
                             .e = SPLITS,
                             .X = E / SPLITS,
                             .C = C,
                             .bound = BOUND,
                             .choices = SOME};
    static const int64_t of_slots[] = {S, CHOICES}, of_counts[] = {SPLITS, E / SPLITS},
                         of_index[] = {R, 2}, one[] = {1, E / SPLITS}, first[] = {E / SPLITS, C, F},
                         second[] = {E / SPLITS, F, C};
    const ech_kernels *ref = ech_kernels_ref(ECH_F64);
    const ech_rows rows = rows_piece(4, 30, 11, S);
    int32_t choice[S * CHOICES], slot[S * CHOICES], counts[E];
    double x[S * C], gates[S * CHOICES], into[E * C * F], out_of[E * F * C], out[S * C],
        dout[S * C], dgates[S * CHOICES], dx[S * C];
    buffers b = {0};
    split p[SPLITS];
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int i = 0; i < S * C; i++) x[i] = value_at(1, i, -1, 1), dout[i] = value_at(2, i, -1, 1);
    for (int i = 0; i < S * CHOICES; i++)
        gates[i] = value_at(3, i, 0, 1), choice[i] = chosen(&of, i);
    for (int i = 0; i < E * C * F; i++)
        into[i] = value_at(4, i, -1, 1), out_of[i] = value_at(5, i, -1, 1);
    const ech_tensor t_choice = ech_tensor_view(choice, ECH_I32, 2, of_slots),
                     t_slot = ech_tensor_view(slot, ECH_I32, 2, of_slots),
                     t_counts = ech_tensor_view(counts, ECH_I32, 2, of_counts),
                     t_index = ech_tensor_view(b.index, ECH_I32, 2, of_index);
    const ech_tensor t_x = ech_tensor_2d(x, ECH_F64, S, C),
                     t_sent = ech_tensor_2d(b.sent, ECH_F64, R, C),
                     t_y = ech_tensor_2d(b.y, ECH_F64, R, C),
                     t_out = ech_tensor_2d(out, ECH_F64, S, C),
                     t_dout = ech_tensor_2d(dout, ECH_F64, S, C),
                     t_dy = ech_tensor_2d(b.dy, ECH_F64, R, C),
                     t_dsent = ech_tensor_2d(b.dsent, ECH_F64, R, C),
                     t_dx = ech_tensor_2d(dx, ECH_F64, S, C),
                     t_gates = ech_tensor_2d(gates, ECH_F64, S, CHOICES),
                     t_dgates = ech_tensor_2d(dgates, ECH_F64, S, CHOICES);
    for (int i = 0; i < SPLITS; i++) {
        int64_t expert = i * (E / SPLITS);
        p[i] = (split){
            .counts = ech_tensor_view(counts + expert, ECH_I32, 2, one),
            .into = ech_tensor_view(into + expert * C * F, ECH_F64, 3, first),
            .out_of = ech_tensor_view(out_of + expert * F * C, ECH_F64, 3, second),
            .index = ech_tensor_view(b.index + i * BOUND * 2, ECH_I32, 2, (int64_t[]){BOUND, 2}),
            .first = i * BOUND};
    }
    ref->route(context, &t_choice, BOUND, &t_slot, &t_counts);
    ref->dispatch_forward(context, &t_x, &t_slot, &t_sent);
    ref->dispatch_index(context, &t_slot, &rows, &t_index);
    for (int i = 0; i < SPLITS; i++) work_forward(context, &p[i], &b);
    ref->combine_forward(context, &t_y, &t_gates, &t_slot, &t_out);
    ref->combine_backward(context, &t_dout, &t_y, &t_gates, &t_slot, &t_dy, &t_dgates);
    for (int i = 0; i < SPLITS; i++) work_backward(context, &p[i], &b);
    ref->dispatch_backward(context, &t_dsent, &t_slot, NULL, &t_dx);
    for (int s = 0; s < S; s++) {
        double sum[C] = {0}, gradient[C] = {0};
        for (int j = 0; j < CHOICES; j++) {
            int i = s * CHOICES + j;
            double of_gate = 0;
            for (int f = 0; choice[i] >= 0 && f < F; f++) {
                double factor = kept(ech_row_whole(&rows, s) * CHOICES + j, f), hidden = 0, d = 0;
                for (int c = 0; c < C; c++) {
                    hidden += factor * x[s * C + c] * into[(choice[i] * C + c) * F + f];
                    d += factor * dout[s * C + c] * out_of[(choice[i] * F + f) * C + c];
                }
                for (int c = 0; c < C; c++) {
                    double y = hidden * out_of[(choice[i] * F + f) * C + c];
                    sum[c] += gates[i] * y;
                    of_gate += y * dout[s * C + c];
                    gradient[c] += gates[i] * d * into[(choice[i] * C + c) * F + f];
                }
            }
            expect(dgates[i], of_gate);
        }
        for (int c = 0; c < C; c++) {
            expect(out[s * C + c], sum[c]);
            expect(dx[s * C + c], gradient[c]);
        }
    }
    ech_kernel_context_destroy(context);
}

/* The router's products, of jittered rows. */
TEST(router_is_a_product_of_jittered_rows)
{
    const ech_kernels *ref = ech_kernels_ref(ECH_F64);
    const ech_rows rows = rows_piece(4, 30, 11, S);
    double x[S * C], weight[E * C], logits[S * E], dlogits[S * E], dx[S * C], dweight[E * C],
        jittered[S * C];
    const ech_tensor t_x = ech_tensor_2d(x, ECH_F64, S, C),
                     t_weight = ech_tensor_2d(weight, ECH_F64, E, C),
                     t_logits = ech_tensor_2d(logits, ECH_F64, S, E),
                     t_dlogits = ech_tensor_2d(dlogits, ECH_F64, S, E),
                     t_dx = ech_tensor_2d(dx, ECH_F64, S, C),
                     t_dweight = ech_tensor_2d(dweight, ECH_F64, E, C);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int i = 0; i < S * C; i++) {
        uint64_t element = (uint64_t)(ech_row_whole(&rows, i / C) * C + i % C);
        x[i] = value_at(1, i, -1, 1);
        jittered[i] = 0.7 + 0.6 * ech_random_unit(ech_random_word(drawn.key, element));
    }
    for (int i = 0; i < E * C; i++) weight[i] = value_at(2, i, -1, 1);
    for (int i = 0; i < S * E; i++) dlogits[i] = value_at(3, i, -1, 1);
    ref->router_forward(context, &t_x, &t_weight, &drawn, &rows, &t_logits);
    ref->router_backward_input(context, &t_dlogits, &t_weight, &drawn, &rows, NULL, &t_dx);
    ref->router_backward_weight(context, &t_dlogits, &t_x, &drawn, &rows, false, &t_dweight);
    for (int s = 0; s < S; s++)
        for (int e = 0; e < E; e++) {
            double sum = 0;
            for (int c = 0; c < C; c++)
                sum += x[s * C + c] * jittered[s * C + c] * weight[e * C + c];
            expect(logits[s * E + e], sum);
        }
    for (int s = 0; s < S; s++)
        for (int c = 0; c < C; c++) {
            double sum = 0;
            for (int e = 0; e < E; e++) sum += dlogits[s * E + e] * weight[e * C + c];
            expect(dx[s * C + c], sum * jittered[s * C + c]);
        }
    for (int e = 0; e < E; e++)
        for (int c = 0; c < C; c++) {
            double sum = 0;
            for (int s = 0; s < S; s++)
                sum += dlogits[s * E + e] * x[s * C + c] * jittered[s * C + c];
            expect(dweight[e * C + c], sum);
        }
    ech_kernel_context_destroy(context);
}
