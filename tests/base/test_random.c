/* SPDX-License-Identifier: Apache-2.0
 *
 * Random numbers are fixed for ever: the generator gives the published vectors of Philox, and our
 * own conventions give values that were computed independently, in Python.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "unit.h"

static void assert_words(ech_random_key key, uint64_t quad, const uint32_t expected[4])
{
    uint32_t words[4];
    ech_random_words(key, quad, words);
    for (int w = 0; w < 4; w++) {
        assert_int_equal(words[w], expected[w]);
        assert_int_equal(ech_random_word(key, 4 * quad + (uint64_t)w), expected[w]);
    }
}

/* Random123's kat_vectors for philox4x32-10; an index has 62 bits of quads at most, so the vector
 * of all ones goes through ech_random_words alone. */
TEST(test_published_vectors)
{
    const uint32_t zero[4] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
    assert_words((ech_random_key){0, 0, 0}, 0, zero);

    ech_random_key ones = {UINT64_MAX, UINT32_MAX, UINT32_MAX};
    const uint32_t of_ones[4] = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
    uint32_t words[4];
    ech_random_words(ones, UINT64_MAX, words);
    assert_memory_equal(words, of_ones, sizeof words);

    ech_random_key pi = {UINT64_C(0x299f31d0a4093822), 0x13198a2e, 0x03707344};
    const uint32_t of_pi[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    ech_random_words(pi, UINT64_C(0x85a308d3243f6a88), words);
    assert_memory_equal(words, of_pi, sizeof words);
}

TEST(test_words_of_a_site)
{
    assert_int_equal(ech_random_stream(3, ECH_SITE_ATTENTION), 3 << 8 | 64);
    ech_random_key key = {UINT64_C(0x123456789abcdef0), 7,
                          ech_random_stream(3, ECH_SITE_ATTENTION)};
    const uint32_t expected[4] = {0xab56afd6, 0x26d0ce69, 0xfd2c38e0, 0xb4e6be0e};
    assert_words(key, 5, expected);
}

TEST(test_unit_is_open)
{
    assert_true(ech_random_unit(0) == 0x1p-33);
    assert_true(ech_random_unit(UINT32_MAX) < 1);
    assert_true(ech_random_unit(1u << 31) == 0.5 + 0x1p-33);
}

TEST(test_normals_follow_box_muller)
{
    ech_random_key key = {42, 0, ech_random_stream(5, ECH_SITE_PARAMETER)};
    const double expected[4] = {-1.0095384850730322, -0.71802494045601084, -1.3180636732040336,
                                -0.17377352984427072};
    double normals[4];
    ech_random_normals(key, 9, normals);
    for (int i = 0; i < 4; i++) assert_true(fabs(normals[i] - expected[i]) < 1e-14);
}

TEST(test_normals_have_their_moments)
{
    enum { QUADS = 25000 };
    double sum = 0, squares = 0, fourths = 0;
    for (uint64_t q = 0; q < QUADS; q++) {
        double normals[4];
        ech_random_normals((ech_random_key){7, 1, 2}, q, normals);
        for (int i = 0; i < 4; i++) {
            double square = normals[i] * normals[i];
            sum += normals[i];
            squares += square;
            fourths += square * square;
        }
    }
    double n = 4.0 * QUADS;
    /* Five standard errors of each mean: 1, 2 and 96 over n are the variances. */
    assert_true(fabs(sum / n) < 5 * sqrt(1 / n));
    assert_true(fabs(squares / n - 1) < 5 * sqrt(2 / n));
    assert_true(fabs(fourths / n - 3) < 5 * sqrt(96 / n));
}

static void assert_bijection(uint64_t seed, uint64_t epoch, uint64_t n)
{
    unsigned char *taken = calloc(n, 1);
    assert_non_null(taken);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t to = ech_random_permute(seed, epoch, n, i);
        assert_true(to < n);
        assert_false(taken[to]);
        taken[to] = 1;
    }
    free(taken);
}

TEST(test_permutation_is_a_bijection)
{
    for (uint64_t n = 1; n <= 300; n++) assert_bijection(n, n % 3, n);
    const uint64_t large[] = {4095, 4096, 4097, 65536, 65537, 100003};
    for (size_t c = 0; c < sizeof large / sizeof large[0]; c++) assert_bijection(1, 0, large[c]);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

TEST(test_large_permutations_do_not_collide)
{
    enum { SAMPLES = 5000 };
    const uint64_t sizes[] = {UINT64_C(1000000000000), (UINT64_C(1) << 32) + 1, UINT64_C(1) << 62};
    for (size_t c = 0; c < sizeof sizes / sizeof sizes[0]; c++) {
        uint64_t to[SAMPLES];
        for (uint64_t s = 0; s < SAMPLES; s++) {
            to[s] = ech_random_permute(9, 4, sizes[c], sizes[c] / SAMPLES * s);
            assert_true(to[s] < sizes[c]);
        }
        qsort(to, SAMPLES, sizeof to[0], compare);
        for (int s = 1; s < SAMPLES; s++) assert_true(to[s - 1] != to[s]);
    }
}

/* The order in which a run sees its samples must be the same in ten years. */
TEST(test_permutation_is_fixed)
{
    const uint64_t first[10] = {0, 3, 9, 6, 7, 2, 4, 5, 8, 1};
    const uint64_t second[10] = {1, 3, 8, 4, 6, 9, 5, 7, 2, 0};
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(ech_random_permute(1, 0, 10, i), first[i]);
        assert_int_equal(ech_random_permute(1, 1, 10, i), second[i]);
    }
    assert_int_equal(ech_random_permute(1, 0, 1, 0), 0);
    assert_int_equal(ech_random_permute(5, 0, 2, 0), 1);
    uint64_t seed = UINT64_C(0x123456789abcdef0);
    assert_int_equal(ech_random_permute(seed, 3, UINT64_C(1000000000000), 123456789),
                     UINT64_C(206378469105));
    uint64_t epoch = (UINT64_C(1) << 33) + 5;
    assert_int_equal(ech_random_permute(7, epoch, UINT64_C(1) << 62, (UINT64_C(1) << 61) + 12345),
                     UINT64_C(1410552355047224523));
}
