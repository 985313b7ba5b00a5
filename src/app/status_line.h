/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines for people on standard error: on a terminal one line that is drawn over itself, with others
 * that stay above it; in a pipe plain lines.
 */
#ifndef ECH_APP_STATUS_LINE_H
#define ECH_APP_STATUS_LINE_H

#include <stdbool.h>

#include "base/text.h"

/* Set, to the terminal's columns, for ranks whose standard error goes through a launcher to a
 * terminal: they cannot see it themselves. */
#define ECH_TERMINAL_VARIABLE "ECHELON_TERMINAL"

typedef struct ech_status_line {
    int columns;     /* of the terminal; 0: standard error is none */
    double drawn_at; /* seconds on the clock; of the last drawing */
    bool is_shown;   /* the cursor stands behind a drawn line */
    ech_text text;   /* as drawn last */
} ech_status_line;

/* Columns of the terminal on standard error, or what a launcher handed down; 0: no terminal. */
int ech_terminal_columns(void);

void ech_status_line_begin(ech_status_line *line);
/* Draws `text`, cut to the terminal's width; at most ten times a second unless `now`. */
void ech_status_line_draw(ech_status_line *line, const char *text, bool now);
/* Prints `text` as a line that stays, on terminals and in pipes alike. */
void ech_status_line_say(ech_status_line *line, const char *text);
void ech_status_line_end(ech_status_line *line);

#endif
