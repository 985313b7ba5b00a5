/* SPDX-License-Identifier: Apache-2.0
 *
 * Items of multiple choice: the shapes of the common data sets, what is refused, and accuracies.
 */
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "program/choices.h"
#include "unit.h"

static ech_choices parse(const char *text)
{
    ech_choices choices = {0};
    assert_int_equal(ech_choices_parse("items", text, strlen(text), &choices), ECH_OK);
    return choices;
}

/* A line's prompt, the text that is scored for its last choice, and its answer. */
static void check_line(const char *line, const char *prompt, const char *last, int n, int answer)
{
    ech_choices choices = parse(line);
    assert_int_equal(choices.item.n, 1);
    assert_string_equal(choices.item.at[0].prompt, prompt);
    assert_int_equal(choices.item.at[0].n, n);
    assert_int_equal(choices.choice.n, n);
    assert_string_equal(choices.choice.at[n - 1].appended, last);
    assert_int_equal(choices.item.at[0].answer, answer);
    ech_choices_free(&choices);
}

TEST(test_shapes)
{
    check_line("{\"id\": \"1\", \"question\": \"Why?\", \"choices\": {\"text\": [\"a\", \"b\"], "
               "\"label\": [\"1\", \"2\"]}, \"answerKey\": \"2\"}", /* ARC */
               "Question: Why?\nAnswer:", " b", 2, 1);
    check_line("{\"question\": {\"stem\": \"Why?\", \"choices\": [{\"text\": \"a\", \"label\": "
               "\"C\"}, {\"text\": \"b\", \"label\": \"D\"}]}, \"answerKey\": \"C\"}",
               "Question: Why?\nAnswer:", " b", 2, 0);
    check_line("{\"ctx_a\": \"x\", \"ctx\": \"A man\", \"endings\": [\"sits\", \"runs\", \"eats\"],"
               " \"label\": \"2\"}", /* HellaSwag */
               "A man", " eats", 3, 2);
    check_line("{\"goal\": \"Open it\", \"sol1\": \"pull\", \"sol2\": \"push\", \"label\": 1}",
               "Question: Open it\nAnswer:", " push", 2, 1); /* PIQA */
    check_line("{\"question\": \"2 + 2\", \"subject\": \"math\", \"choices\": [\"3\", \"4\", "
               "\"5\", \"6\"], \"answer\": 1}", /* MMLU */
               "Question: 2 + 2\nAnswer:", " 6", 4, 1);
    check_line("{\"question\": \"2 + 2\", \"options\": [\"3\", \"4\"], \"answer\": \"B\"}",
               "Question: 2 + 2\nAnswer:", " 4", 2, 1);
    check_line("{\"context\": \"Snow.\", \"question\": \"Cold?\", \"choices\": [\"yes\", \"no\"], "
               "\"gold\": 0}",
               "Snow.\nQuestion: Cold?\nAnswer:", " no", 2, 0);
    /* A blank that is there is not doubled; a text without a prompt has none. */
    check_line("{\"context\": \"a \", \"choices\": [\"b\", \"c\"], \"label\": 0}", "a ", "c", 2, 0);
    check_line("{\"context\": \"a\", \"choices\": [\"b\", \" c\"], \"label\": 0}", "a", " c", 2, 0);
    check_line("{\"context\": \"\", \"choices\": [\"b\", \"c\"], \"label\": 0}", "", "c", 2, 0);
}

TEST(test_lines)
{
    ech_choices choices =
        parse("\r\n{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": 0}"
              "\r\n\n{\"context\": \"d\", \"choices\": [\"e\", \"f\", \"g\"], "
              "\"label\": 2}");
    assert_int_equal(choices.item.n, 2);
    assert_int_equal(choices.item.at[0].line, 2);
    assert_int_equal(choices.item.at[1].line, 4);
    assert_int_equal(choices.item.at[1].first, 2);
    assert_string_equal(choices.choice.at[4].name, "items:4: choice 2");
    ech_choices_free(&choices);
}

static void check_refused(const char *text, const char *said)
{
    ech_choices choices = {0};
    assert_int_equal(ech_choices_parse("items", text, strlen(text), &choices), ECH_EINPUT);
    if (!strstr(ech_last_error(), said))
        fail_msg("\"%s\" does not say \"%s\"", ech_last_error(), said);
    ech_choices_free(&choices);
}

TEST(test_refused)
{
    check_refused("", "items: has no items");
    check_refused("\n \n", "items: has no items");
    check_refused("\n[1]", "items:2: must be a JSON object");
    check_refused("{\"context\": \"a\"", "items:1:");
    check_refused("{\"choices\": [\"b\", \"c\"], \"label\": 0}", "items:1: no prompt");
    check_refused("{\"context\": 7, \"choices\": [\"b\", \"c\"]}", "\"context\" is no text");
    check_refused("{\"question\": [], \"choices\": [\"b\", \"c\"]}", "\"question\" is no text");
    check_refused("{\"context\": \"a\", \"label\": 0}", "items:1: no choices");
    check_refused("\n{\"context\": \"a\", \"choices\": [\"b\"], \"label\": 0}",
                  "items:2: 1 choice; an item needs two");
    check_refused("{\"context\": \"a\", \"choices\": [], \"label\": 0}", "0 choices");
    check_refused("{\"context\": \"a\", \"choices\": [\"b\", \"\"], \"label\": 0}", "choice 1");
    check_refused("{\"context\": \"a\", \"choices\": [\"b\", 2], \"label\": 0}", "choice 1");
    check_refused("{\"context\": \"a\", \"choices\": [\"b\", \"c\"]}", "items:1: no answer");
    check_refused("{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": 2}",
                  "\"label\" is 2, none of the 2 choices");
    check_refused("{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": -1}", "is -1");
    check_refused("{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": \"C\"}", "to B");
    check_refused("{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": 0.5}", "is 0.5");
    /* Labels of the choices replace letters and indices. */
    check_refused("{\"question\": \"a\", \"choices\": {\"text\": [\"b\", \"c\"], \"label\": "
                  "[\"1\", \"2\"]}, \"answerKey\": \"A\"}",
                  "is \"A\"");
}

TEST(test_most_choices)
{
    ECH_FREED_TEXT line = {0};
    ech_text_append(&line, "{\"context\": \"a\", \"label\": 63, \"choices\": [\"b\"");
    for (int i = 1; i < ECH_CHOICES_MOST; i++) ech_text_append(&line, ", \"b\"");
    size_t n = line.n;
    ech_text_append(&line, "]}");
    check_line(line.at, "a", " b", ECH_CHOICES_MOST, 63);
    line.n = n;
    ech_text_append(&line, ", \"c\"]}");
    check_refused(line.at, "more than 64 choices");
}

/* The formulas by hand. */
TEST(test_accuracies)
{
    ech_choices choices =
        parse("{\"context\": \"a\", \"choices\": [\"bb\", \"cc\"], \"label\": 0}\n"
              "{\"context\": \"a\", \"choices\": [\"bb\", \"\xc3\xa9\xc3\xa9\xe2\x82\xac\"], "
              "\"label\": 1}\n"
              "{\"context\": \"a\", \"choices\": [\"b\", \"cccc\", \"d\"], \"label\": 2}\n"
              "{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": 1}\n");
    /* Second item: 2 and 3 characters, 2 and 7 bytes: -2.5 / 2 > -6 / 3, but -2.5 / 2 < -6 / 7.
     * Third item: -2 is the largest, but -4 / 4 > -2 / 1. Fourth: of equal ones the first. */
    const double found[] = {-1, -2, -2.5, -6, -3, -4, -2, -1, -1};
    const int picked[][ECH_ACCURACIES] = {{0, 0, 0}, {0, 0, 1}, {2, 1, 1}, {0, 0, 0}};
    const double shares[] = {0.5, 0.25, 0.5};
    for (int a = 0; a < ECH_ACCURACIES; a++) {
        double error, share = ech_choices_score(&choices, found, (ech_accuracy)a, &error);
        assert_true(share == shares[a]);
        assert_true(fabs(error - sqrt(share * (1 - share) / 3)) < 1e-15);
        for (size_t i = 0; i < choices.item.n; i++)
            assert_int_equal(
                ech_choices_pick(&choices, &choices.item.at[i], found, (ech_accuracy)a),
                picked[i][a]);
    }
    ech_choices_free(&choices);
    double error;
    choices = parse("{\"context\": \"a\", \"choices\": [\"b\", \"c\"], \"label\": 0}");
    assert_true(ech_choices_score(&choices, (double[]){-1, -2}, ECH_ACC, &error) == 1);
    assert_true(isnan(error));
    ech_choices_free(&choices);
}

ALL_TESTS(NULL, NULL)
