/* SPDX-License-Identifier: Apache-2.0
 *
 * Making, checking and simulating the plans of a report.
 */
#include "app/plan/report.h"

#include <stdlib.h>

#include "app/setup/parts.h"
#include "base/log.h"
#include "check/check.h"

static void begin(const ech_plan_report *report, const char *what)
{
    const ech_plan_options *options = &report->options;
    if (options->progress) options->progress(what, options->context);
}

static bool leads_cluster(const ech_schedule_ring *ring, int rank)
{
    return ring->clusters > 1 && ech_ring_leader(ring, ech_ring_cluster(ring, rank)) == rank;
}

/* The index in `alike` of a rank's class, or its length if the rank begins one. Such ranks are
 * neighbours, except that some replicas of a stage have one micro-batch more, and some ranks lead
 * clusters. by_context: context ranks differ in memory (ech_model_slides). */
static int find_class(const ech_plan_report *report, int rank, bool by_context)
{
    const ech_layout *layout = report->design->layout;
    const ech_schedule_ring *ring = &report->design->schedule->ring;
    for (int c = (int)report->alike.n - 1; c >= 0; c--) {
        int other = report->alike.at[c].rank;
        if (layout->coordinates[other].stage != layout->coordinates[rank].stage) break;
        if (ech_layout_micro_batches(layout, other) == ech_layout_micro_batches(layout, rank) &&
            leads_cluster(ring, other) == leads_cluster(ring, rank) &&
            (!by_context ||
             layout->coordinates[other].context == layout->coordinates[rank].context))
            return c;
    }
    return (int)report->alike.n;
}

/* True if the plans are compared with others and not checked. */
static bool is_compared(const ech_plan_report *report)
{
    return report->options.brief || report->options.unchecked;
}

/* Finds the classes of ranks, and the rank that represents each. */
static void sort_ranks(ech_plan_report *report)
{
    bool by_context = ech_model_slides(report->design->model);
    ech_plan *buckets = NULL; /* of the class looked at last */
    int64_t most = 0;
    int of = -1;
    for (int rank = 0; rank < report->design->world; rank++) {
        int c = find_class(report, rank, by_context);
        if (c == (int)report->alike.n) ECH_PUSH(report->alike, (ech_plan_class){.rank = rank});
        ech_plan_class *class = &report->alike.at[c];
        if (c != of) {
            ech_plan_destroy(buckets);
            of = c;
            buckets = ech_design_buckets(report->design, class->rank);
            most = ech_plan_snapshot_bytes(buckets, class->rank);
        }
        int64_t bytes = ech_plan_snapshot_bytes(buckets, rank);
        if (bytes > most) {
            most = bytes;
            class->rank = rank;
        }
        class->ranks++;
        report->class_of[rank] = c;
    }
    ech_plan_destroy(buckets);
}

/* Whether the plans of all classes of ranks can be checked and simulated. */
static bool is_small(const ech_design *design)
{
    const ech_layout *layout = design->layout;
    const ech_classes *classes = &layout->classes;
    double forwards = 0;
    for (int c = 0; c < classes->n; c++)
        for (int chunk = 0; chunk < layout->chunks; chunk++) {
            int first, end;
            ech_layout_blocks(layout, classes->first[c], chunk, &first, &end);
            forwards += (double)(end - first) * design->schedule->turns *
                        ech_layout_micro_batches(layout, classes->first[c]);
        }
    return forwards <= ECH_PLAN_CHECKED_WORK;
}

/* The plan of a rank that represents ranks of equal memory; otherwise NULL. */
static const ech_plan *find_whole(const ech_plan_report *report, int rank)
{
    const ech_plan_class *alike = &report->alike.at[report->class_of[rank]];
    return alike->rank == rank ? alike->plan : NULL;
}

static ech_status add_whole(ech_plan_report *report, ech_plan_class *alike)
{
    ech_plan *plan;
    if (report->options.brief)
        plan = ech_design_sketch(report->design, alike->rank, report->options.timed);
    else if (report->options.unchecked)
        ECH_TRY(ech_design_plan_unchecked(report->design, alike->rank, &plan));
    else
        ECH_TRY(ech_design_plan(report->design, alike->rank, false, &plan));
    ECH_PUSH(report->plan, plan);
    ech_plan_forget_values(plan);
    alike->plan = plan;
    return ECH_OK;
}

/* Only the steps of the train list are needed, and of lists in which replicas meet; classes of one
 * stage may share them. The rest is freed, since many whole plans would not fit into memory. */
static ech_status add_listed(ech_plan_report *report, int class)
{
    int rank = report->design->layout->classes.first[class];
    const ech_plan_class *alike = &report->alike.at[report->class_of[rank]];
    bool meets = alike->plan->list[ECH_LIST_SYNC].step.n > 0;
    report->listed[class] = find_whole(report, rank);
    if (report->listed[class]) return ECH_OK;
    ech_plan *plan;
    if (is_compared(report))
        plan = ech_design_sketch(report->design, rank, true);
    else
        ECH_TRY(meets ? ech_design_plan(report->design, rank, false, &plan)
                      : ech_design_outline(report->design, rank, false, &plan));
    ECH_PUSH(report->plan, plan);
    ech_plan_make_outline(plan, alike->plan);
    report->listed[class] = plan;
    return ECH_OK;
}

static ech_status add_plans(ech_plan_report *report)
{
    const ech_classes *classes = &report->design->layout->classes;
    for (size_t i = 0; i < report->alike.n; i++) ECH_TRY(add_whole(report, &report->alike.at[i]));
    if (!is_small(report->design)) return ECH_OK;
    report->listed = ech_calloc((size_t)classes->n, sizeof *report->listed);
    for (int c = 0; c < classes->n; c++) ECH_TRY(add_listed(report, c));
    return ECH_OK;
}

/* All lists but the train list, of all classes together; before the train lists are there. */
static ech_status check_others(const ech_design *design)
{
    const ech_classes *classes = &design->layout->classes;
    if (!is_small(design)) return ECH_OK;
    ECH_FREED ech_plan **plans = ech_calloc((size_t)classes->n, sizeof *plans);
    ech_status status = ECH_OK;
    for (int c = 0; c < classes->n && status == ECH_OK; c++)
        status = ech_design_outline(design, classes->first[c], true, &plans[c]);
    for (int list = 0; list < ECH_LIST_KINDS && status == ECH_OK; list++)
        if (list != ECH_LIST_TRAIN)
            status = ech_design_check_plans(design, (const ech_plan *const *)plans, classes->n,
                                            (ech_list_kind)list);
    for (int c = 0; c < classes->n; c++) ech_plan_destroy(plans[c]);
    return status;
}

/* Checks and simulates the lists of all ranks that average or mix local replicas (local_sgd,
 * diloco, gossip), and stores their time. */
static ech_status check_meeting(ech_plan_report *report, ech_list_kind list)
{
    const ech_plan *const *plans = report->listed;
    int n = report->design->layout->classes.n;
    ech_simulation simulation = {0};
    ech_costs costs =
        ech_costs_of(report->design->config, report->design->profile, report->design->cluster);
    if (plans[0]->list[list].step.n == 0) return ECH_OK;
    ECH_TRY(ech_design_check_plans(report->design, plans, n, list));
    ECH_TRY(ech_simulate(plans, n, list, &costs, &simulation));
    report->list_time[list] = simulation.end;
    ech_simulation_free(&simulation);
    return ECH_OK;
}

/* The train lists of all classes together; with a log of serves, in each of its spans. */
static ech_status check_training(const ech_plan_report *report)
{
    const ech_design *design = report->design;
    if (design->serves) return ech_design_check_ranks(design, INT64_MAX);
    return ech_design_check_plans(design, report->listed, design->layout->classes.n,
                                  ECH_LIST_TRAIN);
}

static ech_status check_all(ech_plan_report *report)
{
    const ech_plan *const *plans = report->listed;
    int n = report->design->layout->classes.n;
    if (!plans) return ECH_OK;
    if (!is_compared(report)) {
        ECH_TRY(check_training(report));
        for (int list = 0; list < ECH_LIST_KINDS; list++)
            if (ech_list_kind_meets((ech_list_kind)list))
                ECH_TRY(check_meeting(report, (ech_list_kind)list));
    }
    ech_costs costs =
        ech_costs_of(report->design->config, report->design->profile, report->design->cluster);
    ECH_TRY(ech_simulate(plans, n, ECH_LIST_TRAIN, &costs, &report->simulation));
    report->checked = true;
    if (is_compared(report)) return ECH_OK;
    ech_simulation_timeline(&report->simulation, plans, ECH_LIST_TRAIN, &report->timeline);
    ech_timeline_finish(&report->timeline);
    return ECH_OK;
}

static ech_status add_evaluator(ech_plan_report *report)
{
    ech_plan_evaluator *e = &report->evaluator;
    const ech_design *design = report->design;
    ech_ranks evaluators = ech_layout_roles(design->layout).evaluate;
    if (evaluators.n == 0) return ECH_OK;
    e->config = ech_config_copy(design->config);
    ECH_TRY(ech_design_create_evaluator(design, evaluators.first, e->config, &e->design));
    ECH_TRY(ech_design_plan(&e->design, 0, true, &e->plan));
    ech_plan_forget_values(e->plan);
    return ECH_OK;
}

int64_t ech_plan_report_bytes(const ech_plan_report *report)
{
    int64_t most = 0;
    for (size_t c = 0; c < report->alike.n; c++) {
        int64_t bytes = report->alike.at[c].plan->arena_bytes[ECH_SPACE_DEVICE];
        if (bytes > most) most = bytes;
    }
    return most;
}

/* Data need not be there yet. */
static void count_data(ech_plan_report *report)
{
    ECH_CLEANUP(ech_corpus_close_at) ech_corpus *corpus = NULL;
    if (!report->design->config->data.train[0]) return;
    bool quiet = ech_log_set_quiet(true);
    ech_status status = ech_design_open_data(report->design, ECH_SPLIT_TRAIN, &corpus);
    ech_log_set_quiet(quiet);
    if (status == ECH_OK)
        ech_design_count_data(report->design, corpus, &report->data);
    else
        report->no_data = ech_strdup(ech_last_error());
}

/* What is reported of a run besides its ranks' plans. */
static ech_status add_rest(ech_plan_report *report)
{
    ECH_TRY(add_evaluator(report));
    begin(report, "comparing numbers of sequence chunks");
    report->chunks = ech_plan_compare_chunks(report->design, ech_plan_report_bytes(report));
    begin(report, "counting samples and tokens");
    count_data(report);
    return ECH_OK;
}

static ech_status add_advice(ech_plan_report *report)
{
    const ech_advice_options *options = &report->options.advice;
    double step = report->checked ? report->simulation.end / report->design->schedule->turns : 0;
    if (!options->emit_for && !(options->mtbf_hours > 0)) return ECH_OK;
    if (options->mtbf_hours > 0) begin(report, "simulating failures");
    return ech_advice_create(report->design, options, step, &report->advice);
}

ech_status ech_plan_report_create(const ech_design *design, const ech_plan_options *options,
                                  ech_plan_report *out)
{
    ech_plan_report report = {.design = design, .options = *options};
    report.class_of = ech_calloc((size_t)design->world, sizeof *report.class_of);
    begin(&report, "sorting ranks by what they do");
    sort_ranks(&report);
    ech_status status = ECH_OK;
    begin(&report, "checking the lists of steps outside of training");
    if (!is_compared(&report)) status = check_others(design);
    begin(&report, "planning");
    if (status == ECH_OK) status = add_plans(&report);
    begin(&report, "checking and simulating the training step");
    if (status == ECH_OK) status = check_all(&report);
    if (status == ECH_OK && !is_compared(&report)) status = add_rest(&report);
    if (status == ECH_OK && !is_compared(&report)) status = add_advice(&report);
    if (status == ECH_OK)
        *out = report;
    else
        ech_plan_report_destroy(&report);
    return status;
}

void ech_plan_report_destroy(ech_plan_report *report)
{
    ech_advice_free(&report->advice);
    if (report->checked) ech_simulation_free(&report->simulation);
    ech_timeline_free(&report->timeline);
    ech_plan_destroy(report->evaluator.plan);
    ech_design_destroy(&report->evaluator.design);
    ech_config_destroy(report->evaluator.config);
    for (size_t i = 0; i < report->plan.n; i++) ech_plan_destroy(report->plan.at[i]);
    free(report->plan.at);
    free(report->alike.at);
    free(report->listed);
    free(report->class_of);
    free(report->no_data);
    *report = (ech_plan_report){0};
}

ech_status ech_plan_report_svg(const ech_plan_report *report, ech_text *out)
{
    const ech_config *config = report->design->config;
    const ech_layout *layout = report->design->layout;
    ECH_FREED_TEXT title = {0}, axes = {0};
    if (!report->checked)
        return ech_config_complain(config, "parallel.pipeline",
                                   "the lists of %d ranks with %lld micro-batches are too long to "
                                   "simulate; draw a smaller grid of the same shape",
                                   layout->classes.n, (long long)layout->micro_batches);
    ech_text_append(&title, "%s, %s: ", report->design->model->family->name,
                    config->parallel.schedule);
    ech_print_axes(report->design, &axes);
    if (layout->world == 1) ech_text_append(&title, "one rank%s", axes.n ? ", " : "");
    if (axes.n) ech_text_append(&title, "%s", axes.at);
    ech_text_append(&title, ", %s a step", ECH_COUNT(layout->micro_batches, "micro-batch"));
    if (report->design->schedule->turns > 1)
        ech_text_append(&title, ", %d steps", report->design->schedule->turns);
    ech_timeline_svg(&report->timeline, title.at, NULL, NULL, out);
    return ECH_OK;
}

int64_t ech_plan_block_elements(const ech_plan *plan, int block)
{
    int64_t elements = 0;
    for (size_t i = 0; i < plan->model->param.n; i++)
        if (plan->model->param.at[i].block == block)
            elements += ech_shape_whole(&plan->model->param.at[i].shape);
    return elements;
}

double ech_plan_step_flops(const ech_design *design)
{
    return design->sample_flops * (double)design->config->training.global_batch_size;
}

double ech_plan_token_flops(const ech_design *design)
{
    return design->sample_flops / (double)design->sample_units;
}

double ech_plan_imbalance(const ech_design *design, int *stage)
{
    return ech_layout_imbalance(design->layout, design->model,
                                ech_layout_extent(design->layout, design->config, design->model),
                                stage);
}
