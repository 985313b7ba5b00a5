/* SPDX-License-Identifier: Apache-2.0
 *
 * Log files of a run: metrics, events, traces. A record is appended completely or not at all. A
 * failed write never ends the run: it logs a warning with the path, the record is dropped and
 * counted, and the next record tries again.
 */
#ifndef ECH_BASE_JOURNAL_H
#define ECH_BASE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_journal ech_journal;

/* Opens the file to append; `anew` truncates it first. Only one process at a time may have it open.
 * Errors: ECH_EIO, the file cannot be opened for writing, or is not a regular one, or a link. */
ech_status ech_journal_open(const char *path, bool anew, ech_journal **out);
/* Appends a record of n bytes with one write. False: the record is dropped. Logs the first of
 * consecutive losses, and the first success after them. */
bool ech_journal_add(ech_journal *journal, const void *record, size_t n);
int64_t ech_journal_lost(const ech_journal *journal); /* records dropped since it was opened */
/* Closes the file. If the last records were dropped, logs how many. Accepts NULL. */
void ech_journal_close(ech_journal *journal);

#endif
