/* SPDX-License-Identifier: Apache-2.0
 *
 * What rows read on the device, a position or the number of a step, gives the bits that it gives as
 * an argument; and of a cache they read no more than there is.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/places.h"
#include "unit.h"

enum { B = 2, T = 70, H = 4, G = 2, D = 8, C = H * D, N = B * T * C };

/* All of one type, of which a tensor has as many elements as it needs. */
typedef struct memory {
    double x[N], y[N], k[N], v[N], dq[N], out[N], lse[B * T * H];
} memory;

static ech_tensor tokens(void *data, ech_dtype dtype, int64_t n, int64_t heads)
{
    return ech_tensor_view(data, dtype, 4, (int64_t[]){B, n, heads, D});
}

static void fill(double *numbers, double seed, ech_dtype dtype, int64_t n)
{
    double from[N];
    for (int64_t i = 0; i < n; i++) from[i] = sin(seed + (double)i);
    ech_convert(from, ECH_F64, numbers, dtype, n);
}

static int64_t window; /* of all attention */

/* Computes one token of each sample at rows->start[0] with a cache: its keys and values are
 * appended, and it attends to them. Keys after it are NaN. */
static void attend(const ech_kernels *k, ech_kernel_context *context, const ech_rows *rows,
                   int64_t known, memory *m)
{
    const ech_dropout off = {.p = 0};
    const ech_attention_rule rule = {.scale = 0.3, .window = window};
    ech_rows all = rows_uncut(rows->first_sample, T);
    ech_tensor x = tokens(m->x, k->dtype, 1, H), own = tokens(m->y, k->dtype, 1, G);
    ech_tensor keys = tokens(m->k, k->dtype, T, G), values = tokens(m->v, k->dtype, T, G);
    ech_tensor out = tokens(m->out, k->dtype, 1, H);
    ech_tensor lse = ech_tensor_view(m->lse, ech_dtype_wide(k->dtype), 3, (int64_t[]){B, H, 1});
    k->append(context, &own, rows, &keys);
    k->append(context, &own, rows, &values);
    if (known >= 0) { /* as if it were an argument */
        all.tokens = all.split = known + 1;
        keys = ech_tensor_narrow(&keys, 1, 0, known + 1);
        values = ech_tensor_narrow(&values, 1, 0, known + 1);
    }
    ech_attention_shard at = {.query = *rows, .key = all, .heads = H};
    k->attention_forward(context, &x, &keys, &values, &rule, &at, NULL, &off, false, &out, &lse);
}

/* Position and rotation of the same token, by its position. */
static void place(const ech_kernels *k, ech_kernel_context *context, const ech_rows *rows,
                  memory *m)
{
    double frequency[D / 2];
    const ech_rope rope = {.theta = 10000};
    ech_rope_frequencies(&rope, D, frequency);
    ech_tensor x = tokens(m->x, k->dtype, 1, H), y = tokens(m->y, k->dtype, 1, H);
    ech_tensor row = ech_tensor_2d(m->x, k->dtype, B, C), sum = ech_tensor_2d(m->v, k->dtype, B, C);
    ech_tensor table = ech_tensor_2d(m->k, k->dtype, T, C);
    ech_tensor dtable = ech_tensor_2d(m->out, k->dtype, T, C);
    k->rotary(context, &x, frequency, D, false, 1, rows, NULL, false, &y);
    k->position_forward(context, &row, &table, rows, NULL, &sum);
    k->position_backward(context, &row, rows, NULL, false, &dtable);
}

static void drop(const ech_kernels *k, ech_kernel_context *context, const ech_dropout *dropout,
                 const ech_rows *rows, memory *m)
{
    ech_tensor x = ech_tensor_2d(m->x, k->dtype, B, C), y = ech_tensor_2d(m->y, k->dtype, B, C);
    k->dropout(context, &x, dropout, rows, &y);
    ech_rows all = rows_uncut(3, T);
    const ech_attention_shard at = {.query = all, .key = all, .heads = H};
    ech_tensor q = tokens(m->k, k->dtype, T, H), out = tokens(m->out, k->dtype, T, H);
    ech_tensor lse = ech_tensor_view(m->lse, ech_dtype_wide(k->dtype), 3, (int64_t[]){B, H, T});
    ech_tensor dq = tokens(m->dq, k->dtype, T, H), dk = tokens(m->x, k->dtype, T, H);
    ech_tensor dv = tokens(m->y, k->dtype, T, H), v = tokens(m->v, k->dtype, T, H);
    k->attention_forward(context, &q, &q, &v, &place_rule, &at, NULL, dropout, false, &out, &lse);
    k->attention_backward(context, &v, &q, &q, &v, &out, &lse, &place_rule, &at, NULL, dropout,
                          false, false, &dq, &dk, &dv);
}

static void begin(memory *m, ech_dtype dtype, int64_t known)
{
    memset(m, 0xff, sizeof *m); /* NaN in every type */
    fill(m->x, 1, dtype, N);
    fill(m->y, 2, dtype, N);
    int64_t n = known < 0 ? N : known * G * D;
    for (int b = 0; b < (known < 0 ? 1 : B); b++) {
        size_t skip = (size_t)(b * T * G * D) * ech_dtype_bytes(dtype);
        fill((double *)(void *)((char *)m->k + skip), 3 + b, dtype, n);
        fill((double *)(void *)((char *)m->v + skip), 5 + b, dtype, n);
    }
}

static void check_table(const ech_kernels *k, ech_kernel_context *context)
{
    static memory given, read, other;
    for (int64_t position = 0; position < T; position += 23) {
        const ech_rows known = rows_piece(1, T, position, 1);
        ech_rows here = rows_piece(1, T, 0, 1);
        here.position = &position;
        for (int way = 0; way < 2; way++) {
            begin(&given, k->dtype, way ? -1 : position);
            begin(&read, k->dtype, way ? -1 : position);
            other = read;
            if (way) {
                place(k, context, &known, &given);
                place(k, context, &here, &read);
            } else {
                attend(k, context, &known, position, &given);
                attend(k, context, &here, -1, &read);
            }
            assert_memory_equal(&given, &read, sizeof given);
            assert_memory_not_equal(&given, &other, sizeof given);
        }
    }
    const int64_t step = 7, position = 3;
    const ech_rows known = rows_piece(1, T, position, 1);
    ech_rows here = rows_piece(1, T, 0, 1);
    here.position = &position;
    const ech_dropout given_step = {.p = 0.4, .key = {.seed = 1, .step = 7, .stream = 2}};
    const ech_dropout other_step = {.p = 0.4, .key = {.seed = 1, .step = 8, .stream = 2}};
    const ech_dropout read_step = {.p = 0.4, .key = {.seed = 1, .stream = 2}, .step = &step};
    begin(&given, k->dtype, -1);
    read = other = given;
    drop(k, context, &given_step, &known, &given);
    drop(k, context, &read_step, &here, &read);
    drop(k, context, &other_step, &known, &other);
    assert_memory_equal(&given, &read, sizeof given);
    assert_memory_not_equal(given.y, other.y, sizeof given.y);
    assert_memory_not_equal(given.out, other.out, sizeof given.out);
    assert_memory_not_equal(given.dq, other.dq, sizeof given.dq);
}

TEST(numbers_are_read_on_the_device)
{
    static const ech_dtype types[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16};
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(2, &context), ECH_OK);
    context->scratch_bytes = 1 << 24;
    ECH_FREED void *scratch = aligned_alloc(64, context->scratch_bytes);
    context->scratch = scratch;
    for (int t = 0; t < 8; t++) {
        window = t / 4 * 5;
        check_table(ech_kernels_ref(types[t % 4]), context);
        for (ech_isa isa = 0; isa < ECH_ISAS; isa++)
            if (ech_kernels_of(isa, types[t % 4]))
                check_table(ech_kernels_of(isa, types[t % 4]), context);
    }
    context->scratch = NULL;
    ech_kernel_context_destroy(context);
}
