/* SPDX-License-Identifier: Apache-2.0
 *
 * Best-fit decreasing. Bins with the same number of free places form a queue; a tree of bits says
 * which queues are not empty, 64 children a node.
 */
#include "data/documents.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

enum { BITS = 64, LEVELS = 6 }; /* 64^6 > 2^31 */

typedef struct bin_queues {
    uint64_t *level[LEVELS]; /* bit i of level k + 1: word i of level k is not 0 */
    /* by free places, numbers of bins from 1 on; 0: the queue is empty */
    int64_t *first, *last;
    int64_t *next; /* by bin: the next bin of its queue */
} bin_queues;

static void create_queues(bin_queues *q, int64_t capacity, int64_t bins)
{
    size_t words = (size_t)capacity + 1;
    for (int k = 0; k < LEVELS; k++) {
        words = words / BITS + 1;
        q->level[k] = ech_calloc(words, sizeof *q->level[k]);
    }
    q->first = ech_calloc((size_t)capacity + 1, sizeof *q->first);
    q->last = ech_calloc((size_t)capacity + 1, sizeof *q->last);
    q->next = ech_calloc((size_t)bins + 1, sizeof *q->next);
}

static void free_queues(bin_queues *q)
{
    for (int k = 0; k < LEVELS; k++) free(q->level[k]);
    free(q->first);
    free(q->last);
    free(q->next);
}

static void push(bin_queues *q, int64_t room, int64_t bin)
{
    q->next[bin] = 0;
    *(q->first[room] ? &q->next[q->last[room]] : &q->first[room]) = bin;
    q->last[room] = bin;
    for (int k = 0; k < LEVELS; k++, room /= BITS)
        q->level[k][room / BITS] |= UINT64_C(1) << room % BITS;
}

static int64_t pop(bin_queues *q, int64_t room)
{
    int64_t bin = q->first[room];
    q->first[room] = q->next[bin];
    bool empty = !q->first[room];
    for (int k = 0; k < LEVELS && empty; k++, room /= BITS) {
        q->level[k][room / BITS] &= ~(UINT64_C(1) << room % BITS);
        empty = !q->level[k][room / BITS];
    }
    return bin;
}

/* The fewest free places of a queued bin, at least `room`; -1: there is no such bin. */
static int64_t find(const bin_queues *q, int64_t room)
{
    int k = 0;
    int64_t i = room;
    uint64_t word;
    while (!(word = q->level[k][i / BITS] >> i % BITS)) {
        if (++k == LEVELS) return -1;
        i = i / BITS + 1;
    }
    i += __builtin_ctzll(word);
    for (; k > 0; k--) i = i * BITS + __builtin_ctzll(q->level[k - 1][i]);
    return i;
}

/* order: the items by descending length; items of equal length in their order. */
static void sort_items(const int32_t *length, int64_t n, int64_t capacity, int64_t *order)
{
    ECH_FREED int64_t *at = ech_calloc((size_t)capacity + 2, sizeof *at);
    for (int64_t i = 0; i < n; i++) at[capacity - length[i] + 1]++;
    for (int64_t c = 0; c < capacity; c++) at[c + 1] += at[c];
    for (int64_t i = 0; i < n; i++) order[at[capacity - length[i]]++] = i;
}

/* Numbers bins by their first item instead of by when they were opened. */
static void renumber(int64_t n, int64_t bins, int64_t *bin)
{
    ECH_FREED int64_t *number = ech_calloc((size_t)bins + 1, sizeof *number);
    int64_t known = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!number[bin[i]]) number[bin[i]] = ++known;
        bin[i] = number[bin[i]] - 1;
    }
}

int64_t ech_best_fit(const int32_t *length, int64_t n, int32_t capacity, int64_t *bin)
{
    bin_queues q = {0};
    int64_t bins = 0;
    ECH_FREED int64_t *order = ech_calloc((size_t)n + 1, sizeof *order);
    create_queues(&q, capacity, n);
    sort_items(length, n, capacity, order);
    for (int64_t i = 0; i < n; i++) {
        int64_t item = order[i], room = find(&q, length[item]);
        bin[item] = room < 0 ? ++bins : pop(&q, room);
        push(&q, (room < 0 ? capacity : room) - length[item], bin[item]);
    }
    free_queues(&q);
    renumber(n, bins, bin);
    return bins;
}
