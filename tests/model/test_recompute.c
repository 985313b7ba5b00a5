/* SPDX-License-Identifier: Apache-2.0
 *
 * The program R of transformer layers: B and W find all that they read, kept or made again; what is
 * to be made again is not read as the forward left it; and nothing is made that nobody reads.
 */

#include "layer/layers.h"
#include "model/cut_model.h"
#include "unit.h"

enum { EMBEDDING, LAYER, HEAD };

static const char *const families[] = {"gpt2", "llama", "qwen3"};
static const char *const grids[] = {
    "",
    "memory.sequence_chunks=2",
    "parallel.tensor=2",
    "parallel.tensor=2 parallel.sequence=true",
    "parallel.tensor=2 parallel.sequence=keep data.document_mask=true",
    "parallel.context=3",
    "parallel.context=2 parallel.context_method=ulysses",
};
enum {
    FAMILIES = sizeof families / sizeof *families,
    GRIDS = sizeof grids / sizeof *grids,
    RUNS = FAMILIES * GRIDS
};

static ech_model *make(int run, const char *recompute)
{
    char words[200];
    snprintf(words, sizeof words, "memory.recompute=%s %s", recompute, grids[run / FAMILIES]);
    return cut_model(families[run % FAMILIES], words);
}

/* Where each value comes from, as the phases run one after the other. */
typedef struct known {
    const ech_block *block;
    bool *forward, *made, *read; /* by value: written by F; by R, B or W; F's, read by these */
    int read_forward;            /* values of F that R, B and W read */
} known;

static void enter(known *k, const ech_block_call *call, ech_phase phase)
{
    for (const ech_operand *o = NULL; (o = ech_call_next(k->block, call, ECH_TRAIN, o));) {
        if (!ech_operand_is_value(o)) continue;
        const ech_block_value *v = &k->block->value.at[o->value];
        if (v->source != ECH_FROM_NODE || v->cached || v->role == ECH_ROLE_SCRATCH) continue;
        if (phase != ECH_FORWARD && o->mode != ECH_WRITE && !k->made[o->value]) {
            if (!k->forward[o->value]) fail_msg("%s: nobody makes %s", k->block->name, v->name);
            if (v->kept == ECH_KEPT_RECOMPUTED)
                fail_msg("%s: %s is read as F left it", k->block->name, v->name);
            k->read_forward += !k->read[o->value];
            k->read[o->value] = true;
        }
        if (o->mode != ECH_READ) (phase == ECH_FORWARD ? k->forward : k->made)[o->value] = true;
    }
}

/* crossed: R makes outputs, too. */
static int walk(const ech_block *block, bool crossed)
{
    static const ech_phase order[] = {ECH_FORWARD, ECH_RECOMPUTE, ECH_BACKWARD_INPUT,
                                      ECH_BACKWARD_WEIGHT};
    known k = {.block = block,
               .forward = ech_calloc(block->value.n, sizeof(bool)),
               .made = ech_calloc(block->value.n, sizeof(bool)),
               .read = ech_calloc(block->value.n, sizeof(bool))};
    for (int p = 0; p < ECH_PHASES; p++) {
        bool part = order[p] == ECH_RECOMPUTE && !crossed;
        int n = part ? block->needed : (int)block->program[order[p]].n;
        for (int c = crossed ? block->doubled[order[p]] : 0; c < n; c++)
            enter(&k, &block->program[order[p]].at[c], order[p]);
    }
    free(k.forward);
    free(k.made);
    free(k.read);
    return k.read_forward;
}

/* Whether a call of R after `at`, or one of B or W, reads what call `at` of R writes. */
static bool is_of_use(const ech_block *block, int at)
{
    const ech_block_call *call = &block->program[ECH_RECOMPUTE].at[at];
    for (const ech_operand *o = NULL; (o = ech_call_next(block, call, ECH_TRAIN, o));) {
        if (!ech_operand_is_value(o) || o->mode == ECH_READ) continue;
        for (size_t i = 0; i < block->routput.n; i++)
            if (at >= block->needed &&
                (block->routput.at[i] == o->value || block->rinput.at[i] == o->value))
                return true;
        for (int phase = ECH_BACKWARD_INPUT; phase < ECH_PHASES; phase++)
            for (size_t c = phase == ECH_RECOMPUTE ? (size_t)at + 1 : 0;
                 c < block->program[phase].n; c++) {
                const ech_block_call *reader = &block->program[phase].at[c];
                if (phase == ECH_RECOMPUTE && at < block->needed && (int)c >= block->needed) break;
                for (const ech_operand *r = NULL; (r = ech_call_next(block, reader, ECH_TRAIN, r));)
                    if (ech_operand_is_value(r) && r->mode != ECH_WRITE && r->value == o->value)
                        return true;
            }
    }
    return false;
}

static void check_use(const ech_block *block)
{
    for (int c = 0; c < (int)block->program[ECH_RECOMPUTE].n; c++)
        if (!is_of_use(block, c))
            fail_msg("%s: nobody reads what call %d of R makes (%s)", block->name, c,
                     block->node.at[block->program[ECH_RECOMPUTE].at[c].node].layer->name);
}

/* What a layer of its own kernel puts out is made again once: by R, or by a call of B or W that R's
 * is left out for. */
static void check_once(const ech_block *block)
{
    ECH_FREED int *made = ech_calloc(block->value.n, sizeof *made);
    for (int phase = ECH_BACKWARD_INPUT; phase < ECH_PHASES; phase++)
        for (int c = block->doubled[phase]; c < (int)block->program[phase].n; c++) {
            const ech_block_call *call = &block->program[phase].at[c];
            const ech_node *node = call->node < 0 ? NULL : &block->node.at[call->node];
            if (node && call->recompute && node->layer->cheap) made[node->out[0]]++;
        }
    for (size_t v = 0; v < block->value.n; v++) {
        int again = block->value.at[v].recomputed;
        if (again >= 0 && made[again] > 1) fail_msg("%s is made twice", block->value.at[v].name);
    }
}

static int count(const ech_block *block, int calls, const ech_layer *layer)
{
    int n = 0;
    for (int c = 0; c < calls; c++)
        n += block->node.at[block->program[ECH_RECOMPUTE].at[c].node].layer == layer;
    return n;
}

static int count_forward(const ech_block *block, const ech_layer *layer)
{
    int n = 0;
    for (size_t c = 0; c < block->program[ECH_FORWARD].n; c++)
        n += block->node.at[block->program[ECH_FORWARD].at[c].node].layer == layer;
    return n;
}

/* Products of the forward, but for those of keys and values in the cache of sequence chunks; a norm
 * of keys reads what it normalizes. */
static int count_again(const ech_block *layer, int run)
{
    static const int cached[FAMILIES] = {0, 2, 1};
    int products = count_forward(layer, &ech_layer_row_linear);
    return products - (strstr(grids[run / FAMILIES], "chunks") ? cached[run % FAMILIES] : 0);
}

/* Nothing of the forward but the inputs is read, and the last product is made for the next layer
 * only. */
TEST(test_full)
{
    for (int run = 0; run < RUNS; run++) {
        ech_model *model = make(run, "full");
        const ech_block *layer = model->block.at[LAYER];
        /* The shard of the input, where tensor ranks have it alike: made by F's last call, gathered
         * by R's first. */
        bool sharded = layer->options.sharding.tensor > 1 && !layer->options.sharding.sequence;
        assert_int_equal(layer->sharded, sharded);
        assert_int_equal(walk(layer, false), sharded);
        assert_int_equal(walk(layer, true), sharded);
        check_once(layer);
        if (sharded) {
            const ech_program *forward = &layer->program[ECH_FORWARD];
            const ech_program *again = &layer->program[ECH_RECOMPUTE];
            assert_ptr_equal(layer->node.at[forward->at[forward->n - 1].node].layer,
                             &ech_layer_row_keep_shard);
            assert_ptr_equal(layer->node.at[again->at[0].node].layer, &ech_layer_row_gather_kept);
        }
        check_use(layer);
        int all = (int)layer->program[ECH_RECOMPUTE].n;
        int products = count_again(layer, run);
        assert_int_equal(count(layer, layer->needed, &ech_layer_row_linear), products - 1);
        assert_int_equal(count(layer, all, &ech_layer_row_linear), products);
        assert_int_equal(layer->rinput.n, layer->input.n);
        assert_int_equal(layer->routput.n, layer->output.n);
        for (int other = EMBEDDING; other <= HEAD; other += HEAD) {
            assert_int_equal(model->block.at[other]->program[ECH_RECOMPUTE].n, 0);
            walk(model->block.at[other], false);
        }
        ech_model_destroy(model);
    }
}

/* Only attention is made again. */
TEST(test_selective)
{
    for (int run = 0; run < RUNS; run++) {
        ech_model *plain = make(run, "none"), *model = make(run, "selective");
        const ech_block *layer = model->block.at[LAYER];
        assert_int_equal(plain->block.at[LAYER]->program[ECH_RECOMPUTE].n, 0);
        int read = walk(layer, false);
        assert_true(read > 0 && read < walk(plain->block.at[LAYER], false));
        check_use(layer);
        int all = (int)layer->program[ECH_RECOMPUTE].n;
        assert_int_equal(all, layer->needed);
        for (int i = 0; i < ech_layers_count; i++)
            if (ech_layers[i]->cheap || ech_layers[i] == &ech_layer_row_linear)
                assert_int_equal(count(layer, all, ech_layers[i]), 0);
        assert_int_equal(count(layer, all, &ech_layer_row_attention) +
                             count(layer, all, &ech_layer_row_attend),
                         count_forward(layer, &ech_layer_row_attention) +
                             count_forward(layer, &ech_layer_row_attend));
        ech_model_destroy(plain);
        ech_model_destroy(model);
    }
}

/* Nothing of the forward but the outputs is read; inputs are made by two differences, of which the
 * block before needs the second, and for that the product of attention's output. */
TEST(test_inverted)
{
    for (int run = 0; run < RUNS; run++) {
        ech_model *model = make(run, "none model.reversible=true");
        const ech_block *layer = model->block.at[LAYER];
        assert_true(layer->input.n == 2 && layer->output.n == 2);
        assert_int_equal(walk(layer, false), 0);
        assert_int_equal(walk(layer, true), 0);
        check_once(layer);
        check_use(layer);
        int all = (int)layer->program[ECH_RECOMPUTE].n;
        int products = count_again(layer, run);
        assert_int_equal(count(layer, layer->needed, &ech_layer_row_linear), products - 1);
        assert_int_equal(count(layer, all, &ech_layer_row_linear), products);
        assert_int_equal(count(layer, layer->needed, &ech_layer_row_difference), 1);
        assert_int_equal(count(layer, all, &ech_layer_row_difference), 2);
        assert_int_equal(count(layer, all, &ech_layer_row_residual), 0);
        for (int other = EMBEDDING; other <= HEAD; other += HEAD) {
            assert_int_equal(model->block.at[other]->program[ECH_RECOMPUTE].n, 0);
            walk(model->block.at[other], false);
        }
        ech_model_destroy(model);
    }
}
