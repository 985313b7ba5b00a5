/* SPDX-License-Identifier: Apache-2.0
 *
 * The step profile for people.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/count.h"
#include "app/metrics.h"
#include "app/step_profile/step_profile.h"

enum { NAME_COLUMNS = 34 };

/* Rows that take less of the compute lane are put together, and a rank is named that takes longer
 * by so much: of the row, and of the step. */
static const double small_share = 1e-3, longer_share = 0.25, longer_of_step = 0.01;

typedef struct printer {
    const ech_step_profile_table *all;
    int ranks;
    double steps, step; /* step: seconds of one, with what follows it */
    double small;       /* seconds of a row that is not worth a line */
    ech_text *out;
} printer;

static void append_number(const printer *p, bool shown, int width, int digits, double value)
{
    if (shown)
        ech_text_append(p->out, " %*.*f", width, digits, value);
    else
        ech_text_append(p->out, " %*s", width, "");
}

/* GFLOP/s where FLOPs are what takes the time, else GB/s. */
static void append_rate(const printer *p, const ech_step_profile_row *row)
{
    ech_machine_rates rates = p->all[0].rates;
    char text[ECH_COUNT_BYTES] = "";
    bool multiplies = row->flops > 0 &&
                      (rates.flops <= 0 || row->bytes * rates.flops <= row->flops * rates.bytes ||
                       rates.bytes <= 0);
    if (row->seconds > 0 && multiplies)
        ech_count_scaled(row->flops / row->seconds, "FLOP/s", text);
    else if (row->seconds > 0 && row->bytes > 0)
        ech_count_scaled(row->bytes / row->seconds, "B/s", text);
    ech_text_append(p->out, " %14s", text);
}

static const ech_step_profile_row *find(const ech_step_profile_table *table,
                                        const ech_step_profile_row *like)
{
    return ech_step_profile_find(table->row.at, table->row.n, like);
}

/* The rank on which the row takes longest. */
static int slowest(const printer *p, const ech_step_profile_row *row, double *seconds)
{
    int rank = 0;
    *seconds = -1;
    for (int r = 0; r < p->ranks; r++) {
        const ech_step_profile_row *there = find(&p->all[r], row);
        if (!there || there->seconds <= *seconds) continue;
        *seconds = there->seconds;
        rank = r;
    }
    return rank;
}

static void append_row(const printer *p, const ech_step_profile_row *row)
{
    double ms = 1e3 / p->steps, slowest_seconds;
    int rank = slowest(p, row, &slowest_seconds);
    double longer = slowest_seconds - row->seconds;
    ech_text_append(p->out, "  %-*s", NAME_COLUMNS, row->name);
    append_number(p, row->calls > 0, 7, row->calls < 10 * p->steps ? 1 : 0, row->calls / p->steps);
    append_number(p, true, 10, 3, row->seconds * ms);
    append_number(p, true, 6, 1, 100 * row->seconds / (p->step * p->steps));
    append_rate(p, row);
    append_number(p, row->bound > 0, 10, 3, row->bound * ms);
    append_number(p, row->group != ECH_ROWS_BESIDE, 10, 3, (row->seconds - row->bound) * ms);
    if (longer > longer_share * row->seconds && longer > longer_of_step * p->step * p->steps)
        ech_text_append(p->out, "   rank %d: %.2f ms", rank, slowest_seconds * ms);
    while (p->out->at[p->out->n - 1] == ' ') p->out->n--;
    ech_text_append(p->out, "\n");
}

static void append_heading(const printer *p, const char *title)
{
    ech_text_append(p->out, "\n%-*s %7s %10s %6s %14s %10s %10s\n", NAME_COLUMNS + 2, title,
                    "calls", "ms a step", "%", "rate", "bound ms", "over it");
}

/* ---- the groups ---- */

static int by_gain(const void *a, const void *b)
{
    const ech_step_profile_row *x = a, *y = b;
    double gain = (y->seconds - y->bound) - (x->seconds - x->bound);
    return gain > 0 ? 1 : gain < 0 ? -1 : strcmp(x->name, y->name);
}

static void add_row(ech_step_profile_row *sum, const ech_step_profile_row *row)
{
    sum->calls += row->calls;
    sum->seconds += row->seconds;
    sum->bound += row->bound;
}

/* The rows of a group that take time, the small ones together, and their sum, which is returned. */
static ech_step_profile_row append_group(const printer *p, ech_row_group group, ech_lane lane,
                                         const char *title)
{
    const ech_step_profile_table *table = &p->all[0];
    ech_step_profile_row sum = {.name = "sum", .group = group}, rest = sum;
    ECH_FREED ech_step_profile_row *rows = ech_calloc(table->row.n + 1, sizeof *rows);
    size_t n = 0, small = 0, last = 0;
    for (size_t i = 0; i < table->row.n; i++) {
        const ech_step_profile_row *row = &table->row.at[i];
        bool is_of = row->group == group && (group == ECH_ROWS_OUTSIDE || row->lane == lane);
        if (is_of && (row->seconds > 0 || row->calls > 0)) rows[n++] = *row;
    }
    if (n == 0) return sum;
    append_heading(p, title);
    qsort(rows, n, sizeof *rows, by_gain);
    for (size_t i = 0; i < n; i++) {
        add_row(&sum, &rows[i]);
        if (rows[i].seconds >= p->small) {
            append_row(p, &rows[i]);
            continue;
        }
        add_row(&rest, &rows[i]);
        small++;
        last = i;
    }
    snprintf(rest.name, sizeof rest.name, "%zu small rows together", small);
    if (small) append_row(p, small > 1 ? &rest : &rows[last]);
    sum.calls = 0;
    append_row(p, &sum);
    return sum;
}

static void append_lanes(const printer *p)
{
    for (ech_lane lane = 0; lane < ECH_LANES; lane++) {
        char title[64];
        snprintf(title, sizeof title, "%s lane, beside it", ech_lane_name(lane));
        append_group(p, ECH_ROWS_BESIDE, lane, title);
    }
}

/* What rank 0 has no row of, as it is where it takes longest. */
static void append_others(const printer *p)
{
    bool any = false;
    for (int r = 1; r < p->ranks; r++) {
        for (size_t i = 0; i < p->all[r].row.n; i++) {
            const ech_step_profile_row *row = &p->all[r].row.at[i];
            double seconds;
            bool is_small = row->seconds < p->small;
            if (is_small || find(&p->all[0], row) || slowest(p, row, &seconds) != r) continue;
            if (!any) append_heading(p, "not on rank 0, where it is slowest");
            any = true;
            ech_step_profile_row named = *row;
            snprintf(named.name, sizeof named.name, "rank %d: %.50s", r, row->name);
            append_row(p, &named);
        }
    }
}

/* ---- the whole ---- */

static void append_head(const printer *p)
{
    const ech_step_profile_table *own = &p->all[0];
    ech_text_append(p->out, "where the time of a step goes: mean of %s",
                    ECH_COUNT(own->steps, "step"));
    if (p->ranks > 1) ech_text_append(p->out, ", rank 0 of %d", p->ranks);
    ech_text_append(p->out, ", %s; this machine's own rates: products %s, memory %s\n",
                    ECH_COUNT(own->threads, "thread"), ECH_SCALED(own->rates.flops, "FLOP/s"),
                    ECH_SCALED(own->rates.bytes, "B/s"));
}

/* In lists of steps: of all rows of the compute lane. */
static double listed_seconds(const ech_step_profile_table *table)
{
    double seconds = 0;
    for (size_t i = 0; i < table->row.n; i++)
        if (table->row.at[i].group == ECH_ROWS_COMPUTE) seconds += table->row.at[i].seconds;
    return seconds;
}

/* A step against what it would take at least. */
static void append_sum(const printer *p, const ech_step_profile_row *lane)
{
    double ms = 1e3 / p->steps, between = p->all->seconds - lane->seconds;
    ech_text_append(p->out, "\na step takes %.2f ms", lane->seconds * ms);
    if (lane->bound > 0)
        ech_text_append(p->out,
                        "; its work would take %.2f ms at these rates, which is %.0f%% of it",
                        lane->bound * ms, 100 * lane->bound / lane->seconds);
    ech_text_append(p->out, "; another %.2f ms go by between steps\n", between * ms);
}

void ech_step_profile_print(const ech_step_profile_table *all, int ranks, ech_text *out)
{
    printer p = {.all = all, .ranks = ranks, .steps = (double)all->steps, .out = out};
    if (all->steps < 1) {
        ech_text_append(out, "no step was profiled: the first step does not count, and there was "
                             "no other\n");
        return;
    }
    p.step = all->seconds / p.steps;
    p.small = small_share * listed_seconds(all);
    append_head(&p);
    ech_step_profile_row lane =
        append_group(&p, ECH_ROWS_COMPUTE, ECH_LANE_COMPUTE, "compute lane");
    append_lanes(&p);
    append_group(&p, ECH_ROWS_OUTSIDE, ECH_LANE_COMPUTE, "between lists of steps");
    append_others(&p);
    append_sum(&p, &lane);
}

/* ---- for programs ---- */

static const char *const group_name[ECH_ROW_GROUPS] = {
    [ECH_ROWS_COMPUTE] = "compute", [ECH_ROWS_BESIDE] = "beside", [ECH_ROWS_OUTSIDE] = "outside"};

static void print_head(const ech_step_profile_table *table, ech_text *out)
{
    ECH_FREED_TEXT line = {0};
    ech_metrics_int(&line, "rank", table->rank);
    ech_metrics_int(&line, "steps", table->steps);
    ech_metrics_int(&line, "threads", table->threads);
    ech_metrics_real(&line, "seconds", table->seconds);
    ech_metrics_real(&line, "flops_per_second", table->rates.flops);
    ech_metrics_real(&line, "bytes_per_second", table->rates.bytes);
    ech_text_append(out, "%s}\n", line.at);
}

static void print_row(const ech_step_profile_table *table, const ech_step_profile_row *row,
                      ech_text *out)
{
    ECH_FREED_TEXT line = {0};
    ech_metrics_int(&line, "rank", table->rank);
    ech_metrics_text(&line, "group", group_name[row->group]);
    if (row->group != ECH_ROWS_OUTSIDE) ech_metrics_text(&line, "lane", ech_lane_name(row->lane));
    ech_metrics_text(&line, "row", row->name);
    ech_text_append(&line, ",\"waits\":%s", row->waits ? "true" : "false");
    ech_metrics_real(&line, "calls", row->calls);
    ech_metrics_real(&line, "seconds", row->seconds);
    ech_metrics_real(&line, "flops", row->flops);
    ech_metrics_real(&line, "bytes", row->bytes);
    ech_metrics_real(&line, "bound_seconds", row->bound);
    ech_text_append(out, "%s}\n", line.at);
}

void ech_step_profile_print_json(const ech_step_profile_table *all, int ranks, ech_text *out)
{
    for (int r = 0; r < ranks; r++) {
        print_head(&all[r], out);
        for (size_t i = 0; i < all[r].row.n; i++)
            if (all[r].row.at[i].calls > 0 || all[r].row.at[i].seconds > 0)
                print_row(&all[r], &all[r].row.at[i], out);
    }
}
