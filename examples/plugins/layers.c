/* SPDX-License-Identifier: Apache-2.0
 *
 * Two layers. `squared_relu` is a feed-forward layer with the activation max(0, h)^2 (So et al.
 * 2021, arXiv:2109.08668). Tensor ranks have shards of its two matrices. `channels` multiplies each
 * channel by a gain and by the row's inverse root mean square. It keeps that number for the
 * backward, and all tensor ranks have its gains. A mapping file puts them into a model
 * (examples/mappings/squared_relu.yaml).
 *
 *     cc -shared -fPIC -O2 -I include examples/plugins/layers.c -o layers.so -lm
 */
#include <echelon_plugin.h>
#include <math.h>
#include <stdlib.h>

/* ---- squared_relu: y = down max(0, up x)^2 ---- */

static void declare_relu(const echelon_sizes *sizes, echelon_layer_needs *needs)
{
    int64_t C = sizes->hidden_size, F = sizes->intermediate_size;
    needs->weights = 2;
    needs->weight[0] =
        (echelon_weight){.name = "mlp.up_proj.weight", .axes = "FFN MODEL", .shape = {F, C}};
    needs->weight[1] = (echelon_weight){
        .name = "mlp.down_proj.weight", .axes = "MODEL FFN", .shape = {C, F}, .std = 0.01};
    needs->sharded = 1;
    needs->multiplications = 2 * (double)F * (double)C;
}

/* (up x) of a row: h[F], F of this rank. */
static void widen(const echelon_layer_work *work, int64_t row, double *h)
{
    int64_t F = work->weight[0].shape[0], C = work->weight[0].shape[1];
    for (int64_t f = 0; f < F; f++) {
        h[f] = 0;
        for (int64_t c = 0; c < C; c++)
            h[f] += echelon_get(&work->weight[0], f * C + c) * echelon_get(&work->x, row * C + c);
    }
}

/* The gradient of h: dh[F]. */
static void narrow_back(const echelon_layer_work *work, int64_t row, const double *h, double *dh)
{
    int64_t F = work->weight[0].shape[0], C = work->weight[0].shape[1];
    for (int64_t f = 0; f < F; f++) {
        double sum = 0;
        for (int64_t c = 0; c < C; c++)
            sum += echelon_get(&work->weight[1], c * F + f) * echelon_get(&work->dy, row * C + c);
        dh[f] = h[f] > 0 ? 2 * h[f] * sum : 0;
    }
}

static void forward_relu(const echelon_layer_work *work)
{
    int64_t F = work->weight[0].shape[0], C = work->weight[0].shape[1];
    double *h = malloc((size_t)F * sizeof *h);
    for (int64_t row = 0; row < work->rows && h; row++) {
        widen(work, row, h);
        for (int64_t c = 0; c < C; c++) {
            double sum = 0;
            for (int64_t f = 0; f < F; f++)
                sum += h[f] > 0 ? echelon_get(&work->weight[1], c * F + f) * h[f] * h[f] : 0;
            echelon_set(&work->y, row * C + c, sum);
        }
    }
    free(h);
}

static void backward_relu(const echelon_layer_work *work)
{
    int64_t F = work->weight[0].shape[0], C = work->weight[0].shape[1];
    double *h = malloc(2 * (size_t)F * sizeof *h), *dh = h ? h + F : NULL;
    for (int64_t row = 0; row < work->rows && h; row++) {
        widen(work, row, h);
        narrow_back(work, row, h, dh);
        for (int64_t c = 0; c < C; c++) {
            double sum = 0;
            for (int64_t f = 0; f < F; f++) sum += echelon_get(&work->weight[0], f * C + c) * dh[f];
            echelon_set(&work->dx, row * C + c, sum);
        }
    }
    free(h);
}

static void add(const echelon_array *to, int64_t i, double value)
{
    echelon_set(to, i, echelon_get(to, i) + value);
}

/* Sums over rows are rounded once. */
static void backward_relu_weights(const echelon_layer_work *work)
{
    int64_t F = work->weight[0].shape[0], C = work->weight[0].shape[1];
    double *h = malloc(2 * (size_t)F * sizeof *h), *dh = h ? h + F : NULL;
    double *sums = calloc(2 * (size_t)(F * C), sizeof *sums);
    for (int64_t row = 0; row < work->rows && h && sums; row++) {
        widen(work, row, h);
        narrow_back(work, row, h, dh);
        for (int64_t f = 0; f < F; f++)
            for (int64_t c = 0; c < C; c++) {
                double squared = h[f] > 0 ? h[f] * h[f] : 0;
                sums[f * C + c] += dh[f] * echelon_get(&work->x, row * C + c);
                sums[F * C + c * F + f] += squared * echelon_get(&work->dy, row * C + c);
            }
    }
    for (int64_t i = 0; i < F * C && sums; i++) {
        add(&work->gradient[0], i, sums[i]);
        add(&work->gradient[1], i, sums[F * C + i]);
    }
    free(h);
    free(sums);
}

static const echelon_layer squared_relu = {.size = sizeof squared_relu,
                                           .name = "squared_relu",
                                           .declare = declare_relu,
                                           .forward = forward_relu,
                                           .backward = backward_relu,
                                           .backward_weights = backward_relu_weights};

/* ---- channels: y = gain x / sqrt(mean of x^2 + 1e-6) ---- */

static void declare_channels(const echelon_sizes *sizes, echelon_layer_needs *needs)
{
    needs->weights = 1;
    needs->weight[0] = (echelon_weight){.name = "channels.weight",
                                        .axes = "MODEL",
                                        .shape = {sizes->hidden_size},
                                        .initializer = ECHELON_INIT_ONE};
    needs->kept = 1;
    needs->kept_width[0] = 1;
}

static void forward_channels(const echelon_layer_work *work)
{
    int64_t C = work->sizes->hidden_size;
    for (int64_t row = 0; row < work->rows; row++) {
        double squares = 0;
        for (int64_t c = 0; c < C; c++)
            squares += pow(echelon_get(&work->x, row * C + c), 2) / (double)C;
        double scale = 1 / sqrt(squares + 1e-6);
        echelon_set(&work->kept[0], row, scale);
        for (int64_t c = 0; c < C; c++)
            echelon_set(&work->y, row * C + c,
                        echelon_get(&work->weight[0], c) * scale *
                            echelon_get(&work->x, row * C + c));
    }
}

static void backward_channels(const echelon_layer_work *work)
{
    int64_t C = work->sizes->hidden_size;
    for (int64_t row = 0; row < work->rows; row++) {
        double scale = echelon_get(&work->kept[0], row), along = 0;
        for (int64_t c = 0; c < C; c++)
            along += echelon_get(&work->dy, row * C + c) * echelon_get(&work->weight[0], c) *
                     echelon_get(&work->x, row * C + c) / (double)C;
        for (int64_t c = 0; c < C; c++) {
            double dy = echelon_get(&work->dy, row * C + c) * echelon_get(&work->weight[0], c);
            echelon_set(&work->dx, row * C + c,
                        scale * (dy - scale * scale * along * echelon_get(&work->x, row * C + c)));
        }
    }
}

static void backward_channels_weights(const echelon_layer_work *work)
{
    int64_t C = work->sizes->hidden_size;
    for (int64_t c = 0; c < C; c++) {
        double sum = 0;
        for (int64_t row = 0; row < work->rows; row++)
            sum += echelon_get(&work->dy, row * C + c) * echelon_get(&work->kept[0], row) *
                   echelon_get(&work->x, row * C + c);
        add(&work->gradient[0], c, sum);
    }
}

static const echelon_layer channels = {.size = sizeof channels,
                                       .name = "channels",
                                       .declare = declare_channels,
                                       .forward = forward_channels,
                                       .backward = backward_channels,
                                       .backward_weights = backward_channels_weights};

static const echelon_layer *const layers[] = {&squared_relu, &channels, NULL};

const echelon_plugin echelon_plugin_table = {.size = sizeof(echelon_plugin),
                                             .version = ECHELON_PLUGIN_VERSION,
                                             .name = "layers",
                                             .layers = layers};
