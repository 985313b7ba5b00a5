/* SPDX-License-Identifier: Apache-2.0
 *
 * The picture of layers x exponents of gradients, as figure 3 of Micikevicius et al. 2018.
 */
#include <math.h>
#include <stdio.h>

#include "app/report/html.h"
#include "draw/svg.h"

static const double width = 560, left = 150, right = 78, top = 82, margin = 16, most_height = 420;
enum { ROW_HEIGHT = 16, FP16_LEAST = -24 };

/* The exponents that some layer has: [*low, *high). */
static void find_range(const ech_report_exponents *all, int *low, int *high)
{
    *low = FP16_LEAST;
    *high = FP16_LEAST + 1;
    for (size_t i = 0; i < all->layer.n; i++) {
        const ech_report_layer *layer = &all->layer.at[i];
        if (layer->counts == 0) continue;
        if (layer->first < *low) *low = layer->first;
        if (layer->first + layer->counts > *high) *high = layer->first + layer->counts;
    }
}

static double count_of(const ech_report_exponents *all, const ech_report_layer *layer, int at)
{
    return all->count.at[layer->first_count + (size_t)at];
}

/* White: none; the darkest: all elements; each tenth of an element's share is a step. */
static void draw_cell(double share, int exponent, const char *name, const double at[4],
                      ech_text *out)
{
    char colour[8], more[40], hint[160];
    const double decades = 6;
    if (!(share > 0)) return;
    double dark = fmax(0.05, 1 + log10(share) / decades);
    ech_svg_pale("#1f5fa8", 1 - fmin(1, dark), colour);
    snprintf(more, sizeof more, "fill=\"%s\"", colour);
    ech_text_print(hint, sizeof hint, "%.80s: %.3g %% from 2^%d on", name, 100 * share, exponent);
    ech_svg_rect(out, at[0], at[1], at[2], at[3], more, hint);
}

static void draw_layer(const ech_report_exponents *all, const ech_report_layer *layer, double y,
                       double row, int low, double cell, ech_text *out)
{
    char below[40];
    double small = 0, elements = layer->elements > 0 ? layer->elements : 1;
    for (int i = 0; i < layer->counts; i++) {
        double n = count_of(all, layer, i);
        const double at[] = {left + (layer->first + i - low) * cell, y, cell, row};
        draw_cell(n / elements, layer->first + i, layer->name, at, out);
        if (layer->first + i < FP16_LEAST) small += n;
    }
    ECH_FREED_TEXT name = ech_svg_truncate(layer->name, 11, left - margin - 8);
    ech_svg_words(out, left - 8, y + row / 2 + 4,
                  ECH_SVG_FAINT " font-size=\"11\" text-anchor=\"end\"", name.at ? name.at : "");
    ech_text_print(below, sizeof below, "%.3g %%", 100 * small / elements);
    ech_svg_words(out, width - right + 10, y + row / 2 + 4, ECH_SVG_FAINT " font-size=\"11\"",
                  below);
}

void ech_report_exponents_svg(const ech_report_exponents *all, ech_text *out)
{
    static const char title[] = "exponents of gradients";
    int low, high;
    char words[100];
    double n = (double)all->layer.n, row = fmin(ROW_HEIGHT, most_height / n), height = n * row;
    find_range(all, &low, &high);
    double cell = (width - left - right) / (high - low);
    ech_svg_begin(out, width, top + height + 44, title);
    ech_svg_title(out, margin, margin + 12, width - 2 * margin, 15, title);
    snprintf(words, sizeof words, "step %lld, without the loss scale; zeros are left out",
             (long long)all->step);
    ech_svg_words(out, margin, margin + 31, ECH_SVG_FAINT, words);
    ech_svg_words(out, width - margin, margin + 52,
                  ECH_SVG_FAINT " font-size=\"11\" text-anchor=\"end\"",
                  "share below 2^-24, the least of fp16 (line)");
    for (size_t i = 0; i < all->layer.n; i++)
        draw_layer(all, &all->layer.at[i], top + (double)i * row, row, low, cell, out);
    double x = left + (FP16_LEAST - low) * cell;
    ech_svg_line(out, x, top - 4, x, top + height + 4, ECH_SVG_AXIS);
    ech_svg_axis(out, left, top + height, width - left - right, low, cell,
                 fmax(1, ech_svg_tick(high - low, 7)), "exponent of 2");
    ech_text_append(out, "</svg>\n");
}
