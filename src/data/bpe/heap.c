/* SPDX-License-Identifier: Apache-2.0
 *
 * A binary heap.
 */
#include "data/bpe/heap.h"

#include <stdbool.h>

static bool comes_before(const ech_bpe_queued *a, const ech_bpe_queued *b)
{
    return a->order != b->order ? a->order < b->order : a->what < b->what;
}

void ech_bpe_heap_push(ech_bpe_heap *heap, ech_bpe_queued entry)
{
    ECH_PUSH(*heap, entry);
    ech_bpe_queued *list = heap->at;
    size_t at = heap->n - 1;
    for (; at > 0 && comes_before(&entry, &list[(at - 1) / 2]); at = (at - 1) / 2)
        list[at] = list[(at - 1) / 2];
    list[at] = entry;
}

ech_bpe_queued ech_bpe_heap_pop(ech_bpe_heap *heap)
{
    ech_bpe_queued *list = heap->at, first = list[0], last = list[--heap->n];
    size_t n = heap->n, at = 0;
    for (size_t child = 1; child < n; at = child, child = 2 * at + 1) {
        if (child + 1 < n && comes_before(&list[child + 1], &list[child])) child++;
        if (!comes_before(&list[child], &last)) break;
        list[at] = list[child];
    }
    if (n > 0) list[at] = last;
    return first;
}
