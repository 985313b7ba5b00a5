/* SPDX-License-Identifier: Apache-2.0
 *
 * What several generators of orders share. Private to generators.
 */
#ifndef ECH_SCHEDULE_ORDER_GENERATE_H
#define ECH_SCHEDULE_ORDER_GENERATE_H

#include "schedule/order/order.h"

void ech_order_add(ech_order *order, ech_action action, int chunk, int micro);
/* Adds B, and its W right after it. */
void ech_order_add_backward(ech_order *order, int chunk, int micro);

/* 1F1B of one chunk: pipe->depth forwards before the first B, then B and F alternate. The W of a micro-batch comes
 * after the B of the one `delay` micro-batches later. */
void ech_generate_1f1b(const ech_pipe *pipe, int delay, ech_order *order);

#endif
