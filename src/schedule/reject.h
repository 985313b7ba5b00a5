/* SPDX-License-Identifier: Apache-2.0
 *
 * Errors of a set of lists that do not fit each other.
 */
#ifndef ECH_SCHEDULE_REJECT_H
#define ECH_SCHEDULE_REJECT_H

#include "schedule/plan.h"

/* Logs that a step of `rank` is wrong, and why (`format`, at most 4 KiB), and prints the rows
 * (ech_list_print_row) of up to 8 ranks around it with that step marked. Returns ECH_EUSAGE for
 * orders written by hand, else ECH_EINTERNAL. step -1: the end of the list. standing[n] (optional):
 * the step at which each other rank waits, also marked; -1: none. */
ech_status ech_plans_reject(const ech_plan *const *plans, int n, ech_list_kind list, int rank,
                            int step, const int *standing, const char *format, ...)
    __attribute__((format(printf, 7, 8)));

#endif
