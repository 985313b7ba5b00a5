/* SPDX-License-Identifier: Apache-2.0
 *
 * What would make a run fit into memory: settings that are planned before they are offered. Private
 * to app/setup.
 */
#ifndef ECH_APP_SETUP_REMEDIES_H
#define ECH_APP_SETUP_REMEDIES_H

#include "app/setup/setup.h"

/* Appends settings with which the run fits, each with a comma after it, for example
 * "parallel.zero=3, memory.recompute=full, ". If no single one suffices, several of them together;
 * nothing if none was found, or if the plan, which was refused, needs far too much or is too
 * long to make others like it.
 * Plans are made and discarded; nothing is logged. */
void ech_remedies_print(const ech_design *design, const ech_plan *plan, ech_text *out);

#endif
