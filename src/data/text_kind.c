/* SPDX-License-Identifier: Apache-2.0
 *
 * Signatures of formats, endings of names, and what JSON begins with.
 */
#include "data/text_kind.h"

#include <string.h>
#include <strings.h>

#include "data/json_scan.h"
#include "data/packing.h"

/* ---- formats that are no text ---- */

#define PANDAS                                                                                     \
    "write it as lines of JSON: pandas' read_parquet and the like, then to_json(FILE, "            \
    "orient=\"records\", lines=True)"
#define UNPACK "unpack it, and name what it holds"

static const struct {
    const char *bytes;
    size_t n, at;
    ech_text_kind kind;
} signatures[] = {
#define X(bytes, at, use, is, hint)                                                                \
    {                                                                                              \
        bytes, sizeof bytes - 1, at,                                                               \
        {                                                                                          \
            ECH_TEXT_PLAIN, use, is, hint                                                          \
        }                                                                                          \
    }
    X("PAR1", 0, ECH_TEXT_DATA, "a Parquet file", PANDAS),
    X("ARROW1", 0, ECH_TEXT_DATA, "an Arrow file", PANDAS),
    X("\xff\xff\xff\xff\x10\0\0\0", 4, ECH_TEXT_DATA, "an Arrow stream", PANDAS),
    X("Obj\x01", 0, ECH_TEXT_DATA, "an Avro file", PANDAS),
    X("\xff\xfe", 0, ECH_TEXT_DATA, "text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
    X("\xfe\xff", 0, ECH_TEXT_DATA, "text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"),
    X("\x04\x22\x4d\x18", 0, ECH_TEXT_DATA, "packed by lz4", "unpack it with lz4 -d"),
    X("\xff\x06\0\0sNaPpY", 0, ECH_TEXT_DATA, "packed by snappy", "unpack it with snzip -d"),
    X("LZIP\x01", 0, ECH_TEXT_DATA, "packed by lzip", "unpack it with lzip -d"),
    X("\x5d\0\0\x80\0\xff\xff", 0, ECH_TEXT_DATA, "packed by lzma", "unpack it with xz -d"),
    X("\x1f\x9d", 0, ECH_TEXT_DATA, "packed by compress", "unpack it with gzip -d"),
    X("ustar", 257, ECH_TEXT_DATA, "a tar archive", "unpack it with tar -xf, and name the folder"),
    X("7z\xbc\xaf\x27\x1c", 0, ECH_TEXT_DATA, "a 7z archive", UNPACK),
    X("Rar!\x1a\x07", 0, ECH_TEXT_DATA, "a rar archive", UNPACK),
    X("PK\x03\x04", 0, ECH_TEXT_FOREIGN, "a zip archive, as .docx, .xlsx and .npz are",
      "unpack it, or save it as plain text"),
    X("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0, ECH_TEXT_FOREIGN, "a document of old Office",
      "save it as plain text"),
    X("%PDF-", 0, ECH_TEXT_FOREIGN, "a PDF", "convert it with pdftotext"),
    X("{\\rtf", 0, ECH_TEXT_FOREIGN, "an RTF document", "save it as plain text"),
    X("\x89HDF\r\n\x1a\n", 0, ECH_TEXT_FOREIGN, "an HDF5 file", PANDAS),
    X("SQLite format 3\0", 0, ECH_TEXT_FOREIGN, "a database of SQLite", "export its texts"),
    X("\x93NUMPY", 0, ECH_TEXT_FOREIGN, "an array of NumPy", "export it as text"),
    X("MMIDIDX\0", 0, ECH_TEXT_FOREIGN, "an index of tokens",
      "name its prefix in data.train: it need not be imported"),
    X("\x89PNG\r\n", 0, ECH_TEXT_FOREIGN, "an image", "take it away"),
    X("\xff\xd8\xff", 0, ECH_TEXT_FOREIGN, "an image", "take it away"),
    X("GIF89a", 0, ECH_TEXT_FOREIGN, "an image", "take it away"),
    X("GIF87a", 0, ECH_TEXT_FOREIGN, "an image", "take it away"),
    X("\x7f"
      "ELF",
      0, ECH_TEXT_FOREIGN, "a program", "take it away"),
#undef X
};

/* ---- names ---- */

/* The last part of a path, without the ending of its packing. */
static const char *name_of(const char *path, size_t *n)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const ech_packing *packing = ech_packing_named(name);
    *n = strlen(name) - (packing ? strlen(packing->ending) : 0);
    return name;
}

static bool ends_in(const char *path, const char *const *endings, size_t count)
{
    size_t n;
    const char *name = name_of(path, &n);
    for (size_t i = 0; i < count; i++) {
        size_t m = strlen(endings[i]);
        if (n > m && strncasecmp(name + n - m, endings[i], m) == 0) return true;
    }
    return false;
}
#define ENDS_IN(path, ...)                                                                         \
    ends_in(path, (const char *const[]){__VA_ARGS__},                                              \
            sizeof(const char *const[]){__VA_ARGS__} / sizeof(char *))

/* README, README.md, LICENSE-MIT, ...: what comes with texts and is about them. */
static bool is_about(const char *path)
{
    static const char *const names[] = {"README", "LICENSE",  "LICENCE",  "COPYING",
                                        "NOTICE", "CITATION", "CHANGELOG"};
    size_t n;
    const char *name = name_of(path, &n);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t m = strlen(names[i]);
        bool begins = n >= m && strncasecmp(name, names[i], m) == 0;
        if (begins && (n == m || strchr(".-_", name[m]))) return true;
    }
    return false;
}

/* ---- JSON ---- */

/* Whether an object with a key begins at `at`, or one without any. */
static bool begins_object(const char *text, size_t n, size_t at)
{
    if (at == n || text[at] != '{') return false;
    at = ech_json_skip_blanks(text, n, at + 1);
    if (at < n && text[at] == '}') return true;
    if (at == n || text[at] != '"') return false;
    if (ech_json_skip_value(text, n, at, &at) != ECH_JSON_WHOLE) return false;
    at = ech_json_skip_blanks(text, n, at);
    return at < n && text[at] == ':';
}

/* Whether the first line is an object; where the line is longer than n bytes, whether it begins as
 * one. */
static bool has_line(const char *text, size_t n, size_t at)
{
    size_t end;
    const char *newline = memchr(text + at, '\n', n - at);
    size_t line = newline ? (size_t)(newline - text) : n;
    ech_json_found found = ech_json_skip_value(text, line, at, &end);
    if (found == ECH_JSON_CUT) return !newline && n >= ECH_TEXT_KIND_FIRST;
    return found == ECH_JSON_WHOLE && ech_json_skip_blanks(text, line, end) == line;
}

static ech_text_kind kind_of_json(const char *path, const char *text, size_t n)
{
    static const ech_text_kind lines = {.form = ECH_TEXT_LINES}, array = {.form = ECH_TEXT_ARRAY},
                               object = {.use = ECH_TEXT_ASIDE,
                                         .is = "JSON, but neither lines of objects nor an array "
                                               "of objects",
                                         .hint = "convert it to lines with jq -c, or give "
                                                 "--as-text to learn it as it is"};
    size_t at = ech_json_skip_mark(text, n), end;
    if (begins_object(text, n, at)) {
        if (has_line(text, n, at)) return lines;
        ech_json_found found = ech_json_skip_value(text, n, at, &end);
        size_t next = ech_json_skip_blanks(text, n, end);
        bool whole = found == ECH_JSON_WHOLE && (next == n || begins_object(text, n, next));
        if (whole || (found == ECH_JSON_CUT && n >= ECH_TEXT_KIND_FIRST)) return object;
    }
    if (at < n && text[at] == '[' && begins_object(text, n, ech_json_skip_blanks(text, n, at + 1)))
        return array;
    if (at < n && (text[at] == '[' || text[at] == '{') && ENDS_IN(path, ".json")) return object;
    return (ech_text_kind){.form = ECH_TEXT_PLAIN};
}

static bool begins_markup(const char *text, size_t n)
{
    static const char *const marks[] = {"<!doctype html", "<html", "<?xml"};
    size_t at = ech_json_skip_mark(text, n);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (n - at >= strlen(marks[i]) && strncasecmp(text + at, marks[i], strlen(marks[i])) == 0)
            return true;
    return false;
}

ech_text_kind ech_text_kind_of(const char *path, const char *first, size_t n)
{
    for (size_t i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        size_t at = signatures[i].at, m = signatures[i].n;
        if (n >= at + m && memcmp(first + at, signatures[i].bytes, m) == 0)
            return signatures[i].kind;
    }
    ech_text_kind kind = kind_of_json(path, first, n);
    if (kind.form != ECH_TEXT_PLAIN) return kind;
    if (ENDS_IN(path, ".jsonl", ".ndjson", ".jsonlines"))
        return (ech_text_kind){.form = ECH_TEXT_LINES};
    if (kind.is) return kind;
    if (memchr(first, '\0', n))
        return (ech_text_kind){.use = ECH_TEXT_FOREIGN,
                               .is = "binary, with NUL bytes",
                               .hint = "name a text; `echelon data --binary` takes bytes as they "
                                       "are"};
    if (is_about(path)) return (ech_text_kind){.use = ECH_TEXT_ASIDE, .is = "about the texts"};
    if (ENDS_IN(path, ".csv", ".tsv"))
        return (ech_text_kind){.use = ECH_TEXT_ASIDE, .is = "a table"};
    if (begins_markup(first, n) || ENDS_IN(path, ".html", ".htm", ".xhtml", ".xml"))
        return (ech_text_kind){.use = ECH_TEXT_ASIDE, .is = "HTML or XML"};
    return kind;
}
