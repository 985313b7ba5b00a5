/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory of ranks as stacked bars.
 */
#include "app/report/html.h"

#include <math.h>
#include <stdio.h>

#include "draw/svg.h"

/* Okabe and Ito's colours, in another order than timelines have, and grey; then again, paler. */
static const char *const colours[] = {"#0072b2", "#e69f00", "#009e73", "#cc79a7",
                                      "#56b4e9", "#d55e00", "#f0e442", "#8c939c"};
enum { COLOURS = sizeof colours / sizeof colours[0] };

static const double width = 1220, margin = 20, top = 62, total_room = 90;

typedef struct bars_layout {
    int rows;
    double left, plot; /* pixels: where 0 is, and what `span` takes */
    double row_height, row_step;
    double span; /* bytes */
    double unit; /* bytes; of ticks */
    const char *unit_name;
} bars_layout;

static int64_t bytes_of(const ech_report_memory *memory, int rank, int kind)
{
    return memory->bytes[(size_t)rank * (size_t)memory->kinds + (size_t)kind];
}

static double total_of(const ech_report_memory *memory, int rank)
{
    double total = 0;
    for (int kind = 0; kind < memory->kinds; kind++) total += (double)bytes_of(memory, rank, kind);
    return total;
}

/* The attribute of a kind's colour. Returns `buffer`, of 20 bytes. */
static char *fill_of(int kind, char *buffer)
{
    char colour[8];
    ech_svg_pale(colours[kind % COLOURS], kind < COLOURS ? 0 : 0.5, colour);
    snprintf(buffer, 20, "fill=\"%s\"", colour);
    return buffer;
}

static bars_layout lay_out(const ech_report_memory *memory)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    bars_layout layout = {.unit = 1, .unit_name = units[0], .span = (double)memory->limit};
    char label[24];
    snprintf(label, sizeof label, "rank %d", memory->ranks - 1);
    layout.left = margin + ech_svg_width(label, 12) + 10;
    layout.plot = width - layout.left - total_room;
    layout.rows = memory->ranks < ECH_TIMELINE_ROWS ? memory->ranks : ECH_TIMELINE_ROWS;
    layout.row_height = layout.rows <= 8 ? 26 : layout.rows <= 24 ? 20 : 13;
    layout.row_step = layout.row_height + (layout.rows <= 24 ? 5 : 2);
    for (int rank = 0; rank < memory->ranks; rank++)
        layout.span = fmax(layout.span, total_of(memory, rank));
    layout.span = fmax(layout.span, 1);
    for (size_t i = 1; i < 5 && layout.span >= 1024 * layout.unit; i++) {
        layout.unit *= 1024;
        layout.unit_name = units[i];
    }
    return layout;
}

static void draw_row(const ech_report_memory *memory, const bars_layout *layout, int rank, double y,
                     ech_text *out)
{
    char text[40], fill[20];
    double x = layout->left, line = y + layout->row_height / 2 + 4;
    snprintf(text, sizeof text, "rank %d", rank);
    ech_svg_words(out, layout->left - 10, line, ECH_SVG_INK " text-anchor=\"end\"", text);
    ech_text_append(out, "<g " ECH_SVG_EDGE ">\n");
    for (int kind = 0; kind < memory->kinds; kind++) {
        int64_t bytes = bytes_of(memory, rank, kind);
        double segment = (double)bytes / layout->span * layout->plot;
        ECH_FREED_TEXT hint = {0};
        if (segment < 0.01) continue;
        ech_text_append(&hint, "%s: %s", memory->name[kind], ECH_BYTES(bytes));
        ech_svg_rect(out, x, y, segment, layout->row_height, fill_of(kind, fill), hint.at);
        x += segment;
    }
    ech_text_append(out, "</g>\n");
    /* The number is in front of the line of the limit. */
    ech_svg_words(out, x + 8, line,
                  "class=\"ech-faint ech-edge\" fill=\"#5b6675\" stroke=\"#ffffff\""
                  " stroke-width=\"5\" paint-order=\"stroke\"",
                  ECH_BYTES((int64_t)fmin(total_of(memory, rank), 9e18)));
}

static void draw_limit(const ech_report_memory *memory, const bars_layout *layout, double bottom,
                       ech_text *out)
{
    char words[60];
    double x = layout->left + (double)memory->limit / layout->span * layout->plot;
    if (memory->limit <= 0) return;
    ech_svg_line(out, x, top - 6, x, bottom,
                 "stroke=\"#d55e00\" stroke-width=\"1.5\" stroke-dasharray=\"5 3\"");
    snprintf(words, sizeof words, "limit %s", ECH_BYTES(memory->limit));
    ech_svg_words(out, x, top - 11, ECH_SVG_INK " text-anchor=\"middle\"", words);
}

/* Returns where it ends. */
static double draw_legend(const ech_report_memory *memory, double left, double y, ech_text *out)
{
    ech_svg_legend legend = {left, width - margin, left, y};
    for (int kind = 0; kind < memory->kinds; kind++) {
        char fill[20];
        const char *fills[] = {fill_of(kind, fill)};
        ech_svg_legend_add(&legend, fills, 1, memory->name[kind], out);
    }
    return legend.y + ECH_SVG_LEGEND_LINE;
}

static void draw_title(const ech_report_memory *memory, const bars_layout *layout, ech_text *out)
{
    ECH_FREED_TEXT line = {0};
    ech_svg_title(out, margin, margin + 14, width, 15, "Memory of each rank");
    ech_text_append(&line, "%s", ECH_COUNT(memory->ranks, "rank"));
    if (layout->rows < memory->ranks)
        ech_text_append(&line, ", of which %d are drawn", layout->rows);
    ech_svg_words(out, margin, margin + 32, ECH_SVG_FAINT, line.at);
}

void ech_report_memory_svg(const ech_report_memory *memory, ech_text *out)
{
    bars_layout layout = lay_out(memory);
    double bottom = top + layout.rows * layout.row_step;
    ECH_FREED_TEXT body = {0};
    draw_title(memory, &layout, &body);
    draw_limit(memory, &layout, bottom, &body);
    for (int row = 0; row < layout.rows; row++)
        draw_row(memory, &layout, ech_timeline_rank_of_row(memory->ranks, row),
                 top + row * layout.row_step, &body);
    double units = layout.span / layout.unit;
    ech_svg_axis(&body, layout.left, bottom + 2, layout.plot, 0, layout.plot / units,
                 ech_svg_tick(units, 8), layout.unit_name);
    double height = draw_legend(memory, layout.left, bottom + 48, &body) + margin / 2;
    ech_svg_begin(out, width, height, "Memory of each rank");
    ech_text_append_bytes(out, body.at, body.n);
    ech_text_append(out, "</svg>\n");
}
