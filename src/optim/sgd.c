/* SPDX-License-Identifier: Apache-2.0
 *
 * Stochastic gradient descent with momentum. Sutskever et al. 2013, in PyTorch's form.
 */
#include "optim/optim.h"

static void declare(const ech_config *config, const ech_param *param, ech_optimizer_needs *needs)
{
    if (config->optimizer.momentum > 0) ech_optimizer_add_state(needs, "momentum_buffer", param, 0);
}

static void configure(const ech_config *config, ech_update *update)
{
    update->momentum = config->optimizer.momentum;
    update->nesterov = config->optimizer.nesterov == 1;
}

static void apply(const ech_optimizer_work *w)
{
    const ech_tensor *momentum = w->update->momentum > 0 ? &w->state[0] : NULL;
    w->kernels->sgd(w->context, w->param, w->gradient, momentum, w->update, w->rounded);
}

const ech_optimizer ech_optimizer_row_sgd = {.name = "sgd",
                                             .reads = "optimizer.momentum optimizer.nesterov",
                                             .declare = declare,
                                             .configure = configure,
                                             .update = apply};
