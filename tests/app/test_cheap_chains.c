/* SPDX-License-Identifier: Apache-2.0
 *
 * Chains of cheap layers, in which B and W of one layer read the recomputed output of another one.
 * For any choice of recomputed layers and any schedule, losses, gradients and weights are those of
 * a run that saves all outputs. Each layer runs once in F and once more.
 */

#include "app/recomputed.h"
#include "share.h"
#include "unit.h"

enum { MOST_LAYERS = 40 };

static bool saves; /* layers save what they put out: none is cheap */

/* The layer's row, as one that is not cheap. */
static const ech_layer *saving(const ech_layer *layer)
{
    static ech_layer row[MOST_LAYERS];
    int i = 0;
    while (ech_layers[i] != layer) i++;
    assert_true(i < MOST_LAYERS);
    row[i] = *layer;
    row[i].cheap = false;
    return &row[i];
}

/* Makes a GPT-2 layer with GELU after both norms, and GELU of GELU, with the same parameters in the
 * same order. */
static ech_block *chained(ech_model *model, const ech_config *config, const ech_block *old, int p)
{
    int64_t C = config->model.hidden_size, H = config->model.num_attention_heads;
    int64_t F = config->model.intermediate_size;
    ech_block *b = ech_block_create(model->pool, old->name, old->index, model->options);
    ech_shape heads = ech_shape_heads(ECH_AXIS_HEADS, H, C / H);
    int x = ech_block_input(b, "hidden", ech_block_stream(b, C));
    int y =
        ech_layer_activation(b, ECH_ACTIVATION_GELU, ech_layer_layernorm(b, x, p, p + 1, 1e-5), -1);
    y = ech_layer_linear(b, y, p + 2, p + 3, true, ECH_AXIS_QKV, 3 * C);
    int q = ech_block_view(b, y, 0, heads), k = ech_block_view(b, y, C, heads);
    int v = ech_block_view(b, y, 2 * C, heads);
    y = ech_layer_attention(b,
                            &(ech_layer_attention_args){
                                .q = q, .k = k, .v = v, .starts = -1, .dropout = 0.2, .sinks = -1});
    y = ech_block_view(b, y, 0, ech_shape_rows(ECH_AXIS_HEADS, C));
    y = ech_layer_linear(b, y, p + 4, p + 5, true, ECH_AXIS_MODEL, C);
    x = ech_layer_residual(b, x, ech_layer_dropout(b, y, 0.1));
    y = ech_layer_activation(b, ECH_ACTIVATION_GELU,
                             ech_layer_activation(b, ECH_ACTIVATION_GELU,
                                                  ech_layer_layernorm(b, x, p + 6, p + 7, 1e-5),
                                                  -1),
                             -1);
    y = ech_layer_linear(b, y, p + 8, p + 9, true, ECH_AXIS_FFN, F);
    y = ech_layer_activation(b, ECH_ACTIVATION_GELU,
                             ech_layer_activation(b, ECH_ACTIVATION_GELU, y, -1), -1);
    y = ech_layer_linear(b, y, p + 10, p + 11, true, ECH_AXIS_MODEL, C);
    ech_block_output(b, ech_layer_residual(b, x, y));
    for (size_t n = 0; n < b->node.n && saves; n++)
        if (b->node.at[n].layer->cheap) b->node.at[n].layer = saving(b->node.at[n].layer);
    ech_block_finish(b, model->param.at);
    return b;
}

static void chain(ech_model *model, const ech_config *config)
{
    for (int i = 1; i < (int)model->block.n - 1; i++) {
        int p = 0;
        while (model->param.at[p].block != i) p++;
        ech_block *old = model->block.at[i];
        model->block.at[i] = chained(model, config, old, p);
        ech_block_destroy(old);
    }
}

static const char *const grids[] = {
    "model.num_hidden_layers=2 precision.compute=bf16",
    "model.num_hidden_layers=2 precision.compute=fp32 parallel.tensor=2",
    "model.num_hidden_layers=2 parallel.tensor=2 parallel.sequence=true",
    "model.num_hidden_layers=2 parallel.context=2 memory.recompute_blocks=2",
    "model.num_hidden_layers=4 parallel.pipeline=2 parallel.partition=[2,2] "
    "parallel.schedule=zero-bubble parallel.tensor=2 parallel.sequence=true",
    "model.num_hidden_layers=4 parallel.pipeline=2 parallel.partition=[1,1,1,1] "
    "parallel.schedule=zero-bubble-v",
    "model.num_hidden_layers=2 memory.sequence_chunks=2",
};

TEST(test_chains)
{
    static const char *const choices[] = {"none", "selective", "full"};
    change_model = chain;
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        if (!share_takes()) continue;
        char grid[300], *segments;
        snprintf(grid, sizeof grid, "%s", grids[i]);
        if ((segments = strstr(grid, " memory.recompute_blocks"))) *segments = 0;
        saves = true;
        left all = run_with("gpt2", grid, "");
        saves = false;
        for (int c = 0; c < 3; c++) {
            char more[100];
            bool two = c == 2 && (segments || i % 2);
            snprintf(more, sizeof more, "memory.recompute=%s%s", choices[c],
                     two && !strstr(grid, "zero-bubble-v") ? " memory.recompute_blocks=2" : "");
            left some = run_with("gpt2", grid, more);
            for (int r = 0; r < RANKS; r++)
                if (all.bytes[r].n != some.bytes[r].n ||
                    (all.bytes[r].n && memcmp(all.bytes[r].at, some.bytes[r].at, all.bytes[r].n)))
                    fail_msg("%s: %s changes what rank %d computes", grid, more, r);
            assert_true(some.cheap > all.cheap && some.cheap == some.planned_cheap);
            free_left(&some);
        }
        free_left(&all);
    }
}

ALL_TESTS(grid_setup, fixture_teardown)
