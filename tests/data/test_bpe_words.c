/* SPDX-License-Identifier: Apache-2.0
 *
 * What comes before merges: which added token is found where.
 */
#include "data/scratch.h"

#include "data/bpe/coder.h"

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

TEST(test_trie)
{
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
    free(trie.child.entry);
    free(trie.id.at);
}
