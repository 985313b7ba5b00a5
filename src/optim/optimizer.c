/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of optimizers, and what they need for a parameter.
 */
#include <string.h>

#include "base/added.h"
#include "config/strategy.h"
#include "optim/optim.h"
#include "optim/plugged.h"

#define X(name, help) extern const ech_optimizer ech_optimizer_row_##name;
#include "optim/optimizers.def"
#undef X

static const ech_optimizer *const rows[] = {
#define X(name, help) &ech_optimizer_row_##name,
#include "optim/optimizers.def"
#undef X
};
static const char built_in[] =
#define X(name, help) #name " "
#include "optim/optimizers.def"
#undef X
    ;
enum { ROWS = sizeof rows / sizeof *rows };

static ech_added added = ECH_ADDED("optimizer"); /* plugins' */

static size_t count(void)
{
    return ROWS + atomic_load(&added.n);
}

static const ech_optimizer *row_at(size_t i)
{
    return i < ROWS ? rows[i] : added.at[i - ROWS];
}

const ech_optimizer *ech_optimizer_find(const char *name)
{
    for (size_t i = 0; i < count(); i++)
        if (strcmp(row_at(i)->name, name) == 0) return row_at(i);
    return NULL;
}

const ech_optimizer *ech_optimizer_of(const ech_config *config)
{
    return row_at((size_t)config->optimizer.name);
}

const char *ech_optimizer_names(void)
{
    return ech_added_names(&added, built_in);
}

ech_status ech_optimizer_plug(const char *plugin, const echelon_optimizer *row)
{
    ECH_TRY(ech_plugged_check_optimizer(plugin, row));
    return ech_added_put(&added, plugin, row->name, built_in, ech_plugged_optimizer(row));
}

/* ---- replicas ---- */

int64_t ech_optimizer_replicas(const ech_config *config)
{
    bool compresses = config->parallel.compression != ECH_COMPRESSION_NONE;
    if (!compresses && !ech_strategy_meets(config)) return 1;
    /* equal numbers for each stage */
    const ech_config_list *replicas = &config->parallel.stage_replicas;
    int64_t data = replicas->n > 0 ? replicas->at[0] : config->parallel.data;
    if (data == ECH_AUTO) data = 1; /* unknown yet */
    return data * config->parallel.context;
}

ech_state ech_state_of_replica(const ech_state *state)
{
    ech_state of = *state;
    int d = ech_shape_replicas(&of.shape);
    if (d >= 0) of.shape = ech_shape_without(&of.shape, 1u << d);
    return of;
}

/* ---- parameters ---- */

ech_param ech_optimizer_one(const ech_param *param)
{
    ech_param one = *param;
    one.shape = ech_shape_of_one(&param->shape);
    return one;
}

/* Extends the state of one matrix of a stack to all, by the stack's first dimension. */
static void stack(ech_state *state, const ech_shape *of)
{
    ech_shape one = state->shape;
    ECH_ASSERT(one.dims < ECH_MAX_DIMS);
    state->shape = (ech_shape){.dims = 1, .axis = {of->axis[0]}, .size = {of->size[0]}};
    for (int d = 0; d < one.dims; d++) {
        state->shape.axis[d + 1] = one.axis[d];
        state->shape.size[state->shape.dims++] = one.size[d];
    }
    state->lacks <<= 1;
}

/* Experts have fewer replicas: the ranks of an expert group together have one. */
static void share_replicas(const ech_config *config, ech_shape *of)
{
    int d = ech_shape_replicas(of);
    if (d < 0) return;
    of->axis[d] = ECH_AXIS_EXPERT_REPLICAS;
    of->size[d] = of->size[d] > config->parallel.expert ? of->size[d] / config->parallel.expert : 1;
}

static void stack_needs(const ech_config *config, ech_optimizer_needs *needs, const ech_shape *of)
{
    for (int i = 0; i < needs->states; i++) {
        share_replicas(config, &needs->state[i].shape);
        stack(&needs->state[i], of);
    }
    for (int i = 0; i < needs->statistics; i++) {
        stack(&needs->statistic[i].is, of);
        needs->statistic[i].over <<= 1;
    }
}

/* Gives element-wise states the shape of their parameter, which differs if it is filters. With an
 * axis of replicas they would have too many dimensions. */
static void restore_filters(ech_optimizer_needs *needs, const ech_shape *of)
{
    for (int i = 0; i < needs->states; i++) {
        ech_state *state = &needs->state[i];
        if (ech_state_is_element_wise(state) && ech_shape_replicas(&state->shape) < 0)
            state->shape = *of;
    }
}

ech_optimizer_needs ech_optimizer_needs_of(const ech_config *config, const ech_param *param)
{
    ech_optimizer_needs needs = {.master = -1};
    if (!ech_param_is_trained(param)) return needs;
    ech_param one = ech_optimizer_one(param);
    bool narrow = config->precision.compute == ECH_COMPUTE_BF16 ||
                  config->precision.compute == ECH_COMPUTE_FP16;
    ech_optimizer_of(config)->declare(config, &one, &needs);
    ech_compression_declare(config, &one, &needs);
    ech_outer_declare(config, &one, &needs);
    if (ech_shape_is_stack(&param->shape))
        stack_needs(config, &needs, &param->shape);
    else
        restore_filters(&needs, &param->shape);
    if (!narrow || param->type != ECH_TYPE_COMPUTE) return needs;
    needs.master = needs.states;
    ech_optimizer_add_state(&needs, "master", param, 0);
    return needs;
}

ech_optimizer_rule ech_optimizer_rule_of(const ech_config *config, const ech_param *param)
{
    const ech_optimizer *optimizer = ech_optimizer_of(config);
    ech_param one = ech_optimizer_one(param);
    return optimizer->rule ? optimizer->rule(config, &one)
                           : (ech_optimizer_rule){optimizer->name, 1};
}

ech_rounds_read ech_optimizer_rounds_read(const ech_optimizer *optimizer, const ech_param *param)
{
    ech_param one = ech_optimizer_one(param);
    return optimizer->rounds_read ? optimizer->rounds_read(&one) : ECH_ROUNDS_READ_ALL;
}

static ech_state state_of(const ech_param *param, unsigned lacks)
{
    return (ech_state){
        .shape = ech_shape_without(&param->shape, lacks), .lacks = lacks, .type = ECH_TYPE_WIDE};
}

void ech_optimizer_add_state(ech_optimizer_needs *needs, const char *name, const ech_param *param,
                             unsigned lacks)
{
    ECH_ASSERT(needs->states < ECH_MAX_STATES);
    needs->state[needs->states] = state_of(param, lacks);
    needs->state[needs->states++].name = name;
}

void ech_optimizer_add_statistic(ech_optimizer_needs *needs, int round, const ech_param *param,
                                 unsigned lacks, unsigned over, ech_fold_of_shards fold)
{
    ECH_ASSERT(needs->statistics < ECH_MAX_STATISTICS && round < ECH_MAX_ROUNDS);
    ech_statistic s = {state_of(param, lacks), round, over, fold};
    if (fold == ECH_SHARDS_SUM || fold == ECH_SHARDS_MAXIMUM) {
        s.is.type = ECH_TYPE_FIXED;
        s.is.fixed = ECH_F64;
    }
    needs->statistic[needs->statistics++] = s;
}

int ech_statistic_shards(const ech_statistic *statistic, const ech_param *param,
                         ech_sharding sharding)
{
    int shards = 1;
    if (statistic->fold == ECH_SHARDS_NOTHING || statistic->fold == ECH_SHARDS_OWNER) return 1;
    ech_shape seen = ech_shape_seen(&param->shape);
    for (int d = 0; d < seen.dims; d++)
        if (statistic->over & 1u << d) shards *= ech_axis_shards(seen.axis[d], sharding);
    return shards;
}

ech_status ech_optimizer_check_keys(const ech_config *config)
{
    const ech_optimizer *own = ech_optimizer_of(config);
    ECH_FREED_TEXT owned = {0};
    for (size_t i = 0; i < count(); i++) ech_text_append(&owned, "%s ", row_at(i)->reads);
    return ech_config_check_read(config, owned.at, own->reads, own->name);
}
