/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan for people: one page.
 */
#include <inttypes.h>
#include <stdio.h>

#include "app/count.h"
#include "app/plan_report.h"

enum { MOST_ROWS = 8, MOST_MICRO_BATCHES = 8, MOST_COLUMNS = 100, FIRST_COLUMN = 12 };

static const char *plural(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* ---- model ---- */

/* Blocks one behind the other with as many parameters make one row. */
static void print_blocks(const ech_plan *plan, ech_text *out)
{
    const ech_model *model = plan->model;
    int blocks = (int)model->block.n;
    for (int first = 0, end; first < blocks; first = end) {
        char count[ECH_COUNT_BYTES];
        ech_text name = {0};
        int64_t elements = ech_plan_block_elements(plan, first);
        for (end = first + 1; end < blocks && ech_plan_block_elements(plan, end) == elements;)
            end++;
        ech_text_append(&name, "%s", model->block.at[first]->name);
        if (end - first > 1) ech_text_append(&name, " .. %s", model->block.at[end - 1]->name);
        ech_text_append(out, "%*s%-44s %4d x %16s\n", FIRST_COLUMN, "", name.at, end - first,
                        ech_count_text(elements, count));
        ech_text_free(&name);
    }
}

static void print_model(const ech_plan_report *report, ech_text *out)
{
    const ech_design *design = report->design;
    char params[ECH_COUNT_BYTES], flops[ECH_COUNT_BYTES];
    ech_text_append(out, "model       %s: %s parameters in %zu blocks, %s; %s a step\n",
                    design->model->family->name,
                    ech_count_text(ech_model_params(design->model), params), design->model->block.n,
                    design->config->precision.compute,
                    ech_count_scaled(ech_plan_step_flops(design), "FLOP", flops));
    print_blocks(report->alike.at[0].plan, out);
}

/* ---- layout ---- */

static void print_place(const ech_layout *layout, int rank, ech_text *out)
{
    const ech_place *place = &layout->place[rank];
    char blocks[32];
    snprintf(blocks, sizeof blocks, "%d .. %d", place->first_block,
             place->first_block + place->blocks - 1);
    ech_text_append(out, "%*s%4d  %4d  %-10s ", FIRST_COLUMN, "", rank, place->data, blocks);
    for (int64_t k = 0; k < layout->micro_batches && k < MOST_MICRO_BATCHES; k++)
        ech_text_append(out, " %" PRId64, k * layout->data + place->data);
    if (layout->micro_batches > MOST_MICRO_BATCHES) ech_text_append(out, " ...");
    ech_text_append(out, "\n");
}

static void print_layout(const ech_plan_report *report, ech_text *out)
{
    const ech_layout *layout = report->design->layout;
    const ech_config *config = report->design->config;
    int shown = layout->world <= MOST_ROWS ? layout->world : MOST_ROWS - 1;
    ech_text_append(out,
                    "batch       %" PRId64 " samples of %" PRId64 " tokens a step = %" PRId64
                    " micro-batch%s of %" PRId64 " x %d data rank%s\n",
                    config->training.global_batch_size, config->data.sequence_length,
                    layout->micro_batches, layout->micro_batches == 1 ? "" : "es",
                    layout->micro_batch, layout->data, plural(layout->data));
    ech_text_append(out, "layout      %d rank%s of %" PRId64 " thread%s, on %s\n", layout->world,
                    plural(layout->world), config->parallel.threads,
                    plural(config->parallel.threads), config->parallel.comm);
    ech_text_append(out, "%*srank  data  blocks      micro-batches\n", FIRST_COLUMN, "");
    for (int rank = 0; rank < shown; rank++) print_place(layout, rank, out);
    if (shown < layout->world)
        ech_text_append(out, "%*s... and %d more, to rank %d\n", FIRST_COLUMN, "",
                        layout->world - shown, layout->world - 1);
}

/* ---- schedule ---- */

/* The row, cut between two of its words. */
static void print_row(const ech_list *list, ech_text *out)
{
    ech_text row = {0};
    ech_list_print_row(list, &row);
    size_t n = row.n;
    if (n > MOST_COLUMNS)
        for (n = MOST_COLUMNS; n > 0 && row.at[n] != ' ';) n--;
    ech_text_append(out, "%.*s%s", (int)n, row.n ? row.at : "", n < row.n ? " ..." : "");
    ech_text_free(&row);
}

static void print_schedule(const ech_plan_report *report, ech_text *out)
{
    const ech_config *config = report->design->config;
    ech_text_append(out, "schedule    %s\n", config->parallel.schedule);
    for (size_t c = 0; c < report->alike.n; c++) {
        const ech_plan_class *alike = &report->alike.at[c];
        ech_text_append(out, "%*srank %d: ", FIRST_COLUMN, "", alike->plan->rank);
        print_row(&alike->plan->list[ECH_LIST_TRAIN], out);
        ech_text_append(out, "\n");
        if (alike->ranks > 1)
            ech_text_append(out, "%*s%d more rank%s like it\n", FIRST_COLUMN, "", alike->ranks - 1,
                            plural(alike->ranks - 1));
    }
}

/* ---- bytes ---- */

static void print_buckets(const ech_plan *plan, ech_text *out)
{
    char bytes[32], parts[ECH_COUNT_BYTES];
    ech_text_append(out, "buckets     %zu of gradients, in the order in which they are ready\n",
                    plan->bucket.n);
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        int64_t size = bucket->elements * (int64_t)ech_dtype_bytes(plan->real);
        if (b == MOST_ROWS - 1 && plan->bucket.n > MOST_ROWS) {
            ech_text_append(out, "%*s... and %zu more\n", FIRST_COLUMN, "", plan->bucket.n - b);
            return;
        }
        int first = plan->bucket_param.at[bucket->first_param];
        ech_text_append(out, "%*s%3zu %12s  %4s tensor%s from %s on\n", FIRST_COLUMN, "", b,
                        ech_text_from_bytes(size, bytes, sizeof bytes),
                        ech_count_text(bucket->params, parts), bucket->params == 1 ? "" : "s",
                        plan->model->param.at[first].name);
    }
}

static void print_bytes(const ech_plan_report *report, const ech_plan_class *alike, ech_text *out)
{
    const ech_plan *plan = alike->plan;
    char limit[32], sent[32];
    print_buckets(plan, out);
    ech_text_append(
        out, "memory      of rank %d; limit %s\n", plan->rank,
        ech_text_from_bytes(report->design->config->memory.device_limit, limit, sizeof limit));
    ech_print_memory(plan, out);
    ech_text_append(out, "traffic     rank %d sends %s of gradients a step, by %s reduction\n",
                    plan->rank,
                    ech_text_from_bytes(ech_plan_reduced_bytes(plan), sent, sizeof sent),
                    ech_reduction_name(plan->reduction));
}

/* ---- calendar ---- */

static void print_every(const char *what, int64_t every, bool after_last, ech_text *out)
{
    if (every > 0)
        ech_text_append(out, "; %s every %" PRId64 "%s", what, every,
                        after_last ? " and last" : "");
    else if (after_last)
        ech_text_append(out, "; %s after the last", what);
}

static void print_calendar(const ech_plan_report *report, ech_text *out)
{
    ech_calendar calendar = ech_calendar_of(report->design->config);
    ech_text_append(out, "calendar    %" PRId64 " step%s", calendar.steps, plural(calendar.steps));
    if (calendar.validates) print_every("validate", calendar.validate_every, true, out);
    print_every("compare ranks", calendar.check_every, true, out);
    print_every("save", calendar.save_every, true, out);
    ech_text_append(out, "\n");
}

static void print_steps(const ech_plan_report *report, ech_text *out)
{
    const ech_plan *plan = report->alike.at[0].plan;
    ech_text_append(out,
                    "steps       of the list train, rank %d: number, lane, step, what it comes "
                    "after\n",
                    plan->rank);
    ech_list_print(&plan->list[ECH_LIST_TRAIN], out);
}

void ech_plan_report_text(const ech_plan_report *report, ech_text *out)
{
    print_model(report, out);
    print_layout(report, out);
    print_schedule(report, out);
    for (size_t c = 0; c < report->alike.n; c++) print_bytes(report, &report->alike.at[c], out);
    print_calendar(report, out);
    if (report->checked)
        ech_text_append(out, "checked     all lists of %zu rank%s, and against each other\n",
                        report->plan.n, plural((int64_t)report->plan.n));
    else
        ech_text_append(out,
                        "checked     all lists of rank 0; the ranks against each other only up "
                        "to %d\n",
                        ECH_PLAN_ALL_RANKS);
    if (report->steps) print_steps(report, out);
}
