/* SPDX-License-Identifier: Apache-2.0
 *
 * The heatmap of experts x steps: how many rows chose each expert, over their mean.
 */
#include <math.h>
#include <stdio.h>

#include "app/report/html.h"
#include "draw/svg.h"

static const double width = 560, left = 62, right = 18, top = 66, plot_height = 190, margin = 16;

/* Columns of the picture: beyond so many steps each is the mean of several. */
enum { COLUMNS = 120 };

/* Mean of an expert's values over steps [from, to) of the list; those that cannot be drawn are left
 * out. */
static double mean_of(const ech_report_loads *loads, size_t from, size_t to, int expert)
{
    double sum = 0;
    int n = 0;
    for (size_t i = from; i < to; i++) {
        double value = (double)loads->value.at[i * (size_t)loads->experts + (size_t)expert];
        if (!ech_report_is_drawn(value)) continue;
        sum += value;
        n++;
    }
    return n ? sum / n : NAN;
}

/* White at balance, blue below, red above; twice the mean and more is as red as it gets. */
static void print_colour(double value, char *out, size_t n)
{
    double off = fmax(-1, fmin(1, value - 1));
    int faded = (int)lround(255 * (1 - fabs(off)));
    snprintf(out, n, "#%02x%02x%02x", off < 0 ? faded : 255, faded, off > 0 ? faded : 255);
}

static void draw_cell(const ech_report_loads *loads, size_t from, size_t to, int expert, double x,
                      double cell, double row, ech_text *out)
{
    char colour[16], more[40];
    double value = mean_of(loads, from, to, expert);
    if (!ech_report_is_drawn(value)) return;
    print_colour(value, colour, sizeof colour);
    snprintf(more, sizeof more, "fill=\"%s\"", colour);
    ECH_SVG(out, "<rect x=\"@\" y=\"@\" width=\"@\" height=\"@\" ", x, top + expert * row, cell,
            row);
    ech_text_append(out, "%s><title>expert %d, step %lld: %.3g of the mean</title></rect>\n", more,
                    expert, (long long)loads->step.at[from], value);
}

void ech_report_heatmap_svg(const ech_report_loads *loads, ech_text *out)
{
    static const char title[] = "load of experts";
    size_t steps = loads->step.n, columns = steps < COLUMNS ? steps : COLUMNS;
    double length = width - left - right, cell = length / (double)columns;
    double row = plot_height / loads->experts;
    double first = (double)loads->step.at[0], last = (double)loads->step.at[steps - 1];
    double span = last > first ? last - first : 1;
    ech_svg_begin(out, width, top + plot_height + 44, title);
    ech_svg_title(out, margin, margin + 12, width - 2 * margin, 15, title);
    ech_svg_words(out, margin, margin + 31, ECH_SVG_FAINT,
                  "rows over their mean, of all layers: red above, blue below, white 1");
    ech_text_append(out, "<g class=\"ech-heat\">\n");
    for (size_t c = 0; c < columns; c++)
        for (int e = 0; e < loads->experts; e++)
            draw_cell(loads, c * steps / columns, (c + 1) * steps / columns, e,
                      left + (double)c * cell, cell, row, out);
    ech_text_append(out, "</g>\n");
    for (int e = 0; e < loads->experts; e += (loads->experts + 7) / 8) {
        char label[16];
        snprintf(label, sizeof label, "%d", e);
        ech_svg_words(out, left - 8, top + (e + 0.5) * row + 4,
                      ECH_SVG_FAINT " font-size=\"11\" text-anchor=\"end\"", label);
    }
    ech_svg_axis(out, left, top + plot_height, length, first, length / span,
                 fmax(1, ech_svg_tick(span, 7)), "step");
    ech_text_append(out, "</svg>\n");
}
