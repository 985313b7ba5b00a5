/* SPDX-License-Identifier: Apache-2.0
 *
 * Seconds.
 */
#ifndef ECH_BASE_CLOCK_H
#define ECH_BASE_CLOCK_H

double ech_clock_now(void);  /* on a clock that never goes back */
double ech_clock_wall(void); /* since 1970; may be set, so never for a span */
double ech_clock_mine(void); /* that a processor has spent on the calling thread */

/* For who looks at the clock over and over while he waits, *looked being when he did so last, which
 * becomes now: seconds in which the process itself stood still (stopped, or frozen), and which are
 * nobody's delay. */
double ech_clock_take_gap(double *looked, double now);

#endif
