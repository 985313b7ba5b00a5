/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares a block on a grid of ranks with the same block on one rank: outputs, gradients of inputs
 * and of parameters, and the loss, all in fp64. Include it after cmocka.
 */
#ifndef ECH_TESTS_LAYER_CUT_COMPARE_H
#define ECH_TESTS_LAYER_CUT_COMPARE_H

#include "layer/cut_run.h"
#include "unit.h"

static inline void cut_assert_near(const cut_side *s, int rank, const char *what, int64_t i,
                                   double value, double wanted)
{
    if (fabs(value - wanted) <= 1e-11 * (1 + fabs(wanted))) return;
    fail_msg("%s on rank %d of context %d x tensor %d%s: %s[%lld] is %.15g, uncut %.15g",
             s->block->name, rank, s->context, s->tensor,
             s->block->options.sharding.sequence ? " with shared rows" : "", what, (long long)i,
             value, wanted);
}

/* A value of the whole block against each rank's shard of this sequence chunk of it. */
static inline void cut_compare_value(const cut_side *whole, int a, const cut_side *s, int b)
{
    const ech_shape *shape = &s->block->value.at[b].shape;
    const char *name = s->block->value.at[b].name;
    const double *wanted = *cut_value(whole, 0, ech_block_base(whole->block, a));
    for (int rank = 0; rank < s->ranks; rank++) {
        int64_t n, *place = cut_places(s, rank, shape, &n);
        const double *x = *cut_value(s, rank, ech_block_base(s->block, b));
        for (int64_t i = 0; i < n; i++)
            cut_assert_near(s, rank, name, place[i], x[i], wanted[place[i]]);
        free(place);
    }
}

/* Whether two ranks add up a gradient: their coordinates agree along all axes but `addends`. */
static inline bool cut_add_up(const cut_side *s, int x, int y, ech_mesh addends)
{
    int copies = s->tensor / cut_at_least_one(s->extent.sharding.key_value);
    int a = x % s->tensor, b = y % s->tensor;
    int e = cut_at_least_one(s->extent.sharding.expert), c = x / s->tensor, d = y / s->tensor;
    return (addends & ECH_MESH_CONTEXT_OUTER || c / e == d / e) &&
           (addends & ECH_MESH_CONTEXT_INNER || c % e == d % e) &&
           (addends & ECH_MESH_KEY_VALUE || a / copies == b / copies) &&
           (addends & ECH_MESH_QUERY || a % copies == b % copies);
}

/* Every rank's slice of the gradient is the sum of what the ranks make that add it up. Padding
 * stays 0. */
static inline void cut_compare_param(const cut_side *whole, const cut_side *s, int p)
{
    const ech_param *param = &s->param[p];
    assert_true(param->addends & ECH_MESH_DATA_OUTER);
    for (int rank = 0; rank < s->ranks; rank++) {
        int64_t n, *place = cut_places(s, rank, &param->shape, &n);
        assert_true(s->rank[rank].written[p]);
        for (int64_t i = 0; i < n; i++) {
            double sum = 0;
            for (int other = 0; other < s->ranks; other++)
                if (cut_add_up(s, rank, other, param->addends)) sum += s->rank[other].dparam[p][i];
            double wanted = place[i] < 0 ? 0 : whole->rank[0].dparam[p][place[i]];
            cut_assert_near(s, rank, param->name, place[i], sum, wanted);
        }
        free(place);
    }
}

/* Tensor ranks know the loss of all their rows, context ranks that of different tokens. */
static inline void cut_compare_sums(const cut_side *whole, const cut_side *s)
{
    for (int k = 0; k < ECH_LOSS_SUMS; k++) {
        double sum = 0;
        for (int rank = 0; rank < s->ranks; rank++) {
            int first = rank / s->tensor * s->tensor;
            cut_assert_near(s, rank, "loss", k, s->rank[rank].sums[k], s->rank[first].sums[k]);
            if (rank == first) sum += s->rank[rank].sums[k];
        }
        cut_assert_near(s, 0, "loss", k, sum, whole->rank[0].sums[k]);
    }
}

/* What is recomputed for the backward is not read as the forward left it. */
static inline void cut_spoil_recomputed(cut_side *s)
{
    for (int v = 0; v < (int)s->block->value.n; v++) {
        if (s->block->value.at[v].recomputed < 0) continue;
        for (int rank = 0; rank < s->ranks; rank++)
            for (int64_t i = 0; i < ech_shape_count(&s->block->value.at[v].shape, s->extent); i++)
                (*cut_value(s, rank, v))[i] = NAN;
    }
}

static inline void cut_train(cut_side *s)
{
    cut_run(s, ECH_FORWARD);
    for (s->chunk = 0; s->chunk < s->chunks; s->chunk++) cut_spoil_recomputed(s);
    cut_run(s, ECH_BACKWARD_INPUT);
    cut_run(s, ECH_BACKWARD_WEIGHT);
}

static inline void cut_compare_training(const cut_side *whole, cut_side *s)
{
    const ech_block *a = whole->block, *b = s->block;
    assert_int_equal(a->output.n, b->output.n);
    assert_int_equal(a->input.n, b->input.n);
    for (s->chunk = 0; s->chunk < s->chunks; s->chunk++) {
        for (size_t i = 0; i < b->output.n; i++)
            cut_compare_value(whole, a->output.at[i], s, b->output.at[i]);
        for (size_t i = 0; i < b->input.n; i++) {
            assert_int_equal(a->dinput.at[i] < 0, b->dinput.at[i] < 0);
            if (b->dinput.at[i] >= 0) cut_compare_value(whole, a->dinput.at[i], s, b->dinput.at[i]);
        }
    }
    for (int p = 0; p < s->params; p++)
        if (s->used[p]) cut_compare_param(whole, s, p);
    cut_compare_sums(whole, s);
}

/* The block that `ways` cut against the whole one: training, then the loss alone. batch samples of
 * T tokens; ids: the vocabulary. Returns how many collectives of each phase there were. */
static inline void cut_compare(const ech_block *whole_block, const ech_param *whole_param,
                               const ech_block *block, const ech_param *param, int params,
                               int64_t batch, int64_t T, int64_t ids, int collectives[ECH_PHASES])
{
    cut_side whole = cut_open(whole_block, whole_param, params, batch, T, ids);
    cut_side s = cut_open(block, param, params, batch, T, ids);
    cut_train(&whole);
    cut_train(&s);
    for (int phase = 0; phase < ECH_PHASES; phase++) {
        assert_int_equal(whole.collectives[phase], 0);
        collectives[phase] = s.collectives[phase];
    }
    cut_compare_training(&whole, &s);
    for (int i = 0; i < 2; i++) {
        cut_side *side = i ? &s : &whole;
        for (int rank = 0; rank < side->ranks; rank++)
            memset(side->rank[rank].sums, 0, sizeof side->rank[rank].sums);
        side->purpose = ECH_EVALUATE;
        cut_run(side, ECH_FORWARD);
    }
    cut_compare_sums(&whole, &s);
    cut_close(&whole);
    cut_close(&s);
}

#endif
