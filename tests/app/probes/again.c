/* SPDX-License-Identifier: Apache-2.0
 *
 * A recomputed layer runs once AGAIN: each attention of the forward once more, and norms, GELU and
 * SwiGLU once in the forward and once for the backward. With codes of kept values R runs a norm on
 * the value, and the backward on the decoded one. The calls of the train list's steps are
 * counted. Experts that get their rows in rounds are recomputed in each backward that needs them.
 */
#include <stdlib.h>
#include <string.h>

#include "app/probe.h"
#include "layer/layers.h"

static bool applies(const ech_design *design)
{
    return design->config->memory.recompute != ECH_RECOMPUTE_NONE;
}

/* How often a layer's forward runs for a block and micro-batch: in F, in R, and in all phases. */
typedef struct times {
    int forward, again, all;
} times;

static bool is_attention(const ech_layer *layer)
{
    return layer == &ech_layer_row_attention || layer == &ech_layer_row_attend;
}

/* The cheap one of two layers that a call fuses; the layer itself where it fuses none. */
static const ech_layer *unfused(const ech_layer *layer)
{
#define ROWS_1(name) {&ech_layer_row_linear_##name, &ech_layer_row_##name},
#define ROWS_2(name)
#define ROWS(NAME, name, operands, ...) ROWS_##operands(name)
    static const ech_layer *const rows[][2] = {
        ECH_ACTIVATIONS(ROWS){&ech_layer_row_residual_layernorm, &ech_layer_row_layernorm},
        {&ech_layer_row_residual_rmsnorm, &ech_layer_row_rmsnorm}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i][0] == layer) return rows[i][1];
    return layer;
}

static void count_call(const ech_block *block, const ech_step *step, int c, times *of)
{
    const ech_block_call *call = &block->program[step->phase].at[c];
    if (call->node < 0) return;
    const ech_layer *layer = unfused(block->node.at[call->node].layer);
    int first = 0; /* the first node with the layer stands for all of them */
    while (unfused(block->node.at[first].layer) != layer) first++;
    times *t = &of[first];
    t->forward += step->phase == ECH_FORWARD;
    t->again += step->kind == ECH_STEP_RECOMPUTE;
    t->all += step->phase == ECH_FORWARD || call->recompute;
}

static void check_block(const probe_run *run, const ech_block *block, const times *of)
{
    for (size_t n = 0; n < block->node.n; n++) {
        const ech_layer *layer = unfused(block->node.at[n].layer);
        if (is_attention(layer) && of[n].again != of[n].forward)
            probe_fail("rank %d: %s of %s runs %d times in F and %d in R", run->rank, layer->name,
                       block->name, of[n].forward, of[n].again);
        bool by_counts = strncmp(layer->name, "expert_", 7) == 0;
        int most = block->options.encode == ECH_ENCODE_NONE ? 2 : 3;
        if (layer->cheap && !by_counts && of[n].all > most * of[n].forward)
            probe_fail("rank %d: %s of %s runs %d times, %d of them in F", run->rank, layer->name,
                       block->name, of[n].all, of[n].forward);
    }
}

static void observe(void *state, const probe_run *run, probe_moment moment)
{
    const ech_plan *plan = run->session->plan;
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    (void)state;
    if (moment != PROBE_OPENED) return;
    for (int b = 0; b < (int)plan->model->block.n; b++) {
        const ech_block *block = plan->model->block.at[b];
        if (!ech_layout_has_block(plan->layout, plan->rank, b) || !block->trains) continue;
        ECH_FREED times *of = ech_calloc(block->node.n + 1, sizeof *of);
        for (size_t s = 0; s < list->step.n; s++) {
            const ech_step *step = &list->step.at[s];
            if (step->lane != ECH_LANE_COMPUTE || ech_step_kind_phase(step->kind) < 0 ||
                step->block != b)
                continue;
            for (int c = step->first_call; c < step->first_call + step->calls; c++)
                count_call(block, step, c, of);
        }
        check_block(run, block, of);
    }
}

const probe probe_again = {.name = "again", .applies = applies, .observe = observe};
