/* SPDX-License-Identifier: Apache-2.0
 *
 * Paths with "~" and variables, and what is refused.
 */
#include <stdlib.h>
#include <string.h>

#include "base/path.h"
#include "unit.h"

typedef struct path_case {
    const char *text, *expected; /* or what the error says */
} path_case;

static void assert_cases(const path_case *cases, size_t n, bool words)
{
    for (size_t i = 0; i < n; i++) {
        ECH_FREED_TEXT out = {0}, why = {0}, again = {0};
        bool done = ech_path_expand(cases[i].text, words, &out, &why);
        const char *is = done ? out.at : why.at, *expected = cases[i].expected;
        if (!is) is = "";
        if (done ? strcmp(is, expected) != 0 : !strstr(is, expected))
            fail_msg("%s becomes %s, not %s", cases[i].text, is, expected);
        if (!done) continue;
        assert_true(ech_path_expand(is, words, &again, &why));
        assert_string_equal(again.at ? again.at : "", is);
    }
}

static void set_variables(void)
{
    setenv("HOME", "/home/me", 1);
    setenv("A_1", "x y", 1);
    setenv("DOLLAR", "a$b", 1);
    setenv("EMPTY", "", 1);
    unsetenv("NONE");
}

TEST(test_one_path)
{
    static const path_case cases[] = {
        {"", ""},
        {"runs/x", "runs/x"},
        {"~", "/home/me"},
        {"~/runs", "/home/me/runs"},
        {"./~", "./~"},
        {"a~/b", "a~/b"},
        {"${A_1}/b/${A_1}", "x y/b/x y"},
        {"~/${A_1}", "/home/me/x y"},
        {"'~'", "'~'"},
        {"~you/x", "the folder of another user"},
        {"$HOME/x", "write ${NAME}"},
        {"a/$", "write ${NAME}"},
        {"${", "write ${NAME}"},
        {"${}", "write ${NAME}"},
        {"${A_1", "write ${NAME}"},
        {"${A-1}", "write ${NAME}"},
        {"${1}", "write ${NAME}"},
        {"${NONE}/x", "the variable NONE is not set"},
        {"${EMPTY}/x", "the variable EMPTY is not set"},
        {"${DOLLAR}", "the value of DOLLAR has a $"},
        {"s3://bucket/x", "s3:// is no path"},
        {"gs+a.b://x", "gs+a.b:// is no path"},
        {"file:///x", "file:// is no path"},
        {"://x", "://x"},
        {"1a://x", "1a://x"},
        {"./s3://x", "./s3://x"},
        {"a:/b", "a:/b"},
    };
    set_variables();
    assert_cases(cases, sizeof cases / sizeof *cases, false);
}

/* Values stay in the word that they are put into. */
TEST(test_several_paths)
{
    static const path_case cases[] = {
        {"0.3 ~/a 0.7 ~/b", "0.3 /home/me/a 0.7 /home/me/b"},
        {" ~\t~ ", " /home/me\t/home/me "},
        {"${A_1} b", "x\\ y b"},
        {"'${A_1} ~' ~", "'x\\ y ~' /home/me"},
        {"'~/a b' \"~\"", "'/home/me/a b' \"/home/me\""},
        {"a\\ ~ b", "a\\ ~ b"},
        {"a\\", "a\\"},
        {"a s3://b", "s3:// is no path"},
        {"'s3://b", "s3:// is no path"},
        {"a ~you", "the folder of another user"},
    };
    set_variables();
    assert_cases(cases, sizeof cases / sizeof *cases, true);
}

TEST(appended_words_are_read_back)
{
    static const char *const words[] = {"a", "a b", "it's", "\\\"\t\n ~", "'a b'", "a\\"};
    ECH_FREED_TEXT text = {0};
    for (int i = 0; i < 6; i++) {
        ech_path_append_word(words[i], &text);
        ech_text_append(&text, " ");
    }
    const char *at = text.at;
    for (int i = 0; i < 6; i++) {
        ech_path_word word = ech_path_next_word(&at);
        assert_string_equal(word.text, words[i]);
        ech_path_word_free(&word);
    }
    assert_string_equal(at, " ");
}
