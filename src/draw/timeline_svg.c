/* SPDX-License-Identifier: Apache-2.0
 *
 * Timelines as pictures: panels with title, rows and axis, one above the other, and one legend. A
 * timeline that is too wide becomes several panels, and the first has the title. rows.c draws the
 * rows.
 */
#include "draw/timeline.h"

#include <math.h>
#include <stdio.h>

#include "draw/svg.h"
#include "draw/rows.h"

static const double margin = 20, label_gap = 10, title_height = 54, axis_height = 50,
                    panel_gap = 26, narrowest = 760, widest = 1600;

enum { MOST_PANELS = 8 };

typedef struct drawing {
    ech_panel panel[MOST_PANELS];
    int panels;
    double left, plot; /* where time 0 is, and the pixels of the longest timeline */
} drawing;

/* ---- sizes ---- */

/* As wide as numbers in the boxes of forwards ask for. */
static double wanted_plot(const ech_panel *panel)
{
    const ech_timeline *timeline = panel->timeline;
    double box = 16 + 8 * panel->digits;
    return timeline->forward > 0 ? timeline->end / timeline->forward * box : 0;
}

/* A timeline alone: in as many panels as it wants, where there are few rows. */
static void break_panel(drawing *picture)
{
    ech_panel *first = &picture->panel[0];
    double wanted = ceil(wanted_plot(first) / widest), end = first->timeline->end;
    double most = first->rows ? ECH_TIMELINE_ROWS / first->rows : 1;
    picture->panels = (int)fmax(1, fmin(wanted, fmin(most, MOST_PANELS)));
    for (int i = 0; i < picture->panels; i++) {
        ech_panel *panel = &picture->panel[i];
        *panel = *first;
        if (i > 0) panel->title = NULL;
        panel->from = end * i / picture->panels;
        panel->end = end * (i + 1) / picture->panels;
    }
}

static void lay_out(drawing *picture)
{
    double longest = 0;
    picture->left = margin + label_gap;
    for (int i = 0; i < picture->panels; i++) {
        const ech_panel *panel = &picture->panel[i];
        for (int row = 0; row < panel->rows; row++) {
            char label[80];
            ech_timeline_name_row(panel->timeline, &panel->drawn.at[row], label, sizeof label);
            picture->left = fmax(picture->left, margin + ech_svg_width(label, 12) + label_gap);
        }
        double plot = fmin(widest, fmax(narrowest, wanted_plot(panel)));
        picture->plot = fmax(picture->plot, ceil(plot));
        longest = fmax(longest, panel->end - panel->from);
    }
    bool common = picture->panel[0].timeline->seconds ==
                  picture->panel[picture->panels - 1].timeline->seconds;
    for (int i = 0; i < picture->panels; i++) {
        double span = common ? longest : picture->panel[i].end;
        ech_panel_measure(&picture->panel[i], span > 0 ? picture->plot / span : 0);
    }
}

/* ---- title and axis ---- */

static void draw_title(const drawing *picture, const ech_panel *panel, double y, ech_text *out)
{
    const ech_timeline *timeline = panel->timeline;
    ECH_FREED_TEXT line = {0};
    int drawn = 0;
    ech_svg_title(out, margin, y + 16, picture->left + picture->plot - margin, 17, panel->title);
    ech_text_append(&line, "%s", ECH_COUNT(timeline->ranks, "rank"));
    for (int row = 0; row < panel->rows; row++) drawn += panel->drawn.at[row].ranks;
    if (drawn < timeline->ranks) ech_text_append(&line, ", of which %d are drawn", drawn);
    ech_text_append(&line, "  ·  ");
    if (timeline->end > 0) {
        ech_timeline_time(timeline, timeline->end, &line);
        ech_text_append(&line, "  ·  ");
        ech_timeline_bubble(timeline, &line);
    } else
        ech_text_append(&line, "nothing is computed");
    ech_svg_words(out, margin, y + 37, ECH_SVG_FAINT " font-size=\"13\"", line.at);
}

static void draw_axis(const drawing *picture, const ech_panel *panel, double y, ech_text *out)
{
    const ech_timeline *timeline = panel->timeline;
    if (timeline->end <= 0) return;
    double length = (panel->end - panel->from) * panel->scale;
    bool milli = timeline->seconds && timeline->end < 1;
    bool micro = timeline->seconds && timeline->end < 1e-3;
    double unit = micro ? 1e6 : milli ? 1e3 : 1, scale = panel->scale / unit;
    ech_svg_axis(out, picture->left, y, length, panel->from * unit, scale,
                 ech_svg_tick(picture->plot / scale, 14),
                 !timeline->seconds ? "time in block forwards"
                 : micro            ? "time in µs"
                 : milli            ? "time in ms"
                                    : "time in s");
}

/* ---- legend ---- */

static bool has_kind(const drawing *picture, ech_bar_kind kind)
{
    for (int p = 0; p < picture->panels; p++) {
        const ech_timeline *timeline = picture->panel[p].timeline;
        for (size_t i = 0; i < timeline->bar.n; i++)
            if (timeline->bar.at[i].kind == kind ||
                (kind == ECH_BAR_WEIGHT && timeline->bar.at[i].weight > 0))
                return true;
    }
    return false;
}

/* Returns where it ends. */
static double draw_legend(const drawing *picture, double y, ech_text *out)
{
    enum { SHADES = 4 };
    static const char *const idle[] = {ECH_SVG_IDLE};
    double left = picture->left;
    ech_svg_legend legend = {left, left + picture->plot, left, y};
    int chunks = 1;
    bool numbers = false, together = false, sequence_chunks = false;
    for (int p = 0; p < picture->panels; p++) {
        const ech_panel *panel = &picture->panel[p];
        if (panel->timeline->chunks > chunks) chunks = panel->timeline->chunks;
        numbers |= panel->numbers;
        sequence_chunks |= panel->timeline->sequence_chunks > 1;
        together |= panel->together;
    }
    for (int k = 0; k < ECH_BAR_KINDS; k++) {
        ech_bar_kind kind = (ech_bar_kind)k;
        char fill[SHADES][20], colour[8];
        const char *fills[SHADES];
        if (!has_kind(picture, kind)) continue;
        int n = kind <= ECH_BAR_RECOMPUTE && chunks > 1 ? chunks < SHADES ? chunks : SHADES : 1;
        for (int i = 0; i < n; i++) {
            ech_panel_colour(kind, n > 1 ? i * (chunks - 1) / (n - 1) : 0, chunks, colour);
            snprintf(fill[i], sizeof fill[i], "fill=\"%s\"", colour);
            fills[i] = fill[i];
        }
        ech_svg_legend_add(&legend, fills, n, ech_bar_kind_meaning(kind), out);
    }
    ech_svg_legend_add(&legend, idle, 1, "idle", out);
    const char *words = sequence_chunks ? "numbers: sequence chunks" : "numbers: micro-batches";
    if (numbers) ech_svg_legend_add(&legend, NULL, 0, words, out);
    if (chunks > 1) ech_svg_legend_add(&legend, NULL, 0, "paler: later chunks", out);
    words = "boxes too narrow to draw: heights are shares of time";
    if (together) ech_svg_legend_add(&legend, NULL, 0, words, out);
    return legend.y + ECH_SVG_LEGEND_LINE;
}

/* ---- the whole ---- */

static void draw(drawing *picture, ech_text *out)
{
    lay_out(picture);
    ECH_FREED_TEXT body = {0}, name = {0};
    double y = margin;
    for (int i = 0; i < picture->panels; i++) {
        ech_panel *panel = &picture->panel[i];
        if (panel->title) {
            if (i > 0) y += panel_gap;
            draw_title(picture, panel, y, &body);
            ech_text_append(&name, "%s%s", i > 0 ? "; " : "", panel->title);
            y += title_height;
        }
        ech_panel_draw_rows(panel, picture->left, y, &body);
        y += panel->rows * (panel->row_height + panel->row_gap);
        draw_axis(picture, panel, y + 4, &body);
        y += axis_height;
    }
    y = draw_legend(picture, y, &body);
    ech_svg_begin(out, picture->left + picture->plot + margin, y + margin / 2, name.at);
    ech_text_append_bytes(out, body.at, body.n);
    ech_text_append(out, "</svg>\n");
}

void ech_timeline_svg(const ech_timeline *timeline, const char *title, const ech_timeline *below,
                      const char *below_title, ech_text *out)
{
    drawing picture = {.panel = {ech_panel_create(timeline, title)}, .panels = 2};
    if (below)
        picture.panel[1] = ech_panel_create(below, below_title);
    else
        break_panel(&picture);
    draw(&picture, out);
    ech_panel_free(&picture.panel[0]);
    if (below) ech_panel_free(&picture.panel[1]); /* else the others' rows are the first one's */
}
