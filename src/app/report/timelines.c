/* SPDX-License-Identifier: Apache-2.0
 *
 * A report's timelines: what the simulator predicts, what was recorded.
 */
#include <stdlib.h>

#include "app/report/parts.h"
#include "app/trace/events.h"
#include "base/file.h"

static const ech_plan *const *plans_of(const ech_report *report)
{
    return (const ech_plan *const *)report->plans.plan.at;
}

/* The recording, or a sentence why there is none. */
static ech_status read_recording(ech_report *report)
{
    ECH_FREED_TEXT why = {0};
    ECH_FREED char *folder = ech_file_join(report->directory, "trace");
    ech_status status = ECH_OK;
    if (!ech_file_is_folder(folder))
        ech_text_append(&why, "no steps were recorded; train with log.trace=true");
    else
        status = ech_recording_read(folder, plans_of(report), (int)report->plans.plan.n,
                                    &report->recording, &why);
    if (status == ECH_OK && why.n)
        ech_text_append(report->missing, "no measured timeline: %s\n", why.at);
    return status;
}

/* With the run's own costs of blocks instead of a profile's. */
static ech_status predict_again(ech_report *report)
{
    ech_simulation simulation;
    ech_profile *own = ech_recording_profile(&report->recording);
    ech_costs costs = ech_costs_of(report->config, own);
    ech_status status = ech_simulate(plans_of(report), report->recording.ranks, ECH_LIST_TRAIN,
                                     &costs, &simulation);
    if (status == ECH_OK) {
        ech_simulation_timeline(&simulation, plans_of(report), ECH_LIST_TRAIN, &report->predicted);
        ech_timeline_finish(&report->predicted);
        ech_simulation_free(&simulation);
    }
    ech_profile_destroy(own);
    return status;
}

static ech_status predict(ech_report *report)
{
    if (!report->design.profile && report->recording.ranks) {
        bool cut = report->design.layout->tensor * report->design.layout->context > 1;
        report->basis =
            cut ? "the run's own block times; collectives free" : "the run's own block times";
        ECH_TRY(predict_again(report));
    } else {
        report->basis = report->design.profile ? report->config->parallel.profile
                                               : "blocks that cost the same, free messages";
        report->predicted = report->plans.timeline;
        report->plans.timeline = (ech_timeline){0};
    }
    report->has_predicted = true;
    return ECH_OK;
}

static ech_status write_trace(const ech_report *report)
{
    ECH_FREED char *folder = ech_file_join(report->directory, "trace");
    ECH_FREED char *path = ech_file_join(report->directory, "trace.json");
    return ech_trace_merge(folder, report->recording.ranks, path);
}

ech_status ech_report_add_timelines(ech_report *report, bool *traced)
{
    const ech_layout *layout = report->design.layout;
    *traced = false;
    if (!report->plans.checked) {
        ech_text_append(report->missing, "no timelines: %d ranks are too many to simulate\n",
                        layout->world);
        return ECH_OK;
    }
    ECH_TRY(read_recording(report));
    ECH_TRY(predict(report));
    ech_recording_number(layout, &report->predicted);
    report->page.predicted = &report->predicted;
    if (!report->recording.ranks) return ECH_OK;
    if (!ech_recording_has_one_clock(&report->recording)) {
        ech_text_append(report->missing,
                        "no measured timeline and no trace.json: the ranks' clocks differ by "
                        "more than was measured at the start; record fewer steps\n");
        return ECH_OK;
    }
    ech_recording_timeline(&report->recording, &report->measured);
    ech_recording_number(layout, &report->measured);
    report->has_measured = true;
    report->page.measured = &report->measured;
    ECH_TRY(write_trace(report));
    *traced = true;
    return ECH_OK;
}
