/* SPDX-License-Identifier: Apache-2.0
 *
 * What a terminal gets of the texts of strangers.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/visible.h"
#include "unit.h"

static void expect(const char *text, size_t n, bool lines, const char *wanted)
{
    ech_text out = {0};
    char line[256];
    assert_int_equal(ech_visible_append(&out, text, n, lines, true), n);
    assert_int_equal(out.n, strlen(wanted));
    assert_memory_equal(out.at ? out.at : "", wanted, out.n);
    assert_int_equal(ech_visible_is(text, n, lines),
                     strlen(wanted) == n && !memcmp(wanted, text, n));
    if (!lines) {
        assert_int_equal(ech_visible_print(text, n, line, sizeof line), out.n);
        assert_memory_equal(line, wanted, out.n);
    }
    ech_text_free(&out);
}

#define SHOWS(text, wanted) expect(text, sizeof(text) - 1, false, wanted)

TEST(leaves_text_alone)
{
    SHOWS("", "");
    SHOWS("a plain line: 100%", "a plain line: 100%");
    SHOWS("gr\xc3\xbc\xc3\x9f dich, \xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d, \xe4\xbd\xa0\xe5\xa5\xbd",
          "gr\xc3\xbc\xc3\x9f dich, \xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d, \xe4\xbd\xa0\xe5\xa5\xbd");
    SHOWS("\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac", /* joined by U+200D */
          "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x94\xac");
    SHOWS("a back\\slash", "a back\\slash");
}

TEST(shows_what_would_be_obeyed)
{
    SHOWS("\x1b[2Jclear", "\\x1b[2Jclear");
    SHOWS("a\r\n\tb\x07\x7f", "a\\x0d\\x0a\\x09b\\x07\\x7f");
    SHOWS("\0end", "\\x00end");
    SHOWS("\xc2\x9b"
          "2J",
          "\\x9b2J"); /* C1: the same as ESC [ */
    static const struct {
        const char *bytes, *shown;
    } marks[] = {
        {"\xd8\x9c", "\\u061c"},     {"\xe2\x80\x8e", "\\u200e"},
        {"\xe2\x80\x8f", "\\u200f"}, {"\xe2\x80\xaa", "\\u202a"},
        {"\xe2\x80\xab", "\\u202b"}, {"\xe2\x80\xac", "\\u202c"},
        {"\xe2\x80\xad", "\\u202d"}, {"\xe2\x80\xae", "\\u202e"},
        {"\xe2\x81\xa6", "\\u2066"}, {"\xe2\x81\xa7", "\\u2067"},
        {"\xe2\x81\xa8", "\\u2068"}, {"\xe2\x81\xa9", "\\u2069"},
        {"\xe2\x80\xa8", "\\u2028"}, {"\xf3\xa0\x81\x81", "\\U000e0041"},
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        expect(marks[i].bytes, strlen(marks[i].bytes), true, marks[i].shown);
    expect("two\n\tlines\r", 11, true, "two\n\tlines\\x0d");
}

TEST(shows_bytes_that_are_no_text)
{
    SHOWS("\xff\xfe", "\\xff\\xfe");
    SHOWS("\xed\xa0\x80", "\\xed\\xa0\\x80"); /* a surrogate */
    SHOWS("cut \xe2\x80", "cut \\xe2\\x80");
    SHOWS("\xc0\x8a", "\\xc0\\x8a"); /* an overlong newline */
}

/* Pieces of a text may end within a character, not so its end. */
TEST(waits_for_the_rest_of_a_character)
{
    static const char text[] = "\xd7\xa9\xe2\x80\xae\xf0\x9f\x94\xac\xf4\x8f\xbf\xbf\xe0\xa0\x80.";
    static const char wanted[] = "\xd7\xa9\\u202e\xf0\x9f\x94\xac\xf4\x8f\xbf\xbf\xe0\xa0\x80.";
    ech_text out = {0};
    size_t from = 0;
    for (size_t to = 1; to < sizeof text; to++) /* a byte more each time */
        from += ech_visible_append(&out, text + from, to - from, true, false);
    assert_int_equal(from, sizeof text - 1);
    assert_string_equal(out.at, wanted);
    out.n = 0;
    assert_int_equal(ech_visible_append(&out, "\xe2\x80", 2, true, false), 0);
    assert_int_equal(ech_visible_append(&out, "\xe2\x41", 2, true, false), 2);
    assert_int_equal(ech_visible_append(&out, "\xff", 1, true, false), 1);
    assert_string_equal(out.at, "\\xe2"
                                "A\\xff");
    ech_text_free(&out);
}

/* As a stranger's file name reaches an error. */
TEST(guards_what_is_logged)
{
    char got[12000] = "", large[6000];
    int ends[2], before = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    ech_log_set_quiet(false);
    close(ends[1]);
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    ech_log_warn("%s: no such file", "\x1b]0;owned\x07\xe2\x80\xaegnp.exe");
    ech_log_info("%s\xe2\x80\xae.", large);
    dup2(before, STDERR_FILENO);
    ech_log_set_quiet(true);
    close(before);
    size_t n = 0;
    for (ssize_t more; (more = read(ends[0], got + n, sizeof got - 1 - n)) > 0;) n += (size_t)more;
    close(ends[0]);
    static const char wanted[] =
        "echelon: warning: \\x1b]0;owned\\x07\\u202egnp.exe: no such file\n";
    assert_int_equal(strncmp(got, wanted, strlen(wanted)), 0);
    assert_string_equal(got + n - 10, "xx\\u202e.\n");
}
