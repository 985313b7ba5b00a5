/* SPDX-License-Identifier: Apache-2.0
 *
 * The pass that gives every value an offset: largest first, each at the lowest offset where it meets
 * no value that lives at the same time. Deterministic. To find those that live at the same time, time
 * is cut into slots: they live in the slot of the value's birth, or are born in a later one of its life.
 */
#include <stdlib.h>
#include <string.h>

#include "schedule/passes.h"

enum { LEAST_SLOT_TICKS = 8, MOST_SLOTS = 4096 }; /* bounds the lists of long lives */

typedef struct sort_item {
    int64_t key;
    int value;
} sort_item;

typedef ECH_LIST(int) slot_values;

typedef struct placer {
    ech_list *list;
    int slot_ticks;
    slot_values *living, *born; /* values placed, by slot */
    ECH_LIST(sort_item) near;   /* placed values that live at the same time, by offset */
} placer;

static int by_key(const void *a, const void *b)
{
    const sort_item *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

static void add_near(placer *p, const ech_value *v, const slot_values *slot)
{
    for (size_t i = 0; i < slot->n; i++) {
        const ech_value *o = &p->list->value.at[slot->at[i]];
        if (o->dies < v->born || v->dies < o->born) continue;
        ECH_PUSH(p->near, (sort_item){o->offset, slot->at[i]});
    }
}

static void find_near(placer *p, const ech_value *v)
{
    int first = v->born / p->slot_ticks, last = v->dies / p->slot_ticks;
    p->near.n = 0;
    add_near(p, v, &p->living[first]);
    for (int slot = first + 1; slot <= last; slot++) add_near(p, v, &p->born[slot]);
    if (p->near.n > 1) qsort(p->near.at, p->near.n, sizeof *p->near.at, by_key);
}

static void place_value(placer *p, int value, int64_t start)
{
    ech_value *v = &p->list->value.at[value];
    int64_t offset = start;
    find_near(p, v);
    for (size_t i = 0; i < p->near.n; i++) {
        const ech_value *o = &p->list->value.at[p->near.at[i].value];
        if (offset + ech_align(v->bytes) <= o->offset) break;
        int64_t end = o->offset + ech_align(o->bytes);
        if (end > offset) offset = end;
    }
    v->offset = offset;
    int64_t used = offset + ech_align(v->bytes) - start;
    if (used > p->list->bytes) p->list->bytes = used;
    ECH_PUSH(p->born[v->born / p->slot_ticks], value);
    for (int slot = v->born / p->slot_ticks; slot <= v->dies / p->slot_ticks; slot++)
        ECH_PUSH(p->living[slot], value);
}

/* The most bytes of each kind, and of all, that live at one tick. */
static void find_peaks(ech_list *list)
{
    int64_t *change = ech_calloc((size_t)list->ticks + 2, sizeof *change);
    for (int kind = 0; kind <= ECH_MEMORY_KINDS; kind++) {
        int64_t live = 0, most = 0;
        memset(change, 0, ((size_t)list->ticks + 2) * sizeof *change);
        for (size_t i = 0; i < list->value.n; i++) {
            const ech_value *v = &list->value.at[i];
            if (kind < ECH_MEMORY_KINDS && (int)v->kind != kind) continue;
            change[v->born] += ech_align(v->bytes);
            change[v->dies + 1] -= ech_align(v->bytes);
        }
        for (int t = 0; t < list->ticks; t++) {
            live += change[t];
            if (live > most) most = live;
        }
        if (kind < ECH_MEMORY_KINDS)
            list->peak[kind] = most;
        else
            list->lower_bound = most;
    }
    free(change);
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
    for (size_t i = 0; i < n; i++) place_value(&p, order[i].value, start);
    find_peaks(list);
    for (size_t i = 0; i < slots; i++) {
        free(p.living[i].at);
        free(p.born[i].at);
    }
    free(p.living);
    free(p.born);
    free(p.near.at);
    free(order);
}
