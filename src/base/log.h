/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines for people, on standard error. Each thread may carry the rank it works for; lines then say
 * which rank speaks. Silence (for tests that provoke errors) is per thread as well.
 */
#ifndef ECH_BASE_LOG_H
#define ECH_BASE_LOG_H

#include <stdbool.h>

/* The rank this thread speaks for; -1 (the start value): none, lines carry no rank. */
void ech_log_set_rank(int rank);
int ech_log_rank(void);

/* A quiet thread prints no lines; ech_last_error still works. Returns what it was before. */
bool ech_log_set_quiet(bool quiet);
bool ech_log_is_quiet(void);

void ech_log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void ech_log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
