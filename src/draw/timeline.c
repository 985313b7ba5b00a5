/* SPDX-License-Identifier: Apache-2.0
 *
 * Timelines: order, end, bubble, rows, and their words.
 */
#include "draw/timeline.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ech_timeline_free(ech_timeline *timeline)
{
    free(timeline->bar.at);
    *timeline = (ech_timeline){0};
}

static int compare_reals(double a, double b)
{
    return (a > b) - (a < b);
}

/* Every field counts, so that the order never depends on how they came. */
static int compare_bars(const void *left, const void *right)
{
    const ech_timeline_bar *a = left, *b = right;
    int order = a->rank - b->rank;
    if (!order) order = compare_reals(a->begin, b->begin);
    if (!order) order = compare_reals(a->end, b->end);
    if (!order) order = (int)a->kind - (int)b->kind;
    if (!order) order = a->chunk - b->chunk;
    if (!order) order = a->micro - b->micro;
    return order ? order : compare_reals(a->weight, b->weight);
}

/* Rank by rank where they came so: a sort of all would take as many bytes again. */
static void sort_bars(ech_timeline *timeline)
{
    ech_timeline_bar *bar = timeline->bar.at;
    size_t n = timeline->bar.n;
    for (size_t first = 0, end = 0; first < n; first = end) {
        while (end < n && bar[end].rank == bar[first].rank) end++;
        qsort(bar + first, end - first, sizeof *bar, compare_bars);
    }
    for (size_t i = 1; i < n; i++)
        if (bar[i].rank < bar[i - 1].rank) {
            qsort(bar, n, sizeof *bar, compare_bars);
            return;
        }
}

static int compare_durations(const void *left, const void *right)
{
    return compare_reals(*(const double *)left, *(const double *)right);
}

static double median_forward(const ech_timeline *timeline)
{
    double *durations = ech_calloc(timeline->bar.n, sizeof *durations), median = 0;
    size_t n = 0;
    for (size_t i = 0; i < timeline->bar.n; i++) {
        const ech_timeline_bar *bar = &timeline->bar.at[i];
        if (bar->kind == ECH_BAR_FORWARD && bar->end > bar->begin)
            durations[n++] = bar->end - bar->begin;
    }
    qsort(durations, n, sizeof *durations, compare_durations);
    if (n > 0) median = durations[n / 2];
    free(durations);
    return median;
}

/* The rank that has a rank's bars, and the number of ranks for which it has them. */
static int rank_with_bars(const ech_timeline *timeline, int rank)
{
    const ech_classes *classes = timeline->by_class ? &timeline->layout->classes : NULL;
    return classes ? classes->first[classes->of[rank]] : rank;
}

static int ranks_alike(const ech_timeline *timeline, int rank)
{
    const ech_classes *classes = timeline->by_class ? &timeline->layout->classes : NULL;
    return classes ? classes->ranks[classes->of[rank]] : 1;
}

/* Time of all ranks that bars cover: of collectives, or of these and of F, B and W. Summed by rank,
 * so that it has the same bits for ranks that are alike. */
static double covered_time(const ech_timeline *timeline, bool work)
{
    double time = 0, until = 0; /* up to where the rank's bars have been counted */
    ECH_FREED double *covered = ech_calloc((size_t)timeline->ranks, sizeof *covered);
    for (size_t i = 0; i < timeline->bar.n; i++) {
        const ech_timeline_bar *bar = &timeline->bar.at[i];
        if (i == 0 || bar->rank != bar[-1].rank) until = 0;
        if (bar->kind != ECH_BAR_COLLECTIVE && !(work && bar->kind <= ECH_BAR_RECOMPUTE)) continue;
        double end = fmin(bar->end, timeline->end), begin = fmax(bar->begin, until);
        if (end > begin) covered[bar->rank] += end - begin;
        until = fmax(until, end);
    }
    for (int rank = 0; rank < timeline->ranks; rank++)
        time += covered[rank_with_bars(timeline, rank)];
    return time;
}

void ech_timeline_finish(ech_timeline *timeline)
{
    double end = 0;
    ECH_ASSERT(isfinite(timeline->end));
    for (size_t i = 0; i < timeline->bar.n; i++) {
        const ech_timeline_bar *bar = &timeline->bar.at[i];
        ECH_ASSERT(bar->rank >= 0 && bar->rank < timeline->ranks && bar->kind < ECH_BAR_KINDS);
        ECH_ASSERT(isfinite(bar->begin) && isfinite(bar->end) && bar->begin <= bar->end);
        end = fmax(end, bar->end);
    }
    sort_bars(timeline);
    if (timeline->end <= 0) timeline->end = end;
    timeline->forward = median_forward(timeline);
    double total = timeline->ranks * timeline->end;
    double waiting = covered_time(timeline, false);
    double busy = covered_time(timeline, true) - waiting;
    timeline->waits = total > 0 ? waiting / total : 0;
    timeline->bubble = total > 0 ? fmax(0, 1 - busy / total) : 0;
}

/* ---- bars of steps with times, simulated or recorded ---- */

static bool is_backward(ech_bar_kind kind)
{
    return kind == ECH_BAR_BACKWARD || kind == ECH_BAR_WEIGHT;
}

/* Blocks of a chunk and micro-batch, and the parts of each, follow each other without a wait but
 * for collectives, which have bars of their own; what else is between two of them is the
 * interpreter at work. A W beside its own B is of the same work, as they come block by block (W in
 * front only recomputes what a collective fetches): the two are one bar, which says how much of it
 * is W. Other steps go together where nothing is between them. */
static bool continues(const ech_timeline_bar *last, const ech_timeline_bar *bar)
{
    bool same = last->chunk == bar->chunk && last->micro == bar->micro;
    bool backward = is_backward(last->kind) && is_backward(bar->kind);
    return same && (last->kind == bar->kind || backward) &&
           (bar->micro >= 0 || last->end >= bar->begin);
}

/* A step of a list that is being added, and where it is drawn. */
typedef struct placed {
    const ech_list *list;
    const ech_step *step;
    const double *begin, *end; /* [steps] */
    ech_timeline_bar bar;
    double idle; /* when compute was done with what came before */
    bool within; /* the bar goes on */
} placed;

static void add_wait(ech_timeline *timeline, const placed *p, double from, double to)
{
    ech_timeline_bar wait = p->bar;
    wait.kind = ECH_BAR_COLLECTIVE;
    wait.begin = fmax(from, p->idle);
    wait.end = fmin(to, p->bar.begin);
    if (wait.end > wait.begin) ECH_PUSH(timeline->bar, wait);
}

/* For the collectives that the step comes after. Within a micro-batch there is nothing else to wait
 * for, so that is all of the gap; before one, messages may have come later. */
static void add_waits(ech_timeline *timeline, const placed *p)
{
    for (int i = 0; i < p->step->afters; i++) {
        int after = p->list->after.at[p->step->first_after + i];
        if (p->list->step.at[after].lane != ECH_LANE_COLLECTIVE || p->end[after] <= p->idle)
            continue;
        if (p->within) {
            add_wait(timeline, p, p->idle, p->bar.begin);
            return;
        }
        add_wait(timeline, p, p->begin[after], p->end[after]);
    }
}

void ech_timeline_add_list(ech_timeline *timeline, int rank, const ech_list *list,
                           const double *begin, const double *end)
{
    size_t last = SIZE_MAX;
    double idle = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        ech_timeline_bar bar = {.rank = rank,
                                .kind = ech_step_bar(step),
                                .chunk = step->chunk,
                                .micro = step->block < 0 ? -1 : step->micro,
                                .begin = begin[s],
                                .end = end[s]};
        bool works = bar.end > bar.begin;
        if (bar.kind == ECH_BAR_WEIGHT) bar.weight = bar.end - bar.begin;
        bool beside = bar.kind > ECH_BAR_COLLECTIVE;
        if (beside && works) ECH_PUSH(timeline->bar, bar);
        if (step->lane == ECH_LANE_COLLECTIVE)
            timeline->collective += ranks_alike(timeline, rank) * (end[s] - begin[s]);
        if (step->lane != ECH_LANE_COMPUTE) continue;
        bool within = last != SIZE_MAX && continues(&timeline->bar.at[last], &bar);
        add_waits(timeline, &(placed){list, step, begin, end, bar, idle, within});
        idle = fmax(idle, bar.end);
        if (!works) continue;
        if (within) {
            ech_timeline_bar *grows = &timeline->bar.at[last];
            grows->end = bar.end;
            grows->weight += bar.weight;
            if (bar.kind == ECH_BAR_BACKWARD) grows->kind = bar.kind;
        } else {
            last = timeline->bar.n;
            ECH_PUSH(timeline->bar, bar);
        }
    }
}

/* ---- rows ---- */

static bool are_same_bars(const ech_timeline_bar *a, const ech_timeline_bar *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        ech_timeline_bar moved = b[i];
        moved.rank = a[i].rank;
        if (compare_bars(&a[i], &moved) != 0) return false;
    }
    return true;
}

static bool is_one_stage(const ech_timeline *timeline, int a, int b)
{
    const ech_layout *layout = timeline->layout;
    return !layout || layout->coordinates[a].stage == layout->coordinates[b].stage;
}

/* [ranks + 1]: the bars of each rank that has some begin there. */
static size_t *find_bars(const ech_timeline *timeline)
{
    size_t *first = ech_calloc((size_t)timeline->ranks + 1, sizeof *first), i = 0;
    for (int rank = 0; rank <= timeline->ranks; rank++) {
        while (i < timeline->bar.n && timeline->bar.at[i].rank < rank) i++;
        first[rank] = i;
    }
    return first;
}

void ech_timeline_find_rows(const ech_timeline *timeline, bool shared, ech_timeline_rows *rows)
{
    const ech_timeline_bar *bar = timeline->bar.at;
    ECH_FREED size_t *first = find_bars(timeline);
    for (int rank = 0; rank < timeline->ranks; rank++) {
        int has = rank_with_bars(timeline, rank);
        size_t from = first[has], bars = first[has + 1] - from;
        ech_timeline_row *last = rows->n ? &rows->at[rows->n - 1] : NULL;
        if (shared && last && is_one_stage(timeline, last->rank, rank) && last->bars == bars &&
            (bars == 0 || from == last->first_bar ||
             are_same_bars(bar + last->first_bar, bar + from, bars)))
            last->ranks++;
        else
            ECH_PUSH(*rows, (ech_timeline_row){rank, 1, from, bars});
    }
}

/* ---- names ---- */

/* Along one axis of a stage's ranks: those from first to last, of `all`. */
static int name_range(ech_text *out, const char *one, const char *many, int first, int last,
                      int all)
{
    const char *comma = out->n ? ", " : "";
    if (all > 1 && last - first + 1 == all)
        ech_text_append(out, "%s%d %s", comma, all, many);
    else if (all > 1 && first == last)
        ech_text_append(out, "%s%s %d", comma, one, first);
    else if (all > 1)
        ech_text_append(out, "%s%s %d .. %d", comma, one, first, last);
    return last - first + 1;
}

/* Whether the ranks are a box in the stage's grid; then it is named. */
static bool name_coordinates(const ech_layout *layout, int first, int last, ech_text *out)
{
    const ech_coordinates *a = &layout->coordinates[first], *b = &layout->coordinates[last];
    int n = 1;
    if (ech_layout_serves(layout, last)) {
        if (first == last) ech_text_append(out, "server %d", a->data - layout->replicas[0]);
        return first == last;
    }
    if (layout->stages > 1) ech_text_append(out, "stage %d", a->stage);
    n *= name_range(out, "replica", "replicas", a->data, b->data, layout->replicas[a->stage]);
    n *= name_range(out, "context rank", "context ranks", a->context, b->context, layout->context);
    n *= name_range(out, "tensor rank", "tensor ranks", a->tensor, b->tensor, layout->tensor);
    return out->n && n == last - first + 1;
}

int ech_timeline_name_row(const ech_timeline *timeline, const ech_timeline_row *row, char *name,
                          size_t size)
{
    ech_text text = {0};
    int last = row->rank + row->ranks - 1, n;
    if (timeline->layout && name_coordinates(timeline->layout, row->rank, last, &text))
        n = snprintf(name, size, "%s", text.at);
    else if (row->ranks == 1)
        n = snprintf(name, size, "rank %d", row->rank);
    else
        n = snprintf(name, size, "rank %d .. %d", row->rank, last);
    ech_text_free(&text);
    return n;
}

/* ---- times ---- */

/* Four digits, and never an exponent of what people count. */
static void append_amount(double amount, ech_text *out)
{
    ech_text_append(out, fabs(amount) >= 1000 && fabs(amount) < 1e15 ? "%.0f" : "%.4g", amount);
}

void ech_timeline_time(const ech_timeline *timeline, double time, ech_text *out)
{
    if (timeline->seconds) {
        bool milli = time < 1, micro = time < 1e-3 && time > 0;
        append_amount(micro ? time * 1e6 : milli ? time * 1e3 : time, out);
        ech_text_append(out, micro ? " µs" : milli ? " ms" : " s");
    } else {
        size_t from = out->n;
        append_amount(time, out);
        bool one = strcmp(out->at + from, "1") == 0; /* as it reads: sums of parts are inexact */
        ech_text_append(out, one ? " block forward" : " block forwards");
    }
}

void ech_timeline_bubble(const ech_timeline *timeline, ech_text *out)
{
    ech_text_append(out, "bubble %.1f %%", 100 * timeline->bubble);
    if (timeline->waits > 0)
        ech_text_append(out, ", waits for collectives %.1f %%", 100 * timeline->waits);
}

void ech_timeline_collectives(const ech_timeline *timeline, int steps, ech_text *out)
{
    double each = timeline->collective / timeline->ranks;
    if (!(each > 0)) return;
    ech_timeline_time(timeline, each / steps, out);
    ech_text_append(out, " a step and rank; compute waits for them ");
    ech_timeline_time(timeline, timeline->waits * timeline->end / steps, out);
}
