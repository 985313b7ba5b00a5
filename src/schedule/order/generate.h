/* SPDX-License-Identifier: Apache-2.0
 *
 * For generators alone: what several of them do.
 */
#ifndef ECH_SCHEDULE_ORDER_GENERATE_H
#define ECH_SCHEDULE_ORDER_GENERATE_H

#include "schedule/order/order.h"

void ech_order_add(ech_order *order, ech_action action, int chunk, int micro);
/* B, and its W right behind it. */
void ech_order_add_backward(ech_order *order, int chunk, int micro);

/* 1F1B of one chunk: pipe->depth micro-batches are begun before the first B; then a B and an F take
 * turns. Each W comes behind the B that is `delay` micro-batches after its own. */
void ech_generate_1f1b(const ech_pipe *pipe, int delay, ech_order *order);

#endif
