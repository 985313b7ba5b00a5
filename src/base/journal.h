/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that tell of a run while it goes on: metrics, events, traces. Records are added whole or not at
 * all. What is told must not end what it tells of: once open, a journal that cannot be written says so
 * by name, loses records, counts them, and tries again with the next one.
 */
#ifndef ECH_BASE_JOURNAL_H
#define ECH_BASE_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_journal ech_journal;

/* Goes on behind what is there, or (`anew`) begins the file again. One process at a time. Errors: the
 * file cannot be opened for writing. */
ech_status ech_journal_open(const char *path, bool anew, ech_journal **out);
/* One write. False: the record is lost. The first loss of a row is said, and so is its end. */
bool ech_journal_add(ech_journal *journal, const void *record, size_t n);
int64_t ech_journal_lost(const ech_journal *journal); /* records since it was opened */
/* Says how many records were lost at the end. Accepts NULL. */
void ech_journal_close(ech_journal *journal);

#endif
