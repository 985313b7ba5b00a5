/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW. Kingma and Ba 2015; Loshchilov and Hutter 2019, arXiv:1711.05101.
 */
#include "optim/optim.h"

static void declare(const ech_config *config, const ech_param *param, ech_optimizer_needs *needs)
{
    (void)config;
    ech_optimizer_add_state(needs, "exp_avg", param, 0);
    ech_optimizer_add_state(needs, "exp_avg_sq", param, 0);
}

static void configure(const ech_config *config, ech_update *update)
{
    update->beta1 = config->optimizer.beta1;
    update->beta2 = config->optimizer.beta2;
    update->eps = config->optimizer.eps;
}

static void apply(const ech_optimizer_work *w)
{
    w->kernels->adamw(w->context, w->param, w->gradient, &w->state[0], &w->state[1], w->update,
                      w->rounded);
}

const ech_optimizer ech_optimizer_row_adamw = {.name = "adamw",
                                               .reads =
                                                   "optimizer.beta1 optimizer.beta2 optimizer.eps",
                                               .declare = declare,
                                               .configure = configure,
                                               .update = apply};
