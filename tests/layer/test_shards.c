/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers on a tensor rank's share of rows and embedding tables: together the ranks compute what one
 * does.
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layer/layers.h"
#include "unit.h"

enum { MOST_RANKS = 5, FIRST_SAMPLE = 4 };
static const int64_t call_step = 2;

static double draw(uint32_t series, int64_t i)
{
    ech_random_key key = {.seed = 3, .stream = series};
    return 2 * ech_random_unit(ech_random_word(key, (uint64_t)i)) - 1;
}

/* n numbers of a series; of series 0 NaN. */
static double *numbers(uint32_t series, int64_t n)
{
    double *x = ech_calloc((size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++) x[i] = series ? draw(series, i) : (double)NAN;
    return x;
}

static void close_to(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-12 * (1 + fabs(wanted))))
        fail_msg("%.17g, not %.17g", got, wanted);
}

/* ---- embedding, positions, dropout ---- */

/* A block of one layer whose input and output have `shape`. */
static ech_block *one_layer(ech_pool *pool, ech_shape shape, int which)
{
    ech_block *block = ech_block_create(pool, "block", 3, (ech_block_options){0});
    if (which == 0) {
        ech_layer_embedding(block, ech_block_batch(block, ECH_TOKENS), 0, 3);
        return block;
    }
    int x = ech_block_input(block, "x", shape);
    x = which == 1 ? ech_layer_position(block, x, 0, -1) : ech_layer_dropout(block, x, 0.3);
    ech_block_output(block, x);
    ech_param table = {.shape = ech_shape_2d(ECH_AXIS_POSITION, 9, ECH_AXIS_MODEL, 3)};
    ech_block_finish(block, &table);
    return block;
}

static ech_call plain_call(const ech_block *block, ech_kernel_context *context)
{
    return (ech_call){.node = &block->node.at[0],
                      .kernels = ech_kernels_ref(ECH_F64),
                      .context = context,
                      .purpose = ECH_TRAIN,
                      .seed = 5,
                      .step = &call_step,
                      .layer = 3,
                      .tensor_size = 1};
}

TEST(embedding_in_shards)
{
    enum { B = 2, T = 9, C = 3, V = 10, N = B * T * C };
    int32_t ids[B * T];
    for (int i = 0; i < B * T; i++) ids[i] = 7 * i % V;
    ech_pool *pool = ech_pool_create();
    ech_block *block = one_layer(pool, (ech_shape){0}, 0);
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int t = 1; t <= MOST_RANKS; t++) {
        int64_t share = (V + t - 1) / t;
        double *table = numbers(1, t * share * C), *dtable = numbers(0, t * share * C);
        double sum[N] = {0}, y[N], *dy = numbers(2, N), wanted[V * C] = {0};
        for (int i = 0; i < t; i++) {
            const int64_t rows[] = {B, T, C}, own[] = {share, C};
            ech_call call = plain_call(block, context);
            call.extent = (ech_extent){B, T, T, {.tensor = t}};
            call.tensor_index = i;
            call.tensor_size = t;
            call.in[0] = ech_tensor_view(ids, ECH_I32, 2, rows);
            call.out[0] = ech_tensor_view(y, ECH_F64, 3, rows);
            call.dout[0] = ech_tensor_view(dy, ECH_F64, 3, rows);
            call.param[0] = ech_tensor_view(table + i * share * C, ECH_F64, 2, own);
            call.dparam[0] = ech_tensor_view(dtable + i * share * C, ECH_F64, 2, own);
            call.node->layer->forward(&call);
            call.node->layer->backward_weight(&call);
            for (int64_t j = 0; j < N; j++) sum[j] += y[j];
        }
        for (int64_t j = 0; j < N; j++) {
            assert_true(sum[j] == table[ids[j / C] * C + j % C]);
            wanted[ids[j / C] * C + j % C] += dy[j];
        }
        for (int64_t j = 0; j < t * share * C; j++)
            assert_true(dtable[j] == (j < V * C ? wanted[j] : 0));
        free(table);
        free(dtable);
        free(dy);
    }
    ech_kernel_context_destroy(context);
    ech_block_destroy(block);
    ech_pool_destroy(pool);
}

/* Layers ask the call's rows or its shard, as their input's first axis says. */
TEST(rows_in_shards)
{
    enum { B = 2, T = 6, LOCAL = 4, C = 3, R = B * LOCAL, P = 8 };
    const ech_shape shapes[] = {ech_shape_rows(ECH_AXIS_MODEL, C),
                                ech_shape_2d(ECH_AXIS_ROWS, 0, ECH_AXIS_MODEL, C)};
    const ech_rows rows = {FIRST_SAMPLE, T, LOCAL, 0, 2, {1, 4}, NULL};
    ech_rows shard = rows;
    shard.first = 3;
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int shared = 0; shared < 2; shared++)
        for (int which = 1; which < 3; which++) {
            ech_pool *pool = ech_pool_create();
            ech_block *block = one_layer(pool, shapes[shared], which);
            ech_call call = plain_call(block, context);
            assert_true(call.node->sharded_rows == (shared == 1));
            double *x = numbers(1, R * C), *y = numbers(0, R * C), *table = numbers(2, P * C);
            double *dx = numbers(0, R * C), *dtable = numbers(0, P * C);
            const int64_t uncut[] = {B, LOCAL, C}, cut[] = {R - 3, C}, own[] = {P, C};
            const int64_t *shape = shared ? cut : uncut, n = shared ? R - 3 : R;
            call.rows = rows;
            call.shard = shard;
            call.in[0] = ech_tensor_view(x, ECH_F64, shared ? 2 : 3, shape);
            call.out[0] = ech_tensor_view(y, ECH_F64, shared ? 2 : 3, shape);
            call.dout[0] = call.in[0];
            call.din[0] = ech_tensor_view(dx, ECH_F64, shared ? 2 : 3, shape);
            call.param[0] = ech_tensor_view(table, ECH_F64, 2, own);
            call.dparam[0] = ech_tensor_view(dtable, ECH_F64, 2, own);
            call.node->layer->forward(&call);
            ech_dropout dropout = ech_call_dropout(&call, 0.3, call.node->site);
            for (int64_t i = 0; i < n * C; i++) {
                const ech_rows *used = shared ? &shard : &rows;
                int64_t position = ech_row_position(used, i / C);
                uint64_t element = (uint64_t)(ech_row_whole(used, i / C) * C + i % C);
                bool dropped =
                    ech_random_unit(ech_random_word(ech_dropout_key(&dropout), element)) < 0.3;
                double wanted = which == 1 ? x[i] + table[position * C + i % C]
                                : dropped  ? 0
                                           : x[i] / (1 - 0.3);
                assert_true(y[i] == wanted);
            }
            if (which == 2) {
                call.node->layer->backward_input(&call);
                assert_memory_equal(dx, y, (size_t)(n * C) * sizeof *dx);
            } else {
                double sums[P * C] = {0};
                call.node->layer->backward_weight(&call);
                for (int64_t i = 0; i < n * C; i++)
                    sums[ech_row_position(shared ? &shard : &rows, i / C) * C + i % C] += x[i];
                for (int64_t i = 0; i < P * C; i++) close_to(dtable[i], sums[i]);
            }
            free(x);
            free(y);
            free(table);
            free(dx);
            free(dtable);
            ech_block_destroy(block);
            ech_pool_destroy(pool);
        }
    ech_kernel_context_destroy(context);
}
