/* SPDX-License-Identifier: Apache-2.0
 *
 * What train lists without the passes (lists.h) are about: a made-up model of blocks with one
 * parameter each, and a layout of it.
 */
#ifndef ECH_TESTS_SCHEDULE_LISTS_MODEL_H
#define ECH_TESTS_SCHEDULE_LISTS_MODEL_H

#include <stdlib.h>

#include "schedule/schedule.h"

static const ech_layer lists_layer = {.name = "made up"};

static inline ech_model *lists_model(int blocks, bool folded)
{
    ech_model *model = ech_calloc(1, sizeof *model);
    model->pool = ech_pool_create();
    for (int b = 0; b < blocks; b++) {
        ech_block *block = ech_block_create(
            model->pool, ech_pool_format(model->pool, "block %d", b), b, (ech_block_options){0});
        ECH_PUSH(block->node, (ech_node){.layer = &lists_layer, .params = 1, .param = {b}});
        ECH_PUSH(block->operand, (ech_operand){.port = ECH_PORT_DPARAM,
                                               .mode = ECH_ADD,
                                               .purposes = 1u << ECH_TRAIN,
                                               .value = b});
        for (int phase = 0; phase < ECH_PHASES; phase++)
            if (!folded || phase != ECH_BACKWARD_WEIGHT)
                ECH_PUSH(block->program[phase],
                         (ech_block_call){.node = 0,
                                          .purposes = ~0u,
                                          .operands = phase == (folded ? ECH_BACKWARD_INPUT
                                                                       : ECH_BACKWARD_WEIGHT)});
        ECH_PUSH(model->block, block);
        ECH_PUSH(model->param, (ech_param){.name = ech_pool_format(model->pool, "weight %d", b),
                                           .block = b,
                                           .addends = ECH_MESH_REPLICAS});
    }
    return model;
}

static inline ech_layout *lists_layout(int stages, int chunks, const int *replicas, bool vee,
                                       int micro_batches, const ech_model *model)
{
    ech_layout *layout = ech_calloc(1, sizeof *layout);
    size_t p = (size_t)stages, v = (size_t)chunks, blocks = model->block.n;
    layout->stages = stages;
    layout->chunks = chunks;
    layout->context = layout->tensor = 1;
    layout->replicas = ech_calloc(p, sizeof *layout->replicas);
    layout->first_rank = ech_calloc(p + 1, sizeof *layout->first_rank);
    layout->uniform = true;
    for (size_t s = 0; s < p; s++) {
        layout->replicas[s] = replicas ? replicas[s] : 1;
        layout->first_rank[s + 1] = layout->first_rank[s] + layout->replicas[s];
        layout->uniform &= layout->replicas[s] == layout->replicas[0];
    }
    layout->world = layout->first_rank[p];
    int *stage = ech_calloc(p * v, sizeof *stage);
    for (size_t s = 0; s < p * v; s++) stage[s] = (int)(vee && s / p % 2 ? p - 1 - s % p : s % p);
    ech_layout_assign(layout, stage);
    free(stage);
    layout->first_block = ech_calloc(p * v + 1, sizeof *layout->first_block);
    for (size_t s = 0; s <= p * v; s++) layout->first_block[s] = (int)(s * blocks / (p * v));
    layout->coordinates = ech_calloc((size_t)layout->world, sizeof *layout->coordinates);
    for (int s = 0; s < stages; s++)
        for (int r = 0; r < layout->replicas[s]; r++)
            layout->coordinates[layout->first_rank[s] + r] =
                (ech_coordinates){.stage = s, .data = r};
    layout->micro_batch = 1;
    layout->micro_batches = micro_batches;
    layout->first_user = ech_calloc(blocks + 1, sizeof *layout->first_user);
    layout->user = ech_calloc(blocks + 1, sizeof *layout->user);
    for (size_t b = 0; b <= blocks; b++) layout->first_user[b] = layout->user[b] = (int)b;
    return layout;
}

#endif
