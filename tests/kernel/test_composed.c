/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that stand for two others of their table: to the last bit what these put out, in every table
 * and type, for any number of threads.
 */

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernel/kernel.h"
#include "kernel/values.h"
#include "share.h"
#include "unit.h"

enum { TENSORS = 9, MOST_DIMS = 8 };

/* A row and the two: tensors in the row's order, and which of them are results. */
typedef struct bench {
    const ech_kernels *kernels;
    ech_kernel_context *context;
    int64_t R, C, K;
    bool wide, accumulate, without; /* EITHER tensors are wide; without the optional ones */
    ech_tensor t[2][TENSORS];       /* of the row, of the two */
    int tensors;
} bench;

static int add(bench *b, ech_type type, int dims, int64_t rows, int64_t columns)
{
    ech_dtype dtype = type == ECH_TYPE_WIDE ? ech_dtype_wide(b->kernels->dtype) : b->kernels->dtype;
    int i = b->tensors++;
    for (int k = 0; k < 2; k++) {
        ech_tensor x = ech_tensor_view(NULL, dtype, dims, (int64_t[]){rows, columns});
        int64_t n = ech_tensor_count(&x);
        x.data = ech_calloc((size_t)n + 1, ech_dtype_bytes(dtype));
        for (int64_t e = 0; e < n; e++) {
            double value = value_at((uint32_t)i, e, -2, 2);
            ech_convert(&value, ECH_F64, (char *)x.data + (size_t)e * ech_dtype_bytes(dtype), dtype,
                        1);
        }
        b->t[k][i] = x;
    }
    return i;
}

static int matrix(bench *b)
{
    return add(b, ECH_TYPE_COMPUTE, 2, b->R, b->C);
}

static int either(bench *b, int dims)
{
    ech_type type = b->wide ? ECH_TYPE_WIDE : ECH_TYPE_COMPUTE;
    return dims == 2 ? add(b, type, 2, b->R, b->C) : add(b, type, 1, b->C, 0);
}

static void scratch(bench *b, ech_op op, const int64_t *dims)
{
    free(b->context->scratch);
    b->context->scratch_bytes = ech_kernel_scratch(b->kernels, op, b->context->threads, dims);
    b->context->scratch = aligned_alloc(64, (b->context->scratch_bytes + 127) / 64 * 64);
}

#define COMPOSED_1(name)                                                                           \
    static void product_and_##name(bench *b)                                                       \
    {                                                                                              \
        int a = add(b, ECH_TYPE_COMPUTE, 2, b->R, b->K),                                           \
            w = add(b, ECH_TYPE_COMPUTE, 2, b->K, b->C);                                           \
        int bias = add(b, ECH_TYPE_WIDE, 1, b->C, 0), x = matrix(b), y = matrix(b);                \
        const int64_t dims[MOST_DIMS] = {b->R, b->C, b->K, false, false, !b->without, false};      \
        ech_tensor *one = b->t[0], *two = b->t[1];                                                 \
        scratch(b, ECH_OP_matmul_##name, dims);                                                    \
        b->kernels->matmul_##name(b->context, &one[a], false, &one[w], false,                      \
                                  b->without ? NULL : &one[bias], b->without ? NULL : &one[x],     \
                                  &one[y]);                                                        \
        scratch(b, ECH_OP_matmul, dims);                                                           \
        b->kernels->matmul(b->context, &two[a], false, &two[w], false,                             \
                           b->without ? NULL : &two[bias], NULL, &two[x]);                         \
        b->kernels->name##_forward(b->context, &two[x], &two[y]);                                  \
        if (b->without) /* it was not asked for */                                                 \
            memcpy(one[x].data, two[x].data,                                                       \
                   (size_t)ech_tensor_count(&two[x]) * ech_dtype_bytes(two[x].dtype));             \
    }
#define COMPOSED_2(name)
#define COMPOSED(NAME, name, operands, ...) COMPOSED_##operands(name)
ECH_ACTIVATIONS(COMPOSED)

static void sum_and_norm(bench *b, bool centered)
{
    int p = either(b, 2), q = matrix(b), x = either(b, 2), y = matrix(b);
    int gain = add(b, ECH_TYPE_WIDE, 1, b->C, 0), bias = add(b, ECH_TYPE_WIDE, 1, b->C, 0);
    int mean = add(b, ECH_TYPE_WIDE, 1, b->R, 0), rstd = add(b, ECH_TYPE_WIDE, 1, b->R, 0);
    ech_tensor *one = b->t[0], *two = b->t[1];
    if (b->accumulate) x = p; /* the sum lies where an addend does */
    b->kernels->add(b->context, &two[p], &two[q], &two[x]);
    if (centered) {
        b->kernels->add_layernorm(b->context, &one[p], &one[q], &one[x], &one[gain], &one[bias],
                                  1e-5, &one[y], &one[mean], &one[rstd]);
        b->kernels->layernorm_forward(b->context, &two[x], &two[gain], &two[bias], 1e-5, &two[y],
                                      &two[mean], &two[rstd]);
    } else {
        b->kernels->add_rmsnorm(b->context, &one[p], &one[q], &one[x], &one[gain], 0.5, 1e-5,
                                &one[y], &one[rstd]);
        b->kernels->rmsnorm_forward(b->context, &two[x], NULL, &two[gain], 0.5, 1e-5, &two[y],
                                    &two[rstd]);
    }
}

static void sum_and_layernorm(bench *b)
{
    sum_and_norm(b, true);
}

static void sum_and_rmsnorm(bench *b)
{
    sum_and_norm(b, false);
}

/* dx lies where dy does, or x, or by itself. */
#define AND_BIAS_1(name)                                                                           \
    static void name##_and_bias(bench *b)                                                          \
    {                                                                                              \
        int dy = matrix(b), x = matrix(b), dx = matrix(b), dbias = either(b, 1);                   \
        const int64_t dims[MOST_DIMS] = {b->R, b->C};                                              \
        ech_tensor *one = b->t[0], *two = b->t[1];                                                 \
        int over = b->without ? b->wide ? dy : x : dx;                                             \
        scratch(b, ECH_OP_##name##_backward_bias, dims);                                           \
        b->kernels->name##_backward_bias(b->context, &one[dy], &one[x], &one[over], b->accumulate, \
                                         &one[dbias]);                                             \
        b->kernels->name##_backward(b->context, &two[dy], &two[x], &two[over]);                    \
        scratch(b, ECH_OP_bias_backward, dims);                                                    \
        b->kernels->bias_backward(b->context, &two[over], b->accumulate, &two[dbias]);             \
    }
#define AND_BIAS_2(name)
#define AND_BIAS(NAME, name, operands, ...) AND_BIAS_##operands(name)
ECH_ACTIVATIONS(AND_BIAS)

static void check(const ech_kernels *kernels, void (*compute)(bench *b), int way, int64_t R,
                  int64_t C, int64_t K)
{
    bench b = {.kernels = kernels,
               .R = R,
               .C = C,
               .K = K,
               .wide = way & 1,
               .accumulate = way & 2,
               .without = way & 4};
    assert_int_equal(ech_kernel_context_create(way & 8 ? 3 : 1, &b.context), ECH_OK);
    compute(&b);
    for (int i = 0; i < b.tensors; i++) {
        const ech_tensor *x = &b.t[0][i], *y = &b.t[1][i];
        assert_memory_equal(x->data, y->data,
                            (size_t)ech_tensor_count(x) * ech_dtype_bytes(x->dtype));
        free(x->data);
        free(y->data);
    }
    free(b.context->scratch);
    ech_kernel_context_destroy(b.context);
}

static void check_table(const ech_kernels *kernels, void (*compute)(bench *b))
{
    static const int64_t sizes[][3] = {{1, 1, 1}, {7, 37, 5}, {70, 300, 64}, {33, 1030, 16}};
    if (!kernels) return;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int way = 0; way < 16; way++)
            if (share_takes()) check(kernels, compute, way, sizes[s][0], sizes[s][1], sizes[s][2]);
}

static void check_all(void (*compute)(bench *b))
{
    static const ech_dtype types[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        check_table(ech_kernels_ref(types[t]), compute);
        for (ech_isa isa = 0; isa < ECH_ISAS && types[t] != ECH_F64; isa++)
            check_table(ech_kernels_of(isa, types[t]), compute);
    }
}

#define CHECK_1(name)                                                                              \
    check_all(product_and_##name);                                                                 \
    check_all(name##_and_bias);
#define CHECK_2(name)
#define CHECK(NAME, name, operands, ...) CHECK_##operands(name)

TEST(test_product_and_activation){ECH_ACTIVATIONS(CHECK)}

TEST(test_sum_and_norm)
{
    check_all(sum_and_layernorm);
    check_all(sum_and_rmsnorm);
}
