/* SPDX-License-Identifier: Apache-2.0
 *
 * Output for people on standard error: on a terminal, a status line that is redrawn in place with other
 * lines scrolling above it; otherwise plain lines only.
 */
#ifndef ECH_APP_STATUS_LINE_H
#define ECH_APP_STATUS_LINE_H

#include <stdbool.h>

#include "base/text.h"

/* Environment variable of ranks whose standard error goes to a terminal through a launcher: the number of
 * columns. They cannot see the terminal themselves. */
#define ECH_TERMINAL_VARIABLE "ECHELON_TERMINAL"

typedef struct ech_status_line {
    int columns;     /* of the terminal; 0: standard error is no terminal */
    double drawn_at; /* when it was drawn last, seconds on the clock */
    bool is_shown;   /* a status line is on the screen */
    ech_text text;   /* of the last drawing */
} ech_status_line;

/* Columns of the terminal on standard error, or ECH_TERMINAL_VARIABLE; 0: no terminal. */
int ech_terminal_columns(void);

void ech_status_line_begin(ech_status_line *line);
/* Draws `text`, truncated to the terminal's width; at most ten times a second unless `now`. Does nothing without
 * a terminal. */
void ech_status_line_draw(ech_status_line *line, const char *text, bool now);
/* Prints `text` as a line of its own and redraws the status line below it. */
void ech_status_line_say(ech_status_line *line, const char *text);
/* Leaves the status line on the screen and moves below it. */
void ech_status_line_end(ech_status_line *line);

#endif
