/* SPDX-License-Identifier: Apache-2.0
 *
 * Seconds.
 */
#ifndef ECH_BASE_CLOCK_H
#define ECH_BASE_CLOCK_H

double ech_clock_now(void);  /* on a clock that never goes back */
double ech_clock_wall(void); /* since 1970; may be set, so never for a span */
double ech_clock_mine(void); /* that a processor has spent on the calling thread */

#endif
