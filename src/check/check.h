/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks plans before they run, without the code that makes them.
 */
#ifndef ECH_CHECK_CHECK_H
#define ECH_CHECK_CHECK_H

#include "schedule/schedule.h"

/* ech_plan_create, then ech_check_plan. */
ech_status ech_checked_plan_create(const ech_plan_request *request, ech_plan **out);
/* Checks all lists of one rank's plan; of an outline the train list, its only one. */
ech_status ech_check_plan(const ech_plan *plan);
/* One rank's list: `after` points back; every read has an earlier write; every gradient is reduced
 * once, after all its writers and before its use; F and B of a micro-batch read the weight version that the
 * schedule promises, and no version is overwritten that is still needed; no two live values overlap;
 * all lies inside the arena. On failure logs the step and prints the list with the step marked. */
ech_status ech_check_list(const ech_plan *plan, const ech_list *list);
/* All ranks' lists of that kind; plans[r] is rank r's. Every send meets its receive, with as many bytes, in the order
 * of their starts; all members of a group have its collectives in the same order; there is no deadlock, even where a
 * send ends only after its receive has begun. On failure logs the step and prints the ranks' rows with it marked. */
ech_status ech_check_plans(const ech_plan *const *plans, int n, ech_list_kind list);

#endif
