/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds steps, and answers questions about them by their kinds.
 */
#include "schedule/step/step.h"

enum {
    PHASE_NO = -1,
    PHASE_FORWARD = ECH_FORWARD,
    PHASE_BACKWARD_INPUT = ECH_BACKWARD_INPUT,
    PHASE_BACKWARD_WEIGHT = ECH_BACKWARD_WEIGHT,
    PHASE_RECOMPUTE = ECH_RECOMPUTE
};

static const ech_step_row rows[ECH_STEPS] = {
#define X(name, text, lane, methods, phase, params, bar, meaning)                                  \
    {text,          ECH_LANE_##lane,     &ech_##methods##_methods,                                 \
     PHASE_##phase, ECH_PARAMS_##params, ECH_BAR_##bar},
#include "schedule/steps.def"
#undef X
};

const ech_step_row *ech_step_row_of(ech_step_kind kind)
{
    return &rows[kind];
}

ech_step ech_step_make(ech_step_kind kind)
{
    return (ech_step){.kind = kind,
                      .lane = rows[kind].lane,
                      .chunk = -1,
                      .micro = -1,
                      .block = -1,
                      .peer = -1,
                      .index = -1,
                      .scratch = -1};
}

int ech_list_add(ech_list *list, ech_step_kind kind)
{
    ech_step step = ech_step_make(kind);
    step.first_after = (int)list->after.n;
    ECH_PUSH(list->step, step);
    return (int)list->step.n - 1;
}

void ech_list_add_after(ech_list *list, int step)
{
    ECH_PUSH(list->after, step);
    list->step.at[list->step.n - 1].afters++;
}

/* ---- columns of a row ---- */

const char *ech_step_name(ech_step_kind kind)
{
    return rows[kind].text;
}

/* Messages run no phase; they carry the results of one. */
int ech_step_kind_phase(ech_step_kind kind)
{
    return rows[kind].lane == ECH_LANE_COMPUTE ? rows[kind].phase : -1;
}

ech_instance ech_step_instance(const ech_step *step)
{
    int phase = step->kind == ECH_STEP_COLLECTIVE ? (int)step->phase : rows[step->kind].phase;
    return phase == PHASE_FORWARD ? ECH_INSTANCE_FORWARD : ECH_INSTANCE_BACKWARD;
}

int ech_step_ticks(const ech_step *step)
{
    return ech_step_kind_phase(step->kind) < 0 ? 1 : step->calls;
}

ech_params_use ech_step_params(const ech_step *step)
{
    return rows[step->kind].params;
}

ech_bar_kind ech_step_bar(const ech_step *step)
{
    return rows[step->kind].bar;
}

bool ech_step_kind_sends(ech_step_kind kind)
{
    return rows[kind].lane == ECH_LANE_SEND;
}

bool ech_step_kind_receives(ech_step_kind kind)
{
    return rows[kind].lane == ECH_LANE_RECEIVE;
}

bool ech_step_sends(const ech_step *step)
{
    return ech_step_kind_sends(step->kind);
}

bool ech_step_receives(const ech_step *step)
{
    return ech_step_kind_receives(step->kind);
}

bool ech_step_gathers(const ech_step *step)
{
    return ech_lane_gathers(step->lane);
}

bool ech_step_has_bucket(const ech_step *step)
{
    return rows[step->kind].params >= ECH_PARAMS_GRADIENTS;
}

bool ech_step_brings_weights(const ech_step *step)
{
    bool fetches = step->kind == ECH_STEP_FETCH && step->resource == ECH_RESOURCE_WEIGHTS;
    return fetches || (rows[step->kind].params == ECH_PARAMS_GATHER && step->block >= 0);
}

void ech_step_print(const ech_step *step, ech_text *out)
{
    ech_text_append(out, "%s", rows[step->kind].text);
    if (rows[step->kind].methods->print) rows[step->kind].methods->print(step, out);
}

void ech_step_print_bucket(const ech_step *step, ech_text *out)
{
    int piece = ech_step_piece(step);
    ech_text_append(out, " bucket %d", step->index);
    if (piece) ech_text_append(out, ", piece %d", piece);
}

void ech_step_print_round(const ech_step *step, ech_text *out)
{
    ech_step_print_bucket(step, out);
    ech_text_append(out, ", round %d", step->count);
}

void ech_step_print_over(const ech_step *step, ech_text *out)
{
    ech_step_print_bucket(step, out);
    ech_text_append(out, " over %s", ech_layout_group_name(step->group));
}

double ech_step_pass_seconds(const ech_step_query *q)
{
    return ech_cost_norm(&q->costs->rates, rows[q->step->kind].methods->work(q).bytes);
}

ech_work ech_step_work(const ech_plan *plan, const ech_list *list, const ech_step *step)
{
    const ech_step_methods *methods = rows[step->kind].methods;
    ech_step_query query = {.plan = plan, .step = step, .list = list};
    return methods->work ? methods->work(&query) : (ech_work){0};
}

const ech_step_methods ech_plain_methods = {0};
