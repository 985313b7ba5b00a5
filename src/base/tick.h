/* SPDX-License-Identifier: Apache-2.0
 *
 * Progress callbacks of long file operations: functions that read, write, hash or remove files call
 * ech_tick after each block of work. These ticks have nothing to do with the ticks of plans.
 */
#ifndef ECH_BASE_TICK_H
#define ECH_BASE_TICK_H

typedef void ech_tick_fn(void *context);

/* Sets the function that ech_tick calls on this thread. NULL: none. */
void ech_tick_set(ech_tick_fn *call, void *context);
void ech_tick(void); /* calls it, if there is one */

#endif
