/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders of any origin, checked by the rules by which ech_order_parse reads them, and printed.
 */
#ifndef ECH_TESTS_SCHEDULE_ORDERS_H
#define ECH_TESTS_SCHEDULE_ORDERS_H

#include "schedule/order/items.h"

static inline bool order_follow(const ech_order *order, ech_order_progress *progress, ech_text *why)
{
    for (size_t i = 0; i < order->n; i++) {
        ECH_FREED_TEXT fault = {0};
        if (ech_order_progress_add(progress, order->at[i], &fault)) continue;
        ech_text_append(why, "item %zu, ", i);
        ech_order_item_print(order->at[i], why);
        ech_text_append(why, ": %s", fault.at);
        return false;
    }
    return ech_order_progress_done(progress, true, why);
}

/* Errors name `name` and the item. */
static inline ech_status order_check(const ech_order *order, int chunks, int micro_batches,
                                     const char *name)
{
    ECH_CLEANUP(ech_order_progress_end)
    ech_order_progress progress = ech_order_progress_begin(chunks, micro_batches);
    ECH_FREED_TEXT why = {0};
    if (order_follow(order, &progress, &why)) return ECH_OK;
    ECH_FAIL(ECH_EINPUT, "%s: %s", name, why.at);
}

/* "F0.0 F0.1 B0.0 W0.0": reads back to the same order. */
static inline void order_print(const ech_order *order, ech_text *out)
{
    for (size_t i = 0; i < order->n; i++) {
        if (i > 0) ech_text_append(out, " ");
        ech_order_item_print(order->at[i], out);
    }
}

#endif
