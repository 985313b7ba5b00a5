/* SPDX-License-Identifier: Apache-2.0
 *
 * What the simulation says: time, waits, micro-batches in flight, messages from rank to rank.
 */
#include <inttypes.h>

#include "app/count.h"
#include "app/plan/report.h"

enum { MOST_ROWS = 8, MOST_STAGES = 16 };

static void print_links(const ech_simulation *simulation, ech_text *out)
{
    for (size_t i = 0; i < simulation->link.n; i++) {
        const ech_link_use *link = &simulation->link.at[i];
        if (i == MOST_ROWS - 1 && simulation->link.n > MOST_ROWS) {
            ech_text_append(out, ECH_PLAN_INDENT "... and %zu more links\n",
                            simulation->link.n - i);
            return;
        }
        ech_text_append(out, ECH_PLAN_INDENT "rank %d to %d: %s message%s of %s\n", link->from,
                        link->to, ECH_WORDS(link->messages), link->messages == 1 ? "" : "s",
                        ECH_BYTES(link->messages ? link->bytes / link->messages : 0));
    }
}

/* Of each stage the rank that has most. */
static void print_in_flight(const ech_plan_report *report, ech_text *out)
{
    const ech_layout *layout = report->design->layout;
    ech_text_append(out, ECH_PLAN_INDENT "in flight at most:");
    for (int s = 0; s < layout->stages && s < MOST_STAGES; s++) {
        int most = 0;
        for (int rank = layout->first_rank[s]; rank < layout->first_rank[s + 1]; rank++) {
            int i = ech_layout_plan_of(layout, report->simulation.plans, rank);
            if (report->simulation.in_flight[i] > most) most = report->simulation.in_flight[i];
        }
        ech_text_append(out, " %d", most);
    }
    ech_text_append(out, "%s %smicro-batches%s%s\n", layout->stages > MOST_STAGES ? " ..." : "",
                    report->design->model->options.sequence_chunks > 1 ? "sequence chunks of " : "",
                    layout->chunks > 1 ? " of a chunk" : "",
                    layout->stages > 1 ? ", stage by stage" : "");
}

/* By lane: of a rank in a step on average, and of the rank that waits longest. */
static void print_waits(const ech_plan_report *report, ech_text *out)
{
    const ech_simulation *simulation = &report->simulation;
    const ech_layout *layout = report->design->layout;
    int turns = report->design->schedule->turns;
    for (ech_lane lane = 0; lane < ECH_LANES; lane++) {
        double all = 0, longest = 0;
        int most = 0;
        for (int rank = 0; rank < layout->world; rank++) {
            double waits =
                simulation->waits[ech_layout_plan_of(layout, simulation->plans, rank)][lane];
            all += waits;
            if (waits > longest) most = rank;
            longest = waits > longest ? waits : longest;
        }
        if (!(all > 0)) continue;
        ech_text_append(out, ECH_PLAN_INDENT "compute waits for lane %s: ", ech_lane_name(lane));
        ech_timeline_time(&report->timeline, all / layout->world / turns, out);
        if (layout->world > 1) {
            ech_text_append(out, " a rank, at most ");
            ech_timeline_time(&report->timeline, longest / turns, out);
            ech_text_append(out, " (rank %d)", most);
        }
        ech_text_append(out, "\n");
    }
}

/* Beside steps; without a profile it costs nothing. */
static void print_meetings(const ech_plan_report *report, ech_text *out)
{
    const double *time = report->list_time;
    if (!report->simulation.seconds || !(time[ECH_LIST_SYNC] > 0)) return;
    ech_text_append(out, ECH_PLAN_INDENT "replicas are averaged in ");
    ech_timeline_time(&report->timeline, time[ECH_LIST_SYNC], out);
    ech_text_append(out, " after every %s",
                    ECH_COUNT(report->design->config->parallel.sync_every, "step"));
    if (time[ECH_LIST_GOSSIP] > 0) {
        ech_text_append(out, ", and mix in ");
        ech_timeline_time(&report->timeline, time[ECH_LIST_GOSSIP], out);
        ech_text_append(out, " after each of the others");
    }
    ech_text_append(out, "\n");
}

void ech_plan_print_simulation(const ech_plan_report *report, ech_text *out)
{
    const ech_simulation *simulation = &report->simulation;
    int turns = report->design->schedule->turns;
    ECH_FREED_TEXT collectives = {0};
    if (!report->checked) {
        ech_text_append(out, "simulation  too many ranks and micro-batches\n");
        return;
    }
    ech_text_append(out, "simulation  ");
    ech_timeline_time(&report->timeline, simulation->end / turns, out);
    ech_text_append(out, " a step, bubble %.1f %% of the total%s\n", 100 * simulation->bubble,
                    simulation->seconds ? ""
                                        : "; without a profile (parallel.profile) all blocks cost "
                                          "the same and messages are free");
    if (report->design->profile && report->design->profile->busy)
        ech_text_append(out, ECH_PLAN_INDENT "the profile was measured on a busy machine: measure "
                                             "again\n");
    print_meetings(report, out);
    ech_timeline_collectives(&report->timeline, turns, &collectives);
    if (collectives.n) ech_text_append(out, ECH_PLAN_INDENT "collectives: %s\n", collectives.at);
    print_waits(report, out);
    print_in_flight(report, out);
    print_links(simulation, out);
}
