/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks before a run: shards of states, and the states of the resumed run.
 */
#include <string.h>

#include "config/strategy.h"
#include "optim/optim.h"

/* ---- shards ---- */

ech_status ech_optimizer_check_shards(const ech_config *config, const ech_param *param,
                                      ech_sharding sharding)
{
    ech_optimizer_needs needs = ech_optimizer_needs_of(config, param);
    ech_shape seen = ech_shape_seen(&param->shape);
    int last = seen.dims - 1;
    int shards = ech_axis_shards(seen.axis[last], sharding);
    for (int s = 0; s < needs.states && shards > 1; s++) {
        int64_t block = needs.state[s].block;
        int64_t local = ech_axis_local(seen.axis[last], seen.size[last], sharding);
        if (block < 2 ||
            (needs.state[s].shape.axis[last] != ECH_AXIS_NONE && local % block == 0 &&
             ech_axis_local(seen.axis[last], local / block, (ech_sharding){0}) == local / block))
            continue;
        return ech_config_complain(
            config, "parallel.tensor",
            "splits blocks of %lld numbers, which have one scale: along its last axis %s has %lld "
            "numbers, and a tensor rank would have %lld; use fewer tensor ranks, or another "
            "optimizer.block, such as 1 or one that divides them",
            (long long)block, param->name, (long long)seen.size[last], (long long)local);
    }
    return ECH_OK;
}

int64_t ech_optimizer_unit(const ech_optimizer_needs *needs, const ech_param *param,
                           const int64_t *size)
{
    int dims = ech_shape_seen(&param->shape).dims;
    int64_t block = 1, row = size[dims - 1];
    bool rows = false;
    for (int i = 0; i < needs->states; i++) {
        rows |= needs->state[i].lacks != 0;
        if (needs->state[i].block) block = needs->state[i].block;
    }
    /* a statistic of rows or columns is of whole rows */
    unsigned all = ((1u << dims) - 1) << (param->shape.dims - dims);
    for (int i = 0; i < needs->statistics; i++) {
        unsigned lacks = needs->statistic[i].is.lacks & all;
        rows |= lacks != 0 && lacks != all;
    }
    return dims > 1 && (rows || row % block) ? row : block;
}

/* Number of state numbers for the elements before element `end`, which ends a unit. */
static int64_t numbers_before(const ech_state *state, int last, int64_t row, int64_t end)
{
    if (state->lacks & 1u << last) return end / row;
    if (state->block == 0) return end;
    int64_t block = state->block;
    return end / row * ((row + block - 1) / block) + (end % row + block - 1) / block;
}

int64_t ech_state_part(const ech_state *state, const ech_param *param, const int64_t *size,
                       int64_t first, int64_t n, int64_t *from)
{
    int last = ech_shape_seen(&param->shape).dims - 1, of_one = ech_shape_is_stack(&param->shape);
    int64_t row = size[last], one = 1;
    if (ech_optimizer_first_is_in(param, state->lacks)) {
        for (int d = of_one; d <= last; d++) one *= size[d];
        int64_t numbers = state->lacks >> last & 1 ? 1 : row, end = (first + n + one - 1) / one;
        *from = first / one * numbers;
        return n ? end * numbers - *from : 0;
    }
    *from = numbers_before(state, last, row, first);
    return numbers_before(state, last, row, first + n) - *from;
}

/* ---- resume ---- */

/* Other numbers of ranks have other numbers of replicas. */
static bool is_same_shape(const ech_shape *a, const ech_shape *b)
{
    bool same = a->dims == b->dims;
    for (int d = 0; same && d < a->dims; d++)
        same = a->size[d] == b->size[d] ||
               (ech_shape_replicas(a) == d && ech_shape_replicas(b) == d);
    return same;
}

/* Anchors and outer momentum. */
static ech_status refuse_strategy(const ech_config *saved, const ech_config *now)
{
    bool same = saved->parallel.strategy == now->parallel.strategy;
    const char *key = same ? "parallel.outer_momentum" : "parallel.strategy";
    ECH_FREED_TEXT was = {0};
    ech_config_format(saved, key, &was);
    return ech_config_complain(now, key,
                               "changes which states a checkpoint has, and this one was saved with "
                               "%s; use that, or start a run in another directory with "
                               "model.init_from",
                               was.at);
}

/* Removes states that need not be in a checkpoint. The weights replace a missing master; residuals
 * and bases of compressed gradients begin anew. */
static void drop_replaceable(ech_optimizer_needs *needs)
{
    int n = 0;
    for (int s = 0; s < needs->states; s++) {
        ech_state_role role = needs->state[s].role;
        bool compresses = role == ECH_STATE_RESIDUAL || role == ECH_STATE_BASIS;
        if (s != needs->master && !compresses) needs->state[n++] = needs->state[s];
    }
    needs->states = n;
}

ech_status ech_optimizer_check_resume(const ech_config *saved, const ech_config *now,
                                      const ech_param *param)
{
    ech_optimizer_needs before = ech_optimizer_needs_of(saved, param);
    ech_optimizer_needs after = ech_optimizer_needs_of(now, param);
    drop_replaceable(&before);
    drop_replaceable(&after);
    bool same = before.states == after.states;
    for (int s = 0; same && s < before.states; s++)
        same = strcmp(before.state[s].name, after.state[s].name) == 0 &&
               is_same_shape(&before.state[s].shape, &after.state[s].shape);
    if (same) return ECH_OK;
    if (ech_strategy_meets(saved) != ech_strategy_meets(now) ||
        (saved->parallel.outer_momentum > 0) != (now->parallel.outer_momentum > 0))
        return refuse_strategy(saved, now);
    bool momentum = (saved->optimizer.momentum > 0) != (now->optimizer.momentum > 0);
    return ech_config_complain(now, momentum ? "optimizer.momentum" : "optimizer.block",
                               "changes which optimizer states exist; the checkpoint's are for %g; "
                               "use that, or start a run in another directory with "
                               "model.init_from",
                               momentum ? saved->optimizer.momentum
                                        : (double)saved->optimizer.block);
}

ech_status ech_optimizer_check_frozen(const ech_config *saved, const ech_config *now,
                                      const ech_param *params, size_t n)
{
    ECH_FREED ech_param *before = ech_calloc(n + 1, sizeof *before);
    for (size_t i = 0; i < n; i++) {
        before[i] = params[i];
        before[i].frozen = false;
    }
    ECH_TRY(ech_optimizer_freeze_params(saved, before, n));
    for (size_t i = 0; i < n; i++)
        if (before[i].frozen != params[i].frozen)
            return ech_config_complain(
                now, "optimizer.rates",
                "%s %s, and in the run that saved the checkpoint it %s, so "
                "its optimizer states do not fit; use that run's \"%s\", or "
                "start a run in another directory with model.init_from",
                params[i].name, params[i].frozen ? "is frozen" : "is trained",
                before[i].frozen ? "was frozen" : "was trained", saved->optimizer.rates);
    return ECH_OK;
}
