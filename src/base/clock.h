/* SPDX-License-Identifier: Apache-2.0
 *
 * Clocks and CPU time, in seconds. No call can fail.
 */
#ifndef ECH_BASE_CLOCK_H
#define ECH_BASE_CLOCK_H

double ech_clock_now(void);  /* monotonic clock, the same for all processes of a machine */
double ech_clock_wall(void); /* since 1970; the system may set this clock: not for durations */
double ech_clock_mine(void); /* CPU time of the calling thread */

/* Milliseconds until ech_clock_now() is `time`, rounded up, 0 if it has passed, at most an hour:
 * for poll(2). */
int ech_clock_ms_until(double time);

/* Sleeps until ech_clock_now() is `time`, despite signals. */
void ech_clock_sleep_until(double time);

/* For a waiting loop that reads the clock often. *looked: the time of its previous reading; set to
 * `now`. Returns the seconds since then if they are more than 1, otherwise 0. So long a gap means
 * that the process was suspended or frozen; it must not count against a deadline. */
double ech_clock_take_gap(double *looked, double now);

#endif
