/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenizer files that are damaged, hostile, or of another kind: one line that names file and key,
 * and no more memory than the file itself asks for.
 */
#include "data/scratch.h"

#include <sys/resource.h>

#include "data/byte_ids.h"

/* A whole tokenizer.json, of which each test replaces one part. */
typedef struct parts {
    const char *added, *normalizer, *pre_tokenizer, *decoder, *more_model, *more_vocabulary,
        *merges;
} parts;

static const parts good = {
    .added = "{\"id\": 257, \"content\": \"<|endoftext|>\", \"special\": true}",
    .normalizer = "null",
    .pre_tokenizer = "{\"type\": \"ByteLevel\", \"add_prefix_space\": false}",
    .decoder = "{\"type\": \"ByteLevel\"}",
    .more_model = "",
    .more_vocabulary = ", \"ab\": 256",
    .merges = "\"a b\"",
};

static void write_tokenizer(const parts *p)
{
    ech_text out = {0};
    ech_text_append(&out,
                    "{\"added_tokens\": [%s], \"normalizer\": %s, \"pre_tokenizer\": %s,\n"
                    "\"decoder\": %s, \"model\": {\"type\": \"BPE\"%s, \"vocab\": {",
                    p->added, p->normalizer, p->pre_tokenizer, p->decoder, p->more_model);
    append_byte_ids(&out);
    ech_text_append(&out, "%s}, \"merges\": [%s]}}\n", p->more_vocabulary, p->merges);
    write_file("tokenizer.json", out.at, out.n);
    ech_text_free(&out);
}

static ech_status open_written(void)
{
    ech_tokenizer *tokenizer = NULL;
    ech_clear_error();
    ech_status status = ech_tokenizer_open(scratch, &tokenizer);
    assert_true((status == ECH_OK) == (tokenizer != NULL));
    ech_tokenizer_close(tokenizer);
    return status;
}

static void assert_opens(parts p)
{
    write_tokenizer(&p);
    if (open_written() != ECH_OK) fail_msg("%s", ech_last_error());
}

static void assert_refused(parts p, const char *why)
{
    write_tokenizer(&p);
    assert_int_not_equal(open_written(), ECH_OK);
    assert_error_has("tokenizer.json");
    assert_error_has(why);
    assert_null(strchr(ech_last_error(), '\n'));
}

/* `good` with another text in one place. */
static parts with(size_t part, const char *text)
{
    parts p = good;
    memcpy((char *)&p + part, &text, sizeof text);
    return p;
}
#define WITH(part, text) with(offsetof(parts, part), text)

static const char llama3_split[] =
    "{\"type\": \"Split\", \"pattern\": {\"Regex\": "
    "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}| "
    "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}, "
    "\"behavior\": \"%s\", \"invert\": %s}";
static const char plain_level[] =
    "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": %s}";

static parts with_split(const char *behavior, const char *invert, const char *use_regex)
{
    static char text[2048];
    int n = snprintf(text, sizeof text, "{\"type\": \"Sequence\", \"pretokenizers\": [");
    n += snprintf(text + n, sizeof text - (size_t)n, llama3_split, behavior, invert);
    n += snprintf(text + n, sizeof text - (size_t)n, ", ");
    n += snprintf(text + n, sizeof text - (size_t)n, plain_level, use_regex);
    snprintf(text + n, sizeof text - (size_t)n, "]}");
    return WITH(pre_tokenizer, text);
}

TEST(test_opens)
{
    assert_opens(good);
    assert_opens(WITH(merges, "[\"a\", \"b\"]"));
    assert_opens(WITH(merges, ""));
    assert_opens(WITH(normalizer, "{\"type\": \"NFC\"}"));
    assert_opens(WITH(normalizer, "{\"type\": \"NFKC\"}"));
    assert_opens(WITH(pre_tokenizer, "{\"type\": \"ByteLevel\"}"));
    assert_opens(WITH(normalizer, "{\"type\": \"Sequence\", \"normalizers\": []}"));
    assert_opens(
        WITH(normalizer, "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"NFC\"}]}"));
    assert_opens(WITH(more_model, ", \"dropout\": null, \"end_of_word_suffix\": \"\""));
    assert_opens(WITH(decoder, "null"));
    assert_opens(with_split("Isolated", "false", "false"));
    assert_opens(with_split("Removed", "true", "false"));
    assert_opens(with_split("Isolated", "false", "true")); /* then GPT-2's */
    /* Any characters, as long as they are added: also in the model's vocabulary. */
    parts p = WITH(more_vocabulary, ", \"ab\": 256, \"\xef\xbd\x9c\xe2\x96\x81\": 300");
    p.added = "{\"id\": 258, \"content\": \"</s>\"}, {\"id\": 300, \"content\": "
              "\"\xef\xbd\x9c\xe2\x96\x81\"}";
    assert_opens(p);
}

TEST(test_other_kinds)
{
    assert_refused(WITH(more_model, ", \"dropout\": 0.1"), "model.dropout");
    assert_refused(WITH(more_model, ", \"continuing_subword_prefix\": \"##\""),
                   "model.continuing_subword_prefix");
    assert_refused(WITH(more_model, ", \"end_of_word_suffix\": \"</w>\""),
                   "model.end_of_word_suffix");
    assert_refused(WITH(normalizer, "{\"type\": \"NFD\"}"), "normalizer: only null, NFC and NFKC");
    assert_refused(WITH(normalizer, "7"), "normalizer: only null, NFC and NFKC");
    assert_refused(WITH(normalizer, "{\"type\": \"Sequence\"}"), "normalizer: only null");
    assert_refused(WITH(normalizer, "{\"type\": \"Prepend\", \"prepend\": \"\u2581\"}"),
                   "normalizer: Prepend is supported only with Replace");
    assert_refused(WITH(normalizer, "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, "
                                    "\"content\": \"\u2581\"}"),
                   "normalizer: Replace and Prepend are not supported with ByteLevel");
    assert_refused(WITH(decoder, "{\"type\": \"Metaspace\"}"), "decoder: only ByteLevel");
    assert_refused(WITH(pre_tokenizer, "null"), "pre_tokenizer: must be ByteLevel");
    assert_refused(WITH(pre_tokenizer, "{\"type\": \"Metaspace\"}"), "pre_tokenizer: must be");
    assert_refused(WITH(pre_tokenizer, "{\"type\": \"Sequence\", \"pretokenizers\": []}"),
                   "must be ByteLevel");
    assert_refused(WITH(pre_tokenizer, "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
                                       "\"Digits\"}, {\"type\": \"ByteLevel\"}]}"),
                   "pre_tokenizer: add_prefix_space of a ByteLevel after other steps");
    assert_refused(WITH(pre_tokenizer, "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
                                       "\"Whitespace\"}, {\"type\": \"ByteLevel\"}]}"),
                   "pre_tokenizer: before ByteLevel only Split, Digits and Punctuation");
    assert_refused(with_split("MergedWithNext", "false", "false"), "behavior Isolated");
    assert_refused(with_split("Isolated", "true", "false"), "behavior Isolated");
    assert_refused(WITH(more_vocabulary, ", \"\xe2\x96\x81the\": 257"),
                   "model.vocab: \"\xe2\x96\x81the\" is not written in byte-level characters");
}

#define REPLACE "{\"type\": \"Replace\", \"pattern\": {\"String\": \" \"}, \"content\": \"\u2581\"}"
#define DECODER                                                                                    \
    "{\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": "   \
    "\"\u2581\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}%s]}"

/* Over characters; of the bytes' tokens one may be missing. NULL for why: it opens. */
static void check_fallback(const char *normalizer, const char *pre_tokenizer, const char *decoder,
                           const char *model, int missing, const char *why)
{
    ech_text out = {0};
    ech_text_append(&out,
                    "{\"added_tokens\": [{\"id\": 0, \"content\": \"</s>\"}], \"normalizer\": %s, "
                    "\"pre_tokenizer\": %s, \"decoder\": %s, \"model\": {\"type\": \"BPE\", "
                    "\"merges\": [[\"a\", \"\u00e9\"]], %s, \"vocab\": {\"</s>\": 0, \"a\": 1, "
                    "\"\u00e9\": 2, \"a\u00e9\": 3",
                    normalizer, pre_tokenizer, decoder, model);
    for (int i = 0; i < 256; i++)
        if (i != missing) ech_text_append(&out, ", \"<0x%02X>\": %d", (unsigned)i, i + 4);
    ech_text_append(&out, "}}}");
    write_file("tokenizer.json", out.at, out.n);
    ech_text_free(&out);
    if (!why) {
        if (open_written() != ECH_OK) fail_msg("%s", ech_last_error());
        return;
    }
    assert_int_not_equal(open_written(), ECH_OK);
    assert_error_has("tokenizer.json");
    assert_error_has(why);
}

TEST(test_fallback)
{
    const char *model = "\"byte_fallback\": true",
               *first = "{\"type\": \"Metaspace\", "
                        "\"replacement\": \"\u2581\", \"prepend_scheme\": \"first\"%s}";
    const char *split = "{\"type\": \"Split\", \"pattern\": {\"String\": \" \"}}";
    char decoder[512], strips[512], metaspace[256], wrong[256];
    snprintf(decoder, sizeof decoder, DECODER, "");
    snprintf(strips, sizeof strips, DECODER,
             ", {\"type\": \"Strip\", \"content\": \" \", \"start\": 2, \"stop\": 0}");
    snprintf(metaspace, sizeof metaspace, first, "");
    snprintf(wrong, sizeof wrong, first, ", \"add_prefix_space\": false");
    check_fallback(REPLACE, "null", decoder, model, -1, NULL);
    check_fallback("null", metaspace, decoder, model, -1, NULL);
    check_fallback(REPLACE, split, decoder, model, -1, NULL);
    check_fallback("null", "null", decoder, "\"byte_fallback\": false", -1, "must be ByteLevel");
    check_fallback("null", "null", decoder, model, 0x1f, "no token <0x1F>; with byte fallback");
    check_fallback("null", "null", strips, model, -1, "decoder: with byte_fallback");
    check_fallback("null", "null", "{\"type\": \"ByteFallback\"}", model, -1, "decoder: with byte");
    check_fallback("null", split, decoder, model, -1, "which no normalizer replaces");
    check_fallback("null", wrong, decoder, model, -1, "contradict each other");
    check_fallback("null", "{\"type\": \"Metaspace\", \"replacement\": \"_\"}", decoder, model, -1,
                   "Metaspace has another replacement");
}

static parts with_regex(const char *regex)
{
    static char text[8192];
    snprintf(text, sizeof text,
             "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
             "{\"Regex\": \"%s\"}, \"behavior\": \"Isolated\"}, {\"type\": \"ByteLevel\", "
             "\"add_prefix_space\": false, \"use_regex\": false}]}",
             regex);
    return WITH(pre_tokenizer, text);
}

/* Constructs that Hugging Face's engine reads differently, or that are not read, by name. */
TEST(test_foreign_pattern)
{
    static const char *const refused[][2] = {
        {"", "it matches nothing, too"},
        {"a*", "it matches nothing, too"},
        {"a|", "it matches nothing, too"},
        {"\\\\w+", "\\w: not read, or not the same"},
        {"a\\\\b", "\\b: not read"},
        {"\\\\h", "\\h: not read"},
        {"\\\\1", "\\1: not read"},
        {"\\\\Aa", "\\A: not read"},
        {"\\\\pL", "only \\p{Name}"},
        {"\\\\p{^L}", "only \\p{Name}"},
        {"\\\\p{Alpha}", "\\p{Alpha}: neither a general category"},
        {"\\\\xe9", "\\xe9: no character"},
        {"[[:alpha:]]", "[:: named classes"},
        {"[a&&b]", "&&: intersections"},
        {"[a[^b]]", "[^: negated within"},
        {"[]a]", "[]: a class that begins"},
        {"[a\\\\S]", "\\S: not read within"},
        {"[a-\\\\d]", "-\\: no range"},
        {"[a", "[: does not end"},
        {"(a", "(: does not end"},
        {"a)", "): closes no group"},
        {"(?i)a", "(?i): an option or group"},
        {"(?m:a)", "(?m:: an option or group"},
        {"(?<n>a)", "(?<n: an option or group"},
        {"(?i:ss)", "(?i:: with two letters"},
        {"(?i:\u00e9)", "(?i:: with letters beyond ASCII"},
        {"(?i:\\\\p{L})", "(?i:: with \\p"},
        {"(?i:[^a])", "(?i:[^: negated"},
        {"a{2}?", "{2}?: not the same"},
        {"a{,2}", "{: no interval"},
        {"a**", "*: a repetition of a repetition"},
        {"*a", "*: repeats nothing"},
        {"(?=a)b(?<=a+)", "lookbehind assertion is not fixed length"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_refused(with_regex(refused[i][0]), refused[i][1]);
    char longest[3000];
    memset(longest, 'a', sizeof longest);
    longest[2048] = '\0';
    assert_opens(with_regex(longest));
    longest[2048] = 'a';
    longest[2049] = '\0';
    assert_refused(with_regex(longest), "it has 2049 bytes; at most 2048");
    assert_refused(WITH(pre_tokenizer, "{\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": "
                                       "\"ByteLevel\", \"add_prefix_space\": false}, {\"type\": "
                                       "\"Split\", \"pattern\": {\"Regex\": \"[0-8]\"}, "
                                       "\"behavior\": \"Isolated\"}]}"),
                   "after ByteLevel only Digits together, and a Split of [0-9]");
}

/* One that goes back without end is stopped, and says so. */
TEST(test_steps)
{
    static const char text[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaacb";
    parts p = with_regex("(a+)+b");
    write_tokenizer(&p);
    ech_tokenizer *tokenizer;
    ech_ids ids = {0};
    assert_int_equal(ech_tokenizer_open(scratch, &tokenizer), ECH_OK);
    ech_coder *coder = ech_coder_create(tokenizer);
    assert_int_equal(ech_coder_encode(coder, text, strlen(text), true, &ids), ECH_EINPUT);
    assert_error_has("tokenizer.json: the pattern of pre_tokenizer backtracks too often (more than "
                     "1000000 steps) at byte");
    ids.n = 0;
    assert_int_equal(ech_coder_encode(coder, "aab", 3, true, &ids), ECH_OK);
    free(ids.at);
    ech_coder_destroy(coder);
    ech_tokenizer_close(tokenizer);
}

TEST(test_ids)
{
    assert_refused(WITH(more_vocabulary, ", \"ab\": 65"), "\"ab\" has id 65, which another token");
    assert_refused(WITH(more_vocabulary, ", \"ab\": 2000000000"), "ids are 0 and above, below 15");
    assert_refused(WITH(more_vocabulary, ", \"ab\": 9223372036854775807"), "ids are 0 and above");
    assert_refused(WITH(more_vocabulary, ", \"ab\": -1"), "\"ab\" has id -1");
    assert_refused(WITH(more_vocabulary, ", \"ab\": 1.5"), "is no whole number");
    assert_refused(WITH(more_vocabulary, ", \"ab\": \"7\""), "is no whole number");
    assert_refused(WITH(more_vocabulary, ", \"a\": 257"), "tokenizer.json:2:");
    assert_refused(WITH(added, "{\"id\": 65, \"content\": \"<|endoftext|>\"}"),
                   "added_tokens[0]: \"<|endoftext|>\" has id 65, which another token has");
    assert_refused(WITH(added, "{\"id\": 257, \"content\": \"ab\"}"), "has id 257 here and 256 in");
    assert_refused(WITH(added, "{\"id\": 1e9, \"content\": \"x\"}"), "is no whole number");
    assert_refused(WITH(added, "{\"id\": 400000000, \"content\": \"xyz\"}"), "ids are 0 and above");
    assert_refused(
        WITH(added, "{\"id\": 257, \"content\": \"x y\"}, {\"id\": 258, \"content\": \"x y\"}"),
        "added_tokens[1]: \"x y\" comes twice");
}

TEST(test_merges)
{
    assert_refused(WITH(merges, "\"a b\", \"a c\""),
                   "model.merges[1]: the token it makes is not in");
    assert_refused(WITH(merges, "\"abc b\""), "model.merges[0]: \"abc\" is not in the vocabulary");
    assert_refused(WITH(merges, "\"a b\", \"a b\""), "merge 1 is merge 0 again");
    assert_refused(WITH(merges, "\"ab\""), "model.merges[0]: must be");
    assert_refused(WITH(merges, "\"a b c\""), "model.merges[0]: must be");
    assert_refused(WITH(merges, "[\"a\"]"), "model.merges[0]: must be");
    assert_refused(WITH(merges, "[\"a\", 7]"), "model.merges[0]: must be");
    assert_refused(WITH(merges, "null"), "model.merges[0]: must be");
    assert_refused(WITH(merges, "\" b\""), "model.merges[0]: \"\" is not in the vocabulary");
}

TEST(test_added)
{
    char text[4096], content[2048];
    /* The library numbers added tokens from 257 on, which is a token of the model here. */
    parts p = WITH(more_vocabulary, ", \"ab\": 257");
    p.added = "{\"id\": 256, \"content\": \"x y\"}";
    assert_refused(p, "\"x y\" would get id 257 in Hugging Face's library");
    assert_refused(WITH(added, "{\"id\": 256}"), "added_tokens[0]: content");
    assert_refused(WITH(added, "{\"id\": 256, \"content\": \"\"}"), "added_tokens[0]: content");
    assert_refused(WITH(added, "7"), "added_tokens[0]: content");
    memset(content, 'x', 1025);
    content[1025] = 0;
    snprintf(text, sizeof text, "{\"id\": 256, \"content\": \"%s\"}", content);
    assert_refused(WITH(added, text), "must be a string of 1 to 1024 bytes");
}

static void assert_text_refused(const char *text, size_t n, const char *why)
{
    write_file("tokenizer.json", text, n);
    assert_int_not_equal(open_written(), ECH_OK);
    assert_error_has("tokenizer.json");
    assert_error_has(why);
}

TEST(test_no_tokenizer)
{
    const char *const texts[][2] = {
        {"", "bad JSON"},
        {"[]", "must be a JSON object"},
        {"{\"a\": 1}", "pre_tokenizer: must be"},
        {"{\"a\": \"\\u0000\"}", "bad JSON"},
        {"{\"a\": \"\xff\"}", "bad JSON"},
        {"{\"a\": 1, \"a\": 2}", "bad JSON: duplicate"},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}}",
         "\"model\""},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"model\": "
         "{\"type\": \"Unigram\"}}",
         "model.type is Unigram"},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"model\": "
         "{\"vocab\": [], \"merges\": []}}",
         "model.vocab: must be an object"},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"model\": "
         "{\"vocab\": {}, \"merges\": []}}",
         "no token for byte 0x00"},
        {"{\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"model\": "
         "{\"vocab\": {}}}",
         "model.merges: must be an array"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_text_refused(texts[i][0], strlen(texts[i][0]), texts[i][1]);
    unlink(in_scratch("tokenizer.json"));
    assert_int_equal(open_written(), ECH_EUSAGE);
    assert_error_has("holds no tokenizer: neither tokenizer.json, nor encoder.json and vocab.bpe");
    write_file("tokenizer.model", "\n", 1);
    assert_int_equal(open_written(), ECH_EINPUT);
    assert_error_has("tokenizer.model: is not a tokenizer.model of SentencePiece, or is damaged");
}

/* A small file that would fill memory, or the stack, as a tree of values. */
TEST(test_bombs)
{
    enum { BYTES = 8 << 20, MOST_KIB = 200 << 10 };
    struct rusage before, after;
    char *text = ech_calloc(BYTES, 1);
    getrusage(RUSAGE_SELF, &before);
    memset(text, '[', BYTES);
    assert_text_refused(text, BYTES, "is beyond what such a file can need");
    for (int i = 0; i < BYTES; i += 3)
        memcpy(text + i, "[],", BYTES - i < 3 ? (size_t)(BYTES - i) : 3);
    text[0] = '[';
    assert_text_refused(text, BYTES, "is beyond what such a file can need");
    getrusage(RUSAGE_SELF, &after);
    assert_true(after.ru_maxrss - before.ru_maxrss < MOST_KIB);
    free(text);
}

TEST(test_ends)
{
    const char *const configs[][2] = {
        {"{\"eos_token\": \"<|end|>\"}",
         "tokenizer_config.json: eos_token: \"<|end|>\" is no token"},
        {"{\"eos_token\": 7}", "tokenizer_config.json: eos_token: must be a string"},
        {"{\"bos_token\": {\"content\": \"no\"}}",
         "tokenizer_config.json: bos_token: \"no\" is no"},
        {"{", "tokenizer_config.json:1:1: bad JSON"},
        /* Hugging Face writes "no limit" so; it is read over. */
        {"{\"model_max_length\": 1000000000000000019884624838656, \"eos_token\": \"<|end|>\"}",
         "is no token"},
    };
    parts none = WITH(added, "");
    write_tokenizer(&none);
    assert_int_equal(open_written(), ECH_EINPUT);
    assert_error_has("which token ends a text?");
    write_tokenizer(&good);
    for (int i = 0; i < 5; i++) {
        write_file("tokenizer_config.json", configs[i][0], strlen(configs[i][0]));
        assert_int_not_equal(open_written(), ECH_OK);
        assert_error_has(configs[i][1]);
    }
    const char last[] = "{\"eos_token\": {\"content\": \"ab\"}}";
    write_file("tokenizer_config.json", last, strlen(last));
    ech_tokenizer *tokenizer;
    assert_int_equal(ech_tokenizer_open(in_scratch("tokenizer.json"), &tokenizer), ECH_OK);
    assert_int_equal(tokenizer->end_of_text, 256);
    ech_tokenizer_close(tokenizer);
}
