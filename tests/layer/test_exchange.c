/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that go to other ranks by counts and come back: a row's number says which expert it goes to,
 * an expert multiplies its rows by its own numbers. On context ranks of which some together have
 * all experts, against one rank that has them.
 */

#include "layer/cut_compare.h"
#include "unit.h"

enum { B = 2, T = 24, C = 5, E = 12 };

/* Uneven: half of the rows go to expert 1, which only some ranks of a group send to, and some
 * experts get none. */
static int expert_of(int64_t row)
{
    return row % 2 ? 1 : (int)(row / 3 % (E - 2));
}

/* ---- to places by expert ---- */

typedef struct dealt {
    int64_t place[B * T];
} dealt;

/* A rank's rows by expert, then by row: so those for one rank of the group are in front of those
 * for the next. */
static dealt deal(const ech_call *call, int64_t rows, int32_t *counts)
{
    dealt d;
    int64_t n = 0;
    for (int i = 0; i < E; i++) {
        int64_t before = n;
        for (int64_t r = 0; r < rows; r++)
            if (expert_of(ech_row_whole(ech_call_rows(call), r)) == i) d.place[r] = n++;
        if (counts) counts[i] = (int32_t)(n - before);
    }
    return d;
}

static void deal_forward(const ech_call *call)
{
    const double *x = call->in[0].data;
    int64_t rows = call->in[0].shape[0] * call->in[0].shape[1];
    dealt d = deal(call, rows, call->out[1].data);
    for (int64_t r = 0; r < rows; r++)
        memcpy((double *)call->out[0].data + d.place[r] * C, x + r * C, C * sizeof *x);
}

static void deal_backward(const ech_call *call)
{
    const double *dsent = call->dout[0].data;
    int64_t rows = call->din[0].shape[0] * call->din[0].shape[1];
    dealt d = deal(call, rows, NULL);
    assert_null(call->dout[1].data);
    for (int64_t r = 0; r < rows; r++)
        memcpy((double *)call->din[0].data + r * C, dsent + d.place[r] * C, C * sizeof *dsent);
}

static const ech_layer deals = {
    .name = "deal", .forward = deal_forward, .backward_input = deal_backward};

/* And back: B deals. */
static void collect_forward(const ech_call *call)
{
    const double *y = call->in[0].data;
    int64_t rows = call->out[0].shape[0] * call->out[0].shape[1];
    dealt d = deal(call, rows, NULL);
    for (int64_t r = 0; r < rows; r++)
        memcpy((double *)call->out[0].data + r * C, y + d.place[r] * C, C * sizeof *y);
}

static void collect_backward(const ech_call *call)
{
    const double *dout = call->dout[0].data;
    int64_t rows = call->dout[0].shape[0] * call->dout[0].shape[1];
    dealt d = deal(call, rows, NULL);
    for (int64_t r = 0; r < rows; r++)
        memcpy((double *)call->din[0].data + d.place[r] * C, dout + r * C, C * sizeof *dout);
}

static const ech_layer collects = {
    .name = "collect", .forward = collect_forward, .backward_input = collect_backward};

/* ---- experts: y = x times the expert's numbers ---- */

/* Calls `use` for each row in use, of a buffer with a split for each rank of the group. */
typedef void each_row(const ech_call *call, int64_t at, int64_t expert);

static void visit(const ech_call *call, const ech_tensor *buffer, each_row *use)
{
    const int32_t *counts = call->in[1].data;
    int64_t splits = call->in[1].shape[0], experts = call->in[1].shape[1];
    for (int64_t p = 0; p < splits; p++) {
        int64_t at = p * (ech_tensor_count(buffer) / C / splits);
        for (int64_t i = 0; i < experts; i++)
            for (int32_t n = 0; n < counts[p * experts + i]; n++) use(call, at++, i);
    }
}

static double *row_of(const ech_tensor *x, int64_t row)
{
    return (double *)x->data + row * C;
}

static void multiply(const ech_call *call, int64_t at, int64_t expert)
{
    for (int c = 0; c < C; c++)
        row_of(&call->out[0], at)[c] =
            row_of(&call->in[0], at)[c] * row_of(&call->param[0], expert)[c];
}

static void multiply_back(const ech_call *call, int64_t at, int64_t expert)
{
    for (int c = 0; c < C; c++)
        row_of(&call->din[0], at)[c] =
            row_of(&call->dout[0], at)[c] * row_of(&call->param[0], expert)[c];
}

static void add_gradient(const ech_call *call, int64_t at, int64_t expert)
{
    for (int c = 0; c < C; c++)
        row_of(&call->dparam[0], expert)[c] +=
            row_of(&call->dout[0], at)[c] * row_of(&call->in[0], at)[c];
}

static void experts_forward(const ech_call *call)
{
    visit(call, &call->in[0], multiply);
}

static void experts_backward(const ech_call *call)
{
    visit(call, &call->dout[0], multiply_back);
}

static void experts_backward_weight(const ech_call *call)
{
    if (!call->accumulate[0]) memset(call->dparam[0].data, 0, ech_tensor_bytes(&call->dparam[0]));
    visit(call, &call->dout[0], add_gradient);
}

static const ech_layer multiplies = {.name = "experts",
                                     .forward = experts_forward,
                                     .backward_input = experts_backward,
                                     .backward_weight = experts_backward_weight};

/* ---- the block ---- */

static void build(ech_block *block, ech_param *weight)
{
    int e = cut_at_least_one(block->options.sharding.expert);
    ech_shape packed = ech_shape_2d(ECH_AXIS_RECEIVED, 1, ECH_AXIS_MODEL, C);
    ech_shape slices = {.dims = 3,
                        .axis = {ECH_AXIS_NONE, ECH_AXIS_SLICE, ECH_AXIS_MODEL},
                        .size = {e, ECH_SLICE_UNIT, C}};
    ech_round round = {0, 1};
    int x = ech_block_input(block, "x", ech_shape_rows(ECH_AXIS_MODEL, C));
    ech_node *node = ech_block_node(block, &deals, NULL, 0);
    ech_node_in(node, x);
    int sent = ech_node_out(block, node, "sent", packed);
    int counts = ech_node_out_table(block, node, "counts",
                                    ech_shape_2d(ECH_AXIS_NONE, e, ECH_AXIS_EXPERTS, E),
                                    ECH_TYPE_FIXED, ECH_I32);
    int tables[] = {counts, ech_block_exchange_counts(block, counts)};
    int rows = ech_block_exchange_rows(block, sent, tables, slices, round);
    node = ech_block_node(block, &multiplies, NULL, 0);
    ech_node_in(node, rows);
    ech_node_in(node, tables[1]);
    ech_node_param(node, 0);
    node->b = (ech_reads){.in = 2, .param = 1};
    node->w.in = 3;
    int y = ech_node_out_like(block, node, rows);
    y = ech_block_return_rows(block, y, tables, packed, -1, round);
    node = ech_block_node(block, &collects, NULL, 0);
    ech_node_in(node, y);
    int out = ech_node_out(block, node, "out", ech_shape_rows(ECH_AXIS_MODEL, C));
    ech_block_output(block, ech_layer_residual(block, out, x));
    ech_block_finish(block, weight);
}

/* Groups of all context ranks, and of some of them, whose gradients add up over groups. */
TEST(test_groups)
{
    static const int degrees[][2] = {{2, 2}, {3, 3}, {4, 4}, {4, 2}, {6, 3}, {6, 2}};
    for (size_t i = 0; i < sizeof degrees / sizeof *degrees; i++) {
        ech_param alone = {.name = "numbers",
                           .shape = ech_shape_2d(ECH_AXIS_EXPERTS, E, ECH_AXIS_MODEL, C)};
        ech_param weight = alone;
        ech_block_options options = {
            .sharding = {.context = degrees[i][0], .expert = degrees[i][1]}};
        ech_pool *pool = ech_pool_create();
        ech_block *whole = ech_block_create(pool, "exchange", 3, (ech_block_options){0});
        ech_block *cut = ech_block_create(pool, "exchange", 3, options);
        int collectives[ECH_PHASES];
        build(whole, &alone);
        build(cut, &weight);
        assert_int_equal(weight.addends, ECH_MESH_EXPERT_DATA);
        cut_compare(whole, &alone, cut, &weight, 1, B, T, C, collectives);
        assert_int_equal(collectives[ECH_FORWARD], 3);
        assert_int_equal(collectives[ECH_BACKWARD_INPUT], 2);
        assert_int_equal(collectives[ECH_BACKWARD_WEIGHT], 0);
        ech_block_destroy(whole);
        ech_block_destroy(cut);
        ech_pool_destroy(pool);
    }
}
