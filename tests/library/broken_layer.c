/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer and a loss that are wrong in one way each: -DBROKEN_name. y = w x, in fp64. The layer
 * `whole` is not wrong: its w is a matrix with one row.
 */
#include <echelon_plugin.h>
#include <math.h>

static void declare(const echelon_sizes *sizes, echelon_layer_needs *needs)
{
    needs->weights = 1;
    needs->weight[0] = (echelon_weight){.name = "broken.weight",
#ifdef BROKEN_axes
                                        .axes = "LENGTH",
#elif defined BROKEN_whole
                                        .axes = "OTHER MODEL",
                                        .shape = {1, sizes->hidden_size},
#else
                                        .axes = "MODEL",
#endif
#ifndef BROKEN_whole
                                        .shape = {sizes->hidden_size},
#endif
                                        .initializer = ECHELON_INIT_ONE};
#ifdef BROKEN_unsharded
    needs->sharded = 1;
#endif
}

static void forward(const echelon_layer_work *work)
{
    int64_t C = work->weight[0].count;
    for (int64_t i = 0; i < work->x.count; i++)
        echelon_set(&work->y, i, echelon_get(&work->x, i) * echelon_get(&work->weight[0], i % C));
#ifdef BROKEN_rows
    echelon_set(&work->y, 0, echelon_get(&work->y, 0) + echelon_get(&work->x, C));
#endif
#ifdef BROKEN_after_y
    echelon_set(&work->y, work->y.count, 1);
#endif
}

static void backward(const echelon_layer_work *work)
{
    int64_t C = work->weight[0].count;
    for (int64_t i = 0; i < work->x.count; i++)
        echelon_set(&work->dx, i, echelon_get(&work->dy, i) * echelon_get(&work->weight[0], i % C));
#ifdef BROKEN_dx
    echelon_set(&work->dx, 0, echelon_get(&work->dx, 0) + 1e-3);
#endif
}

static void backward_weights(const echelon_layer_work *work)
{
    int64_t C = work->weight[0].count;
#ifdef BROKEN_dweight
    C = C > 1 ? C - 1 : C;
#endif
    for (int64_t i = 0; i < work->x.count; i++) {
        double more = echelon_get(&work->dy, i) * echelon_get(&work->x, i);
        echelon_set(&work->gradient[0], i % C, echelon_get(&work->gradient[0], i % C) + more);
    }
}

static const echelon_layer layer = {.size = sizeof layer,
                                    .name = "broken",
                                    .declare = declare,
                                    .forward = forward,
                                    .backward = backward,
                                    .backward_weights = backward_weights};
static const echelon_layer *const layers[] = {&layer, NULL};

/* The square of the target's logit. */
static void lose(const echelon_loss_work *work)
{
    for (int64_t r = 0; r < work->rows; r++)
        if (work->weight[r] > 0)
            work->loss[r] =
                pow(echelon_get(&work->logits, r * work->vocabulary + work->target[r]), 2);
}

static void lose_back(const echelon_loss_work *work)
{
    for (int64_t i = 0; i < work->gradient.count; i++) {
        int64_t r = i / work->vocabulary, v = i % work->vocabulary;
        double z = echelon_get(&work->logits, i);
        echelon_set(&work->gradient, i, work->weight[r] > 0 && v == work->target[r] ? z : 0);
    }
}

static const echelon_loss loss = {
    .size = sizeof loss, .name = "broken", .forward = lose, .backward = lose_back};
static const echelon_loss *const losses[] = {&loss, NULL};

const echelon_plugin echelon_plugin_table = {.size = sizeof(echelon_plugin),
                                             .version = ECHELON_PLUGIN_VERSION,
                                             .name = "broken",
                                             .losses = losses,
                                             .layers = layers};
