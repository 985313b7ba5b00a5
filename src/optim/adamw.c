/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW. Kingma and Ba 2015; Loshchilov and Hutter 2019, arXiv:1711.05101.
 */
#include "optim/optim.h"

static int states(const ech_config *config, const char **names)
{
    (void)config;
    names[0] = "exp_avg";
    names[1] = "exp_avg_sq";
    return 2;
}

static void configure(const ech_config *config, ech_update *update)
{
    update->beta1 = config->optimizer.beta1;
    update->beta2 = config->optimizer.beta2;
    update->eps = config->optimizer.eps;
}

static void apply(const ech_kernels *kernels, ech_kernel_context *context, const ech_tensor *param,
                  const ech_tensor *grad, const ech_tensor *states_, const ech_update *update)
{
    kernels->adamw(context, param, grad, &states_[0], &states_[1], update);
}

const ech_optimizer ech_optimizer_row_adamw = {.name = "adamw",
                                               .reads =
                                                   "optimizer.beta1 optimizer.beta2 optimizer.eps",
                                               .states = states,
                                               .configure = configure,
                                               .update = apply};
