/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to base: prints one line to standard error with one write, so that lines of ranks do not mix.
 */
#ifndef ECH_BASE_LINE_H
#define ECH_BASE_LINE_H

/* Prints "echelon: [rank R: ]KIND message\n". Prints nothing on a quiet thread (log.h). */
void ech_line_print(const char *kind, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
