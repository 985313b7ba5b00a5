/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of boxes, and at the foot of each a strip where compute waits for collectives, which is mostly within
 * the boxes. A picture of thousands of boxes stays small: boxes of a colour share a group, and
 * those too narrow to have an edge are one path.
 */
#include "draw/rows.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "schedule/numbering.h"
#include "draw/svg.h"
#include "draw/boxes.h"

enum { MOST_HINTS = 4096 };

static const double narrow = 5, palest = 0.55, strip = 0.24, smallest_font = 7, largest_font = 12,
                    digit_width = 0.6;

char *ech_panel_colour(ech_bar_kind kind, int chunk, int chunks, char *buffer)
{
    bool shaded = kind <= ECH_BAR_WEIGHT && chunks > 1;
    double white = shaded ? palest * fmin(1, fmax(0, (double)chunk / (chunks - 1))) : 0;
    return ech_svg_pale(ech_bar_kind_colour(kind), white, buffer);
}

void ech_panel_choose_rows(ech_panel *panel)
{
    const ech_timeline *timeline = panel->timeline;
    ech_timeline_find_rows(timeline, true, &panel->drawn);
    if (panel->drawn.n > ECH_TIMELINE_ROWS) {
        ech_timeline_rows all = {0};
        ech_timeline_find_rows(timeline, false, &all);
        for (int row = 0; row < ECH_TIMELINE_ROWS; row++)
            panel->drawn.at[row] = all.at[ech_timeline_rank_of_row(timeline->ranks, row)];
        panel->drawn.n = ECH_TIMELINE_ROWS;
        free(all.at);
    }
    panel->rows = (int)panel->drawn.n;
}

void ech_panel_free(ech_panel *panel)
{
    free(panel->drawn.at);
    *panel = (ech_panel){0};
}

void ech_panel_measure(ech_panel *panel, double scale)
{
    const ech_timeline *timeline = panel->timeline;
    int rows = panel->rows, most = 0;
    panel->scale = scale;
    panel->row_height = rows <= 8 ? 30 : rows <= 16 ? 24 : rows <= 32 ? 18 : 14;
    panel->row_gap = rows <= 8 ? 5 : rows <= 16 ? 4 : rows <= 32 ? 3 : 2;
    panel->hints = timeline->bar.n <= MOST_HINTS;
    for (size_t i = 0; i < timeline->bar.n; i++)
        if (timeline->bar.at[i].micro > most) most = timeline->bar.at[i].micro;
    char digits[24];
    double fits = (timeline->forward * scale - 4) /
                  (digit_width * (double)snprintf(digits, sizeof digits, "%d", most));
    fits = fmin(fits, fmin(largest_font, panel->row_height * 0.6));
    panel->font_size = floor(fmax(fits, smallest_font));
}

/* ---- boxes ---- */

static void append_hint(const ech_timeline *timeline, const ech_timeline_bar *bar, ech_text *out)
{
    ech_text_append(out, "<title>");
    ech_svg_escape(out, ech_bar_kind_meaning(bar->kind));
    if (bar->kind == ECH_BAR_BACKWARD && bar->weight > 0) ech_text_append(out, " and weights");
    int chunks = timeline->sequence_chunks > 1 ? timeline->sequence_chunks : 1;
    ech_micro at = ech_micro_at((ech_numbering){INT_MAX, chunks}, bar->micro); /* turns are one */
    if (bar->micro >= 0) ech_text_append(out, ", micro-batch %d", at.micro_batch);
    if (bar->micro >= 0 && chunks > 1)
        ech_text_append(out, ", sequence chunk %d", at.sequence_chunk);
    if (timeline->chunks > 1 && bar->kind <= ECH_BAR_WEIGHT)
        ech_text_append(out, ", chunk %d", bar->chunk);
    ech_text_append(out, ": ");
    ech_timeline_time(timeline, bar->end - bar->begin, out);
    ech_text_append(out, "</title>");
}

static void append_box(const ech_panel *panel, const ech_box *box, double top, double height,
                       ech_text *out)
{
    ech_svg_rect(out, box->x, top, box->width, height, "");
    if (!panel->hints) return;
    out->n -= strlen("/>\n");
    ech_text_append(out, ">");
    append_hint(panel->timeline, box->bar, out);
    ech_text_append(out, "</rect>\n");
}

/* The text with a number for each #. */
static void append_filled(ech_text *path, const char *form, const double *numbers)
{
    for (; *form; form++)
        if (*form == '#')
            ech_svg_number(path, *numbers++);
        else
            ech_text_append_bytes(path, form, 1);
}

/* Of several bars the height shows the share of each kind, one kind below the other. */
static void append_share(const ech_panel *panel, const ech_box *box, ech_bar_kind kind,
                         ech_text *path)
{
    double above = 0, height = box->share[kind] * panel->row_height;
    for (int i = 0; i < (int)kind; i++) above += box->share[i] * panel->row_height;
    if (height < 0.05) return;
    append_filled(path, "M# #h#v#h#z", (double[]){box->x, above, box->width, height, -box->width});
}

static int chunk_of(const ech_box *box, int chunks)
{
    if (!box->bar || box->bar->kind > ECH_BAR_WEIGHT || box->bar->chunk < 0) return 0;
    return box->bar->chunk < chunks ? box->bar->chunk : chunks - 1;
}

/* What is drawn in one colour. */
typedef struct colour_layer {
    ech_text boxes;         /* elements */
    ech_text lines, shares; /* of paths: lines as thick as the row is high, and areas */
} colour_layer;

static void add_to_layer(const ech_panel *panel, const ech_box *box, ech_bar_kind kind,
                         colour_layer *layer)
{
    if (!box->bar)
        append_share(panel, box, kind, &layer->shares);
    else if (box->width < narrow)
        append_filled(&layer->lines, "M# 0h#", (double[]){box->x, box->width});
    else
        append_box(panel, box, 0, panel->row_height, &layer->boxes);
}

/* Of a backward whose B and W take turns the lower part is W, as high as its share of the time. */
static void add_weight(const ech_panel *panel, const ech_box *box, colour_layer *layer)
{
    double height = box->bar->weight / (box->bar->end - box->bar->begin) * panel->row_height;
    double top = panel->row_height - height;
    if (height >= 0.05)
        append_filled(&layer->shares, "M# #h#v#h#z",
                      (double[]){box->x, top, box->width, height, -box->width});
}

static void append_layer(const ech_panel *panel, const char *colour, const colour_layer *layer,
                         ech_text *out)
{
    if (layer->boxes.n > 0)
        ech_text_append(out, "<g fill=\"%s\">\n%s</g>\n", colour, layer->boxes.at);
    if (layer->lines.n > 0) {
        ech_text_append(out, "<path stroke=\"%s\"", colour);
        append_filled(out, " stroke-width=\"#\" transform=\"translate(0 #)\"",
                      (double[]){panel->row_height, panel->row_height / 2});
        ech_text_append(out, " d=\"%s\"/>\n", layer->lines.at);
    }
    if (layer->shares.n > 0)
        ech_text_append(out, "<path fill=\"%s\" stroke=\"none\" d=\"%s\"/>\n", colour,
                        layer->shares.at);
}

static void append_colour(const ech_panel *panel, const ech_boxes *boxes, ech_bar_kind kind,
                          int chunk, ech_text *out)
{
    int chunks = panel->timeline->chunks;
    char colour[8];
    colour_layer layer = {0};
    for (size_t i = 0; i < boxes->n; i++) {
        const ech_box *box = &boxes->at[i];
        bool is_kind = !box->bar || box->bar->kind == kind;
        if (chunk_of(box, chunks) != chunk) continue;
        if (is_kind) add_to_layer(panel, box, kind, &layer);
        if (kind == ECH_BAR_WEIGHT && box->bar && box->bar->kind == ECH_BAR_BACKWARD)
            add_weight(panel, box, &layer);
    }
    append_layer(panel, ech_panel_colour(kind, chunk, chunks, colour), &layer, out);
    ech_text_free(&layer.boxes);
    ech_text_free(&layer.lines);
    ech_text_free(&layer.shares);
}

static void append_numbers(ech_panel *panel, const ech_boxes *boxes, ech_text *out)
{
    double line = panel->row_height / 2 + panel->font_size * 0.36;
    for (size_t i = 0; i < boxes->n; i++) {
        const ech_box *box = &boxes->at[i];
        char number[24];
        if (!box->bar) panel->together = true;
        if (!box->bar || box->bar->micro < 0) continue;
        int digits = snprintf(number, sizeof number, "%d", box->bar->micro);
        if (digits * digit_width * panel->font_size + 2 > box->width) continue;
        panel->numbers = true;
        ech_svg_words(out, box->x + box->width / 2, line, "", number);
    }
}

/* ---- strips: waits at the foot of the row, sums at its head ---- */

/* Of several bars the height shows their share of the time. */
static void append_part(const ech_panel *panel, const ech_box *box, ech_bar_kind kind,
                        colour_layer *layer)
{
    double height = strip * panel->row_height * (box->bar ? 1 : box->share[kind]);
    double top = kind == ECH_BAR_COLLECTIVE ? panel->row_height - height : 0;
    if (height < 0.05) return;
    if (box->bar && box->width >= narrow)
        append_box(panel, box, top, height, &layer->boxes);
    else
        append_filled(&layer->shares, "M# #h#v#h#z",
                      (double[]){box->x, top, box->width, height, -box->width});
}

static void append_strip(ech_panel *panel, const ech_boxes *boxes, ech_bar_kind kind, ech_text *out)
{
    colour_layer layer = {0};
    for (size_t i = 0; i < boxes->n; i++) {
        append_part(panel, &boxes->at[i], kind, &layer);
        panel->together |= !boxes->at[i].bar;
    }
    append_layer(panel, ech_bar_kind_colour(kind), &layer, out);
    ech_text_free(&layer.boxes);
    ech_text_free(&layer.shares);
}

/* ---- rows ---- */

/* A row's bars apart, and their boxes. */
typedef struct row_bars {
    ech_timeline_bar *bar[3]; /* work, waits, sums */
    ech_boxes boxes[3];
} row_bars;

static row_bars take_row(const ech_panel *panel, const ech_timeline_row *row)
{
    row_bars bars = {0};
    for (int part = 0; part < 3; part++) {
        size_t n = 0;
        bars.bar[part] = ech_calloc(row->bars, sizeof *bars.bar[part]);
        for (size_t i = row->first_bar; i < row->first_bar + row->bars; i++) {
            const ech_timeline_bar *bar = &panel->timeline->bar.at[i];
            int of = bar->kind < ECH_BAR_COLLECTIVE ? 0 : bar->kind == ECH_BAR_COLLECTIVE ? 1 : 2;
            if (of == part) bars.bar[part][n++] = *bar;
        }
        ech_boxes_make(bars.bar[part], n, panel->from, panel->end, panel->scale, &bars.boxes[part]);
    }
    return bars;
}

static void free_row(row_bars *bars)
{
    for (int part = 0; part < 3; part++) {
        free(bars->bar[part]);
        free(bars->boxes[part].at);
    }
}

static void append_row(ech_panel *panel, const ech_timeline_row *row, const row_bars *bars,
                       double left, double y, ech_text *out)
{
    char text[80];
    int chunks = panel->timeline->chunks > 1 ? panel->timeline->chunks : 1;
    ech_timeline_name_row(panel->timeline, row, text, sizeof text);
    ech_svg_words(out, left - 10, y + panel->row_height / 2 + 4,
                  "class=\"ech-ink\" fill=\"" ECH_SVG_INK "\" text-anchor=\"end\"", text);
    ech_text_append(out, "<g transform=\"translate(");
    ech_svg_number(out, left);
    ech_text_append(out, " ");
    ech_svg_number(out, y);
    ech_text_append(out, ")\">\n");
    ech_svg_rect(out, 0, 0, (panel->end - panel->from) * panel->scale, panel->row_height,
                 "class=\"ech-idle\" fill=\"" ECH_SVG_IDLE "\"");
    ech_text_append(out, "<g class=\"ech-edge\" stroke=\"" ECH_SVG_PAPER "\">\n");
    for (int kind = 0; kind < ECH_BAR_COLLECTIVE; kind++)
        for (int chunk = 0; chunk < (kind <= ECH_BAR_WEIGHT ? chunks : 1); chunk++)
            append_colour(panel, &bars->boxes[0], (ech_bar_kind)kind, chunk, out);
    ech_text_append(out, "</g>\n");
    append_strip(panel, &bars->boxes[1], ECH_BAR_COLLECTIVE, out);
    append_strip(panel, &bars->boxes[2], ECH_BAR_REDUCTION, out);
    ech_text_append(out, "<g font-size=\"");
    ech_svg_number(out, panel->font_size);
    ech_text_append(out, "\" text-anchor=\"middle\" pointer-events=\"none\">\n");
    append_numbers(panel, &bars->boxes[0], out);
    ech_text_append(out, "</g>\n</g>\n");
}

int ech_timeline_rank_of_row(int ranks, int row)
{
    if (ranks <= ECH_TIMELINE_ROWS) return row;
    return (int)((int64_t)row * (ranks - 1) / (ECH_TIMELINE_ROWS - 1));
}

void ech_panel_draw_rows(ech_panel *panel, double left, double top, ech_text *out)
{
    for (int row = 0; row < panel->rows; row++) {
        row_bars bars = take_row(panel, &panel->drawn.at[row]);
        append_row(panel, &panel->drawn.at[row], &bars, left,
                   top + row * (panel->row_height + panel->row_gap), out);
        free_row(&bars);
    }
}
