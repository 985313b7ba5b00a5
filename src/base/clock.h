/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks and CPU time, in seconds.
 */
#ifndef ECH_BASE_CLOCK_H
#define ECH_BASE_CLOCK_H

double ech_clock_now(void);  /* monotonic clock */
double ech_clock_wall(void); /* since 1970; the system may set this clock: not for durations */
double ech_clock_mine(void); /* CPU time of the calling thread */

/* Milliseconds until `time` on ech_clock_now, rounded up, 0 if it has passed, at most an hour: for poll(2). */
int ech_clock_ms_until(double time);

/* For a waiting loop that reads the clock often. *looked: the time of its previous reading; set to `now`.
 * Returns the seconds since then if they are more than 1, otherwise 0: so long a gap means that the whole
 * process was stopped or frozen, and must not count against a deadline. */
double ech_clock_take_gap(double *looked, double now);

#endif
