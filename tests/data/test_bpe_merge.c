/* SPDX-License-Identifier: Apache-2.0
 *
 * Merges against the naive coder, with vocabularies of any merges in any order, and words on both
 * sides of what is long; and that long words take no quadratic time.
 */
#include "data/scratch.h"

#include "data/bpe/coder.h"
#include "data/bpe_naive.h"

static uint64_t seed = 1;

static uint32_t draw(uint32_t below)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33) % below;
}

/* Letters: few, so that merges meet. */
static ech_bpe *any_vocabulary(uint32_t merges, uint32_t letters)
{
    ech_bpe *bpe = naive_bytes(ECH_BPE_whole);
    for (uint32_t i = 0; i < merges; i++) {
        uint32_t parts[2];
        for (int p = 0; p < 2; p++) {
            uint32_t pick = draw(letters + (uint32_t)bpe->token.n - 257);
            parts[p] = pick < letters ? 'a' + pick : 257 + pick - letters;
        }
        naive_add(bpe, parts[0], parts[1]);
    }
    assert_int_equal(ech_bpe_finish(bpe), ECH_OK);
    return bpe;
}

TEST(test_against_naive)
{
    for (int round = 0; round < 300; round++) {
        uint32_t letters = 1 + draw(5);
        ech_bpe *bpe = any_vocabulary(draw(60), letters);
        ech_bpe_merger *merger = ech_bpe_merger_create(bpe);
        for (int word = 0; word < 20; word++) {
            unsigned char bytes[160];
            int32_t expected[160];
            const int32_t *ids;
            size_t n = 1 + draw(160), count, naive;
            for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)('a' + draw(letters));
            naive = naive_merge(bpe, bytes, n, expected);
            assert_int_equal(ech_bpe_merger_run(merger, bytes, n, &ids, &count), ECH_OK);
            assert_int_equal(count, naive);
            assert_memory_equal(ids, expected, count * sizeof *ids);
        }
        ech_bpe_merger_destroy(merger);
        ech_bpe_destroy(bpe);
    }
}

/* a a -> 257, 257 257 -> 258, ...: a word of 2^22 letters becomes ids of 2^16 letters. Quadratic
 * time would be hours. */
TEST(test_long_word)
{
    enum { LETTERS = 1 << 22, LEVELS = 16 };
    ech_bpe *bpe = naive_bytes(ECH_BPE_whole);
    for (uint32_t i = 0; i < LEVELS; i++) naive_add(bpe, i ? 256 + i : 'a', i ? 256 + i : 'a');
    assert_int_equal(ech_bpe_finish(bpe), ECH_OK);
    ech_bpe_merger *merger = ech_bpe_merger_create(bpe);
    unsigned char *word = ech_calloc(LETTERS + 3, 1);
    const int32_t *ids;
    size_t count;
    memset(word, 'a', LETTERS + 3);
    assert_int_equal(ech_bpe_merger_run(merger, word, LETTERS + 3, &ids, &count), ECH_OK);
    assert_int_equal(count, LETTERS >> LEVELS | 2);
    for (size_t i = 0; i < LETTERS >> LEVELS; i++) assert_int_equal(ids[i], 256 + LEVELS);
    assert_int_equal(ids[count - 2], 257);
    assert_int_equal(ids[count - 1], 'a');
    free(word);
    ech_bpe_merger_destroy(merger);
    ech_bpe_destroy(bpe);
}

/* A text of letters, some of them no tokens; a merge may take a blank into the midst of a token. */
static size_t any_text(char *text, size_t most)
{
    static const char *const letters[] = {"a", "b",      "c",      " ", " ",
                                          "<", "\u00e9", "\u6771", "z", "\n"};
    size_t n = 0;
    while (n + 4 < most) {
        const char *letter = letters[draw(10)];
        memcpy(text + n, letter, strlen(letter));
        n += strlen(letter);
    }
    return n;
}

static void check_characters(const ech_bpe *bpe, ech_coder *coder, const char *text, size_t n,
                             size_t most, size_t *cuts)
{
    ech_text marked = {0}, back = {0};
    ech_ids ids = {0};
    int32_t expected[600];
    ech_bpe_mark_blanks(text, n, &marked);
    size_t count = naive_merge(bpe, (const unsigned char *)marked.at, marked.n, expected);
    for (size_t at = 0, piece; at < n; at += piece) {
        piece = n - at > most ? ech_bpe_split(bpe, text + at, most) : n - at;
        *cuts += piece > 0 && at > 0;
        if (piece == 0) piece = n - at;
        assert_int_equal(ech_coder_encode(coder, text + at, piece, at == 0, &ids), ECH_OK);
    }
    assert_int_equal(ids.n, count);
    assert_memory_equal(ids.at, expected, count * sizeof *expected);
    for (size_t i = 0; i < ids.n; i++) ech_bpe_decode(bpe, ids.at[i], i == 0, &back);
    assert_int_equal(back.n, n);
    assert_memory_equal(back.at, text, n);
    free(ids.at);
    ech_text_free(&marked);
    ech_text_free(&back);
}

/* Over characters, without a pattern: the text is merged as one, though it is cut where no token
 * reaches across. */
TEST(test_characters)
{
    size_t cuts = 0;
    for (int round = 0; round < 300; round++) {
        char text[200];
        ech_bpe *bpe = naive_characters();
        for (uint32_t merges = draw(40); merges > 0; merges--)
            naive_add(bpe, draw(3) ? draw(4) : draw(1000), draw(3) ? draw(4) : draw(1000));
        assert_int_equal(ech_bpe_finish(bpe), ECH_OK);
        ech_coder *coder = ech_coder_create(&(ech_tokenizer){.bpe = bpe});
        for (int i = 0; i < 10; i++)
            check_characters(bpe, coder, text, any_text(text, sizeof text), i % 2 ? 30 : SIZE_MAX,
                             &cuts);
        ech_coder_destroy(coder);
        ech_bpe_destroy(bpe);
    }
    assert_true(cuts > 1000);
}

TEST(test_bytes_names)
{
    ech_bpe *bpe = naive_characters();
    int32_t made = (int32_t)bpe->token.n;
    ech_bpe_put(bpe, made, "<0x41>a", 7, true);
    assert_true(ech_bpe_put_merge(bpe, 0x41, 257, false));
    assert_int_equal(ech_bpe_finish(bpe), ECH_EUNSUPPORTED);
    assert_error_has("merge 0 joins the token of a byte");
    ech_bpe_destroy(bpe);
}

TEST(test_ignored_merges)
{
    ech_bpe *bpe = naive_bytes(ECH_BPE_whole);
    naive_add(bpe, 'a', 'b');              /* 257: ab */
    ech_bpe_put(bpe, 258, "abc", 3, true); /* no merge makes it */
    assert_int_equal(ech_bpe_finish(bpe), ECH_OK);
    ech_bpe_merger *merger = ech_bpe_merger_create(bpe);
    const int32_t *ids;
    size_t count;
    for (int ignore = 0; ignore < 2; ignore++) {
        bpe->ignore_merges = ignore == 1;
        assert_int_equal(ech_bpe_merger_run(merger, (const unsigned char *)"abc", 3, &ids, &count),
                         ECH_OK);
        assert_int_equal(count, ignore ? 1 : 2);
        assert_int_equal(ids[0], ignore ? 258 : 257);
    }
    ech_bpe_merger_destroy(merger);
    ech_bpe_destroy(bpe);
}

TEST(test_visible_characters)
{
    unsigned char all[256];
    ech_text shown = {0}, back = {0};
    for (int i = 0; i < 256; i++) all[i] = (unsigned char)i;
    ech_bpe_show(all, 256, &shown);
    /* 0 is U+0100, blank U+0120, 0x7f U+0121, 0xa0 U+0142, 0xad U+0143. */
    assert_memory_equal(shown.at, "\xc4\x80", 2);
    assert_non_null(strstr(shown.at, "\xc4\xa0!\"#"));
    assert_non_null(strstr(shown.at, "}~\xc4\xa1"));
    assert_non_null(strstr(shown.at, "\xc5\x82\xc2\xa1"));
    assert_non_null(strstr(shown.at, "\xc2\xac\xc5\x83\xc2\xae"));
    assert_true(ech_bpe_unshow(shown.at, shown.n, &back));
    assert_int_equal(back.n, 256);
    assert_memory_equal(back.at, all, 256);
    const char *const wrong[] = {" ",        "\n",   "\xc5\x84",     "\xc2\xa0",
                                 "\xc2\xad", "\xc2", "\xe2\x96\x81", "\x7f"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_false(ech_bpe_unshow(wrong[i], strlen(wrong[i]), &back));
    ech_text_free(&shown);
    ech_text_free(&back);
}
