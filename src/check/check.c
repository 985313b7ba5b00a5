/* SPDX-License-Identifier: Apache-2.0
 *
 * The checker of one list: properties of the list alone, checked independently of the code that
 * made it. Its parts are the other files of this room.
 */
#include "check/checker.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "schedule/print.h"

enum { LINES_AROUND = 8 };

static void print_around(const ech_list *list, int marked)
{
    ECH_FREED_TEXT text = {0}, around = {0};
    ech_list_print(list, &text);
    int line = 0;
    for (const char *at = text.at; at && *at; line++) {
        const char *end = at;
        while (*end && *end != '\n') end++;
        if (abs(line - marked) <= LINES_AROUND)
            ech_text_append(&around, "%s %.*s\n", line == marked ? "->" : "  ", (int)(end - at),
                            at);
        at = *end ? end + 1 : end;
    }
    ech_log_text(around.at ? around.at : "");
}

ech_status ech_list_reject(const ech_plan *plan, const ech_list *list, int marked,
                           const char *format, ...)
{
    char why[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    if (!ech_log_is_quiet()) print_around(list, marked);
    ECH_FREED_TEXT name = {0};
    ech_step_print(&list->step.at[marked], &name);
    ECH_FAIL(ECH_EINTERNAL, "schedule check of list %s, rank %d: step %d (%s) %s",
             ech_list_name(list->kind), plan->rank, marked, name.at, why);
}

bool ech_list_has_accesses(const ech_plan *plan, const ech_list *list)
{
    return plan->persistent.n && list->access.n;
}

bool ech_step_accesses(const ech_list *list, const ech_step *step, int value, bool write)
{
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *a = &list->access.at[step->first_access + i];
        if (a->value == value && a->write == write) return true;
    }
    return false;
}

bool ech_list_trains(const ech_list *list)
{
    return ech_list_kind_trains(list->kind) && list->step.n > 0;
}

bool ech_list_has_blocks(const ech_list *list)
{
    return list->step.n > 0 && (ech_list_kind_trains(list->kind) ||
                                list->kind == ECH_LIST_VALIDATE || list->kind == ECH_LIST_GENERATE);
}

int64_t ech_list_global_micro(const ech_plan *plan, const ech_list *list, int micro)
{
    return ech_layout_global_micro(plan->layout, plan->rank,
                                   ech_micro_at(list->numbering, micro).micro_batch);
}

ech_known ech_known_begin(void)
{
    ech_known known;
    memset(&known, -1, sizeof known);
    return known;
}

void ech_known_learn(ech_known *known, const ech_list *list, const ech_step *step)
{
    for (int i = 0; i < step->afters; i++) {
        int after = list->after.at[step->first_after + i];
        int *latest = &known->step[step->lane][list->step.at[after].lane];
        if (after > *latest) *latest = after;
    }
}

static ech_status check_after(const ech_plan *plan, const ech_list *list)
{
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        for (int i = 0; i < step->afters; i++) {
            int after = list->after.at[step->first_after + i];
            if (after < 0 || after >= s)
                return ech_list_reject(plan, list, s, "waits for a step that is not before it");
        }
    }
    return ECH_OK;
}

ech_status ech_check_list(const ech_plan *plan, const ech_list *list)
{
    ECH_TRY(check_after(plan, list));
    if (ech_list_has_blocks(list) && !ech_layout_serves(plan->layout, plan->rank)) {
        ECH_CLEANUP(ech_block_steps_free) ech_block_steps blocks = {0};
        ECH_TRY(ech_block_steps_create(plan, list, &blocks));
        ECH_TRY(ech_check_blocks(plan, list, &blocks));
        ECH_TRY(ech_check_messages(plan, list, &blocks));
        ECH_TRY(ech_check_collectives(plan, list));
        ECH_TRY(ech_check_resident(plan, list));
        ECH_TRY(ech_check_carried(plan, list));
    }
    if (ech_list_trains(list) || (ech_list_kind_meets(list->kind) && list->step.n > 0)) {
        ECH_TRY(ech_check_buckets(plan, list));
        ECH_TRY(ech_check_states(plan, list));
    }
    if (ech_list_trains(list)) {
        ECH_TRY(ech_check_versions(plan, list));
        ECH_TRY(ech_check_shared(plan, list));
        ECH_TRY(ech_check_rows(plan, list));
        ECH_TRY(ech_check_uses(plan, list));
    }
    ECH_TRY(ech_check_races(plan, list));
    ECH_TRY(ech_check_copies(plan, list));
    ECH_TRY(ech_check_held(plan, list));
    return ech_check_memory(plan, list);
}

ech_status ech_check_plan(const ech_plan *plan)
{
    ECH_TRY(ech_check_persistent(plan));
    for (int i = 0; i < ECH_LIST_KINDS; i++) ECH_TRY(ech_check_list(plan, &plan->list[i]));
    return ECH_OK;
}

ech_status ech_checked_plan_create(const ech_plan_request *request, ech_plan **out)
{
    ECH_CLEANUP(ech_plan_destroy_at) ech_plan *plan = ech_plan_create(request);
    ECH_TRY(ech_check_plan(plan));
    *out = plan;
    plan = NULL;
    return ECH_OK;
}
