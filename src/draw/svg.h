/* SPDX-License-Identifier: Apache-2.0
 *
 * The few elements of SVG that timelines and charts consist of. Positions are pixels, x to the
 * right and y down, written with at most two decimals, so that the same picture is the same bytes.
 * `more` is attributes, written unchanged ("stroke=\"none\""); all other text is escaped.
 *
 * Pictures are drawn for white paper. The style sheet of a dark page overrides the classes
 * ech-paper (background), ech-edge (lines between boxes), ech-idle, ech-ink (words), ech-faint
 * (ticks) and ech-axis.
 */
#ifndef ECH_DRAW_SVG_H
#define ECH_DRAW_SVG_H

#include "base/text.h"

/* Attributes: a class, and the colour that it overrides. */
#define ECH_SVG_PAPER "class=\"ech-paper\" fill=\"#ffffff\""
#define ECH_SVG_EDGE  "class=\"ech-edge\" stroke=\"#ffffff\""
#define ECH_SVG_IDLE  "class=\"ech-idle\" fill=\"#e8eaed\""
#define ECH_SVG_INK   "class=\"ech-ink\" fill=\"#1c2530\""
#define ECH_SVG_FAINT "class=\"ech-faint\" fill=\"#5b6675\""
#define ECH_SVG_AXIS  "class=\"ech-axis\" stroke=\"#5b6675\""

/* Appends the text with & < > " ' escaped; invalid UTF-8 and unprintable characters but newlines
 * become U+FFFD. */
void ech_svg_escape(ech_text *out, const char *text);
/* Appends `form` with a number in place of each @: 3, 3.5, 3.25; never -0. The numbers are
 * finite. */
#define ECH_SVG(out, form, ...) ech_svg_fill((out), (form), (double[]){__VA_ARGS__})
void ech_svg_fill(ech_text *out, const char *form, const double *numbers);

/* One <svg> element, to be closed with "</svg>\n"; `name` is its accessible name. */
void ech_svg_begin(ech_text *out, double width, double height, const char *name);
/* `hint`: the tooltip; NULL: none. */
void ech_svg_rect(ech_text *out, double x, double y, double width, double height, const char *more,
                  const char *hint);
void ech_svg_line(ech_text *out, double x1, double y1, double x2, double y2, const char *more);
/* Text that begins at x, on the line y. */
void ech_svg_words(ech_text *out, double x, double y, const char *more, const char *words);
/* The same in bold, truncated to `width` pixels. */
void ech_svg_title(ech_text *out, double x, double y, double width, double font_size,
                   const char *words);

/* The width of a text in pixels: an upper estimate, as fonts differ between machines. */
double ech_svg_width(const char *text, double font_size);
/* The text, truncated with an ellipsis if it would be wider than `width`. Free with
 * ech_text_free. */
ech_text ech_svg_truncate(const char *text, double font_size, double width);

/* A mix of the colour #rrggbb and white; `white` (0 .. 1) is the fraction of white. Returns
 * `buffer`, of 8 bytes. */
char *ech_svg_pale(const char *colour, double white, char *buffer);

/* Colours and what they mean, from left to right and line by line. */
typedef struct ech_svg_legend {
    double left, right; /* of the lines */
    double x, y;        /* of the next entry */
} ech_svg_legend;
enum { ECH_SVG_LEGEND_LINE = 22 }; /* pixels from line to line */

/* Appends an entry with n swatches; `fills` are their attributes. Without swatches the words are
 * faint. */
void ech_svg_legend_add(ech_svg_legend *legend, const char *const *fills, int n, const char *words,
                        ech_text *out);

/* 1, 2 or 5 times a power of ten: the smallest step that divides `span` > 0 into at most `most`
 * parts. */
double ech_svg_tick(double span, double most);
/* The number of the tick k x step with as many decimals as the step needs, "0.25" or "1.5e-07". */
void ech_svg_tick_text(ech_text *out, int64_t k, double step);

/* A horizontal axis of `length` pixels at `scale` pixels per unit, `low` at its left end; ticks and
 * numbers at multiples of `step`, the unit's words in a line below. It is 40 pixels high. */
void ech_svg_axis(ech_text *out, double left, double y, double length, double low, double scale,
                  double step, const char *unit);

#endif
