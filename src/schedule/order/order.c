/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders of any origin: checked, printed, counted; and the order of evaluation.
 */
#include "schedule/order/order.h"

#include "schedule/order/items.h"

void ech_order_forwards(const ech_pipe *pipe, ech_order *order)
{
    int p = pipe->stages, m = pipe->micro_batches;
    for (int first = 0; first < m; first += p) {
        int end = m - first < p ? m : first + p;
        for (int chunk = 0; chunk < pipe->chunks; chunk++)
            for (int micro = first; micro < end; micro++) ech_order_add(order, ECH_F, chunk, micro);
    }
}

static bool follow(const ech_order *order, ech_order_progress *progress, ech_text *why)
{
    for (size_t i = 0; i < order->n; i++) {
        ECH_CLEANUP(ech_text_free) ech_text fault = {0};
        if (ech_order_progress_add(progress, order->at[i], &fault)) continue;
        ech_text_append(why, "item %zu, ", i);
        ech_order_item_print(order->at[i], why);
        ech_text_append(why, ": %s", fault.at);
        return false;
    }
    return ech_order_progress_done(progress, true, why);
}

ech_status ech_order_check(const ech_order *order, int chunks, int micro_batches, const char *name)
{
    ECH_CLEANUP(ech_order_progress_end)
    ech_order_progress progress = ech_order_progress_begin(chunks, micro_batches);
    ECH_CLEANUP(ech_text_free) ech_text why = {0};
    if (follow(order, &progress, &why)) return ECH_OK;
    ECH_FAIL(ECH_EINPUT, "%s: %s", name, why.at);
}

void ech_order_print(const ech_order *order, ech_text *out)
{
    for (size_t i = 0; i < order->n; i++) {
        if (i > 0) ech_text_append(out, " ");
        ech_order_item_print(order->at[i], out);
    }
}

int ech_order_in_flight(const ech_order *order)
{
    int now = 0, most = 0;
    for (size_t i = 0; i < order->n; i++) {
        now += order->at[i].action == ECH_F;
        now -= order->at[i].action == ECH_W;
        if (now > most) most = now;
    }
    return most;
}
