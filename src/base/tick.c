/* SPDX-License-Identifier: Apache-2.0
 *
 * Who listens to the ticks of a thread.
 */
#include "base/tick.h"

static _Thread_local ech_tick_fn *listener;
static _Thread_local void *listener_context;

void ech_tick_set(ech_tick_fn *call, void *context)
{
    listener = call;
    listener_context = context;
}

void ech_tick(void)
{
    if (listener) listener(listener_context);
}
