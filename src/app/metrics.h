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

/* A line without its newline; NULL: one that is longer than ECH_METRICS_LONGEST_LINE. */
typedef ech_status ech_metrics_line(void *context, const char *line, size_t n);
/* Hands over the lines that end in bytes [begin, end) of an open file, which is never in memory as a whole, until
 * one fails. */
ech_status ech_metrics_lines(int fd, const char *path, int64_t begin, int64_t end,
                             ech_metrics_line *take, void *context);

/* Drops the lines of steps > last_step and a torn last line, from the file's end: behind the last training
 * step that stays also whatever is no line of a step. The file may be of any size, and is changed in
 * place. No error if there is none. *starts: the "start" of the last line that has one, dropped or not; 0:
 * none has. */
ech_status ech_metrics_cut(const char *path, int64_t last_step, int64_t *starts);

#endif
