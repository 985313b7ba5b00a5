/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizers and learning-rate curves of plugins, as rows of the program's tables.
 */
#ifndef ECH_OPTIM_PLUGGED_H
#define ECH_OPTIM_PLUGGED_H

#include "optim/optim.h"

/* Errors: a function is missing, or a word of `reads` is not a key. */
ech_status ech_plugged_check_optimizer(const char *plugin, const echelon_optimizer *row);
ech_status ech_plugged_check_curve(const char *plugin, const echelon_curve *row);
/* A row that calls the plugin's, which stays until the process ends. */
const ech_optimizer *ech_plugged_optimizer(const echelon_optimizer *row);
const ech_curve *ech_plugged_curve(const echelon_curve *row);

#endif
