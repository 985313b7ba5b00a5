/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws charts.
 */
#include "draw/chart.h"

#include <stdio.h>

#include "base/status.h"
#include "draw/svg.h"

static const double left = 64, top = 70, width = 640, height = 320, margin = 24;
static const char *const colours[ECH_CHART_SERIES] = {"#2166ac", "#c4622d", "#4d7a3a"};

static double x_of(const ech_chart *chart, int point)
{
    return left + width * point / (chart->points - 1);
}

static double y_of(double value)
{
    return top + height * (1 - value);
}

static void draw_grid(const ech_chart *chart, ech_text *out)
{
    enum { STEPS = 5 };
    ECH_FREED_TEXT labels = {0};
    ech_text_append(out, "<g " ECH_SVG_AXIS " stroke-opacity=\"0.35\">\n");
    for (int i = 0; i <= STEPS; i++) {
        char text[16];
        double y = y_of((double)i / STEPS);
        ech_svg_line(out, left, y, left + width, y, "");
        snprintf(text, sizeof text, "%d %%", 100 * i / STEPS);
        ech_svg_words(&labels, left - 8, y + 4, "text-anchor=\"end\"", text);
    }
    for (int p = 0; p < chart->points; p++) {
        double x = x_of(chart, p), from = p == chart->marked ? top : top + height;
        ech_svg_line(out, x, from, x, top + height + 5, "");
        ech_svg_words(&labels, x, top + height + 20, "text-anchor=\"middle\"", chart->point[p]);
    }
    ech_svg_words(&labels, left, top + height + 40, "", chart->axis);
    ech_text_append(out, "</g>\n<g " ECH_SVG_FAINT ">\n%s</g>\n", labels.at);
}

static void draw_series(const ech_chart *chart, int i, ech_text *out)
{
    const ech_chart_series *series = &chart->series[i];
    ech_text_append(out, "<g stroke=\"%s\" stroke-width=\"2\">\n", colours[i]);
    for (int p = 1; p < chart->points; p++)
        ech_svg_line(out, x_of(chart, p - 1), y_of(series->value[p - 1]), x_of(chart, p),
                     y_of(series->value[p]), "");
    ech_text_append(out, "</g>\n<g fill=\"%s\">\n", colours[i]);
    for (int p = 0; p < chart->points; p++) {
        char hint[160];
        ech_text_print(hint, sizeof hint, "%.60s: %.60s, %.1f %%", chart->point[p], series->name,
                       100 * series->value[p]);
        ech_svg_rect(out, x_of(chart, p) - 4, y_of(series->value[p]) - 4, 8, 8, "", hint);
    }
    ech_text_append(out, "</g>\n");
}

void ech_chart_svg(const ech_chart *chart, ech_text *out)
{
    ECH_ASSERT(chart->points >= 2 && chart->n <= ECH_CHART_SERIES);
    double below = top + height + 58, all = left + width + 2 * margin;
    ech_svg_legend legend = {.left = left, .right = left + width, .x = left, .y = below};
    ech_svg_begin(out, all, below + ECH_SVG_LEGEND_LINE + margin, chart->title);
    ech_svg_title(out, margin, 28, all - 2 * margin, 17, chart->title);
    ech_svg_words(out, margin, 49, ECH_SVG_FAINT " font-size=\"13\"", chart->subtitle);
    draw_grid(chart, out);
    for (int i = 0; i < chart->n; i++) {
        ECH_FREED_TEXT fill = {0};
        draw_series(chart, i, out);
        ech_text_append(&fill, "fill=\"%s\"", colours[i]);
        ech_svg_legend_add(&legend, (const char *const[]){fill.at}, 1, chart->series[i].name, out);
    }
    ech_text_append(out, "</svg>\n");
}
