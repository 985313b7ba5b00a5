/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders written by hand. Each word is checked against the rules as it is read, so that an error
 * names its line and column, and the result has at most the size of the orders.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "schedule/order/items.h"

enum { LARGEST_TEXT = 64 << 20, LONGEST_SHOWN = 24, LARGEST_NUMBER = 1000000000 };

typedef struct reader {
    const char *at, *end, *line_begin;
    const char *name;
    size_t line;
} reader;

typedef struct word {
    const char *at;
    size_t n;
    char shown[LONGEST_SHOWN + 4]; /* safe for a message */
} word;

/* An error at a place of the current line. */
__attribute__((format(printf, 3, 4))) static ech_status refuse(const reader *r, const char *place,
                                                               const char *format, ...)
{
    char message[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return ech_fail_at(__FILE__, __LINE__, ECH_EINPUT, "%s:%zu:%zu: %s", r->name, r->line,
                       (size_t)(place - r->line_begin) + 1, message);
}

/* ---- words ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

static void show(word *w)
{
    size_t n = w->n < LONGEST_SHOWN ? w->n : LONGEST_SHOWN;
    for (size_t i = 0; i < n; i++) w->shown[i] = w->at[i] > ' ' && w->at[i] < 127 ? w->at[i] : '?';
    memcpy(w->shown + n, n < w->n ? "..." : "", n < w->n ? 4 : 1);
}

/* Reads the line's next word; false at its end, with r->at on the line break or the end of the
 * text. */
static bool next_word(reader *r, word *out)
{
    while (r->at < r->end && is_blank(*r->at)) r->at++;
    if (r->at < r->end && *r->at == '#') {
        const char *line_end = memchr(r->at, '\n', (size_t)(r->end - r->at));
        r->at = line_end ? line_end : r->end;
    }
    if (r->at == r->end || *r->at == '\n') return false;
    out->at = r->at;
    while (r->at < r->end && !is_blank(*r->at) && *r->at != '\n' && *r->at != '#') r->at++;
    out->n = (size_t)(r->at - out->at);
    show(out);
    return true;
}

static void next_line(reader *r)
{
    r->at++;
    r->line++;
    r->line_begin = r->at;
}

/* Reads digits at *at, and moves past them. A number that is too large for any item saturates. */
static bool parse_number(const char **at, const char *end, int *out)
{
    const char *first = *at;
    int64_t value = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; (*at)++) {
        value = value * 10 + (**at - '0');
        if (value > LARGEST_NUMBER) value = LARGEST_NUMBER;
    }
    *out = (int)value;
    return *at > first;
}

static bool parse_item(const word *w, ech_order_item *out)
{
    const char *at = w->at, *end = w->at + w->n;
    const char *letter = memchr(ech_order_letters, *at++, ECH_ACTIONS);
    if (!letter) return false;
    out->action = (ech_action)(letter - ech_order_letters);
    if (!parse_number(&at, end, &out->chunk)) return false;
    if (at == end || *at++ != '.') return false;
    return parse_number(&at, end, &out->micro) && at == end;
}

/* ---- lines ---- */

static ech_status read_word(const reader *r, const word *w, ech_order_progress *progress,
                            ech_order *order)
{
    ech_order_item item = {0};
    if (!parse_item(w, &item))
        return refuse(r, w->at,
                      "%s: not an item; write F<chunk>.<micro-batch>, B... or W..., as F0.3",
                      w->shown);
    ECH_FREED_TEXT why = {0};
    if (!ech_order_progress_add(progress, item, &why))
        return refuse(r, w->at, "%s: %s", w->shown, why.at);
    ECH_PUSH(*order, item);
    return ECH_OK;
}

static void follow_each_backward(ech_order *order)
{
    ech_order whole = {0};
    for (size_t i = 0; i < order->n; i++) {
        const ech_order_item *item = &order->at[i];
        if (item->action == ECH_F) ech_order_add(&whole, ECH_F, item->chunk, item->micro);
        if (item->action == ECH_B) ech_order_add_backward(&whole, item->chunk, item->micro);
    }
    free(order->at);
    *order = whole;
}

static ech_status finish_line(const reader *r, int stage, const ech_order_progress *progress,
                              ech_order *order)
{
    bool split = false;
    for (size_t i = 0; i < order->n && !split; i++) split = order->at[i].action == ECH_W;
    ECH_FREED_TEXT why = {0};
    if (!ech_order_progress_done(progress, split, &why))
        return refuse(r, r->at, "stage %d: %s", stage, why.at);
    if (!split) follow_each_backward(order);
    return ECH_OK;
}

/* Reads the line that begins with the word `first`. */
static ech_status read_line(reader *r, const word *first, int stage, int chunks, int micro_batches,
                            ech_order *order)
{
    ECH_CLEANUP(ech_order_progress_end)
    ech_order_progress progress = ech_order_progress_begin(chunks, micro_batches);
    word w = *first;
    do ECH_TRY(read_word(r, &w, &progress, order));
    while (next_word(r, &w));
    return finish_line(r, stage, &progress, order);
}

/* ---- texts ---- */

static ech_status read_lines(reader *r, int stages, int chunks, int micro_batches,
                             ech_order *orders)
{
    int stage = 0;
    for (;; next_line(r)) {
        word w;
        if (next_word(r, &w)) {
            if (stage == stages)
                return refuse(r, w.at, "%s: a line too many; there %s %s, a line each", w.shown,
                              stages == 1 ? "is" : "are", ECH_COUNT(stages, "stage"));
            ECH_TRY(read_line(r, &w, stage, chunks, micro_batches, &orders[stage]));
            stage++;
        }
        if (r->at == r->end) break;
    }
    if (stage == stages) return ECH_OK;
    return refuse(r, r->at, "the end, after %s; there %s %s, a line each", ECH_COUNT(stage, "line"),
                  stages == 1 ? "is" : "are", ECH_COUNT(stages, "stage"));
}

/* Reading as text would stop at a NUL. */
static ech_status find_nul(const char *text, size_t n, const char *name)
{
    const char *nul = n > 0 ? memchr(text, '\0', n) : NULL;
    if (!nul) return ECH_OK;
    reader r = {.at = text, .end = nul, .line_begin = text, .name = name, .line = 1};
    for (; r.at < nul; r.at++) {
        if (*r.at != '\n') continue;
        r.line++;
        r.line_begin = r.at + 1;
    }
    return refuse(&r, nul, "a byte of value 0: not a text file");
}

ech_status ech_order_parse(const char *text, size_t n, const char *name, int stages, int chunks,
                           int micro_batches, ech_order *orders)
{
    if (n > LARGEST_TEXT)
        ECH_FAIL(ECH_EINPUT,
                 "%s: larger than the %d bytes that an order may have; name the right file", name,
                 LARGEST_TEXT);
    if (n == 0) text = "";
    ECH_TRY(find_nul(text, n, name));
    ECH_FREED ech_order *read = ech_calloc((size_t)stages, sizeof *read);
    reader r = {.at = text, .end = text + n, .line_begin = text, .name = name, .line = 1};
    ech_status st = read_lines(&r, stages, chunks, micro_batches, read);
    for (int stage = 0; stage < stages; stage++)
        if (st == ECH_OK)
            orders[stage] = read[stage];
        else
            free(read[stage].at);
    return st;
}

ech_status ech_order_read(const char *path, char **text, size_t *n)
{
    return ech_file_read(path, LARGEST_TEXT, text, n);
}

/* Counts the lines, and the forwards of the first. */
static void count_items(const char *text, size_t n, int *lines, int *forwards)
{
    reader r = {.at = text, .end = text + n, .line_begin = text};
    *lines = *forwards = 0;
    for (;; next_line(&r)) {
        word w;
        bool any = next_word(&r, &w);
        *lines += any;
        for (; any; any = next_word(&r, &w)) *forwards += *lines == 1 && *w.at == 'F';
        if (r.at == r.end) break;
    }
}

ech_status ech_order_measure(const char *text, size_t n, const char *name, int chunks, int *stages,
                             int *micro_batches)
{
    int forwards;
    count_items(text, n, stages, &forwards);
    *micro_batches = forwards / chunks;
    ECH_FREED ech_order *orders = ech_calloc((size_t)*stages + 1, sizeof *orders);
    ech_status st = ech_order_parse(text, n, name, *stages, chunks, *micro_batches, orders);
    for (int stage = 0; stage < *stages; stage++) free(orders[stage].at);
    return st;
}
