/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks all ranks' lists against each other before a run. Nothing is collective: one rank checks
 * the lists of all.
 */
#ifndef ECH_APP_SETUP_CHECK_RANKS_H
#define ECH_APP_SETUP_CHECK_RANKS_H

#include "app/setup/setup.h"

/* At the start of a run, the most steps of all lists that are checked: half a second, 150 MB. */
enum { ECH_CHECKED_STEPS = 1 << 20 };

/* Makes all lists of the first rank of each class (ech_classes) and checks each kind of list
 * (ech_design_check_plans). With a log of serves, the train lists are checked for each span. A
 * single rank's list is not checked alone; its own rank does that (ech_design_plan). If the lists
 * have more than most_steps steps, they are not checked, and the log says so. */
ech_status ech_design_check_ranks(const ech_design *design, int64_t most_steps);

#endif
