/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables: values of a block without gradient. Layers of the test's own write and read them beside
 * values with one, collectives carry them as they lie, R makes them again.
 */

#include "config/config.h"
#include "layer/cut_compare.h"
#include "layer/runner.h"
#include "unit.h"

enum { B = 2, T = 24, C = 6 };

static int64_t rows_of(const ech_tensor *x)
{
    return ech_tensor_count(x) / C;
}

/* ---- the largest number of each row, and which it is ---- */

static void largest_forward(const ech_call *call)
{
    const double *x = call->in[0].data;
    double *value = call->out[0].data;
    int32_t *which = call->out[1].data;
    for (int64_t r = 0; r < rows_of(&call->in[0]); r++) {
        which[r] = 0;
        for (int c = 1; c < C; c++)
            if (x[r * C + c] > x[r * C + which[r]]) which[r] = c;
        value[r] = x[r * C + which[r]];
    }
}

static void largest_backward(const ech_call *call)
{
    const int32_t *which = call->out[1].data;
    const double *dvalue = call->dout[0].data;
    double *dx = call->din[0].data;
    assert_null(call->dout[1].data);
    for (int64_t i = 0; i < ech_tensor_count(&call->din[0]); i++)
        dx[i] = i % C == which[i / C] ? dvalue[i / C] : 0;
}

static const ech_layer largest = {
    .name = "largest", .forward = largest_forward, .backward_input = largest_backward};

/* ---- how often each is the largest: a copy for each member of a group ---- */

static void count_forward(const ech_call *call)
{
    int64_t *counts = call->out[0].data;
    const int32_t *which = call->in[0].data;
    memset(counts, 0, ech_tensor_bytes(&call->out[0]));
    for (int64_t r = 0; r < ech_tensor_count(&call->in[0]); r++)
        for (int64_t m = 0; m < call->out[0].shape[0]; m++) counts[m * C + which[r]]++;
}

static const ech_layer count = {.name = "count", .forward = count_forward};

static const ech_layer gather = {.name = "gather counts",
                                 .exchange = {ECH_COLLECTIVE_ALL_GATHER, ECH_MESH_TENSOR, 0}};
static const ech_layer exchange = {.name = "exchange counts",
                                   .exchange = {ECH_COLLECTIVE_ALL_TO_ALL, ECH_MESH_CONTEXT, 0}};

/* ---- each row's largest number, times the counts of all ---- */

static double factor(const ech_tensor *counts, int64_t c)
{
    double sum = 1;
    for (int64_t m = 0; m < ech_tensor_count(counts) / C; m++)
        sum += (double)((int64_t *)counts->data)[m * C + c];
    return sum;
}

static void scale_forward(const ech_call *call)
{
    const double *value = call->in[0].data;
    double *y = call->out[0].data;
    for (int64_t i = 0; i < ech_tensor_count(&call->out[0]); i++)
        y[i] = value[i / C] * factor(&call->in[1], i % C);
}

static void scale_backward(const ech_call *call)
{
    const double *dy = call->dout[0].data;
    double *dvalue = call->din[0].data;
    assert_null(call->din[1].data);
    for (int64_t r = 0; r < rows_of(&call->dout[0]); r++) {
        dvalue[r] = 0;
        for (int c = 0; c < C; c++) dvalue[r] += dy[r * C + c] * factor(&call->in[1], c);
    }
}

static const ech_layer scale = {
    .name = "scale", .forward = scale_forward, .backward_input = scale_backward};

/* ---- the block ---- */

static int add_table(ech_block *block, const ech_layer *layer, int x, int64_t members)
{
    ech_node *node = ech_block_node(block, layer, NULL, 0);
    ech_node_in(node, x);
    ech_shape shape = ech_shape_2d(ECH_AXIS_NONE, members, ECH_AXIS_MODEL, C);
    return ech_node_out_table(block, node, "counts", shape, ECH_TYPE_FIXED, ECH_I64);
}

/* Context ranks exchange a copy of their counts, tensor ranks gather what they have then. */
static void build(ech_block *block)
{
    const ech_sharding *sharding = &block->options.sharding;
    int64_t t = cut_at_least_one(sharding->tensor), c = cut_at_least_one(sharding->context);
    ech_shape stream = ech_block_stream(block, C), of_rows = ech_shape_of_rows(&stream);
    int x = ech_block_input(block, "x", stream);
    ech_node *node = ech_block_node(block, &largest, NULL, 0);
    node->b.out = 2;
    ech_node_in(node, x);
    int value = ech_node_out(block, node, "value", of_rows);
    int which = ech_node_out_table(block, node, "which", of_rows, ECH_TYPE_FIXED, ECH_I32);
    int counts = add_table(block, &count, which, c);
    if (c > 1) counts = add_table(block, &exchange, counts, c);
    if (t > 1) counts = add_table(block, &gather, counts, t * c);
    int y = ech_block_add(block, &scale, value, counts, 2, stream);
    ech_block_output(block, ech_layer_residual(block, y, x));
    ech_block_finish(block, NULL);
}

TEST(test_gradients)
{
    runner r = runner_open(B, T);
    build(r.block);
    runner_finish_values(&r);
    runner_run(&r, ECH_FORWARD);
    runner_run(&r, ECH_BACKWARD_INPUT);
    double *x = r.value[r.block->input.at[0]];
    for (int64_t i = 0; i < B * T * C; i++) {
        double was = x[i], h = 1e-5;
        x[i] = was + h;
        double up = runner_objective(&r);
        x[i] = was - h;
        double down = runner_objective(&r);
        x[i] = was;
        double wanted = (up - down) / (2 * h), dx = r.value[r.block->dinput.at[0]][i];
        assert_true(fabs(dx - wanted) < 1e-6 * (1 + fabs(wanted)));
    }
    for (size_t v = 0; v < r.block->value.n; v++)
        if (r.block->value.at[v].role == ECH_ROLE_GRADIENT)
            assert_int_equal(r.block->value.at[v].type, ECH_TYPE_COMPUTE); /* of no table */
    runner_close(&r);
}

/* ---- over ranks ---- */

TEST(test_groups)
{
    for (int t = 1; t <= 4; t *= 2)
        for (int c = 1; c <= 3; c++) {
            ech_block_options options = {
                .sharding = {.tensor = t, .key_value = t, .context = c, .sequence = t > 1}};
            ech_pool *pool = ech_pool_create();
            ech_block *whole = ech_block_create(pool, "tables", 3, (ech_block_options){0});
            ech_block *cut = ech_block_create(pool, "tables", 3, options);
            int collectives[ECH_PHASES];
            build(whole);
            build(cut);
            cut_compare(whole, NULL, cut, NULL, 0, B, T, C, collectives);
            assert_int_equal(collectives[ECH_FORWARD], (t > 1) + (c > 1));
            assert_int_equal(collectives[ECH_BACKWARD_INPUT], 0);
            ech_block_destroy(whole);
            ech_block_destroy(cut);
            ech_pool_destroy(pool);
        }
}

/* ---- recomputed ---- */

/* The forward's tables are lost; those that R makes have the same bits, and B reads these. */
TEST(test_recomputed)
{
    runner r = runner_open(B, T);
    r.block->options.recompute = ECH_RECOMPUTE_FULL;
    build(r.block);
    runner_finish_values(&r);
    runner_run(&r, ECH_FORWARD);
    int input = r.block->input.at[0], again = r.block->rinput.at[0], tables = 0;
    memcpy(r.value[again], r.value[input], (size_t)runner_count(&r, input) * sizeof(double));
    runner_run(&r, ECH_RECOMPUTE);
    for (size_t v = 0; v < r.block->value.n; v++) {
        const ech_block_value *value = &r.block->value.at[v];
        if (value->role != ECH_ROLE_TABLE || value->recomputed < 0) continue;
        size_t bytes = ech_block_value_bytes(r.block, (int)v, r.extent, ech_types_of(ECH_F64));
        assert_int_equal(value->kept, ECH_KEPT_RECOMPUTED);
        assert_memory_equal(r.value[v], r.value[value->recomputed], bytes);
        memset(r.value[v], 0x7f, bytes);
        tables++;
    }
    assert_int_equal(tables, 2);
    runner_run(&r, ECH_BACKWARD_INPUT);

    runner kept = runner_open(B, T);
    build(kept.block);
    runner_finish_values(&kept);
    memcpy(kept.value[kept.block->doutput.at[0]], r.value[r.block->doutput.at[0]],
           B * T * C * sizeof(double));
    runner_run(&kept, ECH_FORWARD);
    runner_run(&kept, ECH_BACKWARD_INPUT);
    assert_memory_equal(kept.value[kept.block->dinput.at[0]], r.value[r.block->dinput.at[0]],
                        B * T * C * sizeof(double));
    runner_close(&kept);
    runner_close(&r);
}
