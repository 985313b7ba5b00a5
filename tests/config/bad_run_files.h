/* SPDX-License-Identifier: Apache-2.0
 *
 * Run files with faults that are drawn from the table of keys. After cmocka.h.
 */
#ifndef ECH_TESTS_CONFIG_BAD_RUN_FILES_H
#define ECH_TESTS_CONFIG_BAD_RUN_FILES_H

#include <string.h>

#include "base/random.h"
#include "base/text.h"
#include "config/sample_run.h"

enum { BAD_MOST_FAULTS = 4 };

typedef struct key_row {
    const char *section, *name, *type;
    double low, high;
} key_row;

static const key_row keys[] = {
#define SECTION(...)
#define END(...)
#define KEY(section, key, type, initial, low, high, choices, resume, alone, ...)                   \
    {#section, #key, #type, low, high},
#include "config/keys.def"
};

/* A number below n, the next of a fixed series. */
static int below(int n)
{
    static uint64_t at;
    return (int)(ech_random_word((ech_random_key){.seed = 11}, at++) % (uint32_t)n);
}

#define DRAW(list) (list)[below((int)(sizeof(list) / sizeof *(list)))]

/* ---- lines of a section ---- */

static bool is_type(const key_row *key, const char *type)
{
    return strcmp(key->type, type) == 0;
}

/* A number beyond what the key allows, or beyond all numbers. */
static void add_number(const key_row *key, ech_text *out)
{
    static const char *const never[] = {
        "1e999", "nan", "-inf", "99999999999999999999999999", "0x10",
        "1_000", "--1", "1e",   "-9223372036854775809",       "4x"};
    switch (below(3)) {
    case 0:
        ech_text_append(out, "%.0f", key->high * 2 + 1);
        break;
    case 1:
        ech_text_append(out, "%.0f", key->low - 1 - below(100));
        break;
    default:
        ech_text_append(out, "%s", DRAW(never));
    }
}

/* What no key takes. */
static const char *const no_value[] = {
    "{a: 1}",   "[[1], [2]]", "[{a: b}]",  "&anchor 3",     "*alias",
    "!!int 3",  "!tag x",     "\"a\\0b\"", "[1, [2, [3]]]", "~x: 3",
    "{}",       "\"",         "'",         "[1, 2",         "%x",
    "@x",       "`x`",        "a: b",      "\x01",          "\xff\xfe",
    "\xc3\x28", "\"\\q\"",    "- 1",       "? x",           "{[[[[",
    "\x7f\x80"};

static void add_value(const key_row *key, ech_text *out)
{
    bool number = is_type(key, "INT") || is_type(key, "REAL");
    if (number && below(2))
        add_number(key, out);
    else if (is_type(key, "TEXT") || is_type(key, "PATH") || is_type(key, "PATHS") || below(2))
        ech_text_append(out, "%s", DRAW(no_value));
    else
        ech_text_append(out, "%s", below(2) ? "no such word" : "[x, y]");
}

/* A name that no key has. */
static void add_name(ech_text *out)
{
    ech_text_append(out, "q");
    for (int i = below(60); i >= 0; i--) ech_text_append(out, "%c", 'a' + below(26));
}

/* A line that is wrong in the section of the key. */
static void add_line(const key_row *key, ech_text *out)
{
    switch (below(4)) {
    case 0:
        ech_text_append(out, "  ");
        add_name(out);
        ech_text_append(out, ": 1\n");
        break;
    case 1:
        ech_text_append(out, "  ? [%s, b]\n  : 1\n", key->name);
        break;
    default:
        ech_text_append(out, "  %s: ", key->name);
        add_value(key, out);
        ech_text_append(out, "\n");
    }
}

/* ---- lines after all sections ---- */

static void add_deep(ech_text *out)
{
    static const char *const opens[] = {"[", "{", "{a: ", "- ", "? ", "[{a: "};
    const char *open = DRAW(opens);
    ech_text_append(out, "parallel: ");
    for (int i = 2 + below(2000); i >= 0; i--) ech_text_append(out, "%s", open);
    ech_text_append(out, "\n");
}

static void add_bytes(ech_text *out)
{
    ech_text_append(out, "\x01");
    for (int i = below(200); i >= 0; i--) {
        unsigned char byte = (unsigned char)below(256);
        ech_text_append_bytes(out, &byte, 1);
    }
}

static void add_tail(ech_text *out)
{
    static const char *const tails[] = {"---\nmodel: {}\n", "log: {every: 3}\nlog: {every: 4}\n",
                                        "\ttabs: 1\n",      "parallel: 3\n",
                                        "memory: [1, 2]\n", "just a line\n",
                                        "- a list\n",       "...\nmore: 1\n",
                                        "parallel: {",      "memory:\n device_limit: 1\n  x: 2\n",
                                        "\xef\xbf",         "<<: *base\n"};
    switch (below(5)) {
    case 0:
        add_name(out);
        ech_text_append(out, ": {a: 1}\n");
        break;
    case 1:
        add_deep(out);
        break;
    case 2:
        add_bytes(out);
        break;
    default:
        ech_text_append(out, "%s", DRAW(tails));
    }
}

/* ---- whole files ---- */

/* The sample, with the faulty lines of each key in its section; sections that it lacks follow. */
static void add_sections(const key_row *const *faulty, int n, ech_text *out)
{
    bool done[BAD_MOST_FAULTS] = {0};
    const char *at = sample_run;
    while (*at) {
        const char *end = strchr(at, '\n') + 1;
        ech_text_append_bytes(out, at, (size_t)(end - at));
        for (int i = 0; i < n; i++) {
            size_t length = strlen(faulty[i]->section);
            if (strncmp(at, faulty[i]->section, length) != 0 || at[length] != ':') continue;
            add_line(faulty[i], out);
            done[i] = true;
        }
        at = end;
    }
    for (int i = 0; i < n; i++) {
        if (done[i]) continue;
        ech_text_append(out, "%s:\n", faulty[i]->section);
        add_line(faulty[i], out);
    }
}

/* Never the whole of it, and never without what it needs. */
static void add_cut(ech_text *out)
{
    size_t n = (size_t)below((int)(strstr(sample_run, "directory") - sample_run));
    ech_text_append_bytes(out, sample_run, n);
}

/* Appends a run file that is refused. */
static inline void draw_bad_run_file(ech_text *out)
{
    const key_row *faulty[BAD_MOST_FAULTS];
    int kind = below(10), n = 1 + below(BAD_MOST_FAULTS);
    for (int i = 0; i < n; i++) faulty[i] = &DRAW(keys);
    if (kind == 0) {
        add_cut(out);
        return;
    }
    add_sections(faulty, kind < 7 ? n : 0, out);
    if (kind >= 6) add_tail(out);
}

/* How many to try: ECHELON_RUN_FILES, else 300. */
static inline int count_bad_run_files(void)
{
    const char *wanted = getenv("ECHELON_RUN_FILES");
    return wanted ? atoi(wanted) : 300;
}

#endif
