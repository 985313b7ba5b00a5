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

static const double width = 1220, margin = 20, top = 62, legend_line = 22, swatch = 14,
                    total_room = 90;

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

static char *colour_of(int kind, char *buffer)
{
    return ech_svg_pale(colours[kind % COLOURS], kind < COLOURS ? 0 : 0.5, buffer);
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
    char text[40], fill[40], colour[8];
    double x = layout->left, line = y + layout->row_height / 2 + 4;
    snprintf(text, sizeof text, "rank %d", rank);
    ech_svg_words(out, layout->left - 10, line,
                  "class=\"ech-ink\" fill=\"" ECH_SVG_INK "\" text-anchor=\"end\"", text);
    ech_text_append(out, "<g class=\"ech-edge\" stroke=\"" ECH_SVG_PAPER "\">\n");
    for (int kind = 0; kind < memory->kinds; kind++) {
        int64_t bytes = bytes_of(memory, rank, kind);
        double piece = (double)bytes / layout->span * layout->plot;
        if (piece < 0.01) continue;
        snprintf(fill, sizeof fill, "fill=\"%s\"", colour_of(kind, colour));
        ech_svg_rect(out, x, y, piece, layout->row_height, fill);
        out->n -= sizeof "/>\n" - 1;
        ech_text_append(out, "><title>");
        ech_svg_escape(out, memory->name[kind]);
        ech_text_append(out, ": %s</title></rect>\n",
                        ech_text_from_bytes(bytes, text, sizeof text));
        x += piece;
    }
    ech_text_append(out, "</g>\n");
    ech_text_from_bytes((int64_t)fmin(total_of(memory, rank), 9e18), text, sizeof text);
    /* The number is in front of the line of the limit. */
    ech_svg_words(out, x + 8, line,
                  "class=\"ech-faint ech-edge\" fill=\"" ECH_SVG_FAINT "\" stroke=\"" ECH_SVG_PAPER
                  "\" stroke-width=\"5\" paint-order=\"stroke\"",
                  text);
}

static void draw_limit(const ech_report_memory *memory, const bars_layout *layout, double bottom,
                       ech_text *out)
{
    char text[40], words[60];
    double x = layout->left + (double)memory->limit / layout->span * layout->plot;
    if (memory->limit <= 0) return;
    ech_svg_line(out, x, top - 6, x, bottom,
                 "stroke=\"#d55e00\" stroke-width=\"1.5\" stroke-dasharray=\"5 3\"");
    snprintf(words, sizeof words, "limit %s",
             ech_text_from_bytes(memory->limit, text, sizeof text));
    ech_svg_words(out, x, top - 11,
                  "class=\"ech-ink\" fill=\"" ECH_SVG_INK "\" text-anchor=\"middle\"", words);
}

static double draw_legend(const ech_report_memory *memory, const bars_layout *layout, double y,
                          ech_text *out)
{
    double x = layout->left;
    for (int kind = 0; kind < memory->kinds; kind++) {
        char fill[40], colour[8];
        double entry = swatch + 6 + ech_svg_width(memory->name[kind], 12) * 0.9;
        if (x > layout->left && x + entry > width - margin) {
            x = layout->left;
            y += legend_line;
        }
        snprintf(fill, sizeof fill, "fill=\"%s\"", colour_of(kind, colour));
        ech_svg_rect(out, x, y, swatch, swatch, fill);
        ech_svg_words(out, x + swatch + 6, y + 11, "class=\"ech-ink\" fill=\"" ECH_SVG_INK "\"",
                      memory->name[kind]);
        x += entry + 18;
    }
    return y + legend_line;
}

static void draw_title(const ech_report_memory *memory, const bars_layout *layout, ech_text *out)
{
    ECH_FREED_TEXT line = {0};
    ech_svg_words(out, margin, margin + 14,
                  "class=\"ech-ink\" fill=\"" ECH_SVG_INK
                  "\" font-size=\"15\" font-weight=\"bold\"",
                  "Memory of each rank");
    ech_text_append(&line, "%d rank%s", memory->ranks, memory->ranks == 1 ? "" : "s");
    if (layout->rows < memory->ranks)
        ech_text_append(&line, ", of which %d are drawn", layout->rows);
    ech_svg_words(out, margin, margin + 32, "class=\"ech-faint\" fill=\"" ECH_SVG_FAINT "\"",
                  line.at);
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
    double height = draw_legend(memory, &layout, bottom + 48, &body) + margin / 2;
    ech_svg_begin(out, width, height, "Memory of each rank");
    ech_text_append_bytes(out, body.at, body.n);
    ech_text_append(out, "</svg>\n");
}
