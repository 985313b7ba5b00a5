/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks keep in memory, for people: of ranks alike all of it, otherwise a line each.
 */

#include "app/count.h"
#include "app/plan/report.h"

enum { FIRST_COLUMN = 12, MOST_ROWS = 8 };

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

/* Ranks alike, one the whole story. */
static void print_bytes(const ech_plan_report *report, const ech_plan_class *alike, ech_text *out)
{
    const ech_plan *plan = alike->plan;
    char limit[32];
    print_buckets(plan, out);
    ech_text_append(
        out, "memory      of rank %d; limit %s\n", plan->rank,
        ech_text_from_bytes(report->design->config->memory.device_limit, limit, sizeof limit));
    ech_print_memory(plan, out);
}

enum { WORKING = ECH_MEMORY_KINDS, ARENA, NUMBERS };

/* Ranks that differ: a line each. The columns: kinds of memory, what is at work at once, the arena. The snapshot's
 * only where there is one. */
static const struct {
    const char *name;
    int kind; /* or WORKING, ARENA */
} memory_columns[] = {{"parameters", ECH_MEMORY_PARAMETERS},
                      {"optimizer", ECH_MEMORY_OPTIMIZER},
                      {"gradients", ECH_MEMORY_GRADIENTS},
                      {"activations", ECH_MEMORY_ACTIVATIONS},
                      {"snapshot", ECH_MEMORY_SNAPSHOT},
                      {"working", WORKING},
                      {"arena", ARENA}};
enum { MEMORY_COLUMNS = sizeof memory_columns / sizeof *memory_columns };

static bool has_snapshot(const ech_plan_report *report)
{
    for (size_t c = 0; c < report->alike.n; c++)
        if (report->alike.at[c].full && report->alike.at[c].plan->snapshots) return true;
    return false;
}

static void print_memory_row(const ech_plan *plan, bool snapshot, ech_text *out)
{
    int64_t bytes[NUMBERS];
    char text[32];
    ech_plan_peaks(plan, bytes);
    bytes[WORKING] = ech_plan_working(plan).bytes;
    bytes[ARENA] = plan->arena_bytes;
    ech_text_append(out, "%*s%4d ", FIRST_COLUMN, "", plan->rank);
    for (int i = 0; i < MEMORY_COLUMNS; i++) {
        if (memory_columns[i].kind == ECH_MEMORY_SNAPSHOT && !snapshot) continue;
        ech_text_append(out, "%12s ",
                        ech_text_from_bytes(bytes[memory_columns[i].kind], text, sizeof text));
    }
    ech_text_append(out, " %zu", plan->bucket.n);
}

static void print_table(const ech_plan_report *report, ech_text *out)
{
    char text[32];
    bool snapshot = has_snapshot(report);
    ech_text_append(
        out, "memory      by rank; limit %s\n%*srank ",
        ech_text_from_bytes(report->design->config->memory.device_limit, text, sizeof text),
        FIRST_COLUMN, "");
    for (int i = 0; i < MEMORY_COLUMNS; i++)
        if (memory_columns[i].kind != ECH_MEMORY_SNAPSHOT || snapshot)
            ech_text_append(out, "%12s ", memory_columns[i].name);
    ech_text_append(out, " buckets\n");
    for (size_t c = 0; c < report->alike.n; c++) {
        if ((c == MOST_ROWS - 1 && report->alike.n > MOST_ROWS) || !report->alike.at[c].full) {
            ech_text_append(out, "%*s... and %zu more kinds of ranks\n", FIRST_COLUMN, "",
                            report->alike.n - c);
            break;
        }
        print_memory_row(report->alike.at[c].plan, snapshot, out);
        if (report->alike.at[c].ranks > 1)
            ech_text_append(out, "   (%d ranks alike)", report->alike.at[c].ranks);
        ech_text_append(out, "\n");
    }
}

void ech_plan_print_memory(const ech_plan_report *report, ech_text *out)
{
    if (report->alike.n == 1)
        print_bytes(report, &report->alike.at[0], out);
    else
        print_table(report, out);
}
