/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables are complete, contexts refuse what cannot be, and a wrong shape, rows that cannot be or
 * too little scratch end the process instead of computing.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "kernel/places.h"
#include "kernel/trial.h"

TEST(tables_are_complete)
{
    static const ech_dtype dtypes[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16};
    for (int k = 0; k < 8; k++) {
        ech_dtype dtype = dtypes[k / 2];
        const ech_kernels *table = k % 2 ? ech_kernels_fast(dtype) : ech_kernels_ref(dtype);
        assert_non_null(table);
        assert_int_equal(table->dtype, dtype);
#define X(op, ...) assert_true(table->op != NULL);
#include "kernel/kernel.def"
#undef X
    }
    assert_ptr_equal(ech_kernels_ref(ECH_F64), ech_kernels_fast(ECH_F64));
    assert_null(ech_kernels_ref(ECH_I32));
    assert_null(ech_kernels_fast(ECH_I32));
    assert_string_equal(ech_op_name(ECH_OP_matmul), "matmul");
    assert_string_equal(ech_op_name((ech_op)(ECH_OPS - 1)), "fill");
    assert_true(strlen(ech_kernels_describe()) > 0);
}

/* Rows without scratch say so; the others grow with what they are asked for. */
TEST(scratch_is_known_beforehand)
{
    const ech_kernels *fast = ech_kernels_fast(ECH_F32);
    const int64_t small[] = {1, 50, 50, 2, 2, 16, 16}, large[] = {1, 500, 500, 2, 2, 16, 16};
    assert_int_equal(ech_kernel_scratch(fast, ECH_OP_add, 2, NULL), 0);
    size_t few = ech_kernel_scratch(fast, ECH_OP_attention_backward, 1, small);
    assert_true(few > 0);
    assert_true(few < ech_kernel_scratch(fast, ECH_OP_attention_backward, 1, large));
    const int64_t product[] = {64, 64, 64, true, true, false, false};
    size_t once = ech_kernel_scratch(fast, ECH_OP_matmul, 2, product);
    assert_int_equal(once, ech_kernel_scratch(fast, ECH_OP_matmul, 2, product));
}

/* A vector without gaps is the same transposed: the library may take a product for another one that
 * it has computed before. The scratch asked for suffices all the same. */
TEST(scratch_of_vectors_suffices)
{
    enum { K = 48 };
    static float x[K], y[K], product;
    const ech_kernels *fast = ech_kernels_fast(ECH_F32);
    const bool forms[][2] = {{true, false}, {false, true}, {false, false}, {true, true}};
    enum { FORMS = sizeof forms / sizeof *forms };
    size_t asked[FORMS];
    for (int i = 0; i < K; i++) x[i] = y[i] = 1;
    for (int f = 0; f < FORMS; f++) {
        const int64_t dims[] = {1, 1, K, forms[f][0], forms[f][1], false, false};
        asked[f] = ech_kernel_scratch(fast, ECH_OP_matmul, 1, dims);
    }
    for (int f = 0; f < FORMS; f++) {
        ech_kernel_context *context;
        assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
        context->scratch = ech_calloc(1, asked[f] + 64);
        context->scratch_bytes = asked[f];
        ech_tensor a = ech_tensor_2d(x, ECH_F32, forms[f][0] ? K : 1, forms[f][0] ? 1 : K);
        ech_tensor b = ech_tensor_2d(y, ECH_F32, forms[f][1] ? 1 : K, forms[f][1] ? K : 1);
        ech_tensor c = ech_tensor_2d(&product, ECH_F32, 1, 1);
        fast->matmul(context, &a, forms[f][0], &b, forms[f][1], NULL, NULL, &c);
        assert_true(product == K);
        free(context->scratch);
        context->scratch = NULL;
        ech_kernel_context_destroy(context);
    }
}

TEST(impossible_threads_are_refused)
{
    ech_kernel_context *context = NULL;
    assert_int_equal(ech_kernel_context_create(0, &context), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "0 threads"));
    assert_int_equal(ech_kernel_context_create(ECH_MAX_THREADS + 1, &context), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "parallel.threads"));
    assert_null(context);
    ech_kernel_context_destroy(NULL);
}

/* True if `act` ends its process by a signal rather than returning. */
static bool dies(void (*act)(const ech_kernels *kernels), const ech_kernels *kernels)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fclose(stderr);
        act(kernels);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static double numbers[64];

static void fill_of(const ech_kernels *kernels, const ech_tensor *a, const ech_tensor *b)
{
    ech_kernel_context *context;
    if (ech_kernel_context_create(1, &context) == ECH_OK) kernels->add(context, a, b, b);
}

static void add_well(const ech_kernels *kernels)
{
    ech_tensor a = ech_tensor_2d(numbers, kernels->dtype, 3, 4);
    fill_of(kernels, &a, &a);
}

static void add_other_shape(const ech_kernels *kernels)
{
    ech_tensor a = ech_tensor_2d(numbers, kernels->dtype, 3, 4), b = a;
    b.shape[1] = 3;
    b.stride[0] = 3;
    fill_of(kernels, &a, &b);
}

static void add_other_type(const ech_kernels *kernels)
{
    ech_tensor a = ech_tensor_2d(numbers, kernels->dtype, 3, 4), b = a;
    b.dtype = ECH_I32;
    fill_of(kernels, &a, &b);
}

/* Tensors of other types than the table's: a sum takes wide ones, GELU does not; an update's
 * parameters must be. */
static void add_wide(const ech_kernels *kernels)
{
    ech_tensor a = ech_tensor_2d(numbers, ech_dtype_wide(kernels->dtype), 3, 4);
    fill_of(kernels, &a, &a);
}

static void add_wider(const ech_kernels *kernels)
{
    ech_tensor a = ech_tensor_2d(numbers, kernels->dtype, 3, 4), b = a;
    b.dtype = kernels->dtype == ECH_F64 ? ECH_F32 : ECH_F64;
    fill_of(kernels, &b, &a);
}

static void gelu_of_wide(const ech_kernels *kernels)
{
    ech_kernel_context *context;
    ech_tensor x = ech_tensor_1d(numbers, ech_dtype_wide(kernels->dtype), 3);
    if (ech_kernel_context_create(1, &context) == ECH_OK) kernels->gelu_forward(context, &x, &x);
}

static void update_real(const ech_kernels *kernels)
{
    ech_kernel_context *context;
    ech_tensor p = ech_tensor_1d(numbers, kernels->dtype, 3), g = p;
    g.data = numbers + 8;
    if (ech_kernel_context_create(1, &context) == ECH_OK)
        kernels->sgd(context, &p, &g, NULL, &(ech_update){0}, NULL);
}

TEST(types_are_checked)
{
    static const ech_dtype dtypes[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16};
    for (int k = 0; k < 4; k++) {
        const ech_kernels *kernels = ech_kernels_ref(dtypes[k]);
        bool narrow = ech_dtype_wide(dtypes[k]) != dtypes[k];
        assert_false(dies(add_wide, kernels));
        assert_true(dies(add_wider, kernels));
        assert_true(dies(gelu_of_wide, kernels) == narrow);
        assert_true(dies(update_real, kernels) == narrow);
    }
}

static void add_strided(const ech_kernels *kernels)
{
    ech_tensor a = ech_tensor_2d(numbers, kernels->dtype, 3, 4);
    ech_tensor b = ech_tensor_narrow(&a, a.dims - 1, 1, 2);
    fill_of(kernels, &b, &b);
}

static void add_nowhere(const ech_kernels *kernels)
{
    ech_tensor a = ech_tensor_2d(NULL, kernels->dtype, 3, 4);
    fill_of(kernels, &a, &a);
}

/* c (3,4) = aT b of a (K,3), b (2,4). */
static void multiply(const ech_kernels *kernels, int64_t K)
{
    ech_kernel_context *context;
    if (ech_kernel_context_create(1, &context) != ECH_OK) return;
    ech_tensor a = ech_tensor_2d(numbers, kernels->dtype, K, 3);
    ech_tensor b = ech_tensor_2d(numbers + 8, kernels->dtype, 2, 4);
    ech_tensor c = ech_tensor_2d(numbers + 16, kernels->dtype, 3, 4);
    double scratch[4096];
    context->scratch = scratch;
    context->scratch_bytes = sizeof scratch;
    kernels->matmul(context, &a, true, &b, false, NULL, NULL, &c);
}

static void multiply_well(const ech_kernels *kernels)
{
    multiply(kernels, 2);
}

static void multiply_other_rows(const ech_kernels *kernels)
{
    multiply(kernels, 1);
}

/* Two rows of dropout at these coordinates. */
static void drop_at(const ech_kernels *kernels, ech_rows rows)
{
    ech_kernel_context *context;
    if (ech_kernel_context_create(1, &context) != ECH_OK) return;
    ech_dropout dropout = {.p = 0.5};
    ech_tensor x = ech_tensor_2d(numbers, kernels->dtype, 2, 4);
    kernels->dropout(context, &x, &dropout, &rows, &x);
}

static void drop_well(const ech_kernels *kernels)
{
    drop_at(kernels, rows_pair(0, 9, 3, 1, 7, 1));
}

static void drop_in_descending_rows(const ech_kernels *kernels)
{
    drop_at(kernels, rows_pair(0, 9, 7, 1, 3, 1));
}

static void drop_beyond_the_sample(const ech_kernels *kernels)
{
    drop_at(kernels, rows_piece(0, 9, 8, 2));
}

static void drop_without_rows(const ech_kernels *kernels)
{
    drop_at(kernels, (ech_rows){0});
}

static void attend_without_scratch(const ech_kernels *kernels)
{
    ech_kernel_context *context;
    if (ech_kernel_context_create(1, &context) != ECH_OK) return;
    ech_dropout dropout = {.p = 0};
    ech_tensor q = ech_tensor_view(numbers, kernels->dtype, 4, (const int64_t[]){1, 2, 1, 2});
    ech_tensor lse = ech_tensor_view(numbers + 8, kernels->dtype, 3, (const int64_t[]){1, 1, 2});
    ech_attention_shard at = place_uncut(0, 2, 1);
    kernels->attention_forward(context, &q, &q, &q, &place_rule, &at, NULL, &dropout, false, &q,
                               &lse);
}

/* Rows of two samples of 4 positions, whose documents begin at these. */
static void add_positions(const ech_kernels *kernels, int32_t third, int32_t sixth)
{
    ech_kernel_context *context;
    if (ech_kernel_context_create(1, &context) != ECH_OK) return;
    int32_t starts[] = {0, 0, third, 2, 0, sixth, 1, 3};
    ech_rows rows = rows_uncut(0, 4);
    ech_tensor s = ech_tensor_2d(starts, ECH_I32, 2, 4);
    ech_tensor x = ech_tensor_2d(numbers, kernels->dtype, 8, 1);
    ech_tensor table = ech_tensor_2d(numbers, kernels->dtype, 4, 1);
    kernels->position_forward(context, &x, &table, &rows, &s, &x);
}

static void add_positions_well(const ech_kernels *kernels)
{
    add_positions(kernels, 2, 1);
}

static void add_positions_of_the_future(const ech_kernels *kernels)
{
    add_positions(kernels, 2, 2);
}

static void add_positions_of_descending_documents(const ech_kernels *kernels)
{
    add_positions(kernels, -1, 1);
}

TEST(wrong_arguments_end_the_process)
{
    const ech_kernels *tables[] = {ech_kernels_ref(ECH_F64), ech_kernels_ref(ECH_F32),
                                   ech_kernels_fast(ECH_F32)};
    for (int k = 0; k < 3; k++) {
        assert_false(dies(add_well, tables[k]));
        assert_true(dies(add_other_shape, tables[k]));
        assert_true(dies(add_other_type, tables[k]));
        assert_true(dies(add_strided, tables[k]));
        assert_true(dies(add_nowhere, tables[k]));
        assert_false(dies(multiply_well, tables[k]));
        assert_true(dies(multiply_other_rows, tables[k]));
        assert_true(dies(attend_without_scratch, tables[k]));
        assert_false(dies(drop_well, tables[k]));
        assert_true(dies(drop_in_descending_rows, tables[k]));
        assert_true(dies(drop_beyond_the_sample, tables[k]));
        assert_true(dies(drop_without_rows, tables[k]));
        assert_false(dies(add_positions_well, tables[k]));
        assert_true(dies(add_positions_of_the_future, tables[k]));
        assert_true(dies(add_positions_of_descending_documents, tables[k]));
    }
}
