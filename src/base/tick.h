/* SPDX-License-Identifier: Apache-2.0
 *
 * Long work tells now and then that it goes on, whoever does it and for whomever: what reads, writes
 * and removes files does so piece by piece, and after each piece there is a tick.
 */
#ifndef ECH_BASE_TICK_H
#define ECH_BASE_TICK_H

typedef void ech_tick_fn(void *context);

/* From now on called at every tick of this thread. NULL: nobody is. */
void ech_tick_set(ech_tick_fn *call, void *context);
void ech_tick(void);

#endif
