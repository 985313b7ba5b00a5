/* SPDX-License-Identifier: Apache-2.0
 *
 * The programs that are derived for models' blocks where they are cut: which collectives there are,
 * and where they stand among the calls.
 */

#include "model/cut_model.h"
#include "unit.h"

enum { EMBEDDING, LAYER, HEAD };

static const char *const families[] = {"gpt2", "llama", "qwen3"};
enum { FAMILIES = sizeof families / sizeof *families };

/* ---- how many ---- */

typedef struct counts {
    int at[ECH_PHASES][ECH_COLLECTIVES];
} counts;

static counts count(const ech_block *block)
{
    counts n = {0};
    for (int phase = 0; phase < ECH_PHASES; phase++)
        for (size_t i = 0; i < block->program[phase].n; i++) {
            const ech_exchange *does =
                ech_call_exchange(block, &block->program[phase].at[i], (ech_phase)phase, ECH_TRAIN);
            if (does) n.at[phase][does->kind]++;
        }
    return n;
}

static void assert_counts(const ech_block *block, counts wanted)
{
    counts n = count(block);
    for (int phase = 0; phase < ECH_PHASES; phase++)
        for (int kind = 0; kind < ECH_COLLECTIVES; kind++)
            if (n.at[phase][kind] != wanted.at[phase][kind])
                fail_msg("%s: %d %s in phase %d, wanted %d", block->name, n.at[phase][kind],
                         ech_collective_name((ech_collective)kind), phase, wanted.at[phase][kind]);
}

#define F         ECH_FORWARD
#define B         ECH_BACKWARD_INPUT
#define W         ECH_BACKWARD_WEIGHT
#define SUMS      ECH_COLLECTIVE_ALL_REDUCE
#define GATHERS   ECH_COLLECTIVE_ALL_GATHER
#define SCATTERS  ECH_COLLECTIVE_REDUCE_SCATTER
#define SHIFTS    ECH_COLLECTIVE_SHIFT
#define EXCHANGES ECH_COLLECTIVE_ALL_TO_ALL

/* Megatron's: two of each layer and direction, where nothing else is cut. */
TEST(test_tensor)
{
    for (int i = 0; i < FAMILIES; i++) {
        ech_model *model = cut_model(families[i], "parallel.tensor=2");
        assert_counts(model->block.at[EMBEDDING], (counts){.at = {[F][SUMS] = 1}});
        assert_counts(model->block.at[LAYER], (counts){.at = {[F][SUMS] = 2, [B][SUMS] = 2}});
        assert_counts(model->block.at[HEAD], (counts){.at = {[B][GATHERS] = 1, [B][SUMS] = 1}});
        ech_model_destroy(model);
    }
}

/* Each sum becomes a gather and a scatter; what was gathered is gathered again for W, or kept. The
 * head reads it in B, and keeps it; there it gathers what the loss must know of each row, too. */
TEST(test_sequence)
{
    for (int i = 0; i < 2 * FAMILIES; i++) {
        bool keep = i & 1;
        ech_model *model =
            cut_model(families[i / 2], keep ? "parallel.tensor=4 parallel.sequence=keep"
                                            : "parallel.tensor=4 parallel.sequence=true");
        assert_counts(model->block.at[EMBEDDING],
                      (counts){.at = {[F][SCATTERS] = 1, [B][GATHERS] = 1}});
        assert_counts(model->block.at[LAYER], (counts){.at = {[F][GATHERS] = 2,
                                                              [F][SCATTERS] = 2,
                                                              [B][GATHERS] = 2,
                                                              [B][SCATTERS] = 2,
                                                              [W][GATHERS] = keep ? 0 : 2}});
        assert_counts(model->block.at[HEAD],
                      (counts){.at = {[F][GATHERS] = 1, [B][GATHERS] = 1, [B][SCATTERS] = 1}});
        ech_model_destroy(model);
    }
}

/* Keys and values go c - 1 places around, and for the backward as many back; their gradients come
 * home. */
TEST(test_context)
{
    for (int i = 0; i < FAMILIES; i++)
        for (int c = 2; c <= 4; c++) {
            ech_text ring = {0};
            ech_text_append(&ring, "parallel.context=%d", c);
            ech_model *model = cut_model(families[i], ring.at);
            assert_counts(model->block.at[EMBEDDING], (counts){0});
            assert_counts(model->block.at[LAYER],
                          (counts){.at = {[F][SHIFTS] = c - 1, [B][SHIFTS] = 2 * (c - 1)}});
            assert_counts(model->block.at[HEAD], (counts){0});
            ech_model_destroy(model);
            ech_text_append(&ring, " parallel.tensor=2");
            model = cut_model(families[i], ring.at);
            assert_counts(model->block.at[LAYER], (counts){.at = {[F][SUMS] = 2,
                                                                  [B][SUMS] = 2,
                                                                  [F][SHIFTS] = c - 1,
                                                                  [B][SHIFTS] = 2 * (c - 1)}});
            ech_model_destroy(model);
            ech_text_free(&ring);
        }
    for (int i = 0; i < FAMILIES; i++) {
        ech_model *model =
            cut_model(families[i], "parallel.context=2 parallel.context_method=ulysses");
        assert_counts(model->block.at[LAYER],
                      (counts){.at = {[F][EXCHANGES] = 4, [B][EXCHANGES] = 4}});
        ech_model_destroy(model);
    }
}

/* ---- where ---- */

static const char *const grids[] = {
    "parallel.tensor=2",
    "parallel.tensor=4 parallel.sequence=true",
    "parallel.tensor=2 parallel.sequence=keep",
    "parallel.context=2",
    "parallel.context=4",
    "parallel.context=3 parallel.tensor=2",
    "parallel.context=2 parallel.tensor=4 parallel.sequence=true",
    "parallel.context=2 parallel.tensor=2 parallel.context_method=ulysses",
    "memory.sequence_chunks=2 parallel.tensor=2",
};
enum { GRIDS = sizeof grids / sizeof *grids };

typedef struct asked {
    bool reads, writes;
} asked;

/* What a call does to a value. */
static asked ask(const ech_block *block, ech_phase phase, size_t call, int value)
{
    asked a = {false, false};
    const ech_block_call *of = &block->program[phase].at[call];
    for (const ech_operand *o = NULL; (o = ech_call_next(block, of, ECH_TRAIN, o));) {
        if (!ech_operand_is_value(o) || o->value != ech_block_base(block, value)) continue;
        a.reads |= o->mode == ECH_READ;
        a.writes |= o->mode != ECH_READ;
    }
    return a;
}

/* No share is added after the sum of shares, and the sum begins where the last share is made. */
static void check_sum(const ech_block *block, ech_phase phase, size_t at)
{
    const ech_block_call *call = &block->program[phase].at[at];
    bool forward = phase == ECH_FORWARD;
    int value = forward ? block->node.at[call->node].out[0] : call->din[0];
    int shares = 0;
    for (size_t i = 0; i < block->program[phase].n; i++) {
        asked a = ask(block, phase, i, value);
        if (i == at) continue;
        if (a.writes && i > at)
            fail_msg("%s: call %zu of phase %d writes what call %zu has summed", block->name, i,
                     phase, at);
        shares += a.writes;
        if (i < at) assert_false(a.reads && !a.writes); /* nobody has seen shares */
    }
    assert_true(shares > 0);
    if (!forward) assert_true(ask(block, phase, at - 1, value).writes);
}

TEST(test_sums)
{
    int sums = 0;
    for (int i = 0; i < FAMILIES * GRIDS; i++) {
        ech_model *model = cut_model(families[i % FAMILIES], grids[i / FAMILIES]);
        for (size_t b = 0; b < model->block.n; b++)
            for (int phase = 0; phase < ECH_PHASES; phase++)
                for (size_t c = 0; c < model->block.at[b]->program[phase].n; c++) {
                    const ech_block *block = model->block.at[b];
                    const ech_exchange *does = ech_call_exchange(
                        block, &block->program[phase].at[c], (ech_phase)phase, ECH_TRAIN);
                    if (!does || does->kind != SUMS) continue;
                    check_sum(block, (ech_phase)phase, c);
                    sums++;
                }
        ech_model_destroy(model);
    }
    assert_true(sums > 0);
}

/* What is recomputed is recomputed before what reads it, at most one layer ahead; what goes around
 * a ring just one, so that it arrives while that computes. */
static void check_recomputed(const ech_block *block, ech_phase phase, size_t at)
{
    const ech_node *node = &block->node.at[block->program[phase].at[at].node];
    int ahead = 0;
    if (node->layer->joined) return; /* the loss: chunk after chunk in the same memory */
    assert_true(node->recompute_only);
    for (size_t i = 0; i < block->program[phase].n; i++) {
        const ech_block_call *call = &block->program[phase].at[i];
        asked a = ask(block, phase, i, node->out[0]);
        assert_false(i < at && (a.reads || a.writes));
        if (i > at && a.reads) {
            assert_true(ahead <= 1);
            if (node->layer->exchange.kind == SHIFTS) assert_int_equal(ahead, 1);
            return;
        }
        if (i > at)
            ahead += call->node >= 0 && !call->recompute &&
                     !ech_call_exchange(block, call, phase, ECH_TRAIN);
    }
    fail_msg("%s: nobody reads %s", block->name, block->value.at[node->out[0]].name);
}

TEST(test_recomputed)
{
    int made = 0;
    for (int i = 0; i < FAMILIES * GRIDS; i++) {
        ech_model *model = cut_model(families[i % FAMILIES], grids[i / FAMILIES]);
        for (size_t b = 0; b < model->block.n; b++) {
            const ech_block *block = model->block.at[b];
            for (int phase = 0; phase < ECH_PHASES; phase++)
                for (size_t c = 0; c < block->program[phase].n; c++) {
                    if (!block->program[phase].at[c].recompute) continue;
                    assert_int_not_equal(phase, ECH_FORWARD);
                    check_recomputed(block, (ech_phase)phase, c);
                    made++;
                }
        }
        ech_model_destroy(model);
    }
    assert_true(made > 0);
}

/* ---- nothing is cut ---- */

static void assert_same_calls(const ech_block *a, const ech_block *b, int phase)
{
    assert_int_equal(a->program[phase].n, b->program[phase].n);
    for (size_t i = 0; i < a->program[phase].n; i++) {
        const ech_block_call *x = &a->program[phase].at[i], *y = &b->program[phase].at[i];
        assert_int_equal(x->node, y->node);
        assert_int_equal(x->recompute, y->recompute);
        assert_memory_equal(x->dout, y->dout, sizeof x->dout);
        assert_memory_equal(x->din, y->din, sizeof x->din);
        assert_memory_equal(x->add, y->add, sizeof x->add);
    }
}

/* Degrees of one are no degrees, whatever else is asked for. */
TEST(test_uncut)
{
    for (int i = 0; i < FAMILIES; i++) {
        ech_model *plain = cut_model(families[i], "");
        ech_model *one =
            cut_model(families[i], "parallel.tensor=1 parallel.context=1 parallel.sequence=true "
                                   "parallel.context_method=ulysses memory.sequence_chunks=1");
        for (size_t b = 0; b < plain->block.n; b++) {
            const ech_block *x = plain->block.at[b], *y = one->block.at[b];
            assert_int_equal(x->node.n, y->node.n);
            assert_int_equal(x->value.n, y->value.n);
            for (size_t n = 0; n < x->node.n; n++) {
                assert_ptr_equal(x->node.at[n].layer, y->node.at[n].layer);
                assert_int_equal(y->node.at[n].layer->exchange.kind, ECH_COLLECTIVE_NONE);
                assert_int_equal(y->node.at[n].layer->exchange_back.kind, ECH_COLLECTIVE_NONE);
                assert_false(y->node.at[n].sharded_rows || y->node.at[n].partial_gradient);
            }
            for (int phase = 0; phase < ECH_PHASES; phase++) assert_same_calls(x, y, phase);
            assert_counts(x, (counts){0});
        }
        for (size_t p = 0; p < one->param.n; p++)
            assert_int_equal(one->param.at[p].addends, plain->param.at[p].addends);
        ech_model_destroy(plain);
        ech_model_destroy(one);
    }
}
