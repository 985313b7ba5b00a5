/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW with 8-bit states. Dettmers et al. 2022, arXiv:2110.02861: blocks along the last axis of
 * the unsharded tensor, each with its largest magnitude, and codes of the dynamic map
 * (kernel/dynamic_map.h).
 */
#include "optim/optim.h"

/* One number per block. The axis keeps its name if its parts (queries, keys, values) are whole
 * blocks: then it is sharded like the axis. Otherwise it cannot be sharded, which
 * ech_optimizer_check_shards reports. */
static ech_state largest_of(const char *name, const ech_shape *shape, int64_t block)
{
    ech_state state = {.name = name, .shape = *shape, .type = ECH_TYPE_WIDE, .block = block};
    int last = shape->dims - 1;
    int64_t size = shape->size[last], blocks = (size + block - 1) / block;
    bool whole =
        size % block == 0 && ech_axis_local(shape->axis[last], blocks, (ech_sharding){0}) == blocks;
    state.shape.size[last] = blocks;
    if (!whole) state.shape.axis[last] = ECH_AXIS_NONE;
    return state;
}

static void declare(const ech_config *config, const ech_param *param, ech_optimizer_needs *needs)
{
    static const char *const names[] = {"exp_avg", "exp_avg_sq"};
    static const char *const largest[] = {"exp_avg_max", "exp_avg_sq_max"};
    ECH_ASSERT(needs->states + 4 <= ECH_MAX_STATES && param->shape.dims <= 2);
    for (int i = 0; i < 2; i++)
        needs->state[needs->states++] = (ech_state){
            .name = names[i], .shape = param->shape, .type = ECH_TYPE_FIXED, .fixed = ECH_U8};
    for (int i = 0; i < 2; i++)
        needs->state[needs->states++] =
            largest_of(largest[i], &param->shape, config->optimizer.block);
}

static void configure(const ech_config *config, ech_update *update)
{
    update->beta1 = config->optimizer.beta1;
    update->beta2 = config->optimizer.beta2;
    update->eps = config->optimizer.eps;
    update->block = config->optimizer.block;
}

static size_t scratch(const ech_kernels *kernels, int threads, const ech_param *param,
                      const int64_t *size)
{
    bool vector = param->shape.dims < 2;
    int64_t dims[] = {vector ? 1 : size[0], vector ? size[0] : size[1]};
    return ech_kernel_scratch(kernels, ECH_OP_adamw8, threads, dims);
}

static void apply(const ech_optimizer_work *w)
{
    /* Whole blocks become rows of one block each, so a part of a row is handled like whole rows. */
    int64_t block = w->update->block, row = w->param->shape[w->param->dims - 1];
    int64_t columns = row % block ? row : block;
    int64_t rows = ech_tensor_count(w->param) / columns, blocks = (columns + block - 1) / block;
    const ech_tensor *of[] = {w->param,     w->gradient,  &w->state[0], &w->state[1],
                              &w->state[2], &w->state[3], w->rounded};
    ech_tensor x[7] = {0};
    for (int i = 0; i < 7; i++)
        if (of[i])
            x[i] =
                ech_tensor_2d(of[i]->data, of[i]->dtype, rows, i == 4 || i == 5 ? blocks : columns);
    w->kernels->adamw8(w->context, &x[0], &x[1], &x[2], &x[3], &x[4], &x[5], w->update,
                       w->rounded ? &x[6] : NULL);
}

const ech_optimizer ech_optimizer_row_adamw8 = {
    .name = "adamw8",
    .reads = "optimizer.beta1 optimizer.beta2 optimizer.eps optimizer.block",
    .declare = declare,
    .configure = configure,
    .scratch = scratch,
    .update = apply};
