/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon report`: one HTML page about a run directory, or about several. Not collective.
 */
#ifndef ECH_APP_REPORT_REPORT_H
#define ECH_APP_REPORT_REPORT_H

#include "base/status.h"
#include "base/text.h"

/* Writes the page of the run in `directory` to `out` (NULL: report.html in the directory) and, if
 * the run has a trace (log.trace), its ranks' events to trace.json in the directory
 * (app/trace/trace.h). Appends to `summary`, for people: the files written, the bubble, and which
 * parts are omitted and how to get them. Errors: run.yaml is missing or invalid; a trace is
 * damaged; a file cannot be written. Missing parts are not an error. */
ech_status ech_report_run(const char *directory, const char *out, ech_text *summary);

/* Appends a table of n runs, a column each: loss, dates, speed, layout and data. What all have in
 * common follows it. Writes a page of them, with the lines of all runs in each chart, to `path`
 * (NULL: none). Errors: as above. */
ech_status ech_report_compare(char *const *directories, int n, const char *path, ech_text *out);

#endif
