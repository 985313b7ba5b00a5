/* SPDX-License-Identifier: Apache-2.0
 *
 * What must fit before a run: shards of states, and the states of the run that is resumed.
 */
#include <string.h>

#include "optim/optim.h"

/* ---- shards ---- */

ech_status ech_optimizer_check_shards(const ech_config *config, const ech_param *param,
                                      ech_sharding sharding)
{
    ech_optimizer_needs needs = ech_optimizer_needs_of(config, param);
    int last = param->shape.dims - 1;
    int shards = ech_axis_shards(param->shape.axis[last], sharding);
    for (int s = 0; s < needs.states && shards > 1; s++) {
        int64_t block = needs.state[s].block;
        int64_t local = ech_axis_local(param->shape.axis[last], param->shape.size[last], sharding);
        if (block < 2 || (needs.state[s].shape.axis[last] != ECH_AXIS_NONE && local % block == 0 &&
                          ech_axis_local(param->shape.axis[last], local / block,
                                         (ech_sharding){0}) == local / block))
            continue;
        return ech_config_complain(
            config, "parallel.tensor",
            "splits blocks of %lld numbers, which have one scale: along its last axis %s has %lld "
            "numbers, and a tensor rank would have %lld; use fewer tensor ranks, or another "
            "optimizer.block, such as 1 or one that divides them",
            (long long)block, param->name, (long long)param->shape.size[last], (long long)local);
    }
    return ECH_OK;
}

/* ---- resume ---- */

static bool is_same_shape(const ech_shape *a, const ech_shape *b)
{
    bool same = a->dims == b->dims;
    for (int d = 0; same && d < a->dims; d++) same = a->size[d] == b->size[d];
    return same;
}

/* A master is not compared: the weights stand for a missing one. */
ech_status ech_optimizer_check_resume(const ech_config *saved, const ech_config *now,
                                      const ech_param *param)
{
    ech_optimizer_needs before = ech_optimizer_needs_of(saved, param);
    ech_optimizer_needs after = ech_optimizer_needs_of(now, param);
    int n = before.states - (before.master >= 0), m = after.states - (after.master >= 0);
    bool same = n == m;
    for (int s = 0; same && s < n; s++)
        same = strcmp(before.state[s].name, after.state[s].name) == 0 &&
               is_same_shape(&before.state[s].shape, &after.state[s].shape);
    if (same) return ECH_OK;
    bool momentum = (saved->optimizer.momentum > 0) != (now->optimizer.momentum > 0);
    return ech_config_complain(now, momentum ? "optimizer.momentum" : "optimizer.block",
                               "changes which optimizer states there are, and the checkpoint has "
                               "those of %g; use that, or "
                               "start a run in another directory with model.init_from",
                               momentum ? saved->optimizer.momentum
                                        : (double)saved->optimizer.block);
}
