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

static const char *const escapes[128] = {['&'] = "&amp;",  ['<'] = "&lt;",   ['>'] = "&gt;",
                                         ['"'] = "&quot;", ['\''] = "&#39;", ['\n'] = "\n"};

void ech_svg_escape(ech_text *out, const char *text)
{
    ech_text_append_bytes(out, "", 0);
    while (*text) {
        uint32_t code;
        size_t length = ech_utf8_first(text, &code);
        if (length == 1 && escapes[code])
            ech_text_append(out, "%s", escapes[code]);
        else if (length > 0 && ech_utf8_is_printable(code))
            ech_text_append_bytes(out, text, length);
        else
            ech_text_append_bytes(out, "\xef\xbf\xbd", 3);
        text += length > 0 ? length : 1;
    }
}

static void append_number(ech_text *out, double value)
{
    char digits[330];
    ECH_ASSERT(isfinite(value));
    int n = ech_text_print(digits, sizeof digits, "%.2f", value);
    while (digits[n - 1] == '0') n--;
    if (digits[n - 1] == '.') n--;
    const char *from = n == 2 && digits[0] == '-' && digits[1] == '0' ? digits + 1 : digits;
    ech_text_append_bytes(out, from, (size_t)(digits + n - from));
}

void ech_svg_fill(ech_text *out, const char *form, const double *numbers)
{
    for (;; form++) {
        size_t n = strcspn(form, "@");
        ech_text_append_bytes(out, form, n);
        form += n;
        if (!*form) return;
        append_number(out, *numbers++);
    }
}

void ech_svg_begin(ech_text *out, double width, double height, const char *name)
{
    ECH_SVG(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 @ @\" width=\"@\" height=\"@\""
            " font-family=\"Helvetica,Arial,Liberation Sans,DejaVu Sans,sans-serif\""
            " font-size=\"12\" role=\"img\" aria-label=\"",
            width, height, width, height);
    ech_svg_escape(out, name);
    ech_text_append(out, "\">\n");
    ech_svg_rect(out, 0, 0, width, height, ECH_SVG_PAPER, NULL);
}

static void append_attributes(ech_text *out, const char *more)
{
    ech_text_append(out, "%s%s", *more ? " " : "", more);
}

/* Most boxes of a row have the y of the row: no attribute then. */
void ech_svg_rect(ech_text *out, double x, double y, double width, double height, const char *more,
                  const char *hint)
{
    ECH_SVG(out, fabs(y) < 0.005 ? "<rect x=\"@\"" : "<rect x=\"@\" y=\"@\"", x, y);
    ECH_SVG(out, " width=\"@\" height=\"@\"", width, height);
    append_attributes(out, more);
    if (hint) {
        ech_text_append(out, "><title>");
        ech_svg_escape(out, hint);
    }
    ech_text_append(out, hint ? "</title></rect>\n" : "/>\n");
}

void ech_svg_line(ech_text *out, double x1, double y1, double x2, double y2, const char *more)
{
    ECH_SVG(out, "<line x1=\"@\" y1=\"@\" x2=\"@\" y2=\"@\"", x1, y1, x2, y2);
    append_attributes(out, more);
    ech_text_append(out, "/>\n");
}

void ech_svg_words(ech_text *out, double x, double y, const char *more, const char *words)
{
    ECH_SVG(out, "<text x=\"@\" y=\"@\"", x, y);
    append_attributes(out, more);
    ech_text_append(out, ">");
    ech_svg_escape(out, words);
    ech_text_append(out, "</text>\n");
}

void ech_svg_title(ech_text *out, double x, double y, double width, double font_size,
                   const char *words)
{
    ECH_FREED_TEXT cut = ech_svg_truncate(words, font_size, width), more = {0};
    ECH_SVG(&more, ECH_SVG_INK " font-size=\"@\" font-weight=\"bold\"", font_size);
    ech_svg_words(out, x, y, more.at, cut.at);
}

/* The next letter, which is *width pixels wide. Letters of DejaVu Sans, the widest of the usual
 * fonts, are 0.6 of its size on average; those past U+2E80 are as wide as the size. */
static const char *next_letter(const char *text, double font_size, double *width)
{
    uint32_t code = 0;
    size_t length = ech_utf8_first(text, &code);
    *width = (code >= 0x2e80 ? 1.0 : 0.6) * font_size;
    return text + (length > 0 ? length : 1);
}

double ech_svg_width(const char *text, double font_size)
{
    double width = 0, letter;
    for (; *text; width += letter) text = next_letter(text, font_size, &letter);
    return width;
}

ech_text ech_svg_truncate(const char *text, double font_size, double width)
{
    ech_text cut = {0};
    static const char ellipsis[] = "\xe2\x80\xa6";
    bool fits = ech_svg_width(text, font_size) <= width;
    double left = fits ? width : width - ech_svg_width(ellipsis, font_size), letter;
    const char *end = text;
    for (const char *next; *end; end = next) {
        next = next_letter(end, font_size, &letter);
        left -= letter;
        if (left < 0 && !fits) break;
    }
    ech_text_append_bytes(&cut, text, (size_t)(end - text));
    if (!fits) ech_text_append(&cut, "%s", ellipsis);
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

void ech_svg_legend_add(ech_svg_legend *legend, const char *const *fills, int n, const char *words,
                        ech_text *out)
{
    const double swatch = 14, indent = n > 0 ? n * swatch + 6 : 0;
    double width = indent + ech_svg_width(words, 12) * 0.9;
    if (legend->x > legend->left && legend->x + width > legend->right) {
        legend->x = legend->left;
        legend->y += ECH_SVG_LEGEND_LINE;
    }
    for (int i = 0; i < n; i++)
        ech_svg_rect(out, legend->x + i * swatch, legend->y, swatch, swatch, fills[i], NULL);
    ech_svg_words(out, legend->x + indent, legend->y + 11, n > 0 ? ECH_SVG_INK : ECH_SVG_FAINT,
                  words);
    legend->x += width + 18;
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
    double last = low + length / scale;
    ECH_FREED_TEXT labels = {0};
    ech_text_append(out, "<g " ECH_SVG_AXIS ">\n");
    ech_svg_line(out, left, y, left + length, y, "");
    for (int64_t k = (int64_t)ceil(low / step - 1e-9); (double)k * step <= last + 1e-9 * step;
         k++) {
        double x = left + ((double)k * step - low) * scale;
        ECH_FREED_TEXT label = {0};
        ech_svg_line(out, x, y, x, y + 5, "");
        ech_svg_tick_text(&label, k, step);
        ech_svg_words(&labels, x, y + 18, "", label.at);
    }
    ech_svg_words(&labels, left, y + 34, "text-anchor=\"start\"", unit);
    ech_text_append(out,
                    "</g>\n<g " ECH_SVG_FAINT " font-size=\"11\" text-anchor=\"middle\">\n%s</g>\n",
                    labels.at);
}
