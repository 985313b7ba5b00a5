/* SPDX-License-Identifier: Apache-2.0
 *
 * Refusals by the checker of all ranks' lists. A refusal is one line with rank, step and reason;
 * above it are the rows of nearby ranks, truncated to the part near the step.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "schedule/print.h"
#include "schedule/reject.h"
#include "schedule/step/step.h"

enum { MOST_ROWS = 8, COLUMNS = 100, MOST_BYTES = 4096 /* of a reason */ };

/* Where "F0.3" occurs in a row as a whole word; its length: *n. NULL: nowhere. */
static const char *find_word(const char *row, char letter, const ech_step *step, size_t *n)
{
    char word[64];
    int length = snprintf(word, sizeof word, "%c%d.%d", letter, step->chunk, step->micro);
    *n = (size_t)length;
    for (const char *at = row; (at = strstr(at, word)) != NULL; at++)
        if ((at == row || at[-1] == ' ') && (at[*n] == ' ' || at[*n] == '\0')) return at;
    return NULL;
}

/* The word of a row to which a step belongs. Rows may fold a W into its B. */
static const char *find_marked(const char *row, const ech_step *step, size_t *n)
{
    int phase = ech_step_row_of(step->kind)->phase;
    if (phase < 0) return NULL;
    char letter = "FBW"[phase];
    const char *at = find_word(row, letter, step, n);
    return at || letter != 'W' ? at : find_word(row, 'B', step, n);
}

static void print_row(const ech_plan *plan, ech_list_kind kind, int marked, bool culprit)
{
    const ech_list *list = &plan->list[kind];
    ECH_FREED_TEXT row = {0}, name = {0}, line = {0};
    ech_list_print_row(list, &row);
    if (!row.at) ech_text_append(&row, "(no blocks)");
    size_t n = 0;
    const char *word = marked >= 0 ? find_marked(row.at, &list->step.at[marked], &n) : NULL;
    size_t at = word ? (size_t)(word - row.at) : row.n, from = 0;
    if (word && at > COLUMNS / 2) from = at - COLUMNS / 2;
    while (from > 0 && row.at[from - 1] != ' ') from--;
    size_t to = from + COLUMNS < row.n ? from + COLUMNS : row.n;
    if (word && to < at + n) to = at + n;
    if (marked >= 0) ech_list_print_step(list, &list->step.at[marked], &name);
    ech_text_append(&line, "%s %4d: %s", culprit ? "->" : "  ", plan->rank, from ? "... " : "");
    if (word)
        ech_text_append(&line, "%.*s[%.*s]%.*s", (int)(at - from), row.at + from, (int)n, word,
                        (int)(to - at - n), word + n);
    else
        ech_text_append(&line, "%.*s", (int)(to - from), row.at + from);
    ech_text_append(&line, "%s%s%s\n", to < row.n ? " ..." : "", name.n ? "   stands at " : "",
                    name.n ? name.at : "");
    ech_log_text(line.at);
}

ech_status ech_plans_reject(const ech_plan *const *plans, int n, ech_list_kind list, int rank,
                            int step, const int *standing, const char *format, ...)
{
    char why[MOST_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    int first = rank - MOST_ROWS / 2;
    if (first > n - MOST_ROWS) first = n - MOST_ROWS;
    if (first < 0) first = 0;
    for (int r = first; r < n && r < first + MOST_ROWS && !ech_log_is_quiet(); r++)
        print_row(plans[r], list, r == rank ? step : standing ? standing[r] : -1, r == rank);

    ECH_FREED_TEXT name = {0};
    const ech_list *own = &plans[rank]->list[list];
    if (step >= 0) ech_list_print_step(own, &own->step.at[step], &name);
    /* An order written by hand is the user's fault; any other is a bug. */
    bool written = plans[rank]->schedule && plans[rank]->schedule->written;
    return ech_fail_at(
        __FILE__, __LINE__, written ? ECH_EUSAGE : ECH_EINTERNAL, "%s of list %s: rank %d: %s %s%s",
        written ? "the schedule file cannot run: check" : "schedule check", ech_list_name(list),
        plans[rank]->rank, name.n ? name.at : "the end of the list", why,
        written ? "; change the order of its stage in the file" : "");
}
