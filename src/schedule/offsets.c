/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that gives every value of a space an offset. Values of one size share TRACKS: a track is
 * an offset that they use one after the other. Sizes are placed in descending order. Each value of
 * a size, in order of birth, takes the lowest track on which nothing else lives at the same time,
 * or a new track at the lowest such offset. Searches visit tracks, not values; the number of tracks
 * is the number of values live at the same time, independently of micro-batches. A value and its
 * successors are placed as one. The result is deterministic.
 *
 * Tracks are in shelves by offset. A shelf that is empty for all of a life is skipped; of a shelf
 * that is full for all of it, without a gap that is wide enough, only the end is read.
 */
#include <stdlib.h>
#include <string.h>

#include "base/sort.h"
#include "schedule/passes.h"

enum { SHELF = 128 }; /* most tracks of a shelf */

/* The life of a value with its successors. */
typedef struct life {
    int born, dies;
} life;

typedef struct placement {
    int64_t bytes; /* aligned */
    life life;
    int value;
    struct track *track;
} placement;

/* A track that shares bytes with another, and how many of its lives have ended. */
typedef struct neighbour {
    const struct track *track;
    size_t ended;
} neighbour;

typedef struct track {
    int64_t offset, end;
    ECH_LIST(life) life;           /* by birth; they do not overlap */
    ECH_LIST(neighbour) neighbour; /* while values of this size are placed */
    struct shelf *shelf;
    bool taken;  /* by a value that has not died */
    int blocked; /* neighbours are in use at all ticks before this one */
} track;

typedef struct shelf {
    int n;
    life any; /* the time in which any of its tracks is in use */
    life all; /* a life that overlaps this one overlaps all tracks; none: born after its death */
    int64_t end, gap; /* of all of them, and the widest gap between them */
    track *at[SHELF]; /* by offset */
} shelf;

typedef ECH_LIST(int64_t) size_list;

typedef struct placer {
    const ech_plan *plan;
    ech_list *list;
    ech_space space;
    placement *all;
    int64_t start;             /* of the list's part of the arena */
    ECH_LIST(shelf *) shelves; /* by offset */
    ECH_LIST(track *) own;     /* of the size being placed, by offset */
    size_t lowest;             /* own tracks before this index are taken */
} placer;

/* ---- placements in order ---- */

/* An offset is free after the last of the value's successors has died. */
static int last_death(const ech_list *list, const ech_value *v)
{
    while (v->successor >= 0) v = &list->value.at[v->successor];
    return v->dies;
}

/* Finds all values of the space except successors. Returns their number. */
static size_t find_placements(const placer *p, placement *all)
{
    const ech_list *list = p->list;
    size_t n = 0;
    ECH_FREED bool *succeeds = ech_calloc(list->value.n + 1, sizeof *succeeds);
    for (size_t i = 0; i < list->value.n; i++)
        if (list->value.at[i].successor >= 0) succeeds[list->value.at[i].successor] = true;
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[i];
        if (succeeds[i] || ech_memory_space(v->kind) != p->space) continue;
        int64_t bytes = ech_plan_align(p->plan, v->kind, v->bytes);
        all[n++] = (placement){bytes, {v->born, last_death(list, v)}, (int)i, NULL};
    }
    return n;
}

/* The index, or insertion point, of `bytes` among sizes in descending order. */
static size_t find_size(const size_list *sizes, int64_t bytes)
{
    size_t low = 0, high = sizes->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (sizes->at[middle] > bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The distinct sizes of placements in descending order. There are few: they do not depend on
 * micro-batches. */
static size_list find_sizes(const placement *all, size_t n)
{
    size_list found = {0};
    for (size_t i = 0; i < n; i++) {
        size_t at = find_size(&found, all[i].bytes);
        if (at < found.n && found.at[at] == all[i].bytes) continue;
        ECH_PUSH(found, all[i].bytes);
        memmove(found.at + at + 1, found.at + at, (found.n - 1 - at) * sizeof *found.at);
        found.at[at] = all[i].bytes;
    }
    return found;
}

/* Placements in descending order of size; within a size by birth or by death. */
static int *sort_placements(const ech_list *list, const placement *all, size_t n,
                            const size_list *sizes, bool by_death)
{
    ECH_FREED int *key = ech_calloc(n + 1, sizeof *key);
    for (size_t i = 0; i < n; i++) key[i] = by_death ? all[i].life.dies : all[i].life.born;
    ECH_FREED int *by_tick = ech_sort_by_key(n, NULL, key, list->ticks + 1);
    for (size_t i = 0; i < n; i++) key[i] = (int)find_size(sizes, all[i].bytes);
    return ech_sort_by_key(n, by_tick, key, (int)sizes->n);
}

/* ---- shelves ---- */

static void add_shelf(placer *p, size_t at, shelf *row)
{
    ECH_PUSH(p->shelves, row);
    memmove(p->shelves.at + at + 1, p->shelves.at + at,
            (p->shelves.n - 1 - at) * sizeof *p->shelves.at);
    p->shelves.at[at] = row;
}

static void note_life(shelf *row, const track *t)
{
    const life *last = &t->life.at[t->life.n - 1];
    if (t->life.at[0].born < row->any.born) row->any.born = t->life.at[0].born;
    if (last->dies > row->any.dies) row->any.dies = last->dies;
    if (last->born > row->all.born) row->all.born = last->born;
    if (t->life.at[0].dies < row->all.dies) row->all.dies = t->life.at[0].dies;
}

static void find_span(shelf *row)
{
    row->any = (life){INT32_MAX, -1};
    row->all = (life){-1, INT32_MAX};
    row->end = row->at[0]->end;
    row->gap = 0;
    for (int i = 0; i < row->n; i++) {
        track *t = row->at[i];
        t->shelf = row;
        if (t->life.n) note_life(row, t);
        if (t->offset - row->end > row->gap) row->gap = t->offset - row->end;
        if (t->end > row->end) row->end = t->end;
    }
}

/* Moves half of a full shelf to a new one after it. */
static void split_shelf(placer *p, size_t at)
{
    shelf *full = p->shelves.at[at], *rest = ech_calloc(1, sizeof *rest);
    rest->n = full->n / 2;
    full->n -= rest->n;
    memcpy(rest->at, full->at + full->n, (size_t)rest->n * sizeof *rest->at);
    find_span(full);
    find_span(rest);
    add_shelf(p, at + 1, rest);
}

/* The last shelf that begins at or before the offset; otherwise the first. */
static size_t find_shelf(const placer *p, int64_t offset)
{
    size_t low = 0, high = p->shelves.n - 1;
    while (low < high) {
        size_t middle = (low + high + 1) / 2;
        if (p->shelves.at[middle]->at[0]->offset <= offset)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static void shelve(placer *p, track *t)
{
    if (!p->shelves.n) add_shelf(p, 0, ech_calloc(1, sizeof(shelf)));
    size_t s = find_shelf(p, t->offset);
    shelf *row = p->shelves.at[s];
    int i = row->n;
    while (i > 0 && row->at[i - 1]->offset > t->offset) i--;
    memmove(row->at + i + 1, row->at + i, (size_t)(row->n - i) * sizeof *row->at);
    row->at[i] = t;
    row->n++;
    find_span(row);
    if (row->n == SHELF) split_shelf(p, s);
}

/* ---- tracks ---- */

/* True if the track has a life that overlaps this one. */
static bool meets(const track *t, life of)
{
    size_t low = 0, high = t->life.n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (t->life.at[middle].dies < of.born)
            low = middle + 1;
        else
            high = middle;
    }
    return low < t->life.n && t->life.at[low].born <= of.dies;
}

/* The lowest offset with enough free bytes for all of a life. */
static int64_t find_offset(const placer *p, int64_t bytes, life of)
{
    int64_t offset = p->start;
    for (size_t s = 0; s < p->shelves.n; s++) {
        const shelf *row = p->shelves.at[s];
        if (row->any.dies < of.born || of.dies < row->any.born) continue;
        if (row->all.born <= of.dies && of.born <= row->all.dies &&
            row->all.born <= row->all.dies && row->gap < bytes) {
            if (offset + bytes <= row->at[0]->offset) return offset;
            if (row->end > offset) offset = row->end;
            continue;
        }
        for (int i = 0; i < row->n; i++) {
            const track *t = row->at[i];
            if (t->end <= offset || !meets(t, of)) continue;
            if (offset + bytes <= t->offset) return offset;
            offset = t->end;
        }
    }
    return offset;
}

/* Finds the tracks that share bytes with t; t becomes a new neighbour of the tracks that have its
 * size. */
static void find_neighbours(placer *p, track *t)
{
    for (size_t s = 0; s < p->shelves.n; s++) {
        shelf *row = p->shelves.at[s];
        if (row->end <= t->offset) continue;
        if (row->at[0]->offset >= t->end) break;
        for (int i = 0; i < row->n && row->at[i]->offset < t->end; i++) {
            track *other = row->at[i];
            if (other->end <= t->offset) continue;
            ECH_PUSH(t->neighbour, (neighbour){other, 0});
            if (other->end - other->offset == t->end - t->offset)
                ECH_PUSH(other->neighbour, (neighbour){t, 0});
        }
    }
}

/* Index in p->own of the first track at or above an offset. */
static size_t find_own(const placer *p, int64_t offset)
{
    size_t low = 0, high = p->own.n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (p->own.at[middle]->offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static track *add_track(placer *p, int64_t bytes, life of)
{
    track *t = ech_calloc(1, sizeof *t);
    t->offset = find_offset(p, bytes, of);
    t->end = t->offset + bytes;
    find_neighbours(p, t);
    size_t at = find_own(p, t->offset);
    ECH_PUSH(p->own, t);
    memmove(p->own.at + at + 1, p->own.at + at, (p->own.n - 1 - at) * sizeof *p->own.at);
    p->own.at[at] = t;
    shelve(p, t);
    int64_t *most = &p->list->bytes[p->space];
    if (t->end - p->start > *most) *most = t->end - p->start;
    return t;
}

/* True if nothing else lives in a free track's bytes. Queries are in order of birth, so ended lives
 * stay ended. */
static bool is_free(track *t, life of)
{
    for (size_t i = 0; i < t->neighbour.n; i++) {
        neighbour *n = &t->neighbour.at[i];
        while (n->ended < n->track->life.n && n->track->life.at[n->ended].dies < of.born)
            n->ended++;
        if (n->ended == n->track->life.n) continue;
        const life *next = &n->track->life.at[n->ended];
        if (next->born <= of.born) t->blocked = next->dies + 1;
        if (next->born <= of.dies) return false;
    }
    return true;
}

static track *find_track(placer *p, life of)
{
    while (p->lowest < p->own.n && p->own.at[p->lowest]->taken) p->lowest++;
    for (size_t i = p->lowest; i < p->own.n; i++) {
        track *t = p->own.at[i];
        if (!t->taken && t->blocked <= of.born && is_free(t, of)) return t;
    }
    return NULL;
}

static void release(placer *p, track *t)
{
    size_t at = find_own(p, t->offset);
    t->taken = false;
    if (at < p->lowest) p->lowest = at;
}

static void take(placement *of, track *t)
{
    of->track = t;
    t->taken = true;
    ECH_PUSH(t->life, of->life);
    note_life(t->shelf, t);
}

/* Places the values of one size, given by birth and by death. */
static void place_size(placer *p, const int *by_birth, const int *by_death, size_t n)
{
    p->lowest = p->own.n = 0;
    for (size_t i = 0; i < n; i++) {
        placement *of = &p->all[by_birth[i]];
        for (; p->all[*by_death].life.dies < of->life.born; by_death++)
            release(p, p->all[*by_death].track);
        track *t = find_track(p, of->life);
        take(of, t ? t : add_track(p, of->bytes, of->life));
    }
    for (size_t i = 0; i < p->own.n; i++) {
        free(p->own.at[i]->neighbour.at);
        memset(&p->own.at[i]->neighbour, 0, sizeof p->own.at[i]->neighbour);
    }
}

/* In the order of values, not of sizes, since there are many in scattered memory. */
static void set_offsets(ech_list *list, const placement *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (int value = all[i].value; value >= 0; value = list->value.at[value].successor)
            list->value.at[value].offset = all[i].track->offset;
}

static void free_shelf(shelf *row)
{
    for (int i = 0; i < row->n; i++) {
        free(row->at[i]->life.at);
        free(row->at[i]);
    }
    free(row);
}

void ech_pass_offsets(const ech_plan *plan, ech_list *list, ech_space space)
{
    placer p = {.plan = plan, .list = list, .space = space, .start = plan->persistent_bytes[space]};
    p.all = ech_calloc(list->value.n + 1, sizeof *p.all);
    size_t n = find_placements(&p, p.all), end = 0;
    ECH_FREED size_list sizes = find_sizes(p.all, n);
    ECH_FREED int *by_birth = sort_placements(list, p.all, n, &sizes, false);
    ECH_FREED int *by_death = sort_placements(list, p.all, n, &sizes, true);
    list->bytes[space] = 0;
    for (size_t first = 0; first < n; first = end) {
        int64_t bytes = p.all[by_birth[first]].bytes;
        while (end < n && p.all[by_birth[end]].bytes == bytes) end++;
        place_size(&p, by_birth + first, by_death + first, end - first);
    }
    set_offsets(list, p.all, n);
    for (size_t s = 0; s < p.shelves.n; s++) free_shelf(p.shelves.at[s]);
    free(p.shelves.at);
    free(p.own.at);
    free(p.all);
}
