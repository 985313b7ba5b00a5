/* SPDX-License-Identifier: Apache-2.0
 *
 * Seconds on a clock that never goes back.
 */
#ifndef ECH_BASE_CLOCK_H
#define ECH_BASE_CLOCK_H

double ech_clock_now(void);

#endif
