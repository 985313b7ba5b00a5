/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of `echelon plan`, by classes of ranks: memory, and bytes that are sent in a training
 * step.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/count.h"
#include "app/plan/report.h"
#include "app/setup/parts.h"
#include "schedule/peaks.h"
#include "schedule/states.h"
#include "schedule/traffic.h"

enum { MOST_ROWS = 8, MOST_KINDS = 4 };

static void print_left_out(size_t kinds, ech_text *out)
{
    ech_text_append(out, ECH_PLAN_INDENT "... and %s of ranks\n",
                    ECH_COUNT((int64_t)kinds, "more kind"));
}

static void end_row(int ranks, ech_text *out)
{
    if (ranks > 1) ech_text_append(out, "   (%d ranks alike)", ranks);
    ech_text_append(out, "\n");
}

/* ---- memory: by kind if all ranks are of one class, else a row per class ---- */

static void print_buckets(const ech_plan *plan, ech_text *out)
{
    ech_text_append(out, "buckets     %zu of gradients, each of one block\n", plan->bucket.n);
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        if (b == MOST_ROWS - 1 && plan->bucket.n > MOST_ROWS) {
            ech_text_append(out, ECH_PLAN_INDENT "... and %zu more\n", plan->bucket.n - b);
            return;
        }
        int first = plan->bucket_param.at[bucket->first_param];
        int64_t begin;
        ech_text_append(out, ECH_PLAN_INDENT "%3zu %12s  %4s tensor%s from %s on", b,
                        ECH_BYTES(ech_plan_bucket_bytes(plan, (int)b)), ECH_DIGITS(bucket->params),
                        bucket->params == 1 ? "" : "s", plan->model->param.at[first].name);
        if (bucket->padding)
            ech_text_append(out, ", %s of them padding",
                            ECH_BYTES(bucket->padding * (int64_t)ech_dtype_bytes(bucket->dtype)));
        if (bucket->frozen) ech_text_append(out, ", frozen");
        if (bucket->pieces > 1)
            ech_text_append(out, ", updated in %d pieces", bucket->pieces);
        else if (ech_bucket_leaves(bucket) && ech_bucket_updated(bucket, &begin) > bucket->piece &&
                 ech_bucket_uncut(plan, bucket))
            ech_text_append(out, ", updated whole: %s", ech_bucket_uncut(plan, bucket));
        ech_text_append(out, "\n");
    }
}

/* The columns of the table by ranks: kinds of memory, what is at work at once, each space's
 * arena. */
enum { WORKING = ECH_MEMORY_KINDS, ARENA, NUMBERS = ARENA + ECH_SPACES, NAME = 40 };

static void name_column(int column, char name[NAME])
{
    if (column >= ARENA)
        snprintf(name, NAME, "%s arena", ech_space_name((ech_space)(column - ARENA)));
    else
        snprintf(name, NAME, "%s",
                 column == WORKING ? "working" : ech_memory_name((ech_memory_kind)column));
}

static void find_numbers(const ech_plan *plan, int64_t bytes[NUMBERS])
{
    ech_plan_peaks(plan, bytes);
    bytes[WORKING] = ech_plan_working(plan).bytes;
    for (int space = 0; space < ECH_SPACES; space++)
        bytes[ARENA + space] = plan->arena_bytes[space];
}

/* What is at work is one column, and activations, most of it, one of their own. What is small
 * everywhere has none. */
static bool has_column(ech_memory_kind kind)
{
    return kind == ECH_MEMORY_ACTIVATIONS ||
           (!ech_memory_is_working(kind) && kind != ECH_MEMORY_STAGING &&
            kind != ECH_MEMORY_STATISTICS);
}

/* Space by space, with those kinds that some rank has. Returns how many. */
static int choose_columns(const ech_plan_report *report, int columns[NUMBERS])
{
    int64_t most[NUMBERS] = {0};
    int n = 0;
    for (size_t c = 0; c < report->alike.n; c++) {
        int64_t bytes[NUMBERS];
        find_numbers(report->alike.at[c].plan, bytes);
        for (int i = 0; i < NUMBERS; i++)
            if (bytes[i] > most[i]) most[i] = bytes[i];
    }
    for (int space = 0; space < ECH_SPACES; space++) {
        for (ech_memory_kind kind = 0; kind < ECH_MEMORY_KINDS; kind++)
            if (most[kind] && has_column(kind) && (int)ech_memory_space(kind) == space)
                columns[n++] = (int)kind;
        if (space == ECH_SPACE_DEVICE) columns[n++] = WORKING;
        if (most[ARENA + space]) columns[n++] = ARENA + space;
    }
    return n;
}

/* plan NULL: the heading. */
static void print_memory_row(const ech_plan *plan, const int *columns, int n, ech_text *out)
{
    int64_t bytes[NUMBERS];
    if (plan) {
        find_numbers(plan, bytes);
        ech_text_append(out, ECH_PLAN_INDENT "%4d", plan->rank);
    } else
        ech_text_append(out, ECH_PLAN_INDENT "rank");
    for (int i = 0; i < n; i++) {
        char name[NAME];
        name_column(columns[i], name);
        int width = strlen(name) > 12 ? (int)strlen(name) : 12;
        ech_text_append(out, " %*s", width, plan ? ECH_BYTES(bytes[columns[i]]) : name);
    }
    ech_text_append(out, "  ");
}

/* The first of the kinds that need the most. */
static size_t find_largest(const ech_plan_report *report)
{
    size_t largest = 0;
    for (size_t c = 1; c < report->alike.n; c++)
        if (report->alike.at[c].plan->arena_bytes[ECH_SPACE_DEVICE] >
            report->alike.at[largest].plan->arena_bytes[ECH_SPACE_DEVICE])
            largest = c;
    return largest;
}

/* Whose scratch and alignment it is. */
static void print_device(const ech_plan_report *report, ech_text *out)
{
    const ech_config *config = report->design->config;
    bool is_known = config->memory.device_limit != ECH_LIMIT_UNKNOWN;
    if (report->design->cluster)
        ech_text_append(out, "on a device of the cluster");
    else
        ech_text_append(out, "on %s (%s)", ech_config_name(config, "parallel.device"),
                        ech_kernels_architecture(report->design->kernels));
    ech_text_append(out, "; limit %s",
                    is_known ? ECH_BYTES(config->memory.device_limit)
                             : "unknown, as this machine has none (memory.device_limit)");
    if (config->memory.host_limit)
        ech_text_append(out, ", of the host %s", ECH_BYTES(config->memory.host_limit));
}

/* What NCCL takes besides the arenas. */
static void print_joined(const ech_plan_report *report, const ech_plan *plan, ech_text *out)
{
    const ech_communicators joined = ech_communicators_of(report->design, plan);
    ech_communicators_print(&joined, out);
}

/* The first kinds, the one that needs the most, and the last. */
static void print_memory_table(const ech_plan_report *report, ech_text *out)
{
    int columns[NUMBERS], n = choose_columns(report, columns);
    size_t kinds = report->alike.n, largest = find_largest(report), left = 0;
    ech_text_append(out, "memory      by rank, ");
    print_device(report, out);
    ech_text_append(out, "; rank %d needs the most\n", report->alike.at[largest].rank);
    print_memory_row(NULL, columns, n, out);
    ech_text_append(out, "buckets\n");
    for (size_t c = 0; c < kinds; c++) {
        const ech_plan_class *alike = &report->alike.at[c];
        bool shown = kinds <= MOST_ROWS || c < MOST_ROWS - 4 || c == largest || c == kinds - 1;
        left += !shown;
        if (!shown) continue;
        if (left) print_left_out(left, out);
        left = 0;
        print_memory_row(alike->plan, columns, n, out);
        ech_text_append(out, "%zu", alike->plan->bucket.n);
        end_row(alike->ranks, out);
    }
}

/* "2,176 = 2 x 1,024 bf16 + 4 x 32 fp32". Returns the bytes. */
static int64_t print_numbers(const ech_plan *plan, ech_memory_kind kind, ech_text *out)
{
    int64_t numbers[ECH_DTYPES], bytes = ech_plan_number_bytes(plan, kind);
    const char *before = bytes ? " = " : "";
    ech_plan_numbers(plan, kind, numbers);
    ech_text_append(out, ECH_PLAN_INDENT "%-21s %22s", ech_memory_name(kind), ECH_DIGITS(bytes));
    for (ech_dtype d = 0; d < ECH_DTYPES; d++) {
        if (!numbers[d]) continue;
        ech_text_append(out, "%s%zu x %s %s", before, ech_dtype_bytes(d), ECH_DIGITS(numbers[d]),
                        ech_dtype_name(d));
        before = " + ";
    }
    ech_text_append(out, "\n");
    return bytes;
}

/* Of what the model alone decides, and what ranks share out. */
static void print_states(const ech_plan *plan, ech_text *out)
{
    int64_t bytes = 0;
    ech_text_append(out,
                    "states      of rank %d, in bytes, without padding and buckets under way; each "
                    "value aligned to %" PRId64 "\n",
                    plan->rank, plan->alignment[ECH_SPACE_DEVICE]);
    for (int k = 0; k < ECH_MODEL_STATES; k++)
        bytes += print_numbers(plan, ech_model_states[k], out);
    ech_text_append(out, ECH_PLAN_INDENT "%-21s %22s\n", "model states", ECH_DIGITS(bytes));
}

/* It is the same on each, and none of what others have. */
static void print_evaluator(const ech_plan_report *report, ech_text *out)
{
    const ech_plan_evaluator *e = &report->evaluator;
    if (!e->plan) return;
    ech_text_append(
        out, "evaluator   memory of rank %d%s: the whole model, to validate\n",
        e->design.first_rank,
        ech_layout_roles(report->design->layout).evaluate.n > 1 ? " and of each after it" : "");
    ech_print_memory(e->plan, out);
}

void ech_plan_print_memory(const ech_plan_report *report, ech_text *out)
{
    print_states(report->alike.at[0].plan, out);
    const ech_plan *plan = report->alike.at[0].plan;
    if (report->alike.n > 1) {
        print_memory_table(report, out);
        print_joined(report, report->alike.at[find_largest(report)].plan, out);
        print_evaluator(report, out);
        return;
    }
    print_buckets(plan, out);
    ech_text_append(out, "memory      of rank %d, ", plan->rank);
    print_device(report, out);
    ech_text_append(out, "\n");
    ech_print_memory(plan, out);
    print_joined(report, plan, out);
    print_evaluator(report, out);
}

/* ---- traffic: a row for each axis, collective and group, for each set of classes that send the
 * same ---- */

/* Consecutive classes of ranks that send the same. */
typedef struct sender {
    int rank, ranks; /* the first, and how many */
    ech_traffic traffic[ECH_TRAFFIC_AXES];
} sender;
typedef ECH_LIST(sender) sender_list;

static void add_class(const ech_plan_class *alike, sender_list *senders)
{
    sender next = {.rank = alike->plan->rank, .ranks = alike->ranks};
    sender *last = senders->n ? &senders->at[senders->n - 1] : NULL;
    ech_plan_step_traffic(alike->plan, next.traffic);
    if (last && memcmp(last->traffic, next.traffic, sizeof next.traffic) == 0)
        last->ranks += next.ranks;
    else
        ECH_PUSH(*senders, next);
}

/* "all_reduce", or where the axis does not say over whom "all_reduce over data x tensor". */
static void print_over(ech_traffic_axis axis, ech_collective kind, ech_layout_group group,
                       ech_text *out)
{
    const char *name = ech_layout_group_name(group);
    ech_space from, to;
    if (kind == ECH_COLLECTIVE_NONE) {
        ech_text_append(out, "%s",
                        ech_traffic_copies(axis, &from, &to) ? "copies"
                        : axis == ECH_TRAFFIC_RING_TOKEN     ? "to the next cluster"
                                                             : "messages to other stages");
        return;
    }
    ech_text_append(out, "%s", ech_collective_name(kind));
    if (strcmp(name, ech_traffic_axis_name(axis)) != 0) ech_text_append(out, " over %s", name);
}

static void print_flow(const char *axis, const ech_flow *flow, ech_text *out)
{
    ech_text_append(out, "  %-9s %7s %9s %12s  ", axis, ECH_DIGITS(flow->calls),
                    flow->messages < 0 ? "-" : ECH_DIGITS(flow->messages), ECH_BYTES(flow->bytes));
}

/* A row for each kind of collective and group along the axis. first: no row of the rank has been
 * printed. */
static bool print_axis(const sender *s, ech_traffic_axis axis, bool first, ech_text *out)
{
    const char *name = ech_traffic_axis_name(axis);
    for (int group = 0; group < ECH_GROUPS; group++)
        for (int kind = 0; kind < ECH_COLLECTIVES; kind++) {
            const ech_flow *flow = &s->traffic[axis].of[group][kind];
            char rank[16] = "";
            if (!flow->calls) continue;
            if (first) snprintf(rank, sizeof rank, "%d", s->rank);
            ech_text_append(out, ECH_PLAN_INDENT "%4s", rank);
            print_flow(name, flow, out);
            print_over(axis, (ech_collective)kind, (ech_layout_group)group, out);
            if (flow->more)
                ech_text_append(out, ", expected; at most %s", ECH_BYTES(flow->bytes + flow->more));
            end_row(first ? s->ranks : 1, out);
            name = "";
            first = false;
        }
    return first;
}

static void print_sender(const sender *s, ech_text *out)
{
    bool first = true;
    for (int axis = 0; axis < ECH_TRAFFIC_AXES; axis++)
        first = print_axis(s, (ech_traffic_axis)axis, first, out);
    if (first) ech_text_append(out, ECH_PLAN_INDENT "%4d  nothing\n", s->rank);
}

static bool is_silent(const sender *s)
{
    int64_t calls = 0;
    for (int axis = 0; axis < ECH_TRAFFIC_AXES; axis++)
        calls += ech_traffic_all(&s->traffic[axis]).calls;
    return calls == 0;
}

/* "; gradients by direct reduction", and ", as bf16" if some travel narrowed. */
static void print_reduction(const ech_plan *plan, ech_text *out)
{
    size_t b = 0;
    ech_text_append(out, "; gradients by %s reduction", ech_reduction_name(plan->reduction));
    while (b < plan->bucket.n && plan->bucket.at[b].wire == plan->bucket.at[b].dtype) b++;
    if (b < plan->bucket.n)
        ech_text_append(out, ", as %s", ech_dtype_name(plan->bucket.at[b].wire));
}

/* Bytes of the averages of local replicas (local_sgd, diloco, gossip). */
static void print_meeting(const ech_plan *plan, ech_text *out)
{
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    if (plan->list[ECH_LIST_SYNC].step.n == 0) return;
    ech_plan_list_traffic(plan, ECH_LIST_SYNC, traffic);
    ech_text_append(out, ECH_PLAN_INDENT "for each average of replicas rank %d sends %s more\n",
                    plan->rank, ECH_BYTES(ech_traffic_all(&traffic[ECH_TRAFFIC_DATA]).bytes));
    if (plan->list[ECH_LIST_GOSSIP].step.n == 0) return;
    ech_plan_list_traffic(plan, ECH_LIST_GOSSIP, traffic);
    ech_text_append(out,
                    ECH_PLAN_INDENT "after each step in between it sends its two neighbours "
                                    "%s\n",
                    ECH_BYTES(ech_traffic_all(&traffic[ECH_TRAFFIC_DATA]).bytes));
}

void ech_plan_print_traffic(const ech_plan_report *report, ech_text *out)
{
    sender_list senders = {0};
    for (size_t c = 0; c < report->alike.n; c++) add_class(&report->alike.at[c], &senders);
    if (report->design->world == 1 && is_silent(&senders.at[0])) {
        free(senders.at);
        return;
    }
    ech_text_append(out, "traffic     that one rank sends or copies in a step");
    if (report->design->world > 1) print_reduction(report->plan.at[0], out);
    ech_text_append(out,
                    "\n" ECH_PLAN_INDENT "rank  axis        times  messages        bytes  what\n");
    for (size_t i = 0; i < senders.n; i++) {
        if (i == MOST_KINDS - 2 && senders.n > MOST_KINDS) { /* the last is shown */
            print_left_out(senders.n - 1 - i, out);
            i = senders.n - 1;
        }
        print_sender(&senders.at[i], out);
    }
    print_meeting(report->alike.at[0].plan, out);
    free(senders.at);
}

void ech_plan_step_traffic(const ech_plan *plan, ech_traffic traffic[ECH_TRAFFIC_AXES])
{
    /* A worker's turns are the pushes that it can have in a span: on the average one a training
     * step. A server's are all workers'. */
    bool serves = ech_layout_serves(plan->layout, plan->rank);
    int turns = serves ? plan->schedule->turns : ech_plan_turns(plan);
    ech_plan_traffic(plan, traffic);
    for (int axis = 0; axis < ECH_TRAFFIC_AXES; axis++)
        for (int group = 0; group < ECH_GROUPS; group++)
            for (int kind = 0; kind < ECH_COLLECTIVES; kind++) {
                ech_flow *flow = &traffic[axis].of[group][kind];
                flow->calls = (flow->calls + turns - 1) / turns; /* once a span is some */
                if (flow->messages > 0) flow->messages = (flow->messages + turns - 1) / turns;
                flow->bytes /= turns;
                flow->more /= turns;
            }
}
