/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans: the report of app/plan, made once and printed on request.
 */
#include <stdlib.h>

#include "app/plan/figure.h"
#include "library/library.h"
#include "schedule/peaks.h"

struct echelon_plan {
    ech_run_arguments arguments;
    ech_run run;
    ech_planning planning;
    ech_text text, json, svg, html, goodput, figure;
};

ech_planning_options ech_library_planning(const echelon_plan_options *o)
{
    return (ech_planning_options){.per_machine = o->per_machine,
                                  .cluster = o->cluster,
                                  .report = {.steps = o->steps,
                                             .simulate = o->simulate,
                                             .tokens = o->tokens,
                                             .advice = {.emit_for = o->emit_for,
                                                        .mtbf_hours = o->mtbf_hours,
                                                        .restart_seconds = o->restart_seconds,
                                                        .repair_hours = o->repair_hours,
                                                        .spares = o->spares},
                                             .progress = o->progress,
                                             .context = o->context}};
}

ech_status ech_library_open_plans(const echelon_run *run, int ranks, ech_run_arguments *arguments,
                                  ech_run *out)
{
    *arguments = ech_library_arguments(run);
    arguments->plans = true;
    arguments->ranks = ranks;
    ech_status status = ech_run_open(arguments, out);
    free(arguments->assignment.at);
    arguments->file = NULL;
    arguments->model = NULL;
    return status;
}

static ech_status create(const echelon_run *run, const echelon_plan_options *o, echelon_plan *plan)
{
    const ech_planning_options options = ech_library_planning(o);
    ECH_TRY(ech_library_open_plans(run, o->ranks, &plan->arguments, &plan->run));
    return ech_planning_create(&plan->run, &options, &plan->planning);
}

echelon_status echelon_plan_create(echelon_run *run, const echelon_plan_options *options,
                                   echelon_plan **out)
{
    echelon_plan_options o;
    ech_library_enter();
    ECH_USE(run, RUN);
    ECH_NEED(out);
    ECH_TAKE(o, options);
    echelon_plan *plan = ech_handle_create(sizeof *plan, ECH_HANDLE_PLAN);
    ech_status status = create(run, &o, plan);
    if (status == ECH_OK)
        *out = plan;
    else
        echelon_plan_free(plan);
    return (echelon_status)status;
}

void echelon_plan_free(echelon_plan *plan)
{
    if (!plan) return;
    ECH_USE_HANDLE(plan, PLAN, );
    ech_planning_destroy(&plan->planning);
    ech_run_close(&plan->run);
    ech_text_free(&plan->text);
    ech_text_free(&plan->json);
    ech_text_free(&plan->svg);
    ech_text_free(&plan->html);
    ech_text_free(&plan->goodput);
    ech_text_free(&plan->figure);
    ech_handle_destroy(plan);
}

const char *echelon_plan_text(echelon_plan *plan)
{
    ech_library_enter();
    ECH_USE_HANDLE(plan, PLAN, NULL);
    if (!plan->text.n) ech_plan_report_text(&plan->planning.report, &plan->text);
    return plan->text.at;
}

const char *echelon_plan_json(echelon_plan *plan)
{
    ech_library_enter();
    ECH_USE_HANDLE(plan, PLAN, NULL);
    bool made = plan->json.n || ech_plan_report_json(&plan->planning.report, &plan->json) == ECH_OK;
    return made ? plan->json.at : NULL;
}

const char *echelon_plan_svg(echelon_plan *plan)
{
    ech_library_enter();
    ECH_USE_HANDLE(plan, PLAN, NULL);
    bool made = plan->svg.n || ech_plan_report_svg(&plan->planning.report, &plan->svg) == ECH_OK;
    return made ? plan->svg.at : NULL;
}

const char *echelon_plan_html(echelon_plan *plan)
{
    ech_library_enter();
    ECH_USE_HANDLE(plan, PLAN, NULL);
    bool made = plan->html.n || ech_plan_report_html(&plan->planning.report, &plan->html) == ECH_OK;
    return made ? plan->html.at : NULL;
}

const char *echelon_plan_emitted(const echelon_plan *plan)
{
    ECH_USE_HANDLE(plan, PLAN, NULL);
    return plan->planning.report.advice.emitted.file.at;
}

const char *echelon_plan_goodput_svg(echelon_plan *plan)
{
    ech_library_enter();
    ECH_USE_HANDLE(plan, PLAN, NULL);
    const ech_advice *advice = &plan->planning.report.advice;
    bool made = plan->goodput.n || ech_advice_svg(advice, &plan->goodput) == ECH_OK;
    return made ? plan->goodput.at : NULL;
}

const char *echelon_plan_memory_figure(echelon_plan *plan)
{
    ech_library_enter();
    ECH_USE_HANDLE(plan, PLAN, NULL);
    bool made =
        plan->figure.n || ech_memory_figure(&plan->planning.design, &plan->figure) == ECH_OK;
    return made ? plan->figure.at : NULL;
}

int echelon_plan_ranks(const echelon_plan *plan)
{
    ECH_USE_HANDLE(plan, PLAN, 0);
    return plan->planning.design.world;
}

int echelon_memory_kinds(void)
{
    return ECH_MEMORY_KINDS;
}

const char *echelon_memory_kind(int kind)
{
    bool is = kind >= 0 && kind < ECH_MEMORY_KINDS;
    return is ? ech_memory_name((ech_memory_kind)kind) : NULL;
}

int64_t echelon_plan_bytes(const echelon_plan *plan, int rank, int kind)
{
    ECH_USE_HANDLE(plan, PLAN, -1);
    const ech_plan_report *report = &plan->planning.report;
    if (rank < 0 || rank >= plan->planning.design.world || kind < 0 || kind >= ECH_MEMORY_KINDS)
        return -1;
    int64_t peak[ECH_MEMORY_KINDS];
    ech_plan_peaks(report->alike.at[report->class_of[rank]].plan, peak);
    return peak[kind];
}
