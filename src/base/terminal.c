/* SPDX-License-Identifier: Apache-2.0
 *
 * The line that is drawn over itself.
 */
#include "base/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/visible.h"

enum { FEWEST_COLUMNS = 20, USUAL_COLUMNS = 80, MOST_COLUMNS = 1000 };

static const double between_draws = 0.1; /* seconds */

int ech_terminal_columns(void)
{
    struct winsize size;
    int64_t columns = 0;
    const char *given = getenv(ECH_TERMINAL_VARIABLE);
    if (ech_log_has_sink()) return 0;
    if (isatty(STDERR_FILENO))
        columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col ? size.ws_col
                                                                              : USUAL_COLUMNS;
    else if (!given || !ech_text_to_int(given, &columns) || columns <= 0)
        return 0;
    if (columns < FEWEST_COLUMNS) return FEWEST_COLUMNS;
    return columns < MOST_COLUMNS ? (int)columns : MOST_COLUMNS;
}

void ech_terminal_line_begin(ech_terminal_line *line)
{
    *line = (ech_terminal_line){.columns = ech_terminal_columns(), .drawn_at = -1};
}

/* Overwrites the line. The last column stays free: some terminals go to the next line there. */
static void redraw(ech_terminal_line *line)
{
    fprintf(stderr, "\r%.*s\033[K", line->columns - 1, line->text.at);
    fflush(stderr);
    line->is_shown = true;
}

void ech_terminal_line_draw(ech_terminal_line *line, const char *text, bool now)
{
    double time = ech_clock_now();
    if (!line->columns) return;
    if (!now && line->drawn_at >= 0 && time - line->drawn_at < between_draws) return;
    line->drawn_at = time;
    line->text.n = 0;
    ech_visible_append(&line->text, text, strlen(text), false, true);
    redraw(line);
}

void ech_terminal_line_keep(ech_terminal_line *line)
{
    if (line->is_shown) fputc('\n', stderr);
    line->is_shown = false;
}

void ech_terminal_line_erase(ech_terminal_line *line)
{
    if (line->is_shown) fprintf(stderr, "\r\033[K");
    line->is_shown = false;
}

void ech_terminal_line_say(ech_terminal_line *line, const char *text)
{
    /* One write a line, so that lines of several processes do not mix. */
    ECH_FREED_TEXT whole = {0};
    if (line->is_shown) ech_text_append(&whole, "\r\033[K");
    ech_visible_append(&whole, text, strlen(text), true, true);
    ech_text_append(&whole, "\n");
    ech_log_text(whole.at);
    if (line->is_shown) redraw(line);
}

void ech_terminal_line_end(ech_terminal_line *line)
{
    ech_terminal_line_keep(line);
    ech_text_free(&line->text);
}
