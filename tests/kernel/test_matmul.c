/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products with every flag, odd shapes and row strides; the bias gradient.
 */
#include "kernel/trial.h"

enum { NO_ADD, ADD_C, ADD_OTHER, ADDS };

typedef struct flags {
    bool a_transposed, b_transposed;
    int add;
} flags;

TRIAL_CALL_WITH(flags, matmul, t[0], o->a_transposed, t[1], o->b_transposed, t[2],
                o->add == ADD_C ? t[3] : t[4], t[3])

/* The trial of one product: gaps 0 or more between the rows of a, b, c and add. */
static trial make_trial(int64_t M, int64_t N, int64_t K, const flags *f, bool bias, int64_t gap)
{
    trial t = {
        .name = "product",
        .op = ECH_OP_matmul,
        .call = call_matmul,
        .options = f,
        .dims = {M, N, K, f->a_transposed, f->b_transposed, bias, f->add != NO_ADD},
        .tensor = {TRIAL_INPUT(TRIAL_2D(f->a_transposed ? K : M, f->a_transposed ? M : K),
                               .gap = gap),
                   TRIAL_INPUT(TRIAL_2D(f->b_transposed ? N : K, f->b_transposed ? K : N),
                               .gap = 2 * gap),
                   TRIAL_INPUT(TRIAL_1D(N), .type = TRIAL_WIDE),
                   TRIAL_RESULT(TRIAL_2D(M, N), .gap = 3 * gap, .type = TRIAL_EITHER),
                   TRIAL_INPUT(TRIAL_2D(M, N), .gap = 5 * gap, .type = TRIAL_EITHER)},
        .tolerance = 4e-6,
        .depends_on_threads = true,
        .depends_on_address = true,
        .is_library = true,
    };
    if (!bias) t.tensor[2] = (trial_tensor){0};
    if (f->add == ADD_C)
        t.tensor[3] =
            (trial_tensor)TRIAL_CHANGED(TRIAL_2D(M, N), .gap = 3 * gap, .type = TRIAL_EITHER);
    if (f->add != ADD_OTHER) t.tensor[4] = (trial_tensor){0};
    return t;
}

static void check_matmul(int64_t M, int64_t N, int64_t K, flags f, bool bias, int64_t gap)
{
    const trial t = make_trial(M, N, K, &f, bias, gap);
    trial_check(&t);
}

TEST(products_agree)
{
    static const int64_t shapes[][3] = {
        {1, 1, 1},
        {1, 7, 5},
        {9, 1, 4},
        {5, 3, 1},
        {17, 33, 9},
        {48, 64, 32},
        {65, 1, 64},
        {1, 130, 70},
        /* large enough for parts: wide, high, with a short last one */
        {131, 260, 77},
        {300, 70, 129},
        {143, 143, 64}};
    for (size_t s = 0; s < TRIAL_COUNT(shapes); s++)
        for (int way = 0; way < 16 * ADDS; way++) {
            flags f = {way & 1, way & 2, way / 16};
            check_matmul(shapes[s][0], shapes[s][1], shapes[s][2], f, way & 4, way & 8 ? 3 : 0);
        }
}

/* A long matrix and two of up to 8 columns, which the processor makes without the library; with
 * rows, columns and vectors that are left over. */
TEST(thin_products_agree)
{
    static const int64_t shapes[][3] = {{258, 4, 259}, {131, 1, 515}, {67, 8, 1000}, {515, 7, 131}};
    for (size_t s = 0; s < TRIAL_COUNT(shapes); s++)
        for (int way = 0; way < 4 * ADDS; way++) {
            flags f = {.a_transposed = way & 1, .add = way / 4};
            trial t =
                make_trial(shapes[s][0], shapes[s][1], shapes[s][2], &f, false, way & 2 ? 3 : 0);
            bool general = TRIAL_BOUND(f.add == ADD_OTHER, true);
            t.depends_on_threads = t.depends_on_address = t.is_library = general;
            trial_check(&t);
        }
}

/* Sums of 16-bit operands are in fp32; around the sides of tiles and the blocks of K. */
TEST(halves_agree)
{
    static const int64_t shapes[][3] = {{1, 1, 1},     {17, 33, 9},   {1, 130, 70}, {65, 1, 64},
                                        {131, 60, 77}, {9, 300, 259}, {3, 5, 0}};
    for (size_t s = 0; s < TRIAL_COUNT(shapes); s++)
        for (int way = 0; way < 16 * ADDS; way++) {
            flags f = {way & 1, way & 2, way / 16};
            const trial t =
                make_trial(shapes[s][0], shapes[s][1], shapes[s][2], &f, way & 4, way & 8 ? 3 : 0);
            trial_check_halves(&t, 4e-6, TRIAL_HALF_PRODUCTS);
        }
}

/* Rows of 256 numbers share sets of the cache, so another library may multiply. */
TEST(strides_of_256_agree)
{
    for (int way = 0; way < 8 * ADDS; way++) {
        flags f = {way & 1, way & 2, way / 8};
        check_matmul(70, 256, 66, f, way & 4, 0);
        check_matmul(256, 70, 66, f, way & 4, 0);
    }
}

/* Parts of all kinds: several a thread where c is narrow, operands with gaps, sums that are added
 * to. */
TEST(large_halves_agree)
{
    for (int way = 0; way < 4; way++) {
        flags f = {.a_transposed = way & 1, .add = way < 2 ? ADD_C : NO_ADD};
        const trial t = make_trial(550, 70, 65, &f, false, way & 2 ? 3 : 0);
        trial_check_halves(&t, 4e-6, TRIAL_HALF_PRODUCTS);
    }
}

TEST(empty_products_leave_the_bias)
{
    for (int way = 0; way < 4 * ADDS; way++) {
        flags f = {.add = way / 4};
        check_matmul(3, 5, 0, f, way & 1, way & 2 ? 3 : 0);
    }
}

/* More different products than the cache of primitives holds, twice. */
TEST(many_shapes_in_one_context)
{
    const ech_kernels *fast = ech_kernels_fast(ECH_F32);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    float a[300], b[4] = {1, 2, 3, 4}, c[1200];
    for (int i = 0; i < 300; i++) a[i] = (float)i;
    ech_tensor row = ech_tensor_2d(b, ECH_F32, 1, 4);
    for (int64_t pass = 0; pass < 2; pass++)
        for (int64_t M = 1; M <= 300; M++) {
            const int64_t dims[] = {M, 4, 1, 0, 0, 0, 0};
            ech_tensor column = ech_tensor_2d(a, ECH_F32, M, 1);
            ech_tensor out = ech_tensor_2d(c, ECH_F32, M, 4);
            context->scratch_bytes = ech_kernel_scratch(fast, ECH_OP_matmul, 1, dims);
            context->scratch = trial_scratch(context->scratch_bytes);
            fast->matmul(context, &column, false, &row, false, NULL, NULL, &out);
            free(context->scratch);
            assert_true(c[4 * M - 1] == (float)(M - 1) * 4 && c[4 * M - 2] == (float)(M - 1) * 3);
        }
    ech_kernel_context_destroy(context);
}

/* Whether a library does so may be its own choice. */
#ifdef TRIAL_GPU
#define TRIAL_CHOOSES true
#else
#define TRIAL_CHOOSES false
#endif

/* (1 + 2^-13) 1, of which TF32 has no more than 1: exactly that, unless the context allows TF32 and
 * there is a library to use it. */
TEST(tf32_only_where_it_is_allowed)
{
    enum { SIDE = 4 };
    const ech_kernels *fast = ech_kernels_fast(ECH_F32);
    const int64_t dims[] = {SIDE, SIDE, SIDE, 0, 0, 0, 0};
    const double exact = 1 + ldexp(1, -13);
    const double rounded = getenv("ECHELON_EMULATED_LIBRARY") ? 1 : exact;
    float a[SIDE * SIDE] = {0}, b[SIDE * SIDE] = {0}, c[SIDE * SIDE];
    const ech_tensor t[] = {ech_tensor_2d(a, ECH_F32, SIDE, SIDE),
                            ech_tensor_2d(b, ECH_F32, SIDE, SIDE),
                            ech_tensor_2d(c, ECH_F32, SIDE, SIDE)};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    context->scratch_bytes = ech_kernel_scratch(fast, ECH_OP_matmul, 1, dims);
    context->scratch = trial_scratch(context->scratch_bytes);
    for (int i = 0; i < SIDE; i++) {
        a[i * (SIDE + 1)] = (float)exact;
        b[i * (SIDE + 1)] = 1;
    }
    for (int turn = 0; turn < 4; turn++) {
        context->tf32 = turn % 2;
        fast->matmul(context, &t[0], false, &t[1], false, NULL, NULL, &t[2]);
        for (int i = 0; i < SIDE; i++) {
            double own = (double)c[i * (SIDE + 1)];
            assert_true(own == (context->tf32 ? rounded : exact) ||
                        (context->tf32 && TRIAL_CHOOSES && own == 1));
        }
    }
    free(context->scratch);
    ech_kernel_context_destroy(context);
}

TRIAL_CALL(bias_backward, t[0], *(const bool *)options, t[1])

TEST(bias_gradients_agree)
{
    static const bool yes = true, no = false;
#define CASE(text, R, N, space, on, result)                                                        \
    {                                                                                              \
        .name = text, .op = ECH_OP_bias_backward, .call = call_bias_backward, .options = on,       \
        .dims = {R, N}, .tolerance = 1e-6, .tensor = {                                             \
            TRIAL_INPUT(TRIAL_2D(R, N), .gap = space),                                             \
            result(TRIAL_1D(N))                                                                    \
        }                                                                                          \
    }
    static const trial trials[] = {
        CASE("one row", 1, 5, 0, &no, TRIAL_RESULT),
        CASE("one column", 9, 1, 0, &no, TRIAL_RESULT),
        CASE("strided", 33, 131, 7, &no, TRIAL_RESULT),
        CASE("accumulated", 100, 300, 0, &yes, TRIAL_CHANGED),
        CASE("no rows", 0, 4, 0, &no, TRIAL_RESULT),
    };
#undef CASE
    trial_check_all(trials, TRIAL_COUNT(trials));
}
