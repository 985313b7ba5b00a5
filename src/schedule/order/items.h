/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for generators: they add items to an order, and check an order item by item. Private to
 * src/schedule/order. "Chunk" is a model chunk.
 */
#ifndef ECH_SCHEDULE_ORDER_ITEMS_H
#define ECH_SCHEDULE_ORDER_ITEMS_H

#include "schedule/order/order.h"

enum { ECH_ACTIONS = ECH_W + 1 };
extern const char ech_order_letters[ECH_ACTIONS]; /* F, B, W */

void ech_order_add(ech_order *order, ech_action action, int chunk, int micro);
/* Adds B, and its W right after it. */
void ech_order_add_backward(ech_order *order, int chunk, int micro);

/* "F0.3" */
void ech_order_item_print(ech_order_item item, ech_text *out);

/* F, B and W of a chunk each come in ascending order of micro-batches, so the state is the next
 * micro-batch of each. */
typedef struct ech_order_progress {
    int chunks, micro_batches;
    int *next; /* [chunk * ECH_ACTIONS + action]: the micro-batch that is due */
} ech_order_progress;

ech_order_progress ech_order_progress_begin(int chunks, int micro_batches);
void ech_order_progress_end(ech_order_progress *progress);

/* Returns false, with the reason in `why`, if the item may not come now: it does not exist, has
 * come already, or must follow another item. */
bool ech_order_progress_add(ech_order_progress *progress, ech_order_item item, ech_text *why);
/* Returns false, with the reason in `why`, if an item is missing; W only counts if `split`. */
bool ech_order_progress_done(const ech_order_progress *progress, bool split, ech_text *why);

#endif
