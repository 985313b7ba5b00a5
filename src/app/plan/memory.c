/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of ranks as text: by kind if all ranks are of one class, else a row per class.
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
        int64_t size = ech_plan_bucket_bytes(plan, (int)b);
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
        if (report->alike.at[c].plan->snapshots) return true;
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

/* The first of the kinds that need the most. */
static size_t find_largest(const ech_plan_report *report)
{
    size_t largest = 0;
    for (size_t c = 1; c < report->alike.n; c++)
        if (report->alike.at[c].plan->arena_bytes > report->alike.at[largest].plan->arena_bytes)
            largest = c;
    return largest;
}

static void print_heading(const ech_plan_report *report, size_t largest, ech_text *out)
{
    char text[32];
    bool snapshot = has_snapshot(report);
    ech_text_append(
        out, "memory      by rank; limit %s; rank %d needs the most\n%*srank ",
        ech_text_from_bytes(report->design->config->memory.device_limit, text, sizeof text),
        report->alike.at[largest].rank, FIRST_COLUMN, "");
    for (int i = 0; i < MEMORY_COLUMNS; i++)
        if (memory_columns[i].kind != ECH_MEMORY_SNAPSHOT || snapshot)
            ech_text_append(out, "%12s ", memory_columns[i].name);
    ech_text_append(out, " buckets\n");
}

/* The first kinds, the one that needs the most, and the last. */
static void print_table(const ech_plan_report *report, ech_text *out)
{
    bool snapshot = has_snapshot(report);
    size_t kinds = report->alike.n, largest = find_largest(report), left = 0;
    print_heading(report, largest, out);
    for (size_t c = 0; c < kinds; c++) {
        const ech_plan_class *alike = &report->alike.at[c];
        bool shown = kinds <= MOST_ROWS || c < MOST_ROWS - 4 || c == largest || c == kinds - 1;
        left += !shown;
        if (!shown) continue;
        if (left)
            ech_text_append(out, "%*s... and %zu more kind%s of ranks\n", FIRST_COLUMN, "", left,
                            left == 1 ? "" : "s");
        left = 0;
        print_memory_row(alike->plan, snapshot, out);
        if (alike->ranks > 1) ech_text_append(out, "   (%d ranks alike)", alike->ranks);
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
