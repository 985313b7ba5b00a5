/* SPDX-License-Identifier: Apache-2.0
 *
 * Stochastic gradient descent with momentum. Sutskever et al. 2013, in PyTorch's form.
 */
#include "optim/optim.h"

static int states(const ech_config *config, const char **names)
{
    names[0] = "momentum_buffer";
    return config->optimizer.momentum > 0;
}

static void configure(const ech_config *config, ech_update *update)
{
    update->momentum = config->optimizer.momentum;
    update->nesterov = config->optimizer.nesterov == 1;
}

static void apply(const ech_kernels *kernels, ech_kernel_context *context, const ech_tensor *param,
                  const ech_tensor *grad, const ech_tensor *states_, const ech_update *update)
{
    kernels->sgd(context, param, grad, update->momentum > 0 ? &states_[0] : NULL, update);
}

const ech_optimizer ech_optimizer_row_sgd = {.name = "sgd",
                                             .reads = "optimizer.momentum optimizer.nesterov",
                                             .states = states,
                                             .configure = configure,
                                             .update = apply};
