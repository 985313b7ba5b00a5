/* SPDX-License-Identifier: Apache-2.0
 *
 * COUNTERS equal the plan: every list sends as many calls, messages and bytes over each group, to
 * other stages and to the ranks that hold activations, as ech_plan_list_traffic counts in its
 * steps, and copies as many bytes between spaces.
 */
#include "app/probe.h"
#include "schedule/traffic.h"

enum { SUMS, SCATTERS, GATHERS, INSIDE, KINDS };
static const ech_comm_counted counted[KINDS] = {[SUMS] = ECH_COMM_REDUCES,
                                                [SCATTERS] = ECH_COMM_SCATTERS,
                                                [GATHERS] = ECH_COMM_GATHERS,
                                                [INSIDE] = ECH_COMM_COLLECTIVES};

/* What a rank has sent when the list begins. */
typedef struct seen {
    ech_comm_count of[ECH_GROUPS][KINDS], messages[ECH_MESSAGES], exchanged;
    int64_t copied[ECH_TRAFFIC_AXES];
} seen;

/* In which order pushes come is open, and with it who sends how many of them. */
static bool applies(const ech_design *design)
{
    return design->layout->sums != ECH_SUMS_SERVERS;
}

static void add(ech_comm_count *sum, ech_comm_count one, int sign)
{
    sum->calls += sign * one.calls;
    sum->messages += sign * one.messages;
    sum->bytes += sign * one.bytes;
}

static void add_now(const ech_exec *exec, seen *s, int sign)
{
    for (ech_layout_group g = 0; g < ECH_GROUPS; g++)
        for (int k = 0; k < KINDS; k++)
            for (ech_lane lane = 0; lane < ECH_LANES; lane++)
                if (lane != ECH_LANE_DISK)
                    add(&s->of[g][k], ech_exec_channel_count(exec, g, lane, counted[k]), sign);
    for (ech_message_kind m = 0; m < ECH_MESSAGES; m++)
        add(&s->messages[m], ech_exec_counted(exec)->messages[m], sign);
    add(&s->exchanged, ech_exec_counted(exec)->exchanged, sign);
    for (ech_traffic_axis axis = 0; axis < ECH_TRAFFIC_AXES; axis++) {
        ech_space from, to;
        if (ech_traffic_copies(axis, &from, &to))
            s->copied[axis] += sign * ech_exec_counted(exec)->copied[from][to];
    }
}

/* Where tables say how many rows there are, bytes have a bound. */
static void compare(const char *list, const char *what, ech_flow planned, ech_comm_count sent)
{
    bool same = planned.messages < 0 || planned.messages == sent.messages;
    bool fits =
        planned.more > 0 ? sent.bytes <= planned.bytes + planned.more : sent.bytes == planned.bytes;
    if (planned.calls != sent.calls || !fits || !same)
        probe_fail("%s, %s: planned are %lld calls, %lld messages, %lld bytes; sent were %lld, "
                   "%lld, %lld",
                   list, what, (long long)planned.calls, (long long)planned.messages,
                   (long long)planned.bytes, (long long)sent.calls, (long long)sent.messages,
                   (long long)sent.bytes);
}

static void add_flow(ech_flow *sum, ech_flow one)
{
    sum->calls += one.calls;
    sum->bytes += one.bytes;
    sum->more += one.more;
    sum->messages = sum->messages < 0 || one.messages < 0 ? -1 : sum->messages + one.messages;
}

/* Compares rows that are exchanged by counts: tables give their bytes, and the channel must have
 * counted the same. With several rounds the number of messages is not fixed either. */
static ech_flow known_rows(const char *list, ech_flow rows, ech_comm_count exchanged)
{
    if (exchanged.messages < rows.messages)
        probe_fail("%s: %lld messages of rows, at least %lld are planned", list,
                   (long long)exchanged.messages, (long long)rows.messages);
    rows.messages = -1;
    compare(list, "rows by counts", rows, exchanged);
    return (ech_flow){exchanged.calls, exchanged.messages, exchanged.bytes, 0};
}

static void compare_group(const char *list, const ech_traffic *traffic, ech_layout_group g, seen *s)
{
    static const ech_traffic_axis axes[] = {ECH_TRAFFIC_TENSOR, ECH_TRAFFIC_CONTEXT,
                                            ECH_TRAFFIC_EXPERT, ECH_TRAFFIC_NORM, ECH_TRAFFIC_DATA};
    ech_flow planned = {0}, rows = {0};
    ech_comm_count sent = {0};
    for (size_t a = 0; a < sizeof axes / sizeof *axes; a++)
        for (int c = 0; c < ECH_COLLECTIVES; c++) {
            ech_flow one = ech_traffic_of(&traffic[axes[a]], c, (int)g);
            bool by_counts = c == ECH_COLLECTIVE_EXCHANGE_ROWS;
            add_flow(by_counts ? &rows : &planned, one);
        }
    if (rows.calls) add_flow(&planned, known_rows(list, rows, s->exchanged));
    for (int k = 0; k < KINDS; k++) add(&sent, s->of[g][k], 1);
    compare(list, ech_layout_group_name(g), planned, sent);
}

/* Sums, scatters and gathers of gradients and weights by themselves, where nothing else is folded
 * over the group. */
static void compare_sums(const char *list, const ech_plan *plan, const ech_traffic *traffic,
                         ech_layout_group g, const seen *s)
{
    static const ech_collective kinds[] = {[SUMS] = ECH_COLLECTIVE_ALL_REDUCE,
                                           [SCATTERS] = ECH_COLLECTIVE_REDUCE_SCATTER,
                                           [GATHERS] = ECH_COLLECTIVE_ALL_GATHER};
    for (size_t b = 0; b < plan->bucket.n; b++)
        if (plan->bucket.at[b].rounds || plan->bucket.at[b].compressed) return;
    for (int k = SUMS; k <= GATHERS; k++)
        compare(list, ech_layout_group_name(g),
                ech_traffic_of(&traffic[ECH_TRAFFIC_DATA], kinds[k], (int)g), s->of[g][k]);
}

static void compare_all(const probe_run *run, seen *s)
{
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    const char *list = ech_list_name(run->list);
    ech_comm_count stages = s->messages[ECH_MESSAGE_ACTIVATIONS];
    ech_plan_list_traffic(run->session->plan, run->list, traffic);
    for (ech_layout_group g = 0; g < ECH_GROUPS; g++) {
        compare_group(list, traffic, g, s);
        compare_sums(list, run->session->plan, traffic, g, s);
    }
    add(&stages, s->messages[ECH_MESSAGE_GRADIENTS], 1);
    compare(list, "to stages", ech_traffic_all(&traffic[ECH_TRAFFIC_PIPELINE]), stages);
    compare(list, "to hold", ech_traffic_all(&traffic[ECH_TRAFFIC_KEPT]),
            s->messages[ECH_MESSAGE_KEPT]);
    compare(list, "back", ech_traffic_all(&traffic[ECH_TRAFFIC_BACK]),
            s->messages[ECH_MESSAGE_BACK]);
    for (ech_traffic_axis axis = 0; axis < ECH_TRAFFIC_AXES; axis++) {
        int64_t planned = ech_traffic_all(&traffic[axis]).bytes;
        ech_space from, to;
        if (ech_traffic_copies(axis, &from, &to) && planned != s->copied[axis])
            probe_fail("%s, %s: planned are %lld bytes, copied were %lld", list,
                       ech_traffic_axis_name(axis), (long long)planned, (long long)s->copied[axis]);
    }
}

static void observe(void *state, const probe_run *run, probe_moment moment)
{
    seen *s = state;
    if (moment == PROBE_BEFORE) {
        *s = (seen){0};
        add_now(run->session->exec, s, -1);
    } else if (moment == PROBE_AFTER) {
        add_now(run->session->exec, s, 1);
        compare_all(run, s);
    }
}

const probe probe_counters = {
    .name = "counters", .state = sizeof(seen), .applies = applies, .observe = observe};
