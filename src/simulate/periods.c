/* SPDX-License-Identifier: Apache-2.0
 *
 * The steady state of a rehearsal. Each list has at most one SECTION that repeats: the same steps
 * for later micro-batches. At each repetition of the first rank's section, the state of the engine
 * is written as numbers: times relative to now, steps relative to the repetition. If the state
 * equals an earlier one, all that follows repeats, too, as long as no rank leaves its section.
 */
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "simulate/engine.h"

/* Steps from .. end - length - 1 are repeated `length` steps later. length 0: there is none. */
typedef struct section {
    int from, end, length;
    int base;        /* the section depends on steps before this, which must have ended */
    int micro, turn; /* added to the steps' by a repetition */
} section;

typedef struct snapshot {
    ECH_LIST(int64_t) word;
    double time;
    double *products; /* [ranks] */
} snapshot;

enum { SNAPSHOTS = 4 }; /* a state may come back after as many repetitions */

struct ech_periods {
    section *of;            /* [ranks] */
    int *oldest;            /* [ranks] all earlier steps have ended */
    int repeated;           /* repetitions of the first rank that have begun */
    ECH_LIST(event) events; /* the heap, sorted */
    snapshot last[SNAPSHOTS];
};

/* ---- sections ---- */

/* True if the steps that step i + length waits for are those that step i waits for, or a repetition
 * later. */
static bool has_same_afters(const ech_list *list, int i, section *of)
{
    const ech_step *a = &list->step.at[i], *b = &list->step.at[i + of->length];
    if (a->afters != b->afters) return false;
    const int *x = list->after.at + a->first_after, *y = list->after.at + b->first_after;
    int base = 0;
    for (int k = 0; k < a->afters; k++) {
        if (y[k] == x[k] + of->length) continue;
        if (y[k] != x[k]) return false;
        if (x[k] >= base) base = x[k] + 1;
    }
    if (base > of->base) of->base = base;
    return true;
}

/* True if step i + length is step i for later micro-batches: it costs the same, and waits for the
 * same. */
static bool is_repeated(const ech_list *list, int i, section *of)
{
    const ech_step *a = &list->step.at[i], *b = &list->step.at[i + of->length];
    if (a->kind != b->kind || a->lane != b->lane || a->group != b->group || a->phase != b->phase ||
        a->collective != b->collective || a->from != b->from || a->to != b->to ||
        a->is_part != b->is_part || a->maximum != b->maximum || a->adds != b->adds ||
        a->resource != b->resource || a->chunk != b->chunk || a->block != b->block ||
        a->peer != b->peer || a->bytes != b->bytes || a->index != b->index ||
        a->count != b->count || a->first_call != b->first_call || a->calls != b->calls)
        return false;
    if (a->group == ECH_GROUP_PUSHED && ech_step_gathers(a)) return false;
    if (b->turn - a->turn != of->turn) return false;
    if (b->micro - a->micro != (a->micro < 0 ? 0 : of->micro)) return false;
    return has_same_afters(list, i, of);
}

/* Grows a section around the steps `anchor` .. anchor + length - 1, which are repeated. */
static void extend(const ech_list *list, int anchor, section *of)
{
    int last = (int)list->step.n - of->length;
    of->from = anchor;
    of->end = anchor + of->length;
    while (of->from > 0 && is_repeated(list, of->from - 1, of)) of->from--;
    while (of->end < last && is_repeated(list, of->end, of)) of->end++;
    of->end += of->length;
}

/* Finds the section around the list's step `anchor`, with the fewest steps that add `micro`
 * micro-batches; 0: as few as there are. */
static section find_around(const ech_list *list, int anchor, int micro)
{
    int n = (int)list->step.n;
    while (anchor < n && ech_step_kind_phase(list->step.at[anchor].kind) < 0) anchor++;
    for (int i = anchor + 1; 2 * i - anchor <= n; i++) {
        const ech_step *a = &list->step.at[anchor], *b = &list->step.at[i];
        section of = {
            .length = i - anchor, .micro = b->micro - a->micro, .turn = b->turn - a->turn};
        if (of.micro <= 0 || (micro && of.micro != micro)) continue;
        int same = anchor;
        while (same < i && is_repeated(list, same, &of)) same++;
        if (same < i) continue;
        extend(list, anchor, &of);
        return of;
    }
    return (section){0};
}

/* The longest of the sections around three of the list's steps. */
static section find_section(const ech_list *list, int micro)
{
    section best = {0};
    for (int part = 1; part <= 3; part++) {
        int anchor = (int)(list->step.n * (size_t)part / 4);
        if (best.length && anchor < best.end) continue;
        section other = find_around(list, anchor, micro);
        if (other.end - other.from > best.end - best.from) best = other;
    }
    return best;
}

/* True if the messages of a step and its repetition have partners at the same distance. */
static bool has_partner(const ech_engine *e, int rank, int i)
{
    const int *partner = e->out->pairing.partner[rank];
    const ech_step *s = ech_engine_step(e, rank, i);
    int length = e->periods->of[rank].length;
    if (!ech_rehearsal_is_link(s->lane)) return true;
    int peer = ech_rehearsal_peer(e->out, rank, s);
    return partner[i] >= 0 && partner[i + length] == partner[i] + e->periods->of[peer].length;
}

static void check_partners(const ech_engine *e, int rank)
{
    section *of = &e->periods->of[rank];
    int middle = (of->from + of->end - of->length) / 2, from = middle, end = middle;
    while (from > of->from && has_partner(e, rank, from - 1)) from--;
    while (end < of->end - of->length && has_partner(e, rank, end)) end++;
    of->from = from;
    of->end = end + of->length;
}

/* Sections with the same number of micro-batches for all ranks; false: there are none. */
static bool find_sections(ech_engine *e)
{
    section *of = e->periods->of;
    int micro = 0;
    for (int rank = 0; rank < e->out->ranks; rank++) {
        if (e->rank[rank].tally) return false; /* pushes, which come in any order */
        of[rank] = find_section(ech_rehearsal_list(e->out, rank), 0);
        if (!of[rank].length) return false;
        if (of[rank].micro > micro) micro = of[rank].micro;
    }
    for (int rank = 0; rank < e->out->ranks; rank++) {
        if (of[rank].micro != micro)
            of[rank] = find_section(ech_rehearsal_list(e->out, rank), micro);
        if (!of[rank].length || of[rank].turn != of[0].turn) return false;
    }
    for (int rank = 0; rank < e->out->ranks; rank++) check_partners(e, rank);
    return true;
}

void ech_engine_find_periods(ech_engine *e)
{
    size_t ranks = (size_t)e->out->ranks;
    ech_pool *pool = e->out->pool;
    e->periods = ech_pool_alloc(pool, sizeof *e->periods);
    e->periods->of = ech_pool_alloc(pool, ranks * sizeof *e->periods->of);
    e->periods->oldest = ech_pool_alloc(pool, ranks * sizeof *e->periods->oldest);
    for (int i = 0; i < SNAPSHOTS; i++)
        e->periods->last[i].products = ech_pool_alloc(pool, ranks * sizeof(double));
    if (!find_sections(e)) ech_engine_free_periods(e);
}

void ech_engine_free_periods(ech_engine *e)
{
    if (!e->periods) return;
    for (int i = 0; i < SNAPSHOTS; i++) free(e->periods->last[i].word.at);
    free(e->periods->events.at);
    e->periods = NULL;
}

/* ---- states ---- */

static void put(snapshot *to, int64_t word)
{
    ECH_PUSH(to->word, word);
}

static void put_time(snapshot *to, double time)
{
    put(to, (int64_t)rint(time / ECH_COSTS_GRAIN));
}

/* Whether a lane's next step is one of the section's, or a later one, which stays the next. */
static bool moves(const section *of, int next)
{
    return next < of->end;
}

static void put_rank(ech_engine *e, int rank, snapshot *to)
{
    ech_periods *p = e->periods;
    const section *of = &p->of[rank];
    const rank_state *state = &e->rank[rank];
    const double *begin = e->out->begin[rank], *finish = e->out->finish[rank];
    int steps = (int)ech_rehearsal_list(e->out, rank)->step.n, *oldest = &p->oldest[rank];
    int shift = p->repeated * of->length;
    while (*oldest < steps && finish[*oldest] >= 0) ++*oldest;
    put(to, *oldest - shift);
    put(to, state->begun - shift);
    for (int s = *oldest; s < state->begun; s++) put(to, (begin[s] >= 0) + 2 * (finish[s] >= 0));
    for (int i = 0; i < state->cursors; i++) {
        const cursor *at = &state->cursor[i];
        put(to, moves(of, at->next));
        put(to, at->next - (moves(of, at->next) ? shift : 0));
        put(to, at->running < 0 ? INT_MIN : at->running - shift);
    }
    put_time(to, fmax(state->sends_until - e->now, 0));
    put_time(to, fmax(state->receives_until - e->now, 0));
    for (int lane = 0; lane < ECH_LANES; lane++) {
        put(to, state->arrived_before[lane]);
        put(to, state->push[lane].step);
        put(to, state->push[lane].left);
    }
}

static int by_time(const void *a, const void *b)
{
    const event *x = a, *y = b;
    return ech_engine_is_before(x, y) ? -1 : ech_engine_is_before(y, x);
}

static void put_events(ech_engine *e, snapshot *to)
{
    ech_periods *p = e->periods;
    p->events.n = 0;
    for (size_t i = 0; i < e->heap.n; i++) ECH_PUSH(p->events, e->heap.at[i]);
    if (p->events.n) qsort(p->events.at, p->events.n, sizeof *p->events.at, by_time);
    for (size_t i = 0; i < p->events.n; i++) {
        const event *x = &p->events.at[i];
        put_time(to, x->time - e->now);
        put(to, x->rank);
        put(to, x->step - p->repeated * p->of[x->rank].length);
        put(to, x->worker);
    }
}

static void take_snapshot(ech_engine *e, snapshot *to)
{
    to->word.n = 0;
    to->time = e->now;
    memcpy(to->products, e->out->products, (size_t)e->out->ranks * sizeof(double));
    for (int rank = 0; rank < e->out->ranks; rank++) put_rank(e, rank, to);
    for (size_t i = 0; i < e->channel.n; i++) {
        put(to, e->channel.at[i].arrived);
        put(to, e->channel.at[i].last);
        put_time(to, e->channel.at[i].cost);
    }
    put_events(e, to);
}

/* ---- whole periods ---- */

/* How many periods of `length` steps a lane's next step allows: while it is in the section, or
 * cannot begin, since it waits for a step that comes even later. -1: it cannot be told. */
static int allowed_by(const ech_engine *e, int rank, const cursor *at, int length)
{
    const section *of = &e->periods->of[rank];
    const ech_list *list = ech_rehearsal_list(e->out, rank);
    int last = -1, begun = e->rank[rank].begun;
    if (at->next == (int)list->step.n) return INT_MAX;
    if (moves(of, at->next)) return (of->end - 1 - at->next) / length;
    const ech_step *s = &list->step.at[at->next];
    for (int k = 0; k < s->afters; k++)
        if (list->after.at[s->first_after + k] > last) last = list->after.at[s->first_after + k];
    return last < begun ? -1 : (last - begun) / length;
}

/* How many periods of `repetitions` there are until a rank leaves its section. -1: a rank has just
 * entered it, or has left it, so that what follows need not repeat. */
static int count_periods(const ech_engine *e, int repetitions)
{
    int n = INT_MAX;
    for (int rank = 0; rank < e->out->ranks; rank++) {
        const section *of = &e->periods->of[rank];
        int length = repetitions * of->length, before = e->periods->oldest[rank] - length;
        if (before < of->from || before < of->base || e->rank[rank].begun > of->end) return -1;
        int left = (of->end - e->rank[rank].begun) / length;
        if (left < n) n = left;
        for (int i = 0; i < e->rank[rank].cursors; i++) {
            left = allowed_by(e, rank, &e->rank[rank].cursor[i], length);
            if (left < n) n = left;
        }
    }
    return n;
}

/* Sets the times of the steps of n periods. A step begins or ends `time` after the step that is
 * `length` steps before it. Until now, steps before `oldest` have times, and some up to `begun`. */
static void repeat(double *times, int oldest, int begun, int length, int n, double time)
{
    int count = begun - oldest;
    ECH_FREED bool *has = ech_calloc((size_t)count + 1, sizeof *has);
    for (int i = 0; i < count; i++) has[i] = times[oldest + i] >= 0;
    for (int s = oldest; s < begun + n * length; s++) {
        int i = s - n * length - oldest; /* the step that is now where this one will be */
        if (times[s] < 0 && (i < 0 || has[i])) times[s] = times[s - length] + time;
    }
}

static void skip_on_rank(ech_engine *e, int rank, const snapshot *since, int repetitions, int n)
{
    const section *of = &e->periods->of[rank];
    rank_state *state = &e->rank[rank];
    ech_rehearsal *out = e->out;
    int length = repetitions * of->length, oldest = e->periods->oldest[rank];
    double time = e->now - since->time;
    repeat(out->begin[rank], oldest, state->begun, length, n, time);
    repeat(out->finish[rank], oldest, state->begun, length, n, time);
    for (int i = 0; i < state->cursors; i++) {
        cursor *at = &state->cursor[i];
        if (moves(of, at->next)) at->next += n * length;
        if (at->running >= 0) at->running += n * length;
        at->ready = 0;
    }
    state->begun += n * length;
    state->sends_until += n * time;
    state->receives_until += n * time;
    out->products[rank] += n * (out->products[rank] - since->products[rank]);
    out->missing -= (int64_t)n * length;
}

static void skip(ech_engine *e, const snapshot *since, int repetitions, int n)
{
    double time = e->now - since->time;
    for (int rank = 0; rank < e->out->ranks; rank++) skip_on_rank(e, rank, since, repetitions, n);
    for (size_t i = 0; i < e->heap.n; i++) {
        event *at = &e->heap.at[i];
        at->time += n * time;
        at->step += n * repetitions * e->periods->of[at->rank].length;
    }
    e->now += n * time;
    e->out->end = e->now;
}

static bool is_same(const snapshot *a, const snapshot *b)
{
    return a->word.n == b->word.n &&
           memcmp(a->word.at, b->word.at, a->word.n * sizeof *a->word.at) == 0;
}

void ech_engine_try_period(ech_engine *e)
{
    ech_periods *p = e->periods;
    const section *first = &p->of[0];
    if (e->rank[0].begun < first->from + p->repeated * first->length) return;
    snapshot *now = &p->last[p->repeated % SNAPSHOTS];
    take_snapshot(e, now);
    for (int before = 1; before < SNAPSHOTS && before <= p->repeated; before++) {
        const snapshot *since = &p->last[(p->repeated - before) % SNAPSHOTS];
        if (!is_same(since, now)) continue;
        int n = count_periods(e, before);
        if (n < 0) break;
        e->out->steady = (ech_steady){before * first->micro, now->time - since->time, n};
        skip(e, since, before, n);
        ech_engine_free_periods(e);
        return;
    }
    p->repeated++;
}
