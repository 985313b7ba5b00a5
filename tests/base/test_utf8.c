/* SPDX-License-Identifier: Apache-2.0
 *
 * Which bytes are UTF-8, and for which character.
 */
#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"
#include "unit.h"

static size_t length_of(const char *text, size_t n)
{
    uint32_t code;
    return ech_utf8_next(text, n, &code);
}

/* All code points as UTF-8 would have them, surrogates and what is beyond Unicode among them, and
 * spelt longer than need be. */
TEST(test_characters)
{
    const unsigned least[] = {0, 0x80, 0x800, 0x10000};
    int wrong = 0;
    for (unsigned c = 0; c < 0x200000; c++)
        for (size_t length = 2; length <= 4; length++) {
            static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
            char text[5] = "";
            uint32_t code = c;
            if (c >> (length == 2 ? 11 : length == 3 ? 16 : 21)) continue;
            text[0] = (char)(lead[length] | c >> 6 * (length - 1));
            for (size_t i = 1; i < length; i++)
                text[i] = (char)(0x80 | (c >> 6 * (length - 1 - i) & 0x3f));
            bool valid = c >= least[length - 1] && c < 0x110000 && !(c >= 0xd800 && c < 0xe000);
            wrong += ech_utf8_next(text, length, &code) != (valid ? length : 0) || code != c;
            wrong += length_of(text, length - 1) != 0; /* cut off */
        }
    assert_int_equal(wrong, 0);
}

TEST(test_one_byte)
{
    uint32_t code = 1;
    assert_int_equal(length_of("a\x80", 2), 1);
    assert_int_equal(length_of("\x80", 1), 0);
    assert_int_equal(length_of("\xf8\x88\x80\x80\x80", 5), 0);
    assert_int_equal(length_of("\xc3"
                               "a",
                               2),
                     0);
    assert_int_equal(length_of("a", 0), 0);
    assert_int_equal(ech_utf8_next("", 1, &code), 1);
    assert_int_equal(code, 0);
}

/* Eight bytes at once, where they are ASCII, and what no UTF-8 is at every place. */
TEST(test_whole_texts)
{
    enum { LENGTH = 40 };
    char text[LENGTH];
    assert_int_equal(ech_utf8_valid("", 0), 0);
    for (size_t bad = 0; bad < LENGTH; bad++) {
        memset(text, 'x', sizeof text);
        text[bad] = (char)0xc3;
        assert_int_equal(ech_utf8_valid(text, LENGTH), bad);
        assert_int_equal(ech_utf8_valid(text, bad), bad);
        if (bad + 1 == LENGTH) continue;
        text[bad + 1] = (char)0xa4;
        assert_int_equal(ech_utf8_valid(text, LENGTH), LENGTH);
        assert_int_equal(ech_utf8_valid(text, bad + 1), bad);
    }
}
