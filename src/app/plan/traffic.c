/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes that ranks send in a training step, as text: a table for each set of classes that send the same.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/plan/report.h"

enum { FIRST_COLUMN = 12, MOST_KINDS = 4 };

/* Consecutive classes of ranks that send the same. */
typedef struct sender {
    int rank, ranks; /* the first, and how many */
    ech_traffic traffic[ECH_TRAFFIC_AXES];
} sender;
typedef ECH_LIST(sender) sender_list;

static void add_class(const ech_plan_class *alike, sender_list *senders)
{
    sender next = {.rank = alike->plan->rank, .ranks = alike->ranks};
    sender *last = senders->n ? &senders->at[senders->n - 1] : NULL;
    ech_plan_step_traffic(alike->plan, next.traffic);
    if (last && memcmp(last->traffic, next.traffic, sizeof next.traffic) == 0)
        last->ranks += next.ranks;
    else
        ECH_PUSH(*senders, next);
}

static bool is_used(const ech_traffic *traffic)
{
    bool used = traffic->bytes > 0;
    for (int kind = 0; kind < ECH_COLLECTIVES; kind++) used |= traffic->calls[kind] > 0;
    return used;
}

/* "48 all_gather, 48 reduce_scatter". */
static void print_calls(const ech_traffic *traffic, ech_text *out)
{
    const char *before = "";
    for (int kind = ECH_COLLECTIVE_NONE + 1; kind < ECH_COLLECTIVES; kind++) {
        if (!traffic->calls[kind]) continue;
        ech_text_append(out, "%s%" PRId64 " %s", before, traffic->calls[kind],
                        ech_collective_name((ech_collective)kind));
        before = ", ";
    }
}

/* "5 reductions over data, 1 over data x tensor". */
static void print_reductions(const ech_traffic *traffic, ech_text *out)
{
    const char *before = "";
    for (int group = 0; group < ECH_GROUPS; group++) {
        int64_t n = traffic->groups[group];
        if (!n) continue;
        ech_text_append(out, "%s%" PRId64 "%s over %s", before, n,
                        *before ? ""
                        : n > 1 ? " reductions"
                                : " reduction",
                        ech_layout_group_name((ech_layout_group)group));
        before = ", ";
    }
}

/* rank -1: the row of a rank that was named before. */
static void print_axis(int rank, ech_traffic_axis axis, const ech_traffic *traffic, ech_text *out)
{
    char bytes[32], messages[32], name[16];
    snprintf(name, sizeof name, "%d", rank);
    snprintf(messages, sizeof messages, "%" PRId64, traffic->messages);
    ech_text_append(out, "%*s%4s  %-10s %12s %9s  ", FIRST_COLUMN, "", rank < 0 ? "" : name,
                    ech_traffic_axis_name(axis),
                    ech_text_from_bytes(traffic->bytes, bytes, sizeof bytes),
                    traffic->messages < 0 ? "-" : messages);
    if (axis == ECH_TRAFFIC_DATA)
        print_reductions(traffic, out);
    else if (axis == ECH_TRAFFIC_PIPELINE)
        ech_text_append(out, "to other stages");
    else
        print_calls(traffic, out);
}

static void print_sender(const sender *s, ech_text *out)
{
    bool first = true;
    for (int axis = 0; axis < ECH_TRAFFIC_AXES; axis++) {
        if (!is_used(&s->traffic[axis])) continue;
        print_axis(first ? s->rank : -1, (ech_traffic_axis)axis, &s->traffic[axis], out);
        if (first && s->ranks > 1) ech_text_append(out, "   (%d ranks alike)", s->ranks);
        ech_text_append(out, "\n");
        first = false;
    }
    if (first) ech_text_append(out, "%*s%4d  nothing\n", FIRST_COLUMN, "", s->rank);
}

void ech_plan_print_traffic(const ech_plan_report *report, ech_text *out)
{
    sender_list senders = {0};
    if (report->design->world == 1) return;
    for (size_t c = 0; c < report->alike.n; c++) add_class(&report->alike.at[c], &senders);
    ech_text_append(out, "traffic     that one rank sends in a step; gradients by %s reduction\n",
                    ech_reduction_name(report->plan.at[0]->reduction));
    ech_text_append(out, "%*s%4s  %-10s %12s %9s  collectives\n", FIRST_COLUMN, "", "rank", "axis",
                    "bytes", "messages");
    for (size_t i = 0; i < senders.n; i++) {
        if (i == MOST_KINDS - 2 && senders.n > MOST_KINDS) { /* the last is shown */
            ech_text_append(out, "%*s... and %zu more kinds of ranks\n", FIRST_COLUMN, "",
                            senders.n - 1 - i);
            i = senders.n - 1;
        }
        print_sender(&senders.at[i], out);
    }
    free(senders.at);
}

void ech_plan_step_traffic(const ech_plan *plan, ech_traffic traffic[ECH_TRAFFIC_AXES])
{
    int turns = plan->schedule->turns;
    ech_plan_traffic(plan, traffic);
    for (int axis = 0; axis < ECH_TRAFFIC_AXES; axis++) {
        ech_traffic *t = &traffic[axis];
        t->bytes /= turns;
        if (t->messages > 0) t->messages /= turns;
        for (int kind = 0; kind < ECH_COLLECTIVES; kind++) t->calls[kind] /= turns;
        for (int group = 0; group < ECH_GROUPS; group++) t->groups[group] /= turns;
    }
}
