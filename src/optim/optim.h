/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of the parameters they are handed, learning-rate curves, and clipping.
 *
 * An optimizer is a file and a row of optimizers.def: it names the state it keeps per element and
 * updates a piece of a parameter from a piece of its gradient and states. It knows nothing of ranks:
 * whoever cuts tensors hands it pieces.
 */
#ifndef ECH_OPTIM_OPTIM_H
#define ECH_OPTIM_OPTIM_H

#include <stdint.h>

#include "config/config.h"
#include "kernel/kernel.h"

enum { ECH_MAX_STATES = 4 };

typedef struct ech_optimizer {
    const char *name;
    const char *reads; /* keys of the run file that not every rule reads */
    /* Names of the states under this configuration ("exp_avg"), which also name them in
     * checkpoints; each has the parameter's shape and starts at zero. Returns how many. */
    int (*states)(const ech_config *config, const char **names);
    /* Fills what the configuration fixes. */
    void (*configure)(const ech_config *config, ech_update *update);
    void (*update)(const ech_kernels *kernels, ech_kernel_context *context, const ech_tensor *param,
                   const ech_tensor *grad, const ech_tensor *states, const ech_update *update);
} ech_optimizer;

const ech_optimizer *ech_optimizer_find(const char *name); /* NULL: none of that name */
const ech_optimizer *ech_optimizer_of(const ech_config *config);
const char *ech_optimizer_names(void); /* blank-separated */

typedef struct ech_curve {
    const char *name;
    const char *reads; /* as an optimizer's */
    /* The rate at position t in [0, 1] of the way from the warmup's end to the end of the run; `steps`
     * is the length of that way in steps. */
    double (*rate)(const ech_config *config, double t, double steps);
} ech_curve;

const ech_curve *ech_curve_find(const char *name);
const ech_curve *ech_curve_of(const ech_config *config);
const char *ech_curve_names(void);

/* Refuses keys that are set but read by other rows only than the configuration's own. */
ech_status ech_optimizer_check_keys(const ech_config *config);
ech_status ech_curve_check_keys(const ech_config *config);

/* The learning rate of update number `count` (from 1): count / warmup_steps of the highest rate
 * during the warmup, then the curve at the updates done before, as in PyTorch and transformers: the
 * first update behind the warmup has the highest rate, and the last one, training.steps, is one
 * step short of the curve's end, so that it moves parameters even where that end is 0. */
double ech_learning_rate(const ech_config *config, const ech_curve *curve, int64_t count);

/* What a gradient of this norm is multiplied by so that its norm is at most `limit` (0: no limit):
 * min(1, limit / (norm + 1e-6)). Pascanu et al. 2013; the 1e-6 as in PyTorch and Megatron-LM. */
double ech_clip_factor(double norm, double limit);

#endif
