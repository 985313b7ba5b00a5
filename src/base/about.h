/* SPDX-License-Identifier: Apache-2.0
 *
 * What this thread's errors are about.
 */
#ifndef ECH_BASE_ABOUT_H
#define ECH_BASE_ABOUT_H

/* From now on this thread's errors (ech_fail_at) begin with `text` (borrowed) and a colon. NULL:
 * with nothing. Returns what was set before. */
const char *ech_set_about(const char *text);

#endif
