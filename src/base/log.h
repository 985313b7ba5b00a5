/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines on standard error. A thread can set its rank, which then begins its lines. A thread can
 * be quiet, for tests that provoke errors. A program that embeds this one gets the lines itself.
 */
#ifndef ECH_BASE_LOG_H
#define ECH_BASE_LOG_H

#include <stdbool.h>

/* This thread's rank. -1 (initially): none, lines have no rank. */
void ech_log_set_rank(int rank);
int ech_log_rank(void);

/* A quiet thread prints no lines; ech_last_error still works. Returns the previous setting. */
bool ech_log_set_quiet(bool quiet);
bool ech_log_is_quiet(void);

/* Prints "echelon: [rank R: ]KIND message" with one write, so that lines of ranks do not mix.
 * Control characters are escaped (visible.h). Works without the heap for lines below 4 KiB, since
 * memory may be exhausted. */
void ech_log_line(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints text that is not a message, such as the rows of a table: lines, each with its end, as they
 * are. Also from a quiet thread. */
void ech_log_text(const char *text);

/* Called with each line, without its end, in place of standard error. By any thread, several at a
 * time. Lines of calls that the sink itself makes are dropped. */
typedef void ech_log_sink(const char *line, void *context);
/* For the whole process; NULL: standard error. */
void ech_log_set_sink(ech_log_sink *sink, void *context);
bool ech_log_has_sink(void);
/* True on a thread that is calling the sink. */
bool ech_log_is_in_sink(void);
#define ech_log_info(...) ech_log_line("", __VA_ARGS__)
#define ech_log_warn(...) ech_log_line("warning: ", __VA_ARGS__)

#endif
