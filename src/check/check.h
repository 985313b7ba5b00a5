/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks plans before they run, without the code that makes them. Nothing here communicates. On
 * failure the functions log what is wrong with which step, print the steps around it, and return
 * ECH_EINTERNAL, or ECH_EUSAGE where an order written by hand is to blame.
 */
#ifndef ECH_CHECK_CHECK_H
#define ECH_CHECK_CHECK_H

#include "schedule/plan.h"

/* ech_plan_create, then ech_check_plan. The caller destroys *out; on failure there is none. */
ech_status ech_checked_plan_create(const ech_plan_request *request, ech_plan **out);
/* Checks all lists of one rank's plan; of an outline those that it has. */
ech_status ech_check_plan(const ech_plan *plan);
/* Checks of one rank's list: steps wait only for steps before them; every read has an earlier
 * write; every gradient is reduced once, after all its writers and before its use; F, B and W of a
 * micro-batch read the weight version that the schedule promises, and no version is overwritten
 * that is still needed; no two live values overlap; all values lie inside the arena. */
ech_status ech_check_list(const ech_plan *plan, const ech_list *list);
/* Checks of all n ranks' lists of that kind, plans[r] being rank r's: every send meets its receive,
 * with as many bytes, in the order in which they begin; all members of a group have its collectives
 * in the same order; where servers' lists are bound to pushes, each is made, and served once, in an
 * order that may be; there is no deadlock, even where a send ends only after its receive has
 * begun. */
ech_status ech_check_plans(const ech_plan *const *plans, int n, ech_list_kind list);
/* Checks, after ech_check_plans, that nothing deadlocks on queues of a device, where messages
 * across one boundary end one after the other (simulate/rehearsal.h: as NCCL's do). */
ech_status ech_check_queues(const ech_plan *const *plans, int n, ech_list_kind list);

#endif
