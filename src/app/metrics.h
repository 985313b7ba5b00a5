/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of one JSON object per line (metrics.jsonl, traces, step profiles): writing and reading lines, and
 * truncating metrics.jsonl, whose lines begin with "step".
 */
#ifndef ECH_APP_METRICS_H
#define ECH_APP_METRICS_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/* Readers drop longer lines: parsed as JSON they could take a hundred times their bytes. */
enum { ECH_METRICS_LONGEST_LINE = 1 << 16 };

/* Append "name":value, after a comma or, if `line` is empty, the opening brace; the caller appends the closing
 * one. A NaN or infinity becomes null; other reals read back to the same bits. Text that is not UTF-8 becomes
 * null. */
void ech_metrics_int(ech_text *line, const char *name, int64_t value);
void ech_metrics_real(ech_text *line, const char *name, double value);
void ech_metrics_text(ech_text *line, const char *name, const char *value);

/* Receives a line of n bytes, without its newline; line NULL: one longer than ECH_METRICS_LONGEST_LINE. end: the
 * file's offset after the newline. */
typedef ech_status ech_metrics_line(void *context, const char *line, size_t n, int64_t end);
/* Calls `take` with each line that ends in bytes [begin, end) of an open file, until it fails. Reads in
 * blocks: the file may be larger than memory. */
ech_status ech_metrics_lines(int fd, const char *path, int64_t begin, int64_t end,
                             ech_metrics_line *take, void *context);

/* Removes from metrics.jsonl the lines of steps > last_step and an incomplete last line; after the line of the
 * last training step that stays also lines without a step. In place, for files of any size. No error if there
 * is no file. *starts: the "start" of the last line that has one, removed or not; 0: none. */
ech_status ech_metrics_truncate(const char *path, int64_t last_step, int64_t *starts);

#endif
