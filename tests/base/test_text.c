/* SPDX-License-Identifier: Apache-2.0
 *
 * Growing strings, strict numbers, byte counts and the nearest name.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "unit.h"

TEST(test_text_grows)
{
    ech_text text = {0};
    for (int i = 0; i < 1000; i++) ech_text_append(&text, "%d,", i);
    assert_int_equal(text.n, 10 * 2 + 90 * 3 + 900 * 4);
    assert_int_equal(strlen(text.at), text.n);
    assert_string_equal(text.at + text.n - 8, "998,999,");
    ech_text_append_bytes(&text, "a\0b", 3);
    assert_int_equal(text.at[text.n - 2], 0);
    assert_int_equal(text.at[text.n], 0);
    ech_text_free(&text);
    assert_null(text.at);
    ech_text_append(&text, "%s", "");
    assert_string_equal(text.at, "");
    ech_text_free(&text);
}

TEST(test_whole_numbers)
{
    const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"-0", 0},
                {"42", 42},
                {"-7", -7},
                {"007", 7},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t value = 99;
        assert_true(ech_text_to_int(good[i].text, &value));
        assert_int_equal(value, good[i].value);
    }
    const char *bad[] = {"",    "-",   "+1",   " 1",  "1 ",  "4x",  "1_000",
                         "1.0", "1e3", "0x10", "--1", "nan", "one", "9223372036854775808",
                         "1,0", "- 1", "\t1",  "1\n", "١"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t value = 99;
        if (ech_text_to_int(bad[i], &value))
            fail_msg("\"%s\" was taken for %d", bad[i], (int)value);
        assert_int_equal(value, 99);
    }
}

TEST(test_real_numbers)
{
    const struct {
        const char *text;
        double value;
    } good[] = {
        {"0", 0},           {"1", 1},      {"-2.5", -2.5},
        {"1e-5", 1e-5},     {"3E+2", 300}, {".5", .5},
        {"5.", 5},          {"0.1", 0.1},  {"1.7976931348623157e308", DBL_MAX},
        {"5e-324", 5e-324}, {"0e-999", 0}, {"2.2250738585072011e-308", 2.2250738585072011e-308}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        double value = 99;
        assert_true(ech_text_to_real(good[i].text, &value));
        assert_true(value >= good[i].value && value <= good[i].value);
    }
    const char *bad[] = {"",         ".",     "-",   "+1",    " 1",     "1 ",     "1x",
                         "1e",       "e5",    "1e+", "nan",   "NaN",    "inf",    "-inf",
                         "infinity", "0x1p3", "1_0", "1e400", "-1e400", "1e-400", "1.2.3",
                         "1,5",      ".e5",   "1d5", "1f"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        double value = 99;
        if (ech_text_to_real(bad[i], &value)) fail_msg("\"%s\" was taken for %g", bad[i], value);
        assert_true(value >= 99 && value <= 99);
    }
}

/* As the loop over precisions that the comment in text.h describes. */
static void expect_real(double value, int precision)
{
    char shortest[64], got[64];
    for (int digits = precision; digits <= 17; digits++) {
        ech_text_print(shortest, sizeof shortest, "%.*g", digits, value);
        if (ech_text_number(shortest, NULL) == value) break;
    }
    assert_string_equal(ech_text_from_real(value, precision, got, sizeof got), shortest);
}

TEST(reals_have_the_fewest_digits)
{
    static const double values[] = {0,     -0.0,   1,        1e6,    123456789, 0.1,   0.1 + 0.2,
                                    1e22,  1e23,   2.5e-310, 5e-324, DBL_MAX,   -1e5,  1.0 / 3,
                                    1e-05, 9.5e15, 1e15,     1e16,   DBL_MIN,   2e-308};
    uint64_t bits = 1;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (int precision = 1; precision <= 17; precision++) expect_real(values[i], precision);
    for (int i = 0; i < 2000; i++) {
        double value;
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) continue;
        expect_real(value, 6);
        expect_real((double)(float)(1 + (double)(bits >> 40)), 6);
        expect_real((double)(int64_t)(bits >> 20) / 1e4, 1);
    }
}

TEST(test_byte_counts)
{
    const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"4096", 4096},
                {"12B", 12},
                {"64KiB", 65536},
                {"8MiB", INT64_C(8) << 20},
                {"8GiB", INT64_C(8) << 30},
                {"1TiB", INT64_C(1) << 40},
                {"25MB", 25000000},
                {"25kB", 25000},
                {"1.5GiB", INT64_C(3) << 29},
                {"1.1GB", 1100000000},
                {"0.3KiB", 307},
                {"1.000000000000000000000000KiB", 1024},
                {"0.29MB", 290000},
                {"8191PiB", INT64_C(8191) << 50}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        int64_t value = -1;
        assert_true(ech_text_to_bytes(good[i].text, &value));
        assert_int_equal(value, good[i].value);
    }
    const char *bad[] = {"",
                         "KiB",
                         "-1",
                         "-1KiB",
                         "1.5",
                         "1.",
                         "1.KiB",
                         ".5KiB",
                         "1 KiB",
                         "1kib",
                         "1K",
                         "1e3",
                         "1.5B",
                         "8192PiB",
                         "99999999999999999999",
                         "99999999999999999999GiB",
                         "4x"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        int64_t value = 99;
        if (ech_text_to_bytes(bad[i], &value))
            fail_msg("\"%s\" was taken for %lld", bad[i], (long long)value);
        assert_int_equal(value, 99);
    }
}

TEST(test_bytes_for_people)
{
    const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {-5, "-5 B"},
                 {1024, "1.0 KiB"},
                 {1536, "1.5 KiB"},
                 {-1536, "-1.5 KiB"},
                 {(1 << 20) - 1, "1.0 MiB"},
                 {INT64_C(5) << 30, "5.0 GiB"},
                 {INT64_MAX, "8.0 EiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char buffer[32];
        assert_ptr_equal(ech_text_from_bytes(cases[i].bytes, buffer, sizeof buffer), buffer);
        assert_string_equal(buffer, cases[i].text);
    }
    char small[4];
    assert_string_equal(ech_text_from_bytes(1536, small, sizeof small), "1.5");
}

static const char *nearest(const char *name)
{
    static const char *const names[] = {"hidden_size", "vocab_size",    "num_hidden_layers",
                                        "gpt2",        "learning_rate", "data"};
    return ech_text_nearest(name, names, sizeof names / sizeof names[0]);
}

TEST(test_nearest_name)
{
    assert_string_equal(nearest("hidden_sise"), "hidden_size");
    assert_string_equal(nearest("hiddensize"), "hidden_size");
    assert_string_equal(nearest("HIDDEN_SIZE"), "hidden_size");
    assert_string_equal(nearest("lerning_rate"), "learning_rate");
    assert_string_equal(nearest("leanring_rate"), "learning_rate");
    assert_string_equal(nearest("gpt"), "gpt2");
    assert_string_equal(nearest("dta"), "data");
    assert_string_equal(nearest("num_layers"), "num_hidden_layers");
    assert_string_equal(nearest("layers"), "num_hidden_layers");
    assert_null(nearest("lr"));
    assert_null(nearest("momentum"));
    assert_null(nearest("x"));
    assert_null(nearest(""));
    char longest[300];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(nearest(longest));
    assert_null(ech_text_nearest("a", NULL, 0));
    static const char *const acts[] = {"relu", "gelu_new", "swiglu"};
    assert_string_equal(ech_text_nearest("gelu", acts, 3), "gelu_new"); /* not by one letter */
    assert_string_equal(ech_text_nearest("celu", acts, 3), "relu");
}

TEST(test_words)
{
    assert_true(ech_text_has_word("gpt2 llama", "gpt2"));
    assert_true(ech_text_has_word("  gpt2   llama ", "llama"));
    assert_false(ech_text_has_word("gpt2 llama", "gpt"));
    assert_false(ech_text_has_word("gpt2 llama", "llama2"));
    assert_false(ech_text_has_word("gpt2 llama", "2 l"));
    assert_false(ech_text_has_word("gpt2", ""));
    assert_false(ech_text_has_word("", "gpt2"));
}

TEST(test_values)
{
    size_t n = 0;
    const char *value = ech_text_find_value("a=1 bb=two  c=", "bb", 2, &n);
    assert_non_null(value);
    assert_int_equal(n, 3);
    assert_memory_equal(value, "two", 3);
    assert_non_null(ech_text_find_value("a=1 c=", "c", 1, &n));
    assert_int_equal(n, 0);
    assert_null(ech_text_find_value("bb=two", "b", 1, &n));
    assert_null(ech_text_find_value("a bb=two", "a", 1, &n));
    assert_null(ech_text_find_value("", "a", 1, &n));
}
