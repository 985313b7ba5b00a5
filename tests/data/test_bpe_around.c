/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens before and after a text come from post_processor of tokenizer.json, unless
 * tokenizer_config.json sets them.
 */
#include "data/scratch.h"

#define TEMPLATE(single)                                                                           \
    "{\"type\": \"TemplateProcessing\", \"single\": [" single "], \"special_tokens\": {\"<s>\": "  \
    "{\"id\": \"<s>\", \"ids\": [1], \"tokens\": [\"<s>\"]}, \"two\": {\"ids\": [2, 4]}}}"
#define PIECE(name) "{\"SpecialToken\": {\"id\": \"" name "\", \"type_id\": 0}}"
#define TEXT        "{\"Sequence\": {\"id\": \"A\", \"type_id\": 0}}"
#define LEVEL       "{\"type\": \"ByteLevel\", \"trim_offsets\": true}"

static ech_status open_with(const char *processor, const char *config, ech_tokenizer **out)
{
    ech_text text = {0};
    ech_text_append(
        &text,
        "{\"added_tokens\": [{\"id\": 0, \"content\": \"</s>\"}, {\"id\": 1, "
        "\"content\": \"<s>\"}], \"post_processor\": %s, \"decoder\": {\"type\": "
        "\"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "
        "\"\u2581\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": "
        "\"Fuse\"}]}, \"model\": {\"type\": \"BPE\", \"byte_fallback\": true, "
        "\"merges\": [], \"vocab\": {\"</s>\": 0, \"<s>\": 1, \"a\": 2, \"b\": 3",
        processor);
    for (int i = 0; i < 256; i++) ech_text_append(&text, ", \"<0x%02X>\": %d", (unsigned)i, i + 4);
    ech_text_append(&text, "}}}");
    write_file("tokenizer.json", text.at, text.n);
    write_file("tokenizer_config.json", config, strlen(config));
    ech_text_free(&text);
    ech_clear_error();
    return ech_tokenizer_open(scratch, out);
}

static void assert_ids(const ech_ids *ids, const char *expected)
{
    ech_text text = {0};
    ech_text_append(&text, "%s", "");
    for (size_t i = 0; i < ids->n; i++)
        ech_text_append(&text, "%s%d", i ? " " : "", (int)ids->at[i]);
    assert_string_equal(text.at, expected);
    ech_text_free(&text);
}

static void assert_around(const char *processor, const char *config, const char *front,
                          const char *back)
{
    ech_tokenizer *tokenizer;
    if (open_with(processor, config, &tokenizer) != ECH_OK) fail_msg("%s", ech_last_error());
    assert_ids(&tokenizer->front, front);
    assert_ids(&tokenizer->back, back);
    ech_tokenizer_close(tokenizer);
}

TEST(test_processors)
{
    assert_around("null", "{}", "", "");
    assert_around(LEVEL, "{}", "", "");
    assert_around(TEMPLATE(PIECE("<s>") ", " TEXT), "{}", "1", "");
    assert_around(TEMPLATE(PIECE("two") ", " PIECE("<s>") ", " TEXT ", " PIECE("two")), "{}",
                  "2 4 1", "2 4");
    assert_around(
        "{\"type\": \"RobertaProcessing\", \"sep\": [\"</s>\", 0], \"cls\": [\"<s>\", 1]}", "{}",
        "1", "0");
    assert_around("{\"type\": \"Sequence\", \"processors\": [" LEVEL
                  ", " TEMPLATE(PIECE("<s>") ", " TEXT ", " PIECE("two")) ", " TEMPLATE(
                      PIECE("two") ", " TEXT) "]}",
                  "{}", "2 4 1", "2 4");
}

TEST(test_config)
{
    assert_around("null", "{\"bos_token\": \"<s>\", \"add_bos_token\": true}", "1", "");
    assert_around("null",
                  "{\"bos_token\": \"<s>\", \"add_bos_token\": true, \"add_eos_token\": true, "
                  "\"eos_token\": \"</s>\"}",
                  "1", "0");
    assert_around(TEMPLATE(PIECE("<s>") ", " TEXT), "{\"add_bos_token\": false}", "", "");
    assert_around(TEMPLATE(PIECE("<s>") ", " TEXT), "{\"bos_token\": \"<s>\"}", "1", "");
}

static void assert_refused(const char *processor, const char *why)
{
    ech_tokenizer *tokenizer;
    assert_int_not_equal(open_with(processor, "{}", &tokenizer), ECH_OK);
    assert_error_has("tokenizer.json: post_processor: ");
    assert_error_has(why);
}

TEST(test_refused)
{
    assert_refused("7", "without a type is not supported");
    assert_refused("{\"type\": \"Whatever\"}", "Whatever is not supported");
    assert_refused(TEMPLATE(PIECE("<s>")), "must have the text (A) once");
    assert_refused(TEMPLATE(TEXT ", " TEXT), "must have the text (A) once");
    assert_refused(TEMPLATE(PIECE("<t>") ", " TEXT), "not in \"special_tokens\"");
    assert_refused(
        "{\"type\": \"BertProcessing\", \"sep\": [\"</s>\", 0], \"cls\": [\"<s>\", 260]}",
        "an id that no token has");
    assert_refused("{\"type\": \"BertProcessing\", \"sep\": [\"</s>\", -1], \"cls\": [\"<s>\", 1]}",
                   "an id that no token has");
}
