/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of boxes, and at the foot of each a strip where compute waits for collectives, which is
 * mostly within the boxes. A picture of thousands of boxes stays small: boxes of a colour share a
 * group, and those too narrow to have an edge are one path.
 */
#include "draw/rows.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "schedule/numbering.h"
#include "draw/svg.h"

enum { MOST_HINTS = 4096 };

static const double narrow = 5, palest = 0.55, strip = 0.24, smallest_font = 7, largest_font = 12,
                    digit_width = 0.6, least_height = 0.05;

char *ech_panel_colour(ech_bar_kind kind, int chunk, int chunks, char *buffer)
{
    bool shaded = kind <= ECH_BAR_RECOMPUTE && chunks > 1;
    double white = shaded ? palest * fmin(1, fmax(0, (double)chunk / (chunks - 1))) : 0;
    return ech_svg_pale(ech_bar_kind_colour(kind), white, buffer);
}

ech_panel ech_panel_create(const ech_timeline *timeline, const char *title)
{
    ech_panel panel = {.timeline = timeline, .title = title, .end = timeline->end};
    int most = 0;
    ech_timeline_find_rows(timeline, true, &panel.drawn);
    if (panel.drawn.n > ECH_TIMELINE_ROWS) {
        ech_timeline_rows all = {0};
        ech_timeline_find_rows(timeline, false, &all);
        for (int row = 0; row < ECH_TIMELINE_ROWS; row++)
            panel.drawn.at[row] = all.at[ech_timeline_rank_of_row(timeline->ranks, row)];
        panel.drawn.n = ECH_TIMELINE_ROWS;
        free(all.at);
    }
    panel.rows = (int)panel.drawn.n;
    for (size_t i = 0; i < timeline->bar.n; i++)
        if (timeline->bar.at[i].micro > most) most = timeline->bar.at[i].micro;
    panel.digits = snprintf(NULL, 0, "%d", most);
    return panel;
}

void ech_panel_free(ech_panel *panel)
{
    free(panel->drawn.at);
    *panel = (ech_panel){0};
}

void ech_panel_measure(ech_panel *panel, double scale)
{
    int rows = panel->rows;
    panel->scale = scale;
    panel->row_height = rows <= 8 ? 30 : rows <= 16 ? 24 : rows <= 32 ? 18 : 14;
    panel->row_gap = rows <= 8 ? 5 : rows <= 16 ? 4 : rows <= 32 ? 3 : 2;
    panel->hints = panel->timeline->bar.n <= MOST_HINTS;
    double fits = (panel->timeline->forward * scale - 4) / (digit_width * panel->digits);
    fits = fmin(fits, fmin(largest_font, panel->row_height * 0.6));
    panel->font_size = floor(fmax(fits, smallest_font));
}

/* ---- bars as boxes ---- */

/* `together`: wide enough that the fractions of several bars are smooth from box to box. */
static const double pixel = 1, together = 10, visible = 3, nothing = 0.01;

/* Narrow bars that become one box. */
typedef struct bar_run {
    const ech_timeline_bar *longest;
    int bars;
    double begin, end;
    double time[ECH_BAR_KINDS];
} bar_run;

static void finish_run(bar_run *run, ech_rectangles *out)
{
    double width = run->end - run->begin;
    if (run->bars > 0 && width >= nothing) {
        bool alone = run->bars == 1 || width < visible;
        ech_rectangle box = {.bar = alone ? run->longest : NULL, .x = run->begin, .width = width};
        for (int kind = 0; kind < ECH_BAR_KINDS; kind++)
            box.fraction[kind] = run->time[kind] / width;
        ECH_PUSH(*out, box);
    }
    *run = (bar_run){0};
}

/* Of bars that overlap the first has the time. */
static void add_to_run(bar_run *run, const ech_timeline_bar *bar, double begin, double end)
{
    if (run->bars++ == 0) {
        run->begin = run->end = begin;
        run->longest = bar;
    }
    double adds = fmax(0, end - fmax(begin, run->end));
    double weight = bar->kind == ECH_BAR_BACKWARD ? bar->weight / (bar->end - bar->begin) : 0;
    run->time[bar->kind] += adds * (1 - weight);
    run->time[ECH_BAR_WEIGHT] += adds * weight;
    run->end = fmax(run->end, end);
    if (bar->end - bar->begin > run->longest->end - run->longest->begin) run->longest = bar;
}

static ech_row_bars bars_of(ech_bar_kind kind)
{
    return kind < ECH_BAR_COLLECTIVE    ? ECH_ROW_WORK
           : kind == ECH_BAR_COLLECTIVE ? ECH_ROW_WAITS
           : kind < ECH_BAR_HOST        ? ECH_ROW_SUMS
                                        : ECH_ROW_HOST;
}

void ech_rectangles_make(const ech_timeline_bar *bar, size_t n, ech_row_bars part, double from,
                         double end, double scale, ech_rectangles *out)
{
    bar_run run = {0};
    for (size_t i = 0; i < n; i++) {
        double x = (fmax(from, bar[i].begin) - from) * scale;
        double width = (fmin(end, bar[i].end) - from) * scale - x;
        if (bars_of(bar[i].kind) != part || !(width > 0)) continue;
        bool is_narrow = width < pixel;
        bool joins = x - run.end < pixel && run.end - run.begin < together;
        if (!is_narrow || !joins) finish_run(&run, out);
        if (is_narrow)
            add_to_run(&run, &bar[i], x, x + width);
        else
            ECH_PUSH(*out, (ech_rectangle){.bar = &bar[i], .x = x, .width = width});
    }
    finish_run(&run, out);
}

/* ---- boxes ---- */

static void append_hint(const ech_timeline *timeline, const ech_timeline_bar *bar, ech_text *out)
{
    ech_text_append(out, "%s", ech_bar_kind_meaning(bar->kind));
    if (bar->kind == ECH_BAR_BACKWARD && bar->weight > 0) ech_text_append(out, " and weights");
    int chunks = timeline->sequence_chunks > 1 ? timeline->sequence_chunks : 1;
    ech_micro at = ech_micro_at((ech_numbering){INT_MAX, chunks}, bar->micro); /* turns are one */
    if (bar->micro >= 0) ech_text_append(out, ", micro-batch %d", at.micro_batch);
    if (bar->micro >= 0 && chunks > 1)
        ech_text_append(out, ", sequence chunk %d", at.sequence_chunk);
    if (timeline->chunks > 1 && bar->kind <= ECH_BAR_RECOMPUTE)
        ech_text_append(out, ", chunk %d", bar->chunk);
    ech_text_append(out, ": ");
    ech_timeline_time(timeline, bar->end - bar->begin, out);
}

static void append_box(const ech_panel *panel, const ech_rectangle *box, double top, double height,
                       ech_text *out)
{
    ECH_FREED_TEXT hint = {0};
    if (panel->hints) append_hint(panel->timeline, box->bar, &hint);
    ech_svg_rect(out, box->x, top, box->width, height, "", panel->hints ? hint.at : NULL);
}

static void append_area(const ech_rectangle *box, double top, double height, ech_text *path)
{
    if (height >= least_height)
        ECH_SVG(path, "M@ @h@v@h@z", box->x, top, box->width, height, -box->width);
}

static int chunk_of(const ech_rectangle *box, int chunks)
{
    if (!box->bar || box->bar->kind > ECH_BAR_RECOMPUTE || box->bar->chunk < 0) return 0;
    return box->bar->chunk < chunks ? box->bar->chunk : chunks - 1;
}

/* What is drawn in one colour. */
typedef struct colour_layer {
    ech_text boxes;        /* elements */
    ech_text lines, areas; /* of paths: lines as thick as the row is high, and areas */
} colour_layer;

/* Of several bars the height shows the fraction of each kind, one kind below the other. */
static void add_to_layer(const ech_panel *panel, const ech_rectangle *box, ech_bar_kind kind,
                         colour_layer *layer)
{
    double above = 0;
    for (int i = 0; i < (int)kind; i++) above += box->fraction[i] * panel->row_height;
    if (!box->bar)
        append_area(box, above, box->fraction[kind] * panel->row_height, &layer->areas);
    else if (box->width < narrow)
        ECH_SVG(&layer->lines, "M@ 0h@", box->x, box->width);
    else
        append_box(panel, box, 0, panel->row_height, &layer->boxes);
}

/* Where B and W alternate the lower part of the backward is W, as high as its fraction of the
 * time. */
static void add_weight(const ech_panel *panel, const ech_rectangle *box, colour_layer *layer)
{
    double height = box->bar->weight / (box->bar->end - box->bar->begin) * panel->row_height;
    append_area(box, panel->row_height - height, height, &layer->areas);
}

/* Appends and frees it. */
static void finish_layer(const ech_panel *panel, const char *colour, colour_layer *layer,
                         ech_text *out)
{
    if (layer->boxes.n > 0)
        ech_text_append(out, "<g fill=\"%s\">\n%s</g>\n", colour, layer->boxes.at);
    if (layer->lines.n > 0) {
        ech_text_append(out, "<path stroke=\"%s\"", colour);
        ECH_SVG(out, " stroke-width=\"@\" transform=\"translate(0 @)\"", panel->row_height,
                panel->row_height / 2);
        ech_text_append(out, " d=\"%s\"/>\n", layer->lines.at);
    }
    if (layer->areas.n > 0)
        ech_text_append(out, "<path fill=\"%s\" stroke=\"none\" d=\"%s\"/>\n", colour,
                        layer->areas.at);
    ech_text_free(&layer->boxes);
    ech_text_free(&layer->lines);
    ech_text_free(&layer->areas);
}

static void append_colour(const ech_panel *panel, const ech_rectangles *boxes, ech_bar_kind kind,
                          int chunk, ech_text *out)
{
    int chunks = panel->timeline->chunks;
    char colour[8];
    colour_layer layer = {0};
    for (size_t i = 0; i < boxes->n; i++) {
        const ech_rectangle *box = &boxes->at[i];
        if (chunk_of(box, chunks) != chunk) continue;
        if (!box->bar || box->bar->kind == kind) add_to_layer(panel, box, kind, &layer);
        if (kind == ECH_BAR_WEIGHT && box->bar && box->bar->kind == ECH_BAR_BACKWARD)
            add_weight(panel, box, &layer);
    }
    finish_layer(panel, ech_panel_colour(kind, chunk, chunks, colour), &layer, out);
}

static void append_numbers(ech_panel *panel, const ech_rectangles *boxes, ech_text *out)
{
    double line = panel->row_height / 2 + panel->font_size * 0.36;
    for (size_t i = 0; i < boxes->n; i++) {
        const ech_rectangle *box = &boxes->at[i];
        char number[24];
        if (!box->bar || box->bar->micro < 0) continue;
        int digits = snprintf(number, sizeof number, "%d", box->bar->micro);
        if (digits * digit_width * panel->font_size + 2 > box->width) continue;
        panel->numbers = true;
        ech_svg_words(out, box->x + box->width / 2, line, "", number);
    }
}

/* ---- strips: waits at the foot of the row, sums at its head, gathers in the lower half of that,
 * updates on the host below them ---- */

/* Of several bars the height shows the fraction of each kind. */
static void append_part(const ech_panel *panel, const ech_rectangle *box, ech_bar_kind kind,
                        colour_layer *layer)
{
    double full = strip * panel->row_height, most = kind == ECH_BAR_GATHER ? full / 2 : full;
    double height = most * (box->bar ? 1 : box->fraction[kind]);
    double top = kind == ECH_BAR_COLLECTIVE ? panel->row_height - height
                 : kind == ECH_BAR_HOST     ? full
                 : kind == ECH_BAR_GATHER   ? full - height
                                            : 0;
    if (box->bar && box->width >= narrow)
        append_box(panel, box, top, height, &layer->boxes);
    else
        append_area(box, top, height, &layer->areas);
}

static void append_strip(const ech_panel *panel, const ech_rectangles *boxes, ech_bar_kind kind,
                         ech_text *out)
{
    colour_layer layer = {0};
    for (size_t i = 0; i < boxes->n; i++)
        if (!boxes->at[i].bar || boxes->at[i].bar->kind == kind)
            append_part(panel, &boxes->at[i], kind, &layer);
    finish_layer(panel, ech_bar_kind_colour(kind), &layer, out);
}

/* ---- rows ---- */

static void append_row(ech_panel *panel, const ech_timeline_row *row, double left, double y,
                       ech_text *out)
{
    char text[80];
    int chunks = panel->timeline->chunks > 1 ? panel->timeline->chunks : 1;
    ech_rectangles boxes[ECH_ROW_BARS] = {0};
    for (int part = 0; part < ECH_ROW_BARS; part++) {
        ech_rectangles_make(panel->timeline->bar.at + row->first_bar, row->bars, (ech_row_bars)part,
                            panel->from, panel->end, panel->scale, &boxes[part]);
        for (size_t i = 0; i < boxes[part].n; i++) panel->together |= !boxes[part].at[i].bar;
    }
    ech_timeline_name_row(panel->timeline, row, text, sizeof text);
    ech_svg_words(out, left - 10, y + panel->row_height / 2 + 4, ECH_SVG_INK " text-anchor=\"end\"",
                  text);
    ECH_SVG(out, "<g transform=\"translate(@ @)\">\n", left, y);
    ech_svg_rect(out, 0, 0, (panel->end - panel->from) * panel->scale, panel->row_height,
                 ECH_SVG_IDLE, NULL);
    ech_text_append(out, "<g " ECH_SVG_EDGE ">\n");
    for (int kind = 0; kind < ECH_BAR_COLLECTIVE; kind++)
        for (int chunk = 0; chunk < (kind <= ECH_BAR_RECOMPUTE ? chunks : 1); chunk++)
            append_colour(panel, &boxes[ECH_ROW_WORK], (ech_bar_kind)kind, chunk, out);
    ech_text_append(out, "</g>\n");
    append_strip(panel, &boxes[ECH_ROW_WAITS], ECH_BAR_COLLECTIVE, out);
    append_strip(panel, &boxes[ECH_ROW_SUMS], ECH_BAR_REDUCTION, out);
    append_strip(panel, &boxes[ECH_ROW_SUMS], ECH_BAR_GATHER, out);
    append_strip(panel, &boxes[ECH_ROW_HOST], ECH_BAR_HOST, out);
    ECH_SVG(out, "<g font-size=\"@\" text-anchor=\"middle\" pointer-events=\"none\">\n",
            panel->font_size);
    append_numbers(panel, &boxes[ECH_ROW_WORK], out);
    ech_text_append(out, "</g>\n</g>\n");
    for (int part = 0; part < ECH_ROW_BARS; part++) free(boxes[part].at);
}

int ech_timeline_rank_of_row(int ranks, int row)
{
    if (ranks <= ECH_TIMELINE_ROWS) return row;
    return (int)((int64_t)row * (ranks - 1) / (ECH_TIMELINE_ROWS - 1));
}

void ech_panel_draw_rows(ech_panel *panel, double left, double top, ech_text *out)
{
    for (int row = 0; row < panel->rows; row++)
        append_row(panel, &panel->drawn.at[row], left,
                   top + row * (panel->row_height + panel->row_gap), out);
}
