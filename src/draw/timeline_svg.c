/* SPDX-License-Identifier: Apache-2.0
 *
 * Timelines as pictures: panels of title, rows and axis one above the other, and one legend. A timeline that is too wide
 * is several panels, of which the first has the title. How rows are drawn is in rows.c.
 */
#include "draw/timeline.h"

#include <math.h>
#include <stdio.h>

#include "draw/svg.h"
#include "draw/rows.h"

static const double margin = 20, label_gap = 10, title_height = 54, axis_height = 50,
                    panel_gap = 26, legend_line = 22, swatch = 14, narrowest = 760, widest = 1600;

enum { MOST_PANELS = 8 };

typedef struct drawing {
    ech_panel panel[MOST_PANELS];
    int panels;
    double left, plot; /* where time 0 is, and the pixels of the longest timeline */
} drawing;

/* ---- sizes ---- */

/* As wide as numbers in the boxes of forwards ask for. */
static double wanted_plot(const ech_timeline *timeline)
{
    char digits[24];
    int most = 0;
    for (size_t i = 0; i < timeline->bar.n; i++)
        if (timeline->bar.at[i].micro > most) most = timeline->bar.at[i].micro;
    double box = 16 + 8 * (double)snprintf(digits, sizeof digits, "%d", most);
    return timeline->forward > 0 ? timeline->end / timeline->forward * box : 0;
}

/* A timeline alone: in as many panels as it wants, where there are few rows. */
static void break_panel(drawing *picture)
{
    ech_panel *first = &picture->panel[0];
    double wanted = ceil(wanted_plot(first->timeline) / widest), end = first->timeline->end;
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
        const ech_timeline *timeline = picture->panel[i].timeline;
        for (int row = 0; row < picture->panel[i].rows; row++) {
            char label[80];
            ech_timeline_name_row(timeline, &picture->panel[i].drawn.at[row], label, sizeof label);
            picture->left = fmax(picture->left, margin + ech_svg_width(label, 12) + label_gap);
        }
        double plot = fmin(widest, fmax(narrowest, wanted_plot(timeline)));
        picture->plot = fmax(picture->plot, ceil(plot));
        longest = fmax(longest, picture->panel[i].end - picture->panel[i].from);
    }
    bool common = picture->panel[0].timeline->seconds ==
                  picture->panel[picture->panels - 1].timeline->seconds;
    for (int i = 0; i < picture->panels; i++) {
        double span = common ? longest : picture->panel[i].end;
        ech_panel_measure(&picture->panel[i], span > 0 ? picture->plot / span : 0);
    }
}

static double head_of(const ech_panel *panel)
{
    return panel->title ? title_height : 0;
}

static double panel_height(const ech_panel *panel)
{
    return head_of(panel) + panel->rows * (panel->row_height + panel->row_gap) + axis_height;
}

/* ---- title and axis ---- */

static void draw_title(const drawing *picture, const ech_panel *panel, double y, ech_text *out)
{
    const ech_timeline *timeline = panel->timeline;
    ech_text line = ech_svg_cut(panel->title, 17, picture->left + picture->plot - margin);
    ech_svg_words(out, margin, y + 16,
                  "class=\"ech-ink\" fill=\"" ECH_SVG_INK
                  "\" font-size=\"17\" font-weight=\"bold\"",
                  line.at);
    line.n = 0;
    ech_text_append(&line, "%d rank%s", timeline->ranks, timeline->ranks == 1 ? "" : "s");
    int drawn = 0;
    for (int row = 0; row < panel->rows; row++) drawn += panel->drawn.at[row].ranks;
    if (drawn < timeline->ranks) ech_text_append(&line, ", of which %d are drawn", drawn);
    ech_text_append(&line, "  ·  ");
    if (timeline->end > 0) {
        ech_timeline_time(timeline, timeline->end, &line);
        ech_text_append(&line, "  ·  ");
        ech_timeline_bubble(timeline, &line);
    } else
        ech_text_append(&line, "nothing is computed");
    ech_svg_words(out, margin, y + 37,
                  "class=\"ech-faint\" fill=\"" ECH_SVG_FAINT "\" font-size=\"13\"", line.at);
    ech_text_free(&line);
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

typedef struct legend_flow {
    const drawing *picture;
    double x, y; /* of the next entry */
} legend_flow;

/* Colours and what they mean; on the next line where this one is full. */
static void add_entry(legend_flow *legend, const char (*colours)[8], int n, const char *more,
                      const char *words, ech_text *out)
{
    const drawing *picture = legend->picture;
    double indent = n > 0 ? n * swatch + 6 : 0, width = indent + ech_svg_width(words, 12) * 0.9;
    if (legend->x > picture->left && legend->x + width > picture->left + picture->plot) {
        legend->x = picture->left;
        legend->y += legend_line;
    }
    for (int i = 0; i < n; i++) {
        char fill[80];
        snprintf(fill, sizeof fill, "%s fill=\"%s\"", more, colours[i]);
        ech_svg_rect(out, legend->x + i * swatch, legend->y, swatch, swatch, fill);
    }
    ech_svg_words(out, legend->x + indent, legend->y + 11,
                  n > 0 ? "class=\"ech-ink\" fill=\"" ECH_SVG_INK "\""
                        : "class=\"ech-faint\" fill=\"" ECH_SVG_FAINT "\"",
                  words);
    legend->x += width + 18;
}

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
    legend_flow legend = {picture, picture->left, y};
    int chunks = 1;
    bool numbers = false, together = false, sequence_chunks = false;
    for (int p = 0; p < picture->panels; p++) {
        const ech_panel *panel = &picture->panel[p];
        if (panel->timeline->chunks > chunks) chunks = panel->timeline->chunks;
        numbers |= panel->numbers;
        sequence_chunks |= panel->timeline->sequence_chunks > 1;
        together |= panel->together;
    }
    char colours[SHADES][8];
    for (int k = 0; k < ECH_BAR_KINDS; k++) {
        ech_bar_kind kind = (ech_bar_kind)k;
        if (!has_kind(picture, kind)) continue;
        int n = kind <= ECH_BAR_WEIGHT && chunks > 1 ? chunks < SHADES ? chunks : SHADES : 1;
        for (int i = 0; i < n; i++)
            ech_panel_colour(kind, n > 1 ? i * (chunks - 1) / (n - 1) : 0, chunks, colours[i]);
        add_entry(&legend, (const char(*)[8])colours, n, "", ech_bar_kind_meaning(kind), out);
    }
    snprintf(colours[0], sizeof colours[0], "%s", ECH_SVG_IDLE);
    add_entry(&legend, (const char(*)[8])colours, 1, "class=\"ech-idle\"", "idle", out);
    if (numbers)
        add_entry(&legend, NULL, 0, "",
                  sequence_chunks ? "numbers: sequence chunks" : "numbers: micro-batches", out);
    if (chunks > 1) add_entry(&legend, NULL, 0, "", "paler: later chunks", out);
    if (together)
        add_entry(&legend, NULL, 0, "", "boxes too narrow to draw: heights are shares of time",
                  out);
    return legend.y + legend_line;
}

/* ---- the whole ---- */

static void draw(drawing *picture, ech_text *out)
{
    lay_out(picture);
    ech_text body = {0}, name = {0};
    double y = margin;
    for (int i = 0; i < picture->panels; i++) {
        ech_panel *panel = &picture->panel[i];
        if (i > 0) y += panel->title ? panel_gap : 0;
        if (panel->title) draw_title(picture, panel, y, &body);
        ech_panel_draw_rows(panel, picture->left, y + head_of(panel), &body);
        y += panel_height(panel);
        draw_axis(picture, panel, y - axis_height + 4, &body);
        if (panel->title) ech_text_append(&name, "%s%s", i > 0 ? "; " : "", panel->title);
    }
    y = draw_legend(picture, y, &body);
    ech_svg_begin(out, picture->left + picture->plot + margin, y + margin / 2, name.at);
    ech_text_append_bytes(out, body.at, body.n);
    ech_text_append(out, "</svg>\n");
    ech_text_free(&body);
    ech_text_free(&name);
}

static ech_panel begin_panel(const ech_timeline *timeline, const char *title)
{
    ech_panel panel = {.timeline = timeline, .title = title, .end = timeline->end};
    ech_panel_choose_rows(&panel);
    return panel;
}

void ech_timeline_svg(const ech_timeline *timeline, const char *title, ech_text *out)
{
    drawing picture = {.panel = {begin_panel(timeline, title)}};
    break_panel(&picture);
    draw(&picture, out);
    ech_panel_free(&picture.panel[0]); /* the others' rows are the same */
}

void ech_timeline_svg_pair(const ech_timeline *above, const char *above_title,
                           const ech_timeline *below, const char *below_title, ech_text *out)
{
    drawing picture = {.panel = {begin_panel(above, above_title), begin_panel(below, below_title)},
                       .panels = 2};
    draw(&picture, out);
    for (int i = 0; i < 2; i++) ech_panel_free(&picture.panel[i]);
}
