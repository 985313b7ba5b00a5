/* SPDX-License-Identifier: Apache-2.0
 *
 * For base alone: one line on standard error, in one write so that ranks do not interleave.
 */
#ifndef ECH_BASE_LINE_H
#define ECH_BASE_LINE_H

/* "echelon: [rank R: ]KIND message\n"; nothing on a quiet thread. */
void ech_line_print(const char *kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
