/* SPDX-License-Identifier: Apache-2.0
 *
 * Small graphs of layers on grids of context x tensor ranks against the same graphs uncut: every
 * layer that shares work out, in every way in which it can. Whole models are the lattice's
 * (app/test_lattice.c).
 */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "layer/cut_compare.h"
#include "layer/program.h"
#include "unit.h"

enum { B = 2, T = 24, C = 16, H = 8, D = 2, F = 12, V = 13 };

/* ---- a block and its parameters ---- */

typedef struct graph {
    ech_pool *pool;
    ech_block *block;
    ECH_LIST(ech_param) param;
    int64_t G; /* key/value heads */
    double p;  /* of dropout */
} graph;

typedef void (*build)(graph *g);

static int param(graph *g, ech_shape shape)
{
    ech_param p = {.name = ech_pool_format(g->pool, "parameter %zu", g->param.n), .shape = shape};
    ECH_PUSH(g->param, p);
    return (int)g->param.n - 1;
}

static int matrix(graph *g, ech_axis a, int64_t rows, ech_axis b, int64_t columns)
{
    return param(g, ech_shape_2d(a, rows, b, columns));
}

static int vector(graph *g, ech_axis axis, int64_t n)
{
    return param(g, ech_shape_1d(axis, n));
}

static graph make(const char *name, build builder, ech_block_options options, int64_t G, double p)
{
    graph g = {.pool = ech_pool_create(), .G = G, .p = p};
    g.block = ech_block_create(g.pool, name, 3, options);
    builder(&g);
    ech_block_finish(g.block, g.param.at);
    return g;
}

static void drop(graph *g)
{
    ech_block_destroy(g->block);
    ech_pool_destroy(g->pool);
    free(g->param.at);
}

/* ---- grids ---- */

static ech_block_options grid(int tensor, int context, int64_t G, int sequence, bool ulysses)
{
    return (ech_block_options){.sharding = {.tensor = tensor,
                                            .key_value = (int)(tensor < G ? tensor : G),
                                            .context = context,
                                            .sequence = sequence && tensor > 1},
                               .sequence = T,
                               .keep = sequence == 2,
                               .ulysses = ulysses};
}

static void compare_ways(const char *name, build builder, ech_block_options options, int64_t G,
                         double p)
{
    int collectives[ECH_PHASES];
    graph whole = make(name, builder, (ech_block_options){.documents = options.documents}, G, p);
    graph cut = make(name, builder, options, G, p);
    cut_compare(whole.block, whole.param.at, cut.block, cut.param.at, (int)cut.param.n, B, T, V,
                collectives);
    drop(&whole);
    drop(&cut);
}

/* Samples of one document, and of several. */
static void compare(const char *name, build builder, ech_block_options options, int64_t G, double p)
{
    compare_ways(name, builder, options, G, p);
    options.documents = true;
    compare_ways(name, builder, options, G, p);
}

/* Over tensor ranks in every way, alone and with context ranks. */
static void compare_tensor(const char *name, build builder)
{
    for (int t = 2; t <= 4; t *= 2)
        for (int sequence = 0; sequence < 3; sequence++)
            for (int c = 1; c <= 3; c++)
                compare(name, builder, grid(t, c, H, sequence, false), H, 0.3);
}

static int input(graph *g)
{
    return ech_block_input(g->block, "x", ech_block_stream(g->block, C));
}

/* ---- products ---- */

/* A column-parallel product, what stands between, and a row-parallel one with a bias. */
static void build_pair(graph *g)
{
    int w = matrix(g, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F), b = vector(g, ECH_AXIS_FFN, F);
    int y = ech_layer_linear(g->block, input(g), w, b, true, ECH_AXIS_FFN, F);
    y = ech_layer_activation(g->block, ECH_ACTIVATION_GELU, y, -1);
    w = matrix(g, ECH_AXIS_FFN, F, ECH_AXIS_MODEL, C);
    b = vector(g, ECH_AXIS_MODEL, C);
    y = ech_layer_linear(g->block, y, w, b, true, ECH_AXIS_MODEL, C);
    ech_block_output(g->block, ech_layer_dropout(g->block, y, g->p));
}

/* Two products read one input, which a norm and a residual sum read, too. */
static void build_gate(graph *g)
{
    int x = input(g), n = ech_layer_rmsnorm(g->block, x, vector(g, ECH_AXIS_MODEL, C), 0, 1e-5);
    int a = ech_layer_linear(g->block, n, matrix(g, ECH_AXIS_FFN, F, ECH_AXIS_MODEL, C), -1, false,
                             ECH_AXIS_FFN, F);
    int b = ech_layer_linear(g->block, n, matrix(g, ECH_AXIS_FFN, F, ECH_AXIS_MODEL, C), -1, false,
                             ECH_AXIS_FFN, F);
    int y = ech_layer_activation(g->block, ECH_ACTIVATION_SWIGLU, a, b);
    y = ech_layer_linear(g->block, y, matrix(g, ECH_AXIS_MODEL, C, ECH_AXIS_FFN, F), -1, false,
                         ECH_AXIS_MODEL, C);
    y = ech_layer_residual(g->block, ech_layer_dropout(g->block, y, g->p), x);
    ech_block_output(g->block, ech_layer_residual(g->block, y, n));
}

TEST(test_products)
{
    compare_tensor("pair of products", build_pair);
    compare_tensor("gated products", build_gate);
}

/* ---- vocabulary ---- */

/* What becomes of logits before the softmax. */
static const ech_logits capped = {.factor = 0.5, .cap = 3};

/* 13 ids over 4 ranks: shares of 4, the last has one and three of padding. */
static void build_embedding(graph *g)
{
    int table = matrix(g, ECH_AXIS_VOCAB, V, ECH_AXIS_MODEL, C);
    int x = ech_layer_embedding(g->block, ech_block_batch(g->block, ECH_TOKENS), table, C);
    x = ech_layer_position(g->block, x, matrix(g, ECH_AXIS_POSITION, T + 2, ECH_AXIS_MODEL, C),
                           ech_block_starts(g->block));
    x = ech_layer_scale(g->block, x, 1.75);
    ech_block_output(g->block, ech_layer_dropout(g->block, x, g->p));
}

static void build_head(graph *g)
{
    int x = input(g), gain = vector(g, ECH_AXIS_MODEL, C), shift = vector(g, ECH_AXIS_MODEL, C);
    x = ech_layer_layernorm(g->block, x, gain, shift, 1e-5);
    int targets = ech_block_batch(g->block, ECH_TARGETS);
    int weights = ech_block_batch(g->block, ECH_WEIGHTS);
    ech_layer_head_loss(g->block, x, targets, weights,
                        matrix(g, ECH_AXIS_VOCAB, V, ECH_AXIS_MODEL, C), V, capped, NULL);
}

/* One table for both ends. */
static void build_tied(graph *g)
{
    int table = matrix(g, ECH_AXIS_VOCAB, V, ECH_AXIS_MODEL, C);
    int x = ech_layer_embedding(g->block, ech_block_batch(g->block, ECH_TOKENS), table, C);
    x = ech_layer_rmsnorm(g->block, x, vector(g, ECH_AXIS_MODEL, C), 0, 1e-5);
    int targets = ech_block_batch(g->block, ECH_TARGETS);
    int weights = ech_block_batch(g->block, ECH_WEIGHTS);
    ech_layer_head_loss(g->block, x, targets, weights, table, V, capped, NULL);
}

TEST(test_vocabulary)
{
    compare_tensor("embedding", build_embedding);
    compare_tensor("head", build_head);
    compare_tensor("tied head", build_tied);
}

/* Evaluation makes the same losses as training. */
static void compare_losses(cut_side *whole, cut_side *s)
{
    for (int i = 0; i < 2; i++) {
        cut_side *side = i ? s : whole;
        for (int rank = 0; rank < side->ranks; rank++)
            memset(side->rank[rank].sums, 0, sizeof side->rank[rank].sums);
        side->purpose = ECH_EVALUATE;
        cut_run(side, ECH_FORWARD);
    }
    cut_compare_sums(whole, s);
}

/* Rows come in chunks, of which ranks tell each other each; and of some vocabularies the last ranks
 * have nothing. The gradient is written, and then added to. */
static void compare_head(int64_t samples, int64_t tokens, int64_t ids, int t, int chunks)
{
    graph g = {.pool = ech_pool_create()};
    graph cut = {.pool = ech_pool_create()};
    for (int i = 0; i < 2; i++) {
        graph *of = i ? &cut : &g;
        ech_block_options options = i ? grid(t, 1, H, 0, false) : (ech_block_options){0};
        options.rows = samples * tokens;
        options.wide = ECH_F64;
        options.loss_rows = 256;
        of->block = ech_block_create(of->pool, "head alone", 3, options);
        int targets = ech_block_batch(of->block, ECH_TARGETS);
        int weights = ech_block_batch(of->block, ECH_WEIGHTS);
        ech_layer_head_loss(of->block, input(of), targets, weights,
                            matrix(of, ECH_AXIS_VOCAB, ids, ECH_AXIS_MODEL, C), ids, capped, NULL);
        ech_block_finish(of->block, of->param.at);
    }
    cut_side whole = cut_open(g.block, g.param.at, 1, samples, tokens, ids);
    cut_side s = cut_open(cut.block, cut.param.at, 1, samples, tokens, ids);
    for (int step = 0; step < 2; step++) {
        cut_train(&whole);
        cut_train(&s);
        cut_compare_training(&whole, &s);
    }
    assert_int_equal(whole.collectives[ECH_BACKWARD_INPUT], 0);
    /* of each chunk the statistics, and the shares of the input's gradient */
    assert_int_equal(s.collectives[ECH_BACKWARD_INPUT], t > 1 ? 2 * (chunks + 1) : 0);
    compare_losses(&whole, &s);
    assert_int_equal(s.collectives[ECH_FORWARD], t > 1 ? chunks : 0);
    cut_close(&whole);
    cut_close(&s);
    drop(&g);
    drop(&cut);
}

TEST(test_head)
{
    static const int64_t ids[] = {12, 10, 9, 5, 2};
    for (int v = 0; v < 5; v++)
        for (int t = 1; t <= 5; t++) compare_head(B, 24, ids[v], t, 1);
    compare_head(6, 96, 8191, 2, 3); /* 576 rows in chunks of 256 */
}

/* ---- attention ---- */

/* The arguments of all attention here; sinks 1: there are some. */
static ech_layer_attention_args way;

static int attend(graph *g, int q, int k, int v)
{
    ech_layer_attention_args args = way;
    args.sinks = way.sinks ? vector(g, ECH_AXIS_HEADS, H) : -1;
    args.q = q;
    args.k = k;
    args.v = v;
    args.starts = ech_block_starts(g->block);
    args.dropout = g->p;
    return ech_layer_attention(g->block, &args);
}

/* GPT-2's: queries, keys and values are columns of one product, each shared out by heads. */
static void build_attention(graph *g)
{
    ech_shape heads = ech_shape_heads(ECH_AXIS_HEADS, H, D);
    int w = matrix(g, ECH_AXIS_MODEL, C, ECH_AXIS_QKV, 3 * C), b = vector(g, ECH_AXIS_QKV, 3 * C);
    int qkv = ech_layer_linear(g->block, input(g), w, b, true, ECH_AXIS_QKV, 3 * C);
    int q = ech_block_view(g->block, qkv, 0, heads), k = ech_block_view(g->block, qkv, C, heads);
    int v = ech_block_view(g->block, qkv, 2 * C, heads);
    int y = attend(g, q, k, v);
    y = ech_block_view(g->block, y, 0, ech_shape_rows(ECH_AXIS_HEADS, C));
    w = matrix(g, ECH_AXIS_HEADS, C, ECH_AXIS_MODEL, C);
    b = vector(g, ECH_AXIS_MODEL, C);
    ech_block_output(g->block, ech_layer_linear(g->block, y, w, b, true, ECH_AXIS_MODEL, C));
}

static int project(graph *g, int x, ech_axis axis, int64_t out)
{
    int w = matrix(g, axis, out, ECH_AXIS_MODEL, C);
    return ech_layer_linear(g->block, x, w, -1, false, axis, out);
}

/* Llama's: three products, of which two may have fewer heads, and positions by rotation. */
static void build_grouped(graph *g)
{
    int x = input(g), starts = ech_block_starts(g->block);
    const ech_rope rope = {.theta = 100};
    ech_shape query = ech_shape_heads(ECH_AXIS_HEADS, H, D);
    ech_shape key = ech_shape_heads(ECH_AXIS_KV_HEADS, g->G, D);
    int q = project(g, x, ECH_AXIS_HEADS, C), k = project(g, x, ECH_AXIS_KV_HEADS, g->G * D);
    int v = project(g, x, ECH_AXIS_KV_HEADS, g->G * D);
    q = ech_layer_rotary(g->block, ech_block_view(g->block, q, 0, query), &rope, starts);
    k = ech_layer_rotary(g->block, ech_block_view(g->block, k, 0, key), &rope, starts);
    v = ech_block_view(g->block, v, 0, key);
    int y = attend(g, q, k, v);
    y = ech_block_view(g->block, y, 0, ech_shape_rows(ECH_AXIS_HEADS, C));
    int w = matrix(g, ECH_AXIS_MODEL, C, ECH_AXIS_HEADS, C);
    ech_block_output(g->block, ech_layer_linear(g->block, y, w, -1, false, ECH_AXIS_MODEL, C));
}

/* A norm of all heads together, of which a rank has some. */
static int normed_together(graph *g, int x, ech_axis axis, int64_t n)
{
    return ech_layer_rmsnorm(g->block, x, vector(g, axis, n), 0.5, 1e-2);
}

/* The same with norms of all queries and of all keys; with or without rotary positions. */
static void build_normed_together(graph *g, bool rotary)
{
    int x = input(g), starts = ech_block_starts(g->block);
    const ech_rope rope = {.theta = 100};
    ech_shape query = ech_shape_heads(ECH_AXIS_HEADS, H, D);
    ech_shape key = ech_shape_heads(ECH_AXIS_KV_HEADS, g->G, D);
    int q = project(g, x, ECH_AXIS_HEADS, C), k = project(g, x, ECH_AXIS_KV_HEADS, g->G * D);
    int v = project(g, x, ECH_AXIS_KV_HEADS, g->G * D);
    q = ech_block_view(g->block, normed_together(g, q, ECH_AXIS_HEADS, C), 0, query);
    k = ech_block_view(g->block, normed_together(g, k, ECH_AXIS_KV_HEADS, g->G * D), 0, key);
    if (rotary) q = ech_layer_rotary(g->block, q, &rope, starts);
    if (rotary) k = ech_layer_rotary(g->block, k, &rope, starts);
    int y = attend(g, q, k, ech_block_view(g->block, v, 0, key));
    y = ech_block_view(g->block, y, 0, ech_shape_rows(ECH_AXIS_HEADS, C));
    int w = matrix(g, ECH_AXIS_MODEL, C, ECH_AXIS_HEADS, C);
    ech_block_output(g->block, ech_layer_linear(g->block, y, w, -1, false, ECH_AXIS_MODEL, C));
}

static void build_together(graph *g)
{
    build_normed_together(g, true);
}

static void build_together_unturned(graph *g)
{
    build_normed_together(g, false);
}

/* The same with norms inside of heads, of queries and of keys, and biases of keys and values. */
static void build_normed(graph *g)
{
    int x = input(g), starts = ech_block_starts(g->block);
    const ech_rope rope = {.theta = 100};
    ech_shape query = ech_shape_heads(ECH_AXIS_HEADS, H, D);
    ech_shape key = ech_shape_heads(ECH_AXIS_KV_HEADS, g->G, D);
    int q = project(g, x, ECH_AXIS_HEADS, C), kv[2];
    for (int i = 0; i < 2; i++) {
        int w = matrix(g, ECH_AXIS_KV_HEADS, g->G * D, ECH_AXIS_MODEL, C);
        int b = vector(g, ECH_AXIS_KV_HEADS, g->G * D);
        kv[i] = ech_layer_linear(g->block, x, w, b, false, ECH_AXIS_KV_HEADS, g->G * D);
        kv[i] = ech_block_view(g->block, kv[i], 0, key);
    }
    q = ech_block_view(g->block, q, 0, query);
    q = ech_layer_rmsnorm(g->block, q, vector(g, ECH_AXIS_HEAD_DIM, D), 0, 1e-5);
    kv[0] = ech_layer_rmsnorm(g->block, kv[0], vector(g, ECH_AXIS_HEAD_DIM, D), 0, 1e-5);
    q = ech_layer_rotary(g->block, q, &rope, starts);
    kv[0] = ech_layer_rotary(g->block, kv[0], &rope, starts);
    int y = attend(g, q, kv[0], kv[1]);
    y = ech_block_view(g->block, y, 0, ech_shape_rows(ECH_AXIS_HEADS, C));
    int w = matrix(g, ECH_AXIS_MODEL, C, ECH_AXIS_HEADS, C);
    ech_block_output(g->block, ech_layer_linear(g->block, y, w, -1, false, ECH_AXIS_MODEL, C));
}

/* Latents are whole on each tensor rank; a part of the keys is the same in all heads, and values
 * have a width of their own. */
static void build_latent(graph *g)
{
    enum { R = 5, N = 3, P = 4, E = 2 };
    int x = input(g), starts = ech_block_starts(g->block);
    const ech_axis query = ECH_AXIS_HEADS, key = ECH_AXIS_KV_HEADS;
    const ech_rope rope = {.theta = 100};
    int w = matrix(g, ECH_AXIS_LATENT, R, ECH_AXIS_MODEL, C), b = vector(g, ECH_AXIS_LATENT, R);
    int low = ech_layer_linear(g->block, x, w, b, false, ECH_AXIS_LATENT, R);
    low = ech_layer_rmsnorm(g->block, low, vector(g, ECH_AXIS_LATENT, R), 0, 1e-2);
    w = matrix(g, ECH_AXIS_HEAD_DIM, P, ECH_AXIS_MODEL, C);
    int k_rope = ech_layer_linear(g->block, x, w, -1, false, ECH_AXIS_HEAD_DIM, P);
    int q_nope = project(g, x, query, H * N), q_rope = project(g, x, query, H * P);
    w = matrix(g, key, H * N, ECH_AXIS_LATENT, R);
    int k_nope = ech_layer_linear(g->block, low, w, -1, false, key, H * N);
    w = matrix(g, key, H * E, ECH_AXIS_LATENT, R);
    int v = ech_layer_linear(g->block, low, w, -1, false, key, H * E);
    q_nope = ech_block_view(g->block, q_nope, 0, ech_shape_heads(query, H, N));
    q_rope = ech_block_view(g->block, q_rope, 0, ech_shape_heads(query, H, P));
    k_nope = ech_block_view(g->block, k_nope, 0, ech_shape_heads(key, H, N));
    int q = ech_layer_rotary_beside(g->block, q_rope, q_nope, &rope, starts);
    int k = ech_layer_rotary_beside(g->block, k_rope, k_nope, &rope, starts);
    int y = attend(g, q, k, ech_block_view(g->block, v, 0, ech_shape_heads(key, H, E)));
    y = ech_block_view(g->block, y, 0, ech_shape_rows(query, H * E));
    w = matrix(g, ECH_AXIS_MODEL, C, query, H * E);
    ech_block_output(g->block, ech_layer_linear(g->block, y, w, -1, false, ECH_AXIS_MODEL, C));
}

TEST(test_attention)
{
    compare_tensor("attention", build_attention);
    compare_tensor("attention, keys apart", build_grouped);
    compare_tensor("attention, latents", build_latent);
}

/* One, two and four key/value heads for one, two and four tensor ranks. */
TEST(test_grouped_heads)
{
    static const build grouped[] = {build_grouped, build_normed, build_together,
                                    build_together_unturned};
    for (int64_t G = 1; G <= 4; G *= 2)
        for (int t = 1; t <= 4; t *= 2)
            for (int c = 1; c <= 2; c++)
                for (int sequence = 0; sequence < 3; sequence++)
                    for (int b = 0; b < 4; b++)
                        compare("grouped attention", grouped[b], grid(t, c, G, sequence, false), G,
                                0.2);
}

TEST(test_ring)
{
    for (int c = 2; c <= 4; c++)
        for (int i = 0; i < 2; i++) {
            compare("ring", build_attention, grid(1, c, H, 0, false), H, i ? 0.3 : 0);
            compare("ring, keys apart", build_grouped, grid(1, c, 2, 0, false), 2, i ? 0.3 : 0);
            compare("ring, latents", build_latent, grid(2, c, H, 1, false), H, i ? 0.3 : 0);
        }
}

/* The windows are a token, less than a rank's run, over some ranks, and over all; with caps and
 * sinks. */
TEST(test_windows)
{
    static const int64_t windows[] = {0, 1, 2, 4, 5, 9, 20};
    for (int i = 0; i < 7; i++) {
        way = (ech_layer_attention_args){
            .window = windows[i], .softcap = i % 3 ? 0 : 0.7, .scale = 0.9, .sinks = i % 2 == 0};
        for (int c = 2; c <= 4; c++)
            compare("window, ring", i % 2 ? build_attention : build_grouped,
                    grid(1, c, 2, 0, false), 2, i % 3 ? 0 : 0.3);
        compare("window, ring over tensor ranks", build_grouped, grid(2, 4, 4, i % 3, false), 4,
                0.3);
        compare("window, ulysses", build_grouped, grid(2, 2, 4, i % 3, true), 4, 0.3);
        compare("window, tensor ranks", build_normed, grid(4, 1, 2, i % 3, false), 2, 0.3);
        ech_block_options options = grid(1, 1, 2, 0, false);
        options.sequence_chunks = 3;
        compare("window in sequence chunks", build_grouped, options, 2, 0.3);
    }
    way = (ech_layer_attention_args){.window = 0};
}

/* A rank exchanges with those whose keys it sees, twice and back once; runs are of three tokens. */
TEST(test_what_windows_exchange)
{
    static const int64_t windows[][2] = {{0, 9}, {1, 0}, {2, 6}, {4, 6}, {5, 12}, {7, 12}, {8, 9}};
    for (int i = 0; i < 7; i++) {
        way = (ech_layer_attention_args){.window = windows[i][0]};
        graph g = make("window", build_attention, grid(1, 4, H, 0, false), H, 0);
        int exchanges = 0;
        for (int phase = 0; phase < ECH_PHASES; phase++)
            for (size_t c = 0; c < g.block->program[phase].n; c++)
                exchanges += ech_call_exchange(g.block, &g.block->program[phase].at[c],
                                               (ech_phase)phase, ECH_TRAIN) != NULL;
        assert_int_equal(exchanges, windows[i][1]);
        drop(&g);
    }
    way = (ech_layer_attention_args){.window = 0};
}

TEST(test_pairs_are_counted)
{
    for (int64_t window = 0; window < 30; window++)
        for (int a = 0; a < 4; a++)
            for (int b = 0; b < 4; b++) {
                ech_rows query = ech_rows_context(0, 24, 6, 4, a, true);
                ech_rows key = ech_rows_context(0, 24, 6, 4, b, true);
                int64_t pairs = 0;
                for (int64_t i = 0; i < 36; i++) {
                    int64_t before = ech_rows_token_position(&query, i / 6) -
                                     ech_rows_token_position(&key, i % 6);
                    pairs += before >= 0 && (window == 0 || before < window);
                }
                assert_true(ech_layer_attention_pairs(&query, &key, window) == (double)pairs);
            }
}

TEST(test_ulysses)
{
    for (int c = 2; c <= 4; c *= 2)
        for (int t = 1; t * c <= H; t *= 2)
            for (int sequence = 0; sequence < 3; sequence++) {
                compare("ulysses", build_attention, grid(t, c, H, sequence, true), H, 0.3);
                if (t * c <= 4)
                    for (int normed = 0; normed < 2; normed++)
                        compare("grouped ulysses", normed ? build_normed : build_grouped,
                                grid(t, c, 4, sequence, true), 4, 0.3);
            }
}

/* One after the other, with keys and values carried along: alone, and over tensor ranks. */
TEST(test_sequence_chunks)
{
    for (int chunks = 2; chunks <= 4; chunks++)
        for (int t = 1; t <= 4; t *= 2)
            for (int sequence = 0; sequence < 3; sequence++) {
                ech_block_options options = grid(t, 1, 2, sequence, false);
                options.sequence_chunks = chunks;
                compare("attention in sequence chunks", build_attention, options, H, 0.3);
                compare("grouped attention in sequence chunks", build_grouped, options, 2, 0.3);
                compare("embedding in sequence chunks", build_embedding, options, H, 0.3);
                compare("head in sequence chunks", build_head, options, H, 0.3);
            }
}

/* ---- who adds up gradients ---- */

enum { TOKENS_ARE = ECH_MESH_DATA | ECH_MESH_CONTEXT };

/* What is said of each parameter, in the order of their declaration. That it is true is what
 * `compare` finds. */
static void assert_addends(build builder, ech_block_options options, const ech_mesh *wanted,
                           size_t params)
{
    graph g = make("addends", builder, options, 2, 0);
    assert_int_equal(g.param.n, params);
    for (size_t p = 0; p < params; p++)
        assert_int_equal(g.param.at[p].addends, TOKENS_ARE | wanted[p]);
    drop(&g);
}

TEST(test_addends)
{
    const ech_mesh none = ECH_MESH_NONE, all = ECH_MESH_TENSOR, query = ECH_MESH_QUERY;
    for (int t = 2; t <= 4; t *= 2)
        for (int sequence = 0; sequence < 3; sequence++) {
            ech_block_options options = grid(t, 1, 2, sequence, false);
            ech_mesh rows = sequence ? all : none;
            assert_addends(build_pair, options, (ech_mesh[]){none, none, none, none}, 4);
            assert_addends(build_gate, options, (ech_mesh[]){rows, none, none, none}, 4);
            assert_addends(build_embedding, options, (ech_mesh[]){none, rows}, 2);
            assert_addends(build_head, options, (ech_mesh[]){rows, rows, none}, 3);
            assert_addends(build_tied, options, (ech_mesh[]){none, rows}, 2);
            assert_addends(build_attention, options, (ech_mesh[]){none, none, none, none}, 4);
            assert_addends(build_normed, options,
                           (ech_mesh[]){none, query, query, query, query, all, all, none}, 8);
        }
}

/* Two products of experts and a router: of rows that a rank's experts have received each expert's
 * are whole, whoever sent them; a router sees a rank's own rows. */
TEST(test_experts_addends)
{
    enum { EXPERTS = 8, ROWS = 40, UP = 0, DOWN, ROUTER };
    static const ech_layer layer = {.name = "experts"};
    for (int sequence = 0; sequence < 2; sequence++) {
        ech_block_options options = grid(2, 2, H, sequence, false);
        options.sharding.expert = 2;
        graph g = {.pool = ech_pool_create()};
        g.block = ech_block_create(g.pool, "experts", 3, options);
        ech_shape shape = {3, {ECH_AXIS_EXPERTS, ECH_AXIS_FFN, ECH_AXIS_MODEL}, {EXPERTS, F, C}};
        assert_int_equal(param(&g, shape), UP);
        shape = (ech_shape){3, {ECH_AXIS_EXPERTS, ECH_AXIS_MODEL, ECH_AXIS_FFN}, {EXPERTS, C, F}};
        assert_int_equal(param(&g, shape), DOWN);
        assert_int_equal(matrix(&g, ECH_AXIS_CHOICES, EXPERTS, ECH_AXIS_MODEL, C), ROUTER);
        int x = input(&g);
        int rows = ech_block_input(g.block, "rows",
                                   ech_shape_2d(ECH_AXIS_RECEIVED, ROWS, ECH_AXIS_MODEL, C));
        int counts = ech_block_input(g.block, "counts", ech_shape_1d(ECH_AXIS_EXPERTS, EXPERTS));
        const ech_shape out[] = {ech_shape_2d(ECH_AXIS_RECEIVED, ROWS, ECH_AXIS_FFN, F),
                                 ech_shape_2d(ECH_AXIS_RECEIVED, ROWS, ECH_AXIS_MODEL, C),
                                 sequence
                                     ? ech_shape_2d(ECH_AXIS_ROWS, 0, ECH_AXIS_CHOICES, EXPERTS)
                                     : ech_shape_rows(ECH_AXIS_CHOICES, EXPERTS)};
        for (int p = UP; p <= ROUTER; p++) {
            ech_node *node = ech_block_node(g.block, &layer, NULL, 0);
            ech_node_in(node, p == ROUTER ? x : rows);
            if (p != ROUTER) ech_node_in(node, counts);
            ech_node_param(node, p);
            rows = ech_node_out(g.block, node, "out", out[p]);
        }
        ech_program_find_addends(g.block, g.param.at);
        assert_int_equal(g.param.at[UP].addends, ECH_MESH_EXPERT_DATA);
        assert_int_equal(g.param.at[DOWN].addends, ECH_MESH_EXPERT_DATA);
        assert_int_equal(g.param.at[ROUTER].addends,
                         TOKENS_ARE | (sequence ? ECH_MESH_TENSOR : ECH_MESH_NONE));
        drop(&g);
    }
}

/* Whether the program stops: it would get wrong gradients. */
static bool is_refused(build builder, ech_block_options options)
{
    int status = 0;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fclose(stderr);
        graph g = make("refused", builder, options, H, 0);
        drop(&g);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    return !WIFEXITED(status);
}

/* One gain for the residual stream, whose rows are shared out, and for what is gathered of it. */
static void build_two_uses(graph *g)
{
    int gain = vector(g, ECH_AXIS_MODEL, C);
    int x = ech_layer_rmsnorm(g->block, input(g), gain, 0, 1e-5);
    x = ech_layer_rmsnorm(g->block, ech_block_whole(g->block, x, false), gain, 0, 1e-5);
    ech_block_output(g->block, x);
}

/* A LayerNorm over all heads together, of which a rank has some. */
static void build_norm_of_shards(graph *g)
{
    int x = project(g, input(g), ECH_AXIS_HEADS, C);
    int gain = vector(g, ECH_AXIS_HEADS, C), bias = vector(g, ECH_AXIS_HEADS, C);
    ech_block_output(g->block, ech_layer_layernorm(g->block, x, gain, bias, 1e-5));
}

/* A product's weight has its columns cut as heads, what it is multiplied with as the
 * feed-forward. */
static void build_other_name(graph *g)
{
    int w = matrix(g, ECH_AXIS_FFN, C, ECH_AXIS_MODEL, C);
    ech_block_output(g->block,
                     ech_layer_linear(g->block, input(g), w, -1, false, ECH_AXIS_HEADS, C));
}

TEST(test_contradictions)
{
    const build builders[] = {build_two_uses, build_norm_of_shards, build_other_name};
    for (int i = 0; i < 3; i++) {
        assert_false(is_refused(builders[i], grid(1, 1, H, 0, false)));
        assert_true(is_refused(builders[i], grid(2, 1, H, 1, false)));
    }
    assert_false(is_refused(build_pair, grid(2, 1, H, 1, false)));
}

/* ---- tokens ---- */

/* Every position is one rank's, and in a ring all have as many pairs of query and key. */
TEST(test_tokens)
{
    for (int c = 1; c <= 4; c++)
        for (int ulysses = 0; ulysses < 2; ulysses++) {
            ech_block_options options = grid(1, c, H, 0, ulysses);
            ech_extent extent = {
                .batch = B, .tokens = T / c, .sequence = T, .sharding = {.context = c}};
            int found[B * T] = {0};
            int64_t pairs[4] = {0};
            for (int rank = 0; rank < c; rank++) {
                ech_rows rows = ech_context_rows(&options, extent, 7, rank);
                for (int64_t r = 0; r < B * T / c; r++) {
                    int64_t whole = ech_row_whole(&rows, r) - 7 * T;
                    assert_in_range(whole, 0, B * T - 1);
                    found[whole]++;
                    pairs[rank] += whole % T + 1;
                }
                if (!ulysses) assert_int_equal(pairs[rank], pairs[0]);
            }
            for (int i = 0; i < B * T; i++) assert_int_equal(found[i], 1);
        }
}
