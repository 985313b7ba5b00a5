/* SPDX-License-Identifier: Apache-2.0
 *
 * A block on a grid of ranks against the same block on one: outputs, gradients of inputs and of
 * parameters, and the loss, all in fp64. Include it behind cmocka.
 */
#ifndef ECH_TESTS_LAYER_CUT_COMPARE_H
#define ECH_TESTS_LAYER_CUT_COMPARE_H

#include "layer/cut_run.h"

static inline void cut_assert_near(const cut_side *s, int rank, const char *what, int64_t i,
                                   double value, double wanted)
{
    if (fabs(value - wanted) <= 1e-11 * (1 + fabs(wanted))) return;
    fail_msg("%s on rank %d of context %d x tensor %d%s: %s[%lld] is %.15g, uncut %.15g",
             s->block->name, rank, s->context, s->tensor,
             s->block->ways.cut.sequence ? " with shared rows" : "", what, (long long)i, value,
             wanted);
}

/* A value of the whole block against each rank's share of this piece of it. */
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

static inline bool cut_has_axis(const ech_shape *shape, ech_axis axis)
{
    for (int d = 0; d < shape->dims; d++)
        if (shape->axis[d] == axis) return true;
    return false;
}

/* Whether tensor ranks that hold the same of a parameter have shares of its gradient: they see some of the
 * rows, or know what some of the queries make of a key/value head. Else all have all of it. */
static inline bool cut_shares_gradient(const cut_side *s, const ech_param *p)
{
    bool key_value = cut_has_axis(&p->shape, ECH_AXIS_KV_HEADS);
    return p->partial || (key_value && cut_at_least_one(s->extent.cut.key_value) < s->tensor);
}

/* Adds what the rank knows of the gradient to `sum`, of the uncut parameter. Padding stays 0. */
static inline void cut_add_gradient(const cut_side *s, int rank, int p, double *sum)
{
    int64_t n, *place = cut_places(s, rank, &s->param[p].shape, &n);
    const double *x = s->rank[rank].dparam[p];
    assert_true(s->rank[rank].written[p]);
    for (int64_t i = 0; i < n; i++) {
        if (place[i] >= 0)
            sum[place[i]] += x[i];
        else if (x[i] < 0 || x[i] > 0 || isnan(x[i]))
            fail_msg("%s: padding has gradient %g on rank %d", s->param[p].name, x[i], rank);
    }
    free(place);
}

static inline void cut_compare_param(const cut_side *whole, const cut_side *s, int p)
{
    const ech_param *param = &s->param[p];
    int64_t n = ech_shape_whole(&param->shape);
    int shares;
    bool cut = ech_shape_is_cut(&param->shape, s->extent.cut, &shares);
    bool alike = !cut && !cut_shares_gradient(s, param);
    double *sum = ech_calloc((size_t)n, sizeof *sum);
    for (int rank = 0; rank < s->ranks; rank++) {
        if (!alike || rank % s->tensor == 0) {
            cut_add_gradient(s, rank, p, sum);
            continue;
        }
        const double *x = s->rank[rank].dparam[p], *first = s->rank[rank - 1].dparam[p];
        for (int64_t i = 0; i < n; i++) cut_assert_near(s, rank, param->name, i, x[i], first[i]);
    }
    for (int64_t i = 0; i < n; i++)
        cut_assert_near(s, 0, param->name, i, sum[i], whole->rank[0].dparam[p][i]);
    free(sum);
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

/* What is made again for the backward is not read as the forward left it. */
static inline void cut_spoil_again(cut_side *s)
{
    for (int v = 0; v < (int)s->block->value.n; v++) {
        if (s->block->value.at[v].again < 0) continue;
        for (int rank = 0; rank < s->ranks; rank++)
            for (int64_t i = 0; i < ech_shape_count(&s->block->value.at[v].shape, s->extent); i++)
                (*cut_value(s, rank, v))[i] = NAN;
    }
}

static inline void cut_train(cut_side *s)
{
    cut_run(s, ECH_FORWARD);
    for (s->piece = 0; s->piece < s->pieces; s->piece++) cut_spoil_again(s);
    cut_run(s, ECH_BACKWARD_INPUT);
    cut_run(s, ECH_BACKWARD_WEIGHT);
}

static inline void cut_compare_training(const cut_side *whole, cut_side *s)
{
    const ech_block *a = whole->block, *b = s->block;
    assert_int_equal(a->output.n, b->output.n);
    assert_int_equal(a->input.n, b->input.n);
    for (s->piece = 0; s->piece < s->pieces; s->piece++) {
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

/* The block that `ways` cut against the whole one: training, then the loss alone. batch samples of T tokens;
 * ids: the vocabulary. Returns how many collectives of each phase there were. */
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
