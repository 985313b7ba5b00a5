/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that gives every value an offset: largest first, each at the lowest offset where it meets
 * no value that lives at the same time. A value and its successors are placed as one. Deterministic.
 *
 * Placed values are in two indexes, and each search uses the cheaper. By time: values that live in the slot of
 * the new value's birth, or are born in a later slot of its life; these are few for a short life, but must be sorted by
 * offset. By offset, in shelves: a shelf without values of that time is skipped, and of one that is full then, without
 * a gap that is wide enough, only the ends are read.
 */
#include <stdlib.h>
#include <string.h>

#include "schedule/passes.h"

enum {
    LEAST_SLOT_TICKS = 8,
    MOST_SLOTS = 4096, /* bounds the lists of long lives */
    SHELF = 256,       /* most values of a shelf */
    SORTING = 128      /* what sorting a value costs, in values looked at */
};

typedef struct sort_item {
    int64_t key;
    int value;
} sort_item;

typedef ECH_LIST(int) slot_values;

typedef struct placed {
    int64_t offset, end;
    int born, dies;
} placed;

/* Values by offset. */
typedef struct shelf {
    int n;
    int born, dies;            /* the span of time in which any of them lives */
    int last_born, first_dies; /* all of them live at some time of a life that meets these two */
    int64_t end, gap;          /* of all of them, and the widest gap between them */
    placed at[SHELF];
} shelf;

typedef struct placer {
    ech_list *list;
    int slot_ticks;
    slot_values *living, *born; /* values placed, by slot */
    ECH_LIST(sort_item) near;   /* placed values that live at the same time, by offset */
    ECH_LIST(shelf *) shelves;  /* by offset */
    size_t values;
} placer;

static int by_key(const void *a, const void *b)
{
    const sort_item *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* When a value's offset is free: after the last of its successors has died. */
static int end_of(const placer *p, const ech_value *v)
{
    while (v->successor >= 0) v = &p->list->value.at[v->successor];
    return v->dies;
}

/* ---- by time ---- */

static size_t count_near(const placer *p, const ech_value *v)
{
    int first = v->born / p->slot_ticks, last = end_of(p, v) / p->slot_ticks;
    size_t n = p->living[first].n;
    for (int slot = first + 1; slot <= last; slot++) n += p->born[slot].n;
    return n;
}

static void add_near(placer *p, const ech_value *v, const slot_values *slot)
{
    for (size_t i = 0; i < slot->n; i++) {
        const ech_value *o = &p->list->value.at[slot->at[i]];
        if (end_of(p, o) < v->born || end_of(p, v) < o->born) continue;
        ECH_PUSH(p->near, (sort_item){o->offset, slot->at[i]});
    }
}

static int64_t search_by_time(placer *p, const ech_value *v, int64_t start)
{
    int first = v->born / p->slot_ticks, last = end_of(p, v) / p->slot_ticks;
    int64_t offset = start;
    p->near.n = 0;
    add_near(p, v, &p->living[first]);
    for (int slot = first + 1; slot <= last; slot++) add_near(p, v, &p->born[slot]);
    if (p->near.n > 1) qsort(p->near.at, p->near.n, sizeof *p->near.at, by_key);
    for (size_t i = 0; i < p->near.n; i++) {
        const ech_value *o = &p->list->value.at[p->near.at[i].value];
        if (offset + ech_align(v->bytes) <= o->offset) break;
        int64_t end = o->offset + ech_align(o->bytes);
        if (end > offset) offset = end;
    }
    return offset;
}

/* ---- by offset ---- */

static int64_t search_by_offset(const placer *p, const ech_value *v, int64_t start)
{
    int64_t offset = start, bytes = ech_align(v->bytes);
    int end = end_of(p, v);
    for (size_t s = 0; s < p->shelves.n; s++) {
        const shelf *row = p->shelves.at[s];
        if (row->dies < v->born || end < row->born) continue;
        if (row->first_dies >= v->born && end >= row->last_born && row->gap < bytes) {
            if (offset + bytes <= row->at[0].offset) return offset;
            if (row->end > offset) offset = row->end;
            continue;
        }
        for (int i = 0; i < row->n; i++) {
            const placed *o = &row->at[i];
            if (o->dies < v->born || end < o->born) continue;
            if (offset + bytes <= o->offset) return offset;
            if (o->end > offset) offset = o->end;
        }
    }
    return offset;
}

static void add_shelf(placer *p, size_t at, shelf *row)
{
    ECH_PUSH(p->shelves, row);
    memmove(p->shelves.at + at + 1, p->shelves.at + at,
            (p->shelves.n - 1 - at) * sizeof *p->shelves.at);
    p->shelves.at[at] = row;
}

static void find_span(shelf *row)
{
    const placed *first = &row->at[0];
    row->born = row->last_born = first->born;
    row->dies = row->first_dies = first->dies;
    row->end = first->end;
    row->gap = 0;
    for (int i = 1; i < row->n; i++) {
        const placed *o = &row->at[i];
        if (o->born < row->born) row->born = o->born;
        if (o->born > row->last_born) row->last_born = o->born;
        if (o->dies > row->dies) row->dies = o->dies;
        if (o->dies < row->first_dies) row->first_dies = o->dies;
        if (o->offset - row->end > row->gap) row->gap = o->offset - row->end;
        if (o->end > row->end) row->end = o->end;
    }
}

/* Half of a full shelf to a new one after it. */
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

/* The last that begins at the offset or before it; otherwise the first. */
static size_t find_shelf(const placer *p, int64_t offset)
{
    size_t low = 0, high = p->shelves.n - 1;
    while (low < high) {
        size_t middle = (low + high + 1) / 2;
        if (p->shelves.at[middle]->at[0].offset <= offset)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static void shelve(placer *p, const ech_value *v)
{
    if (!p->shelves.n) add_shelf(p, 0, ech_calloc(1, sizeof(shelf)));
    size_t s = find_shelf(p, v->offset);
    shelf *row = p->shelves.at[s];
    int i = row->n;
    while (i > 0 && row->at[i - 1].offset > v->offset) i--;
    memmove(row->at + i + 1, row->at + i, (size_t)(row->n - i) * sizeof *row->at);
    row->at[i] = (placed){v->offset, v->offset + ech_align(v->bytes), v->born, end_of(p, v)};
    row->n++;
    find_span(row);
    if (row->n == SHELF) split_shelf(p, s);
}

/* ---- both ---- */

static void place_value(placer *p, int value, int64_t start)
{
    ech_value *v = &p->list->value.at[value];
    bool soon = count_near(p, v) * SORTING < p->values;
    v->offset = soon ? search_by_time(p, v, start) : search_by_offset(p, v, start);
    int64_t used = v->offset + ech_align(v->bytes) - start;
    if (used > p->list->bytes) p->list->bytes = used;
    ECH_PUSH(p->born[v->born / p->slot_ticks], value);
    for (int slot = v->born / p->slot_ticks; slot <= end_of(p, v) / p->slot_ticks; slot++)
        ECH_PUSH(p->living[slot], value);
    shelve(p, v);
    p->values++;
    for (int successor = v->successor; successor >= 0;
         successor = p->list->value.at[successor].successor)
        p->list->value.at[successor].offset = v->offset;
}

/* By value: it is the successor of another. */
static bool *find_heirs(const ech_list *list)
{
    bool *inherits = ech_calloc(list->value.n + 1, sizeof *inherits);
    for (size_t i = 0; i < list->value.n; i++)
        if (list->value.at[i].successor >= 0) inherits[list->value.at[i].successor] = true;
    return inherits;
}

void ech_pass_place(ech_list *list, int64_t start)
{
    size_t n = list->value.n;
    placer p = {.list = list, .slot_ticks = list->ticks / MOST_SLOTS + 1};
    if (p.slot_ticks < LEAST_SLOT_TICKS) p.slot_ticks = LEAST_SLOT_TICKS;
    size_t slots = (size_t)(list->ticks / p.slot_ticks) + 1;
    p.living = ech_calloc(slots, sizeof *p.living);
    p.born = ech_calloc(slots, sizeof *p.born);
    sort_item *order = ech_calloc(n + 1, sizeof *order);
    for (size_t i = 0; i < n; i++) order[i] = (sort_item){-list->value.at[i].bytes, (int)i};
    qsort(order, n, sizeof *order, by_key);
    list->bytes = 0;
    bool *inherits = find_heirs(list);
    for (size_t i = 0; i < n; i++)
        if (!inherits[order[i].value]) place_value(&p, order[i].value, start);
    free(inherits);
    for (size_t i = 0; i < slots; i++) {
        free(p.living[i].at);
        free(p.born[i].at);
    }
    free(p.living);
    free(p.born);
    for (size_t i = 0; i < p.shelves.n; i++) free(p.shelves.at[i]);
    free(p.shelves.at);
    free(p.near.at);
    free(order);
}
