/* SPDX-License-Identifier: Apache-2.0
 *
 * One parameter, unsharded, and its optimizer, step by step: as an update does it, but with memory
 * of its own.
 */
#ifndef ECH_TESTS_OPTIM_OPTIMIZED_H
#define ECH_TESTS_OPTIM_OPTIMIZED_H

#include <stdlib.h>

#include "optim/optim.h"

typedef struct optimized {
    const ech_config *config; /* borrowed */
    ech_param of, one;        /* the model's, and as the optimizer sees it */
    ech_types types;
    const ech_kernels *kernels;
    ech_kernel_context *context;
    ech_optimizer_needs needs;
    ech_tensor param, gradient, state[ECH_MAX_STATES], statistic[ECH_MAX_STATISTICS];
    int64_t count;
} optimized;

static inline ech_tensor optimized_tensor(const ech_shape *shape, ech_dtype dtype)
{
    void *memory = ech_calloc((size_t)ech_shape_whole(shape) + 1, sizeof(double));
    return ech_tensor_view(memory, dtype, shape->dims, shape->size);
}

static inline ech_tensor optimized_tensor_of(const optimized *o, const ech_state *state)
{
    ech_shape seen = ech_shape_seen(&state->shape);
    return optimized_tensor(&seen, ech_type_dtype(state->type, state->fixed, o->types));
}

/* A configuration of defaults whose optimizer is that one. */
static inline ech_config *optimized_config(const char *optimizer)
{
    const ech_config_names known[] = {{"optimizers", ech_optimizer_names()},
                                      {"curves", ech_curve_names()}};
    ech_config *config;
    ech_text word = {0};
    ECH_ASSERT(ech_config_create(known, 2, &config) == ECH_OK);
    ech_text_append(&word, "optimizer.name=%s", optimizer);
    ECH_ASSERT(ech_config_set(config, word.at) == ECH_OK);
    ech_text_free(&word);
    return config;
}

/* Weights and states are zero. */
static inline optimized optimized_create_of(const ech_config *config, const ech_kernels *kernels,
                                            ech_shape shape)
{
    optimized o = {.config = config, .kernels = kernels, .types = ech_types_of(kernels->dtype)};
    o.of = (ech_param){.name = "w", .decay = shape.dims > 1, .type = ECH_TYPE_COMPUTE};
    o.of.shape = shape;
    o.one = ech_optimizer_one(&o.of);
    ECH_ASSERT(ech_kernel_context_create(1, &o.context) == ECH_OK);
    o.needs = ech_optimizer_needs_of(config, &o.of);
    o.param = optimized_tensor(&o.one.shape, kernels->dtype);
    o.gradient = optimized_tensor(&o.one.shape, kernels->dtype);
    for (int i = 0; i < o.needs.states; i++)
        o.state[i] = optimized_tensor_of(&o, &o.needs.state[i]);
    for (int i = 0; i < o.needs.statistics; i++)
        o.statistic[i] = optimized_tensor_of(&o, &o.needs.statistic[i].is);
    return o;
}

/* rows 0: a vector. */
static inline optimized optimized_create(const ech_config *config, const ech_kernels *kernels,
                                         int64_t rows, int64_t columns)
{
    return optimized_create_of(config, kernels,
                               rows ? ech_shape_2d(ECH_AXIS_MODEL, rows, ECH_AXIS_FFN, columns)
                                    : ech_shape_1d(ECH_AXIS_MODEL, columns));
}

static inline void optimized_free(optimized *o)
{
    free(o->param.data);
    free(o->gradient.data);
    for (int i = 0; i < o->needs.states; i++) free(o->state[i].data);
    for (int i = 0; i < o->needs.statistics; i++) free(o->statistic[i].data);
    ech_kernel_context_destroy(o->context);
}

static inline double optimized_get(const ech_tensor *x, int64_t i)
{
    return x->dtype == ECH_F64 ? ((const double *)x->data)[i] : (double)((const float *)x->data)[i];
}

static inline void optimized_set(const ech_tensor *x, int64_t i, double value)
{
    if (x->dtype == ECH_F64)
        ((double *)x->data)[i] = value;
    else
        ((float *)x->data)[i] = (float)value;
}

/* One update by the gradient that is there, which clipping multiplies by `clip`. */
static inline void optimized_step(optimized *o, double learning_rate, double clip)
{
    const ech_optimizer *optimizer = ech_optimizer_of(o->config);
    ech_update update = {.learning_rate = learning_rate, .count = ++o->count, .grad_scale = clip};
    optimizer->configure(o->config, &update);
    update.weight_decay = o->of.decay ? o->config->optimizer.weight_decay : 0;
    size_t bytes =
        optimizer->scratch ? optimizer->scratch(o->kernels, 1, &o->one, o->one.shape.size) : 0;
    enum { ALIGNMENT = 256 }; /* of a GPU's arena */
    ECH_FREED void *scratch = aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
    ECH_ASSERT(scratch);
    o->context->scratch = scratch;
    o->context->scratch_bytes = bytes;
    ech_box box[ECH_MOST_BOXES];
    int boxes = ech_shape_boxes(&o->one.shape, (ech_sharding){0}, (ech_shard_at){0}, box);
    ech_optimizer_work work = {.row = optimizer,
                               .config = o->config,
                               .kernels = o->kernels,
                               .context = o->context,
                               .of = &o->one,
                               .whole = &o->of,
                               .param = &o->param,
                               .gradient = &o->gradient,
                               .state = o->state,
                               .statistic = o->statistic,
                               .box = box,
                               .boxes = boxes,
                               .update = &update};
    int rounds = 0;
    for (int i = 0; i < o->needs.statistics; i++)
        if (o->needs.statistic[i].round >= rounds) rounds = o->needs.statistic[i].round + 1;
    for (int round = 0; round < rounds; round++) optimizer->round(&work, round);
    optimizer->update(&work);
}

#endif
