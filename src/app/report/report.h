/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon report`: everything that a run directory holds, on one page.
 */
#ifndef ECH_APP_REPORT_REPORT_H
#define ECH_APP_REPORT_REPORT_H

#include "base/status.h"
#include "base/text.h"

/* Writes the page about the run in `directory` to `out` (NULL: report.html in the directory), and, if
 * steps were recorded, trace.json in the directory. Appends to `words` what a person wants to know
 * at once, line by line: the files, the bubble, and what was left out and how to get it. Parts that are
 * missing are no error. Errors: no run.yaml, or one that is refused; traces that are damaged; pages that
 * cannot be written. */
ech_status ech_report_run(const char *directory, const char *out, ech_text *words);

#endif
