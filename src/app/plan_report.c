/* SPDX-License-Identifier: Apache-2.0
 *
 * The plans behind a report.
 */
#include "app/plan_report.h"

#include <stdlib.h>

static bool are_alike(const ech_layout *layout, int a, int b)
{
    const ech_place *x = &layout->place[a], *y = &layout->place[b];
    return x->role == y->role && x->stage == y->stage && x->first_block == y->first_block &&
           x->blocks == y->blocks;
}

/* The class of a rank, or the number of classes if it begins one. */
static int find_class(const ech_plan_report *report, int rank)
{
    for (int c = 0; c < (int)report->alike.n; c++)
        if (are_alike(report->design->layout, report->alike.at[c].plan->rank, rank)) return c;
    return (int)report->alike.n;
}

static ech_status add_rank(ech_plan_report *report, int rank)
{
    int c = find_class(report, rank);
    bool begins = c == (int)report->alike.n;
    if (begins || report->design->world <= ECH_PLAN_ALL_RANKS) {
        ech_plan *plan;
        ECH_TRY(ech_design_plan(report->design, rank, false, &plan));
        ECH_PUSH(report->plan, plan);
        if (begins) ECH_PUSH(report->alike, (ech_plan_class){.plan = plan});
    }
    report->alike.at[c].ranks++;
    report->class_of[rank] = c;
    return ECH_OK;
}

static ech_status check_all(ech_plan_report *report)
{
    if ((int)report->plan.n < report->design->world) return ECH_OK;
    for (int list = 0; list < ECH_LIST_KINDS; list++)
        ECH_TRY(ech_plans_check((const ech_plan *const *)report->plan.at, (int)report->plan.n,
                                (ech_list_kind)list));
    report->checked = true;
    return ECH_OK;
}

ech_status ech_plan_report_create(const ech_design *design, bool steps, ech_plan_report *out)
{
    ech_plan_report report = {.design = design, .steps = steps};
    ech_status status = ECH_OK;
    report.class_of = ech_calloc((size_t)design->world, sizeof *report.class_of);
    for (int rank = 0; rank < design->world && status == ECH_OK; rank++)
        status = add_rank(&report, rank);
    if (status == ECH_OK) status = check_all(&report);
    if (status == ECH_OK)
        *out = report;
    else
        ech_plan_report_destroy(&report);
    return status;
}

void ech_plan_report_destroy(ech_plan_report *report)
{
    for (size_t i = 0; i < report->plan.n; i++) ech_plan_destroy(report->plan.at[i]);
    free(report->plan.at);
    free(report->alike.at);
    free(report->class_of);
    *report = (ech_plan_report){0};
}

int64_t ech_plan_block_elements(const ech_plan *plan, int block)
{
    int64_t elements = 0;
    for (size_t i = 0; i < plan->model->param.n; i++)
        if (plan->model->param.at[i].block == block) elements += plan->param[i].elements;
    return elements;
}

int64_t ech_plan_lower_bound(const ech_plan *plan)
{
    int64_t most = 0;
    for (int list = 0; list < ECH_LIST_KINDS; list++)
        if (plan->list[list].lower_bound > most) most = plan->list[list].lower_bound;
    return plan->persistent_bytes + most;
}

double ech_plan_step_flops(const ech_design *design)
{
    int64_t T = design->config->data.sequence_length;
    return ech_model_flops(design->model, design->config->training.global_batch_size * T, T);
}
