/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to optim: declares the rows of optimizers.def and curves.def.
 */
#ifndef ECH_OPTIM_ROWS_H
#define ECH_OPTIM_ROWS_H

#include "optim/optim.h"

#define X(name, help) extern const ech_optimizer ech_optimizer_row_##name;
#include "optim/optimizers.def"
#undef X

#define X(name, help) extern const ech_curve ech_curve_row_##name;
#include "optim/curves.def"
#undef X

#endif
