/* SPDX-License-Identifier: Apache-2.0
 *
 * Log lines on standard error. A thread can set its rank, which then prefixes its lines. A thread can be
 * quiet, for tests that provoke errors.
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

void ech_log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void ech_log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
