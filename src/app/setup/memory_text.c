/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of a rank's memory: a line for each kind, the arena, and the most that is live at once.
 */
#include "app/setup/setup.h"

/* What is there for the tokens under way, at the moment when it is most. */
static void print_working(const ech_plan *plan, ech_text *out)
{
    ech_working most = ech_plan_working(plan);
    char bytes[32];
    ech_text_append(out, "    %-21s %12s  (at once, at ", "working memory",
                    ech_text_from_bytes(most.bytes, bytes, sizeof bytes));
    ech_step_print(most.step, out);
    ech_text_append(out, " of %s:", ech_list_name(most.list->kind));
    const char *comma = "";
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) {
        if (!most.kind[kind]) continue;
        ech_text_append(out, "%s %s %s", comma, ech_memory_name((ech_memory_kind)kind),
                        ech_text_from_bytes(most.kind[kind], bytes, sizeof bytes));
        comma = ",";
    }
    ech_text_append(out, ")\n");
}

void ech_print_memory(const ech_plan *plan, ech_text *out)
{
    int64_t peak[ECH_MEMORY_KINDS];
    char bytes[32];
    ech_plan_peaks(plan, peak);
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) {
        if (!peak[kind]) continue;
        ech_text_append(out, "    %-21s %12s\n", ech_memory_name((ech_memory_kind)kind),
                        ech_text_from_bytes(peak[kind], bytes, sizeof bytes));
    }
    ech_text_append(out, "    %-21s %12s", "arena",
                    ech_text_from_bytes(plan->arena_bytes, bytes, sizeof bytes));
    int64_t bound = 0;
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        if (plan->list[l].lower_bound > bound) bound = plan->list[l].lower_bound;
    ech_text_append(out, "  (lower bound %s; kinds do not peak together)\n",
                    ech_text_from_bytes(plan->persistent_bytes + bound, bytes, sizeof bytes));
    print_working(plan, out);
}
