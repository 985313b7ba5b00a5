/* SPDX-License-Identifier: Apache-2.0
 *
 * Line charts of values over steps.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "app/report/html.h"
#include "base/utf8.h"
#include "draw/svg.h"

/* ---- means ----
 *
 * Running means. Each is summed anew: differences of sums from the beginning would be quicker and,
 * after a spike of a run that diverged, wrong. */

bool ech_report_is_drawn(double value)
{
    return fabs(value) <= 1e100;
}

static double mean_of(const ech_report_point *points, size_t n)
{
    double sum = 0;
    size_t values = 0;
    for (size_t i = 0; i < n; i++) {
        if (!ech_report_is_drawn(points[i].value)) continue;
        sum += points[i].value;
        values++;
    }
    return values > 0 ? sum / (double)values : NAN;
}

ech_report_points ech_report_mean(const ech_report_points *points, size_t reach, size_t every)
{
    ech_report_points means = {0};
    for (size_t i = 0, n = points->n; i < n; i++) {
        if (i % every != 0 && i + 1 < n) continue;
        size_t before = i < reach ? i : reach, after = n - 1 - i < before ? n - 1 - i : before;
        double mean = mean_of(points->at + (i - before), before + 1 + after);
        ECH_PUSH(means, (ech_report_point){points->at[i].step, mean});
    }
    return means;
}

static const double width = 560, left = 62, right = 18, plot_height = 190, margin = 16, line = 19;

/* Colours that colour-blind readers distinguish (Okabe and Ito 2008). The first line has the first;
 * the dots of a single run's validation have the second. */
static const char *const colours[] = {"#0072b2", "#d55e00", "#009e73",
                                      "#cc79a7", "#e69f00", "#56b4e9"};

const char *ech_report_colour(int run)
{
    return colours[(size_t)run % (sizeof colours / sizeof *colours)];
}

/* Of more points the path has a running mean over it; up to so few have dots. */
enum { MANY = 100, MEAN_PARTS = 50, MEANS = 1000, MOST_DOTS = 40 };

/* What is where: steps from first to last over the width, values (or their logarithms) from low to
 * high over the height. */
typedef struct chart_frame {
    double top; /* of the plot, below the words */
    double first, last;
    double low, high;
    bool logarithmic;
    int64_t points; /* values */
} chart_frame;

/* How a run is drawn. */
typedef struct pen {
    const char *class, *colour;
} pen;

static double x_of(const chart_frame *frame, double step)
{
    return left + (step - frame->first) / (frame->last - frame->first) * (width - left - right);
}

static double y_of(const chart_frame *frame, double value)
{
    double at = frame->logarithmic ? log10(value) : value;
    return frame->top + plot_height * (1 - (at - frame->low) / (frame->high - frame->low));
}

static void widen(chart_frame *frame, const ech_report_points *points)
{
    for (size_t i = 0; i < points->n; i++) {
        const ech_report_point *point = &points->at[i];
        frame->points++;
        frame->first = fmin(frame->first, (double)point->step);
        frame->last = fmax(frame->last, (double)point->step);
        if (!ech_report_is_drawn(point->value)) continue;
        frame->low = fmin(frame->low, point->value);
        frame->high = fmax(frame->high, point->value);
    }
}

static chart_frame frame_of(const ech_report_chart *chart, int runs)
{
    chart_frame frame = {.top = 47 + line * runs,
                         .first = INFINITY,
                         .last = -INFINITY,
                         .low = INFINITY,
                         .high = -INFINITY};
    for (int r = 0; r < runs; r++) {
        widen(&frame, &chart[r].training);
        widen(&frame, &chart[r].validation);
    }
    if (frame.low > frame.high) frame.low = frame.high = 0;
    frame.logarithmic = chart->logarithmic && frame.low > 0 && frame.high >= 10 * frame.low;
    if (frame.logarithmic) {
        frame.low = log10(frame.low);
        frame.high = log10(frame.high);
    }
    /* Some air, also around a value that never changes. */
    double span = frame.high - frame.low;
    double air = fmax(span * 0.06, fabs(frame.high) * (span > 0 ? 1e-6 : 0.1));
    if (air <= 0) air = 1;
    frame.low -= air;
    frame.high += air;
    if (frame.last <= frame.first) {
        frame.first -= 0.5;
        frame.last += 0.5;
    }
    return frame;
}

/* ---- axes ---- */

static void draw_level(const chart_frame *frame, double value, const char *label, ech_text *out)
{
    double y = y_of(frame, value);
    ech_svg_line(out, left, y, width - right, y, "class=\"ech-grid\" stroke=\"#dde1e6\"");
    ech_svg_words(out, left - 8, y + 4, ECH_SVG_FAINT " font-size=\"11\" text-anchor=\"end\"",
                  label);
}

/* Powers of ten, and 2 and 5 times these where there are few. */
static void draw_logarithmic_levels(const chart_frame *frame, ech_text *out)
{
    double decades = frame->high - frame->low, every = fmax(1, ceil(decades / 8));
    for (double power = floor(frame->low); power <= frame->high; power++)
        for (int i = 0; i < 3; i++) {
            static const double times[] = {1, 2, 5};
            double level = power + log10(times[i]);
            bool wanted = i == 0 ? fmod(power, every) == 0 : decades < 3;
            if (!wanted || level < frame->low || level > frame->high) continue;
            char label[32];
            double value = times[i] * pow(10, power);
            ech_text_print(label, sizeof label, fabs(power) < 6 ? "%.10g" : "%.0e", value);
            draw_level(frame, value, label, out);
        }
}

static void draw_levels(const chart_frame *frame, ech_text *out)
{
    if (frame->logarithmic) {
        draw_logarithmic_levels(frame, out);
        return;
    }
    double step = ech_svg_tick(frame->high - frame->low, 6);
    ECH_FREED_TEXT label = {0};
    for (int64_t k = (int64_t)ceil(frame->low / step); (double)k * step <= frame->high; k++) {
        label.n = 0;
        ech_svg_tick_text(&label, k, step);
        draw_level(frame, (double)k * step, label.at, out);
    }
}

static void draw_steps(const chart_frame *frame, ech_text *out)
{
    double span = frame->last - frame->first, length = width - left - right;
    ech_svg_axis(out, left, frame->top + plot_height, length, frame->first, length / span,
                 fmax(1, ech_svg_tick(span, frame->last < 1e7 ? 7 : 4)), "step");
}

/* ---- lines ---- */

static void append_vertex(const chart_frame *frame, bool open, const ech_report_point *point,
                          ech_text *path)
{
    ECH_SVG(path, open ? "L@ @" : "M@ @", x_of(frame, (double)point->step),
            y_of(frame, point->value));
}

/* Of the points that fall on half a pixel only the lowest and the highest, in their order. */
static void draw_line(const chart_frame *frame, const ech_report_points *points, const pen *with,
                      const char *more, ech_text *out)
{
    ECH_FREED_TEXT path = {0};
    bool open = false;
    for (size_t i = 0; i < points->n;) {
        const ech_report_point *low = &points->at[i], *high = low;
        if (!ech_report_is_drawn(low->value)) {
            open = false;
            i++;
            continue;
        }
        double column = floor(2 * x_of(frame, (double)low->step));
        for (i++; i < points->n; i++) {
            const ech_report_point *point = &points->at[i];
            if (!ech_report_is_drawn(point->value)) break;
            if (floor(2 * x_of(frame, (double)point->step)) > column) break;
            if (point->value < low->value) low = point;
            if (point->value > high->value) high = point;
        }
        /* A lone point is a line of no length: as lines have round ends, it is a dot. */
        append_vertex(frame, open, low < high ? low : high, &path);
        if (!open || low != high) append_vertex(frame, true, low < high ? high : low, &path);
        open = true;
    }
    if (path.n > 0)
        ech_text_append(out,
                        "<path class=\"%s\" fill=\"none\" stroke=\"%s\" "
                        "stroke-linecap=\"round\" stroke-linejoin=\"round\" %s d=\"%s\"/>\n",
                        with->class, with->colour, more, path.at);
}

/* Not more than one in two pixels, and the last. */
static void draw_dots(const chart_frame *frame, const ech_report_points *points, double radius,
                      ech_text *out)
{
    double drawn = -INFINITY;
    for (size_t i = 0; i < points->n; i++) {
        const ech_report_point *point = &points->at[i];
        double x = x_of(frame, (double)point->step);
        bool is_last = i + 1 == points->n;
        if (!ech_report_is_drawn(point->value) || (x < drawn + 2 && !is_last)) continue;
        drawn = x;
        ECH_SVG(out, "<circle cx=\"@\" cy=\"@\" r=\"@\">", x, y_of(frame, point->value), radius);
        ech_text_append(out, "<title>step %lld: %.6g</title></circle>\n", (long long)point->step,
                        point->value);
    }
}

static void draw_training(const chart_frame *frame, const ech_report_points *points,
                          const pen *with, ech_text *out)
{
    bool many = points->n >= MANY;
    draw_line(frame, points, with, many ? "stroke-opacity=\"0.35\"" : "stroke-width=\"2\"", out);
    if (points->n > 0 && points->n <= MOST_DOTS) {
        ech_text_append(out, "<g class=\"%s\" stroke=\"%s\" fill=\"%s\">\n", with->class,
                        with->colour, with->colour);
        draw_dots(frame, points, 2.5, out);
        ech_text_append(out, "</g>\n");
    }
    if (!many) return;
    ech_report_points means =
        ech_report_mean(points, points->n / MEAN_PARTS, points->n / MEANS + 1);
    draw_line(frame, &means, with, "stroke-width=\"2\"", out);
    free(means.at);
}

static void draw_validation(const chart_frame *frame, const ech_report_points *points,
                            const char *colour, ech_text *out)
{
    if (points->n == 0) return;
    ech_text_append(out, "<g " ECH_SVG_EDGE " fill=\"%s\">\n", colour);
    draw_dots(frame, points, 4, out);
    ech_text_append(out, "</g>\n");
}

/* ---- words ---- */

/* Not more than one in two pixels. Before the first point and after the last one there is no
 * room. */
static void draw_restarts(const chart_frame *frame, const ech_report_points *points, ech_text *out)
{
    double drawn = -INFINITY;
    if (points->n == 0) return;
    ech_text_append(out, "<g " ECH_SVG_AXIS " stroke-dasharray=\"3 3\">\n");
    for (size_t i = 0; i < points->n; i++) {
        const ech_report_point *point = &points->at[i];
        double step = (double)point->step + 0.5, x = x_of(frame, step);
        if (step < frame->first || step > frame->last || x < drawn + 2) continue;
        drawn = x;
        ECH_SVG(out, "<path d=\"M@ @v@\">", x, frame->top, plot_height);
        ech_text_append(out, "<title>start %.0f, after step %lld</title></path>\n", point->value,
                        (long long)point->step);
    }
    ech_text_append(out, "</g>\n");
}

static void append_last(const ech_report_points *points, const char *what, ech_text *out)
{
    if (points->n == 0) return;
    const ech_report_point *last = &points->at[points->n - 1];
    ech_text_append(out, "%s%s%.5g at step %lld", out->n > 0 ? "  ·  " : "", what, last->value,
                    (long long)last->step);
}

static int64_t count_broken(const ech_report_points *points)
{
    int64_t n = 0;
    for (size_t i = 0; i < points->n; i++) n += !ech_report_is_drawn(points->at[i].value);
    return n;
}

/* The last values of a run and, if it is alone, what its lines are. */
static void append_words(const ech_report_chart *chart, bool alone, ech_text *out)
{
    int64_t broken = count_broken(&chart->training) + count_broken(&chart->validation);
    append_last(&chart->training, "", out);
    append_last(&chart->validation, "validation ", out);
    if (alone && chart->training.n >= MANY)
        ech_text_append(out, "  ·  thick: mean of %zu", 2 * (chart->training.n / MEAN_PARTS) + 1);
    if (alone && chart->restarts.n > 0)
        ech_text_append(out, "  ·  dashed: %s", ECH_COUNT((int64_t)chart->restarts.n, "restart"));
    if (chart->training.n + chart->validation.n == 0) ech_text_append(out, "no values");
    if (broken > 0) ech_text_append(out, "  ·  %lld not finite", (long long)broken);
}

static void draw_legend(const char *words, const char *colour, ech_text *out)
{
    double x = width - right - ech_svg_width(words, 12);
    ech_text_append(out, "<g " ECH_SVG_EDGE " fill=\"%s\">\n", colour);
    ECH_SVG(out, "<circle cx=\"@\" cy=\"@\" r=\"4\"/>\n</g>\n", x - 8, margin + 8);
    ech_svg_words(out, x, margin + 12, ECH_SVG_INK, words);
}

/* Where all of the name has no place, its end: names differ there. */
static void append_name(const char *name, double room, ech_text *out)
{
    static const char ellipsis[] = "\xe2\x80\xa6";
    bool fits = ech_svg_width(name, 12) <= room;
    if (!fits) room -= ech_svg_width(ellipsis, 12);
    while (*name && ech_svg_width(name, 12) > room) {
        uint32_t code;
        size_t length = ech_utf8_first(name, &code);
        name += length > 0 ? length : 1;
    }
    ech_text_append(out, "%s%s", fits ? "" : ellipsis, name);
}

/* A row of words for each of several runs, after a dot in its colour. */
static void draw_run_words(const ech_report_chart *chart, const char *name, int run, ech_text *out)
{
    ECH_FREED_TEXT words = {0}, values = {0};
    double y = margin + 31 + line * run, room = width - 2 * margin - 14;
    append_words(chart, false, &values);
    append_name(name, room - ech_svg_width(values.at, 12) - ech_svg_width(":  ", 12), &words);
    ech_text_append(&words, ": %s", values.at);
    ECH_SVG(out, "<circle cx=\"@\" cy=\"@\" r=\"4\"", margin + 4, y - 4);
    ech_text_append(out, " fill=\"%s\"/>\n", ech_report_colour(run));
    ech_svg_title(out, margin + 14, y, room, 12, words.at);
}

static void draw_words(const ech_report_chart *chart, const char *const *names, int runs,
                       ech_text *out)
{
    ECH_FREED_TEXT words = {0};
    ech_svg_title(out, margin, margin + 12, width - 2 * margin - 100, 15, chart->title);
    for (int r = 0; r < runs && names; r++) draw_run_words(&chart[r], names[r], r, out);
    if (names) return;
    append_words(chart, true, &words);
    ech_svg_words(out, margin, margin + 31, ECH_SVG_FAINT, words.at);
    if (chart->validation.n > 0) draw_legend("validation", ech_report_colour(1), out);
}

/* ---- the chart ---- */

static void draw_run(const ech_report_chart *chart, const chart_frame *frame, int run, bool alone,
                     ech_text *out)
{
    const pen with = {alone ? "ech-train" : "ech-run", ech_report_colour(run)};
    if (alone) draw_restarts(frame, &chart->restarts, out);
    draw_training(frame, &chart->training, &with, out);
    draw_validation(frame, &chart->validation, ech_report_colour(alone ? 1 : run), out);
}

void ech_report_charts_svg(const ech_report_chart *chart, const char *const *names, int runs,
                           ech_text *out)
{
    chart_frame frame = frame_of(chart, runs);
    ech_svg_begin(out, width, frame.top + plot_height + 44, chart->title);
    draw_words(chart, names, runs, out);
    if (frame.points > 0) {
        draw_levels(&frame, out);
        draw_steps(&frame, out);
        for (int r = 0; r < runs; r++) draw_run(&chart[r], &frame, r, !names, out);
    }
    ech_text_append(out, "</svg>\n");
}
