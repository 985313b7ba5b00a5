/* SPDX-License-Identifier: Apache-2.0
 *
 * Muon. Jordan et al. 2024, kellerjordan.github.io/posts/muon; Liu et al. 2025, arXiv:2502.16982. A
 * layer's matrix moves along its momentum, whose singular values Newton-Schulz iterations have made
 * about 1: in the wide type, where torch.optim.Muon uses bf16. A matrix is what is stored as one:
 * queries, keys and values side by side are one. AdamW updates tables by token or position
 * (embeddings, the head) and vectors.
 */
#include <math.h>

#include "optim/optim.h"

extern const ech_optimizer ech_optimizer_row_adamw;

/* Statistics, and the rounds that compute them: the direction of the momentum, and the same
 * orthogonalized. */
enum { ALONG, DIRECTION };

/* Iterations, and an iteration's polynomial a x + b x^3 + c x^5 of the singular values. */
enum { ITERATIONS = 5 };
static const double A = 3.4445, B = -4.7750, C = 2.0315;

static ech_optimizer_rule rule(const ech_config *config, const ech_param *param)
{
    return ech_optimizer_is_matrix(param) ? (ech_optimizer_rule){"muon", 1}
                                     : (ech_optimizer_rule){"adamw", config->optimizer.adamw_rate};
}

static void declare(const ech_config *config, const ech_param *param, ech_optimizer_needs *needs)
{
    if (!ech_optimizer_is_matrix(param)) {
        ech_optimizer_row_adamw.declare(config, param, needs);
        return;
    }
    ech_optimizer_add_state(needs, "momentum_buffer", param, 0);
    ech_optimizer_add_statistic(needs, ALONG, param, 0, 3, ECH_SHARDS_GATHER);
    ech_optimizer_add_statistic(needs, DIRECTION, param, 0, 3, ECH_SHARDS_OWNER);
}

static void configure(const ech_config *config, ech_update *update)
{
    ech_optimizer_row_adamw.configure(config, update);
    update->momentum = config->optimizer.momentum;
    update->nesterov = config->optimizer.nesterov == 1;
    update->match_adamw = config->optimizer.adjust_rate == ECH_ADJUST_RATE_MATCH_RMS_ADAMW;
}

/* ---- Newton-Schulz ---- */

/* The sides of an unsharded matrix X, k <= n. An iteration multiplies X by its transpose, which
 * gives (k,k), squares that, and multiplies X by a polynomial of it. */
typedef struct products {
    bool tall; /* more rows than columns */
    int64_t k, n;
} products;

static products products_of(const ech_param *param)
{
    int64_t rows = param->shape.size[0], columns = param->shape.size[1];
    bool tall = rows > columns;
    return (products){tall, tall ? columns : rows, tall ? rows : columns};
}

static double flops(const ech_param *param)
{
    if (!ech_optimizer_is_matrix(param)) return 0;
    products p = products_of(param);
    return ITERATIONS * 2.0 * (double)(p.k * p.k) * (double)(2 * p.n + p.k);
}

/* Bytes: cuBLASLt refuses a workspace that begins elsewhere. */
enum { ALIGNMENT = 256 };

static int64_t aligned(int64_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Offsets in scratch, in bytes. A matrix as large as X comes first; `rest` is for the kernels. */
typedef struct places {
    int64_t gram, square, sums, rest;
    int64_t blocks; /* number of partial sums */
} places;

static places places_of(const ech_kernels *wide, const ech_param *param)
{
    int64_t item = (int64_t)ech_dtype_bytes(wide->dtype), n = ech_shape_whole(&param->shape);
    int64_t k = products_of(param).k;
    places p = {.gram = aligned(n * item), .blocks = (n + ECH_NORM_BLOCK - 1) / ECH_NORM_BLOCK};
    p.square = p.gram + aligned(k * k * item);
    p.sums = p.square + aligned(k * k * item);
    p.rest = p.sums + aligned(p.blocks * (int64_t)sizeof(double));
    return p;
}

static size_t scratch(const ech_kernels *kernels, int threads, const ech_param *param,
                      const int64_t *size)
{
    if (!ech_optimizer_is_matrix(param)) return 0;
    (void)size;
    products p = products_of(param);
    int64_t gram[] = {p.k, p.k, p.n, p.tall, !p.tall, 0, 0}, square[] = {p.k, p.k, p.k, 0, 0, 0, 0};
    int64_t apply[] = {p.tall ? p.n : p.k, p.tall ? p.k : p.n, p.k, 0, 0, 0, 0};
    const int64_t *dims[] = {gram, square, apply};
    size_t most = 0;
    for (int i = 0; i < 3; i++) {
        size_t bytes = ech_kernel_scratch(kernels->wide, ECH_OP_matmul, threads, dims[i]);
        if (bytes > most) most = bytes;
    }
    return (size_t)places_of(kernels->wide, param).rest + most;
}

/* y = (A + B G + C G^2) x, G = x xT; for a tall x the same from the right. */
static void iterate(const ech_optimizer_work *w, const ech_tensor *x, const ech_tensor *gram,
                    const ech_tensor *square, const ech_tensor *y)
{
    const ech_kernels *wide = w->kernels->wide;
    bool tall = products_of(w->of).tall;
    wide->matmul(w->context, x, tall, x, !tall, NULL, NULL, gram);
    wide->matmul(w->context, gram, false, gram, false, NULL, NULL, square);
    wide->scaled_sum(w->context, gram, B, C, A, NULL, NULL, square);
    wide->matmul(w->context, tall ? x : square, false, tall ? square : x, false, NULL, NULL, y);
}

/* In place; places_of defines the layout of `memory`. */
static void orthogonalize(const ech_optimizer_work *w, const ech_tensor *x, char *memory)
{
    const ech_kernels *wide = w->kernels->wide;
    places at = places_of(wide, w->of);
    int64_t k = products_of(w->of).k;
    ech_tensor gram = ech_tensor_2d(memory + at.gram, x->dtype, k, k), square = gram;
    ech_tensor sums = ech_tensor_1d(memory + at.sums, ECH_F64, at.blocks), buffer[2] = {*x, *x};
    square.data = memory + at.square;
    buffer[(ITERATIONS + 1) % 2].data = memory; /* so that the last iteration writes to x */
    const ech_update norm = {.grad_scale = 1, .eps = w->update->eps};
    const ech_tensor squares = ech_tensor_view(memory + at.gram, ECH_F64, 0, NULL);
    wide->square_sums(w->context, x, &sums);
    wide->total(w->context, &sums, NULL, true, &squares);
    /* Divides by the Frobenius norm, so that no singular value is above 1. */
    wide->scaled_sum(w->context, x, 1, 0, 0, &squares, &norm, &buffer[0]);
    for (int i = 0; i < ITERATIONS; i++)
        iterate(w, &buffer[i % 2], &gram, &square, &buffer[(i + 1) % 2]);
}

/* ---- rounds and update ---- */

/* The buffer is a sum, like SGD's; its magnitude does not matter. */
static void follow(const ech_optimizer_work *w)
{
    const ech_update *u = w->update;
    ech_tensor gradient = ech_tensor_matrix(w->gradient), momentum = ech_tensor_matrix(w->state);
    ech_tensor along = ech_tensor_matrix(&w->statistic[ALONG]);
    w->kernels->scaled_sum(w->context, &gradient, 1, u->momentum, 0, NULL, u, &momentum);
    if (u->nesterov) w->kernels->scaled_sum(w->context, &gradient, 1, 0, 0, NULL, u, &along);
    w->kernels->scaled_sum(w->context, &momentum, u->nesterov ? u->momentum : 1,
                           u->nesterov ? 1 : 0, 0, NULL, NULL, &along);
}

/* This rank's shard of the whole matrix: only tables are padded, so boxes fill it. */
static void take_shard(const ech_optimizer_work *w, const ech_tensor *whole, const ech_tensor *to)
{
    for (int i = 0; i < w->boxes; i++) {
        ech_tensor from = ech_box_in_whole(2, whole->shape, &w->box[i], whole->data, whole->dtype);
        ech_tensor shard = ech_box_in_memory(2, &w->box[i], to->data, whole->dtype);
        w->kernels->wide->copy(w->context, &from, &shard);
    }
}

static void turn(const ech_optimizer_work *w)
{
    ech_kernel_context *context = w->context;
    char *memory = context->scratch;
    int64_t rest = places_of(w->kernels->wide, w->of).rest;
    context->scratch = memory + rest;
    context->scratch_bytes -= (size_t)rest;
    orthogonalize(w, &w->statistic[ALONG], memory);
    take_shard(w, &w->statistic[ALONG], &w->statistic[DIRECTION]);
    context->scratch = memory;
    context->scratch_bytes += (size_t)rest;
}

static void compute(const ech_optimizer_work *w, int round)
{
    if (round == ALONG)
        follow(w);
    else
        turn(w);
}

static double adjustment(const ech_optimizer_work *w)
{
    double rows = (double)w->of->shape.size[0], columns = (double)w->of->shape.size[1];
    return w->update->match_adamw ? 0.2 * sqrt(fmax(rows, columns)) : sqrt(fmax(1, rows / columns));
}

/* p -= rate (adjustment x direction + decay p), which is a step of SGD without momentum. If the
 * update is withheld, only this is skipped: the iterations before it write to statistics and
 * scratch, which are not read afterwards. */
static void apply_matrix(const ech_optimizer_work *w)
{
    double factor = adjustment(w);
    ech_update step = {.learning_rate = w->update->learning_rate,
                       .rate = w->update->rate,
                       .adjust = factor,
                       .weight_decay = w->update->weight_decay / factor,
                       .grad_scale = 1,
                       .withheld = w->update->withheld};
    w->kernels->sgd(w->context, w->param, &w->statistic[DIRECTION], NULL, &step, w->rounded);
}

static void apply(const ech_optimizer_work *w)
{
    if (ech_optimizer_is_matrix(w->of))
        apply_matrix(w);
    else
        ech_optimizer_row_adamw.update(w);
}

const ech_optimizer ech_optimizer_row_muon = {
    .name = "muon",
    .reads = "optimizer.momentum optimizer.nesterov optimizer.beta1 optimizer.beta2 optimizer.eps "
             "optimizer.adjust_rate optimizer.adamw_rate",
    .declare = declare,
    .configure = configure,
    .scratch = scratch,
    .rule = rule,
    .flops = flops,
    .round = compute,
    .update = apply};
