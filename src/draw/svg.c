/* SPDX-License-Identifier: Apache-2.0
 *
 * Elements of SVG, colours and ticks.
 */
#include "draw/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "base/utf8.h"

static const char *escape_of(char letter)
{
    switch (letter) {
    case '&':
        return "&amp;";
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '"':
        return "&quot;";
    case '\'':
        return "&#39;";
    default:
        return NULL;
    }
}

void ech_svg_escape(ech_text *out, const char *text)
{
    ech_text_append_bytes(out, "", 0);
    while (*text) {
        uint32_t code;
        size_t length = ech_utf8_first(text, &code);
        const char *escape = escape_of(*text);
        if (escape)
            ech_text_append_bytes(out, escape, strlen(escape));
        else if (length > 0 && ech_utf8_is_printable(code))
            ech_text_append_bytes(out, text, length);
        else
            ech_text_append_bytes(out, "\xef\xbf\xbd", 3);
        text += length > 0 ? length : 1;
    }
}

void ech_svg_number(ech_text *out, double value)
{
    char digits[330];
    ECH_ASSERT(isfinite(value));
    int n = snprintf(digits, sizeof digits, "%.2f", value);
    while (digits[n - 1] == '0') n--;
    if (digits[n - 1] == '.') n--;
    const char *from = n == 2 && digits[0] == '-' && digits[1] == '0' ? digits + 1 : digits;
    ech_text_append_bytes(out, from, (size_t)(digits + n - from));
}

static void append_attribute(ech_text *out, const char *name, double value)
{
    ech_text_append(out, " %s=\"", name);
    ech_svg_number(out, value);
    ech_text_append_bytes(out, "\"", 1);
}

void ech_svg_begin(ech_text *out, double width, double height, const char *name)
{
    ech_text_append(out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ");
    ech_svg_number(out, width);
    ech_text_append(out, " ");
    ech_svg_number(out, height);
    ech_text_append(out, "\"");
    append_attribute(out, "width", width);
    append_attribute(out, "height", height);
    ech_text_append(out, " font-family=\"Helvetica,Arial,Liberation Sans,DejaVu Sans,sans-serif\""
                         " font-size=\"12\" role=\"img\" aria-label=\"");
    ech_svg_escape(out, name);
    ech_text_append(out, "\">\n");
    ech_svg_rect(out, 0, 0, width, height, "class=\"ech-paper\" fill=\"" ECH_SVG_PAPER "\"");
}

/* Of a row of boxes most have the y of the row: no attribute then. */
void ech_svg_rect(ech_text *out, double x, double y, double width, double height, const char *more)
{
    ech_text_append_bytes(out, "<rect", 5);
    append_attribute(out, "x", x);
    if (fabs(y) >= 0.005) append_attribute(out, "y", y);
    append_attribute(out, "width", width);
    append_attribute(out, "height", height);
    ech_text_append(out, "%s%s/>\n", *more ? " " : "", more);
}

void ech_svg_line(ech_text *out, double x1, double y1, double x2, double y2, const char *more)
{
    ech_text_append(out, "<line");
    append_attribute(out, "x1", x1);
    append_attribute(out, "y1", y1);
    append_attribute(out, "x2", x2);
    append_attribute(out, "y2", y2);
    ech_text_append(out, "%s%s/>\n", *more ? " " : "", more);
}

void ech_svg_words(ech_text *out, double x, double y, const char *more, const char *words)
{
    ech_text_append_bytes(out, "<text", 5);
    append_attribute(out, "x", x);
    append_attribute(out, "y", y);
    ech_text_append(out, "%s%s>", *more ? " " : "", more);
    ech_svg_escape(out, words);
    ech_text_append_bytes(out, "</text>\n", 8);
}

/* Letters of DejaVu Sans, the widest of the usual fonts, are 0.6 of its size on average; those past
 * U+2E80 are as wide as the size. */
static double letter_width(uint32_t code)
{
    return code >= 0x2e80 ? 1.0 : 0.6;
}

double ech_svg_width(const char *text, double font_size)
{
    double width = 0;
    while (*text) {
        uint32_t code = 0;
        size_t length = ech_utf8_first(text, &code);
        width += letter_width(code) * font_size;
        text += length > 0 ? length : 1;
    }
    return width;
}

ech_text ech_svg_cut(const char *text, double font_size, double width)
{
    ech_text cut = {0};
    if (ech_svg_width(text, font_size) <= width) {
        ech_text_append(&cut, "%s", text);
        return cut;
    }
    double left = width - letter_width(0x2026) * font_size;
    const char *end = text;
    while (*end) {
        uint32_t code = 0;
        size_t length = ech_utf8_first(end, &code);
        left -= letter_width(code) * font_size;
        if (left < 0) break;
        end += length > 0 ? length : 1;
    }
    ech_text_append_bytes(&cut, text, (size_t)(end - text));
    ech_text_append(&cut, "\xe2\x80\xa6");
    return cut;
}

char *ech_svg_pale(const char *colour, double white, char *buffer)
{
    unsigned rgb[3];
    ECH_ASSERT(sscanf(colour, "#%2x%2x%2x", &rgb[0], &rgb[1], &rgb[2]) == 3);
    for (int i = 0; i < 3; i++) {
        double mixed = rgb[i] + (255 - (double)rgb[i]) * white;
        rgb[i] = (unsigned)(mixed + 0.5) & 0xff;
    }
    snprintf(buffer, 8, "#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
    return buffer;
}

double ech_svg_tick(double span, double most)
{
    ECH_ASSERT(span > 0 && most >= 1);
    double least = span / most * (1 - 1e-9); /* 10 into 10 parts is steps of 1, rounded or not */
    double power = pow(10, floor(log10(least)));
    static const double steps[] = {1, 2, 5};
    for (int i = 0; i < 3; i++)
        if (steps[i] * power >= least) return steps[i] * power;
    return 10 * power;
}

void ech_svg_tick_text(ech_text *out, int64_t k, double step)
{
    double value = (double)k * step, power = floor(log10(step) + 1e-9);
    if (k == 0)
        ech_text_append(out, "0");
    else if (fabs(value) >= 1e7 || power < -5)
        ech_text_append(out, "%.*g", 1 + (int)fmax(0, floor(log10(fabs(value))) - power), value);
    else
        ech_text_append(out, "%.*f", power < 0 ? (int)-power : 0, value);
}

void ech_svg_axis(ech_text *out, double left, double y, double length, double low, double scale,
                  double step, const char *unit)
{
    int64_t first = (int64_t)ceil(low / step - 1e-9);
    double last = low + length / scale;
    ech_text label = {0};
    ech_text_append(out, "<g class=\"ech-axis\" stroke=\"" ECH_SVG_FAINT "\">\n");
    ech_svg_line(out, left, y, left + length, y, "");
    for (int64_t k = first; (double)k * step <= last + 1e-9 * step; k++) {
        double x = left + ((double)k * step - low) * scale;
        ech_svg_line(out, x, y, x, y + 5, "");
    }
    ech_text_append(out, "</g>\n<g class=\"ech-faint\" fill=\"" ECH_SVG_FAINT
                         "\" font-size=\"11\" text-anchor=\"middle\">\n");
    for (int64_t k = first; (double)k * step <= last + 1e-9 * step; k++) {
        label.n = 0;
        ech_svg_tick_text(&label, k, step);
        ech_svg_words(out, left + ((double)k * step - low) * scale, y + 18, "", label.at);
    }
    ech_svg_words(out, left, y + 34, "text-anchor=\"start\"", unit);
    ech_text_append(out, "</g>\n");
    ech_text_free(&label);
}
