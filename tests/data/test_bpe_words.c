/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes before merges: which bytes are UTF-8 (PCRE2 and utf8proc see nothing else), and which added
 * token is found where.
 */
#include "data/scratch.h"

#include "data/bpe_coder.h"

/* All code points as UTF-8 would have them, surrogates and what is beyond Unicode among them, and
 * spelt longer than need be. */
static void test_characters(void **state)
{
    (void)state;
    const unsigned least[] = {0, 0x80, 0x800, 0x10000};
    int wrong = 0;
    for (unsigned c = 0; c < 0x200000; c++)
        for (size_t length = 2; length <= 4; length++) {
            static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
            char text[5] = "";
            if (c >> (length == 2 ? 11 : length == 3 ? 16 : 21)) continue;
            text[0] = (char)(lead[length] | c >> 6 * (length - 1));
            for (size_t i = 1; i < length; i++)
                text[i] = (char)(0x80 | (c >> 6 * (length - 1 - i) & 0x3f));
            bool valid = c >= least[length - 1] && c < 0x110000 && !(c >= 0xd800 && c < 0xe000);
            wrong += ech_bpe_character(text, length, 0) != (valid ? length : 0);
            wrong += ech_bpe_character(text, length - 1, 0) != 0; /* cut off */
        }
    assert_int_equal(wrong, 0);
    assert_int_equal(ech_bpe_character("a\x80", 2, 0), 1);
    assert_int_equal(ech_bpe_character("\x80", 1, 0), 0);
    assert_int_equal(ech_bpe_character("\xf8\x88\x80\x80\x80", 5, 0), 0);
    assert_int_equal(ech_bpe_character("\xc3"
                                       "a",
                                       2, 0),
                     0);
}

static void assert_found(const ech_bpe_trie *trie, const char *text, size_t begin, size_t end,
                         int32_t id)
{
    size_t found_begin, found_end;
    int32_t found;
    assert_true(ech_bpe_trie_find(trie, text, strlen(text), 0, &found_begin, &found_end, &found));
    assert_int_equal(found_begin, begin);
    assert_int_equal(found_end, end);
    assert_int_equal(found, id);
}

static void test_trie(void **state)
{
    (void)state;
    ech_bpe_trie trie = {0};
    const char *const tokens[] = {"ab", "abcd", "b", "cde"};
    size_t begin, end;
    int32_t id;
    assert_false(ech_bpe_trie_find(&trie, "ab", 2, 0, &begin, &end, &id));
    for (int i = 0; i < 4; i++)
        assert_true(ech_bpe_trie_put(&trie, tokens[i], strlen(tokens[i]), i));
    assert_false(ech_bpe_trie_put(&trie, "ab", 2, 9));
    assert_found(&trie, "xabcdy", 1, 5, 1); /* the longest */
    assert_found(&trie, "xabcy", 1, 3, 0);  /* of those that are whole */
    assert_found(&trie, "aabcde", 1, 5, 1); /* the first place, not the longest of all */
    assert_found(&trie, "acbcde", 2, 3, 2);
    assert_false(ech_bpe_trie_find(&trie, "acd", 3, 0, &begin, &end, &id));
    /* A cut within what is, or may become, a token. */
    assert_true(ech_bpe_trie_reaches(&trie, "xabc", 4, 4));
    assert_true(ech_bpe_trie_reaches(&trie, "xa", 2, 4));
    assert_true(ech_bpe_trie_reaches(&trie, "xb", 2, 4));
    assert_false(ech_bpe_trie_reaches(&trie, "xbx", 3, 4));
    assert_false(ech_bpe_trie_reaches(&trie, "xbd", 3, 4));
    free(trie.node.at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_trie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
