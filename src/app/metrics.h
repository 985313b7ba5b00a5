/* SPDX-License-Identifier: Apache-2.0
 *
 * Files of one JSON object per line (metrics.jsonl, traces, step profiles): writing and reading
 * lines, and truncating metrics.jsonl, whose lines begin with "step".
 */
#ifndef ECH_APP_METRICS_H
#define ECH_APP_METRICS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

/* In bytes. Readers drop longer lines, which as parsed JSON could take a hundred times their
 * bytes. */
enum { ECH_METRICS_LONGEST_LINE = 1 << 16 };

/* Each appends "name":value after a comma, or after the opening brace if `line` is empty; the
 * caller appends the closing brace. A NaN or infinity becomes null; other reals are read back with
 * the same bits. Text that is not UTF-8 becomes null. */
void ech_metrics_int(ech_text *line, const char *name, int64_t value);
void ech_metrics_real(ech_text *line, const char *name, double value);
void ech_metrics_text(ech_text *line, const char *name, const char *value);

/* Receives a line of n bytes, without its newline. line NULL: it is longer than
 * ECH_METRICS_LONGEST_LINE. end: offset in the file after the newline. */
typedef ech_status ech_metrics_line(void *context, const char *line, size_t n, int64_t end);
/* Calls `take` with each line of bytes [begin, end) of an open file that has a newline there; stops
 * at the first error of `take` and returns it. The file may be larger than memory. `path` is for
 * errors. */
ech_status ech_metrics_lines(int fd, const char *path, int64_t begin, int64_t end,
                             ech_metrics_line *take, void *context);

typedef ECH_LIST(int64_t) ech_metrics_steps;
/* Appends the "step" of each line that has the key, in the file's order; the caller frees out->at,
 * also after an error. No error if there is no file. */
ech_status ech_metrics_find(const char *path, const char *key, ech_metrics_steps *out);

/* Removes from metrics.jsonl the lines of training steps > last_step, an incomplete last line, and
 * lines without a "step" after the last training step that stays. In place, for files of any size.
 * No error if there is no file. *starts: the "start" of the last line that has one, removed or not,
 * so the number of starts so far; 0: none. */
ech_status ech_metrics_truncate(const char *path, int64_t last_step, int64_t *starts);

#endif
