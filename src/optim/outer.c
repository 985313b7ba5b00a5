/* SPDX-License-Identifier: Apache-2.0
 *
 * The states of a parameter if replicas diverge: the optimizer states of each replica, the weights
 * at the last synchronization, and the momentum of the outer optimizer. Douillard et al. 2023,
 * arXiv:2311.08105. If replicas continue from weights of their own (Zhang et al. 2015), a
 * checkpoint has these as the anchors, and the common weights as the weights.
 */
#include "config/strategy.h"
#include "optim/optim.h"

static void add(ech_optimizer_needs *needs, const char *name, const ech_param *param,
                ech_state_role role)
{
    ech_optimizer_add_state(needs, name, param, 0);
    needs->state[needs->states - 1].role = role;
}

/* Each replica has its own. */
static void add_replicas(ech_state *state, int64_t replicas)
{
    ech_shape of = state->shape;
    ECH_ASSERT(of.dims < ECH_MAX_DIMS);
    state->shape = (ech_shape){.dims = 1, .axis = {ECH_AXIS_REPLICAS}, .size = {replicas}};
    for (int d = 0; d < of.dims; d++) {
        state->shape.axis[d + 1] = of.axis[d];
        state->shape.size[state->shape.dims++] = of.size[d];
    }
}

void ech_outer_declare(const ech_config *config, const ech_param *param, ech_optimizer_needs *needs)
{
    if (!ech_strategy_meets(config)) return;
    for (int s = 0; s < needs->states; s++)
        add_replicas(&needs->state[s], ech_optimizer_replicas(config));
    add(needs, "anchor", param, ECH_STATE_ANCHOR);
    if (ech_strategy_meets(config) == ECH_MEETING_OWN)
        add_replicas(&needs->state[needs->states - 1], ech_optimizer_replicas(config));
    if (config->parallel.outer_momentum > 0)
        add(needs, "outer_momentum", param, ECH_STATE_OUTER_MOMENTUM);
}
