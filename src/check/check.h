/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks plans before they run, independently of the code that makes them. Nothing here
 * communicates. On failure the functions log what is wrong with which step, print the steps around
 * it, and return ECH_EINTERNAL, or ECH_EUSAGE if an order written by hand is to blame.
 */
#ifndef ECH_CHECK_CHECK_H
#define ECH_CHECK_CHECK_H

#include "schedule/plan.h"

/* Calls ech_plan_create, then ech_check_plan. The caller destroys *out, which is set only on
 * success. */
ech_status ech_checked_plan_create(const ech_plan_request *request, ech_plan **out);
/* Checks all lists of one rank's plan; of an outline, the lists that it has. */
ech_status ech_check_plan(const ech_plan *plan);
/* Checks one list of one rank. Steps wait only for earlier steps; every read has an earlier write;
 * every gradient is reduced once, after all its writers and before its use. F, B and W of a
 * micro-batch read the weight version that the schedule promises, and no version is overwritten
 * that is still needed. No two live values overlap; all values are inside the arena. */
ech_status ech_check_list(const ech_plan *plan, const ech_list *list);
/* Checks the lists of that kind of n plans: of all ranks, rank 0 first, or of the first rank of
 * each class (ech_classes). Every send matches a receive of equal size, in the order in which they
 * begin. All members of a group run its collectives in the same order. If servers' lists are bound
 * to pushes, each push is made and served once, in a possible order. There is no deadlock, even if
 * a send ends only after its receive has begun. */
ech_status ech_check_plans(const ech_plan *const *plans, int n, ech_list_kind list);
/* Checks, after ech_check_plans, that there is no deadlock on a device's queues, where messages
 * across one boundary end one after the other, as NCCL's do (simulate/rehearsal.h). */
ech_status ech_check_queues(const ech_plan *const *plans, int n, ech_list_kind list);

#endif
