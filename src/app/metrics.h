/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of files that have one JSON object a line (metrics.jsonl, traces, step profiles), and cutting
 * metrics.jsonl, where each begins with "step".
 */
#ifndef ECH_APP_METRICS_H
#define ECH_APP_METRICS_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/* Readers drop longer ones unread: as JSON they could take a hundred times the memory. */
enum { ECH_METRICS_LONGEST_LINE = 1 << 16 };

/* Appends "name":value, opening the object if `line` is empty; the caller appends the brace that
 * closes it. A NaN or infinity, which JSON has not, becomes null; other reals read back to the same
 * bits. A text that is no UTF-8 becomes null. */
void ech_metrics_int(ech_text *line, const char *name, int64_t value);
void ech_metrics_real(ech_text *line, const char *name, double value);
void ech_metrics_text(ech_text *line, const char *name, const char *value);

/* Drops the lines of steps > last_step, whatever is no such line, and a torn last line; the file is
 * rewritten atomically, or not at all where there is nothing to drop. No error if there is none.
 * *starts: the largest "start" of any line, dropped or not; 0: none has one. */
ech_status ech_metrics_cut(const char *path, int64_t last_step, int64_t *starts);

#endif
