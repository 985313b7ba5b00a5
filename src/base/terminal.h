/* SPDX-License-Identifier: Apache-2.0
 *
 * Output for people on standard error: on a terminal, a status line that is redrawn in place with
 * other lines scrolling above it; otherwise plain lines only. For one thread. No errors.
 */
#ifndef ECH_BASE_TERMINAL_H
#define ECH_BASE_TERMINAL_H

#include <stdbool.h>

#include "base/text.h"

/* Environment variable of ranks whose standard error goes to a terminal through a launcher: the
 * terminal's number of columns. The ranks cannot see the terminal themselves. */
#define ECH_TERMINAL_VARIABLE "ECHELON_TERMINAL"

typedef struct ech_terminal_line {
    int columns;     /* of the terminal; 0: standard error is not a terminal */
    double drawn_at; /* when the status line was drawn last, seconds on the clock; below 0: never */
    bool is_shown;   /* a status line is on the screen */
    ech_text text;   /* last drawn */
} ech_terminal_line;

/* Columns of the terminal on standard error, else ECH_TERMINAL_VARIABLE, at least 20; 0: no
 * terminal. */
int ech_terminal_columns(void);

/* Begins with ech_terminal_columns. Release with ech_terminal_line_end. */
void ech_terminal_line_begin(ech_terminal_line *line);
/* Draws `text`, truncated to the terminal's width. Within 0.1 s of the last drawing the text is
 * dropped, unless `now`. Does nothing without a terminal. */
void ech_terminal_line_draw(ech_terminal_line *line, const char *text, bool now);
/* Prints `text` as a line of its own and redraws the status line below it. */
void ech_terminal_line_say(ech_terminal_line *line, const char *text);
/* Leaves the status line on the screen as a line like others: it is not drawn again. */
void ech_terminal_line_keep(ech_terminal_line *line);
/* Removes the status line from the screen. */
void ech_terminal_line_erase(ech_terminal_line *line);
/* Leaves the status line on the screen, moves below it, and frees its text. */
void ech_terminal_line_end(ech_terminal_line *line);

#endif
