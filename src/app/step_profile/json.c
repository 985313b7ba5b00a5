/* SPDX-License-Identifier: Apache-2.0
 *
 * The step profile for programs.
 */
#include "app/step_profile/step_profile.h"
#include "app/metrics.h"

static const char *const group_name[ECH_ROW_GROUPS] = {
    [ECH_ROWS_COMPUTE] = "compute", [ECH_ROWS_BESIDE] = "beside", [ECH_ROWS_OUTSIDE] = "outside"};

static void append_line(ech_text *out, ech_text *line)
{
    ech_text_append(out, "%s}\n", line->at);
    ech_text_free(line);
}

static void print_head(const ech_step_profile_table *table, ech_text *out)
{
    ech_text line = {0};
    ech_metrics_int(&line, "rank", table->rank);
    ech_metrics_int(&line, "steps", table->steps);
    ech_metrics_int(&line, "threads", table->threads);
    ech_metrics_real(&line, "seconds", table->seconds);
    ech_metrics_real(&line, "flops_per_second", table->rates.flops);
    ech_metrics_real(&line, "bytes_per_second", table->rates.bytes);
    append_line(out, &line);
}

static void print_row(const ech_step_profile_table *table, const ech_step_profile_row *row,
                      ech_text *out)
{
    ech_text line = {0};
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
    append_line(out, &line);
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
