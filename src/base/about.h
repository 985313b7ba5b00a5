/* SPDX-License-Identifier: Apache-2.0
 *
 * The subject of this thread's errors.
 */
#ifndef ECH_BASE_ABOUT_H
#define ECH_BASE_ABOUT_H

/* Makes this thread's errors (ech_fail_at) begin with `text` (borrowed) and a colon; NULL: without.
 * Returns the previous text. */
const char *ech_set_about(const char *text);

#endif
