/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers on a tensor rank's share: rows, embedding tables and the head's vocabulary. Ranks are threads
 * that exchange through memory; together they compute what one does.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "layer/layers.h"

enum { MOST_RANKS = 5, CALL_STEP = 2, FIRST_SAMPLE = 4 };

/* All-gather between threads, counted. */
typedef struct meeting {
    int size;
    pthread_barrier_t barrier;
    const void *mine[MOST_RANKS];
} meeting;

/* One rank: its call, its place in the meeting, and what it did there. */
typedef struct rank {
    ech_call call;
    ech_scratch_query query;
    void (*run)(const ech_call *call);
    meeting *meeting;
    int exchanges, fails_at; /* fails_at: the exchange that fails, -1 none */
    int64_t sent;
    ech_status status;
} rank;

static ech_status exchange(void *context, const void *mine, size_t bytes, void *all)
{
    rank *r = context;
    meeting *m = r->meeting;
    if (r->exchanges++ == r->fails_at) return ECH_ECOMM;
    r->sent += (int64_t)bytes * (m->size - 1);
    m->mine[r->call.tensor_index] = mine;
    pthread_barrier_wait(&m->barrier);
    for (int i = 0; i < m->size; i++) memcpy((char *)all + (size_t)i * bytes, m->mine[i], bytes);
    pthread_barrier_wait(&m->barrier);
    return ECH_OK;
}

static void *run_rank(void *argument)
{
    rank *r = argument;
    ECH_ASSERT(ech_kernel_context_create(1, &r->call.context) == ECH_OK);
    size_t bytes = r->call.node->layer->scratch(&r->query);
    r->call.context->scratch = malloc(bytes + 1);
    r->call.context->scratch_bytes = bytes;
    memset(r->call.context->scratch, 0xff, bytes);
    r->run(&r->call);
    free(r->call.context->scratch);
    ech_kernel_context_destroy(r->call.context);
    return NULL;
}

static void run_ranks(rank *ranks, int size)
{
    meeting m = {.size = size};
    pthread_t thread[MOST_RANKS];
    assert_int_equal(pthread_barrier_init(&m.barrier, NULL, (unsigned)size), 0);
    for (int i = 0; i < size; i++) {
        ranks[i].meeting = &m;
        assert_int_equal(pthread_create(&thread[i], NULL, run_rank, &ranks[i]), 0);
    }
    for (int i = 0; i < size; i++) assert_int_equal(pthread_join(thread[i], NULL), 0);
    pthread_barrier_destroy(&m.barrier);
}

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

/* ---- the head ---- */

/* A head_loss node and its numbers, for any number of ranks. */
typedef struct head_case {
    int64_t B, T, C, V;
    ech_pool *pool;
    ech_block *block;
    double *x, *weight;
    int32_t *targets;
    float *weights;
} head_case;

static head_case make_head(int64_t B, int64_t T, int64_t C, int64_t V)
{
    head_case h = {B, T, C, V, .pool = ech_pool_create()};
    int64_t R = B * T;
    h.block = ech_block_create(h.pool, "block", 3, (ech_ways){0});
    int x = ech_block_input(h.block, "x", ech_shape_rows(ECH_AXIS_MODEL, C));
    ech_layer_head_loss(h.block, x, ech_block_batch(h.block, ECH_TARGETS),
                        ech_block_batch(h.block, ECH_WEIGHTS), 0, V);
    h.x = numbers(1, R * C);
    h.weight = numbers(2, V * C);
    h.targets = ech_calloc((size_t)R, sizeof *h.targets);
    h.weights = ech_calloc((size_t)R, sizeof *h.weights);
    for (int64_t r = 0; r < R; r++) {
        h.targets[r] = (int32_t)((5 * r + 3) % V);
        h.weights[r] = (float)(r % 4) / 2;
    }
    return h;
}

static void free_head(head_case *h)
{
    free(h->x);
    free(h->weight);
    free(h->targets);
    free(h->weights);
    ech_block_destroy(h->block);
    ech_pool_destroy(h->pool);
}

/* What t ranks found. Shares of dW are side by side, padding included. */
typedef struct found {
    double sums[MOST_RANKS][ECH_LOSS_SUMS];
    double *dx[MOST_RANKS], *dweight;
} found;

/* Runs B (training), or F (evaluation), on t ranks. dW is added to `before` (NULL: written). */
static found run_head(const head_case *h, int t, bool train, const double *before, rank *ranks,
                      int fails_at)
{
    const ech_node *node = &h->block->node.at[0];
    int64_t R = h->B * h->T, share = (h->V + t - 1) / t;
    found f = {.dweight = numbers(0, t * share * h->C)};
    double *weight = numbers(0, t * share * h->C), scale = 0.125;
    memcpy(weight, h->weight, (size_t)(h->V * h->C) * sizeof *weight);
    if (before) memcpy(f.dweight, before, (size_t)(h->V * h->C) * sizeof *weight);
    ech_extent extent = {h->B, h->T, h->T, {.tensor = t}};
    for (int i = 0; i < t; i++) {
        f.dx[i] = numbers(0, R * h->C);
        const int64_t rows[] = {h->B, h->T, h->C}, ids[] = {h->B, h->T}, table[] = {share, h->C};
        ranks[i] = (rank){.run = train ? node->layer->backward_input : node->layer->forward,
                          .fails_at = fails_at};
        ranks[i].query = (ech_scratch_query){.block = h->block,
                                             .node = node,
                                             .kernels = ech_kernels_ref(ECH_F64),
                                             .threads = 1,
                                             .extent = extent,
                                             .phase = train ? ECH_BACKWARD_INPUT : ECH_FORWARD,
                                             .purpose = train ? ECH_TRAIN : ECH_EVALUATE};
        ech_call *call = &ranks[i].call;
        *call = (ech_call){.node = node,
                           .kernels = ech_kernels_ref(ECH_F64),
                           .extent = extent,
                           .purpose = train ? ECH_TRAIN : ECH_EVALUATE,
                           .accumulate = {before != NULL},
                           .loss_sums = f.sums[i],
                           .loss_scale = &scale,
                           .tensor_index = i,
                           .tensor_size = t,
                           .exchange = t > 1 ? exchange : NULL,
                           .exchange_context = &ranks[i],
                           .status = &ranks[i].status};
        call->in[0] = ech_tensor_view(h->x, ECH_F64, 3, rows);
        call->in[1] = ech_tensor_view(h->targets, ECH_I32, 2, ids);
        call->in[2] = ech_tensor_view(h->weights, ECH_F32, 2, ids);
        call->param[0] = ech_tensor_view(weight + i * share * h->C, ECH_F64, 2, table);
        if (!train) continue;
        call->din[0] = ech_tensor_view(f.dx[i], ECH_F64, 3, rows);
        call->dparam[0] = ech_tensor_view(f.dweight + i * share * h->C, ECH_F64, 2, table);
    }
    run_ranks(ranks, t);
    free(weight);
    return f;
}

static void free_found(found *f)
{
    for (int i = 0; i < MOST_RANKS; i++) free(f->dx[i]);
    free(f->dweight);
}

static void close_to(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-12 * (1 + fabs(wanted))))
        fail_msg("%.17g, not %.17g", got, wanted);
}

static void check_head(const head_case *h, int t, bool train, bool accumulate)
{
    rank one[1], ranks[MOST_RANKS];
    double *before = accumulate ? numbers(7, h->V * h->C) : NULL;
    found whole = run_head(h, 1, train, before, one, -1);
    found f = run_head(h, t, train, before, ranks, -1);
    int64_t R = h->B * h->T, share = (h->V + t - 1) / t, bytes = -1;
    int exchanges = ech_head_loss_exchanges(h->block, ranks[0].call.node, ranks[0].call.extent,
                                            ECH_F64, &bytes);
    assert_true(t == 1 ? exchanges == 0 : exchanges >= 1);
    for (int i = 0; i < t; i++) {
        assert_int_equal(ranks[i].status, ECH_OK);
        assert_int_equal(ranks[i].exchanges, exchanges);
        assert_int_equal(ranks[i].sent, bytes);
        for (int s = 0; s < ECH_LOSS_SUMS; s++) close_to(f.sums[i][s], whole.sums[0][s]);
    }
    for (int64_t i = 0; train && i < R * h->C; i++) {
        double sum = 0;
        for (int r = 0; r < t; r++) sum += f.dx[r][i];
        close_to(sum, whole.dx[0][i]);
    }
    for (int64_t i = 0; train && i < t * share * h->C; i++) {
        if (i < h->V * h->C)
            close_to(f.dweight[i], whole.dweight[i]);
        else /* padding: zero where written, as it was where added to */
            assert_true(accumulate ? isnan(f.dweight[i]) : f.dweight[i] == 0);
    }
    free_found(&whole);
    free_found(&f);
    free(before);
}

/* Even shares, padded ones, one rank without any. */
static void head_in_shares(void **state)
{
    (void)state;
    static const int64_t sizes[] = {12, 10, 9, 5, 2};
    for (int v = 0; v < 5; v++) {
        head_case h = make_head(2, 5, 6, sizes[v]);
        for (int t = 1; t <= MOST_RANKS; t++) {
            check_head(&h, t, false, false);
            check_head(&h, t, true, false);
            check_head(&h, t, true, true);
        }
        free_head(&h);
    }
}

/* More rows than a chunk has: exchanges are one a chunk, the last one shorter. */
static void head_in_chunks(void **state)
{
    (void)state;
    head_case h = make_head(6, 100, 4, 9001);
    check_head(&h, 2, true, false);
    rank ranks[2];
    found f = run_head(&h, 2, true, NULL, ranks, -1);
    assert_int_equal(ranks[0].exchanges, 3);
    assert_int_equal(ranks[0].sent, 600 * 3 * 8);
    free_found(&f);
    free_head(&h);
}

/* An exchange that fails on all ranks ends the layer; the status says so. */
static void failed_exchange_is_told(void **state)
{
    (void)state;
    head_case h = make_head(6, 100, 4, 9001);
    rank ranks[2];
    found f = run_head(&h, 2, true, NULL, ranks, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, ECH_ECOMM);
        assert_int_equal(ranks[i].exchanges, 2); /* none after the one that failed */
    }
    free_found(&f);
    free_head(&h);
}

/* ---- embedding, positions, dropout ---- */

/* A block of one layer whose input and output have `shape`. */
static ech_block *one_layer(ech_pool *pool, ech_shape shape, int which)
{
    ech_block *block = ech_block_create(pool, "block", 3, (ech_ways){0});
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
                      .step = CALL_STEP,
                      .layer = 3,
                      .tensor_size = 1};
}

static void embedding_in_shares(void **state)
{
    (void)state;
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
static void rows_in_shares(void **state)
{
    (void)state;
    enum { B = 2, T = 6, LOCAL = 4, C = 3, R = B * LOCAL, P = 8 };
    const ech_shape shapes[] = {ech_shape_rows(ECH_AXIS_MODEL, C),
                                ech_shape_2d(ECH_AXIS_ROWS, 0, ECH_AXIS_MODEL, C)};
    const ech_rows rows = {FIRST_SAMPLE, T, LOCAL, 0, 2, {1, 4}};
    ech_rows shard = rows;
    shard.first = 3;
    ech_kernel_context *context;
    assert_int_equal(ech_kernel_context_create(1, &context), ECH_OK);
    for (int shared = 0; shared < 2; shared++)
        for (int which = 1; which < 3; which++) {
            ech_pool *pool = ech_pool_create();
            ech_block *block = one_layer(pool, shapes[shared], which);
            ech_call call = plain_call(block, context);
            assert_true(call.node->shares_rows == (shared == 1));
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
                bool dropped = ech_random_unit(ech_random_word(dropout.key, element)) < 0.3;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(head_in_shares),          cmocka_unit_test(head_in_chunks),
        cmocka_unit_test(failed_exchange_is_told), cmocka_unit_test(embedding_in_shares),
        cmocka_unit_test(rows_in_shares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
