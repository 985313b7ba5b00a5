/* SPDX-License-Identifier: Apache-2.0
 *
 * What is kept of a parameter where replicas are apart: where they met last, and the momentum of the outer optimizer. Douillard et al.
 * 2023, arXiv:2311.08105.
 */
#include "config/strategy.h"
#include "optim/optim.h"

static void add(ech_optimizer_needs *needs, const char *name, const ech_param *param,
                ech_state_role role)
{
    ech_optimizer_add_state(needs, name, param, 0);
    needs->state[needs->states - 1].role = role;
}

void ech_outer_declare(const ech_config *config, const ech_param *param, ech_optimizer_needs *needs)
{
    if (!ech_strategy_is_apart(config)) return;
    add(needs, "anchor", param, ECH_STATE_ANCHOR);
    if (config->parallel.outer_momentum > 0)
        add(needs, "outer_momentum", param, ECH_STATE_OUTER_MOMENTUM);
}
