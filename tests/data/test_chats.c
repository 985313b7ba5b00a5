/* SPDX-License-Identifier: Apache-2.0
 *
 * Conversations: the forms that are read, what is trained on, what each template writes, and what
 * is refused. (check_chats.py compares templates and masks with transformers.)
 */
#include "data/imports.h"

#include "data/chat_template.h"

/* The documents of a token file of bytes: trained tokens in capitals' place stand between [ and ],
 * end-of-text is |, and documents are divided by #. */
static void print_documents(const char *name, ech_text *out)
{
    ech_token_file *file = open_tokens(name);
    const ech_token_runs *runs = &file->runs;
    for (size_t i = 0; i < runs->run.n; i++) {
        ech_token_run run = runs->run.at[i];
        if (i > 0 && run.opens) ech_text_append(out, "#");
        if (!run.silent) ech_text_append(out, "[");
        for (int64_t at = run.first; at < ech_token_run_end(runs, i); at++) {
            int32_t id;
            assert_int_equal(ech_token_file_read(file, at, 1, 257, &id), ECH_OK);
            ech_text_append(out, "%c", id == 256 ? '|' : (char)id);
        }
        if (!run.silent) ech_text_append(out, "]");
    }
    ech_token_file_close(file);
}

static void assert_import(const char *lines, ech_import_options options, const char *expected)
{
    ECH_FREED_TEXT is = {0};
    ech_import_count count;
    write_text("in.jsonl", lines);
    assert_int_equal(import_with(options, "in.jsonl", "t", &count), ECH_OK);
    print_documents("t", &is);
    assert_string_equal(is.at, expected);
}

#define SAY(role, content) "{\"role\": \"" role "\", \"content\": \"" content "\"}"
#define MESSAGES(...)      "{\"messages\": [" __VA_ARGS__ "]}\n"

TEST(test_forms)
{
    const ech_import_options none = {0};
    assert_import(MESSAGES(SAY("user", "a") ", " SAY("assistant", "b")), none,
                  "User: a\n\nAssistant: [b|]");
    assert_import(MESSAGES(SAY("system", "s") "," SAY("user", "a") "," SAY(
                      "assistant", "b") "," SAY("user", "c") "," SAY("assistant", "")),
                  none, "s\n\nUser: a\n\nAssistant: [b|]User: c\n\nAssistant: [|]");
    /* Answers of a prompt are not trained on. */
    assert_import("{\"prompt\": [" SAY("user", "a") "," SAY("assistant", "b") "," SAY(
                      "user", "c") "], \"completion\": [" SAY("assistant", "d") "]}\n",
                  none, "User: a\n\nAssistant: b|User: c\n\nAssistant: [d|]");
    assert_import(
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"a\"}, {\"value\": \"b\", "
        "\"from\": \"gpt\"}], \"system\": \"s\"}\n",
        none, "s\n\nUser: a\n\nAssistant: [b|]");
    assert_import(
        "{\"instruction\": \"i\", \"input\": \"j\", \"output\": \"o\", \"history\": []}\n"
        "{\"instruction\": \"i\", \"input\": \"\", \"output\": \"o\", \"system\": \"\"}\n",
        none, "User: i\nj\n\nAssistant: [o|]#User: i\n\nAssistant: [o|]");
    /* Of a model that may call tools, but has none here. */
    assert_import(
        "{\"messages\": [" SAY(
            "user",
            "a") ", {\"role\": \"assistant\", \"content\": "
                 "\"b\", \"tool_calls\": [ ], \"reasoning_content\": \"\"}], \"tools\": null}\n"
                 "{\"conversations\": [" SAY("user", "c") "," SAY("assistant",
                                                                  "d") "], "
                                                                       "\"tools\": \"[]\"}\n",
        none, "User: a\n\nAssistant: [b|]#User: c\n\nAssistant: [d|]");
    /* Beside other lines, and in an array. */
    assert_import("{\"text\": \"t\"}\n" MESSAGES(SAY("user", "\\u0061\\n") "," SAY(
                      "gpt", "b")) "{\"prompt\": \"p\", \"completion\": \"q\"}\n",
                  none, "[t|]#User: a\n\n\nAssistant: [b|]#p[q|]");
    assert_import("[" MESSAGES(SAY("user", "a") "," SAY("model", "b")) ", {\"text\": \"t\"}]", none,
                  "User: a\n\nAssistant: [b|]#[t|]");
}

/* Rendered by another program, here in a folder whose template is not built in. */
#define SEGMENT(role, text, trained)                                                               \
    "{\"role\": \"" role "\", \"text\": \"" text "\", \"trained\": " trained "}"

TEST(test_segments)
{
    assert_import("{\"segments\": [" SEGMENT("user", "a", "false") "," SEGMENT(
                      "assistant", "b", "true") "," SEGMENT("assistant", "c", "false") "]}\n",
                  (ech_import_options){0}, "a[b]c");
}

/* Conversations without an answer are skipped and counted. */
TEST(test_without_an_answer)
{
    const char *lines = MESSAGES(SAY("user", "a")) MESSAGES("")
        MESSAGES(SAY("user", "a") "," SAY("assistant", "b")) "{\"prompt\": [" SAY(
            "user", "a") "," SAY("assistant", "b") "], \"completion\": []}\n";
    ech_import_count count;
    ech_import_options options = {.trains_on_all = true};
    write_text("in.jsonl", lines);
    assert_int_equal(import("in.jsonl", "t", 0, &count), ECH_OK);
    assert_int_equal(count.documents, 1);
    assert_int_equal(count.chats, 1);
    assert_int_equal(count.unanswered, 3);
    assert_string_equal(count.chat_template, "plain");
    assert_import(lines, options,
                  "[User: a\n\n]#[User: a\n\nAssistant: b|]#[User: a\n\nAssistant: b|]");
    write_text("in.jsonl", MESSAGES(SAY("user", "a")));
    assert_int_equal(import("in.jsonl", "t", 0, &count), ECH_EINPUT);
    assert_error_has("in.jsonl: no conversation has an assistant's message (1 conversation)");
}

/* Only a question at the end has the system's message before it. */
TEST(test_system_that_is_not_written)
{
    const ech_chat_template *v03 = ech_chat_templates, *other = v03;
    const ech_speaker roles[] = {ECH_SPEAKER_SYSTEM, ECH_SPEAKER_USER, ECH_SPEAKER_ASSISTANT};
    while (strcmp(v03->name, "mistral-v0.3") != 0) v03++;
    ech_chat chat = {0};
    for (int i = 0; i < 3; i++) ECH_PUSH(chat.message, (ech_chat_message){.role = roles[i]});
    assert_true(ech_chat_loses_system(&chat, v03));
    assert_false(ech_chat_loses_system(&chat, other));
    chat.message.n = 2;
    assert_false(ech_chat_loses_system(&chat, v03));
    chat.message.at[0].role = ECH_SPEAKER_USER;
    chat.message.at[1].role = ECH_SPEAKER_ASSISTANT;
    assert_false(ech_chat_loses_system(&chat, v03));
    ech_chat_free(&chat);
}

/* Line 3 is refused, and left out where the user wants that. */
static void assert_refused(const char *line, const char *why)
{
    ECH_FREED_TEXT all = {0};
    ech_import_count count;
    ech_text_append(&all, "\n%s%s", MESSAGES(SAY("user", "a") "," SAY("assistant", "b")), line);
    write_text("in.jsonl", all.at);
    assert_int_equal(import("in.jsonl", "t", 0, &count), ECH_EINPUT);
    assert_error_has("in.jsonl:3");
    assert_error_has(why);
    assert_int_equal(
        import_with((ech_import_options){.texts.skip_bad = 1}, "in.jsonl", "t", &count), ECH_OK);
    assert_int_equal(count.bad, 1);
    assert_int_equal(count.documents, 1);
}

TEST(test_refused)
{
    static const char user[] = "message 1: here a user's message must come";
    static const char assistant[] = "message 2: here an assistant's message must come";
    assert_refused(MESSAGES(SAY("assistant", "a")), user);
    assert_refused(MESSAGES(SAY("user", "a") "," SAY("user", "b")), assistant);
    assert_refused(MESSAGES(SAY("user", "a") "," SAY("system", "b")), assistant);
    assert_refused(MESSAGES(SAY("system", "a") "," SAY("assistant", "b")),
                   "message 2: here a user's message must come");
    assert_refused(MESSAGES(SAY("tool", "a")), "message 1 has the role \"tool\"; known are system");
    assert_refused(MESSAGES("{\"role\": \"user\"}"), "message 1 has no string \"content\"");
    assert_refused(MESSAGES("{\"content\": \"user\"}"), "message 1 has no string \"role\"");
    assert_refused(MESSAGES("{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}"),
                   "lists of parts are not read");
    assert_refused(MESSAGES(SAY("user", "a") ",{\"role\": \"assistant\", \"content\": \"\", "
                                             "\"tool_calls\": [{}]}"),
                   "message 2 has \"tool_calls\", which built-in chat templates do not write; "
                   "render the conversations with python -m echelon.chats");
    assert_refused(MESSAGES(SAY("user", "a") ",{\"role\": \"assistant\", \"content\": \"\", "
                                             "\"reasoning_content\": \"b\"}"),
                   "message 2 has \"reasoning_content\"");
    assert_refused("{\"messages\": [], \"tools\": [{}]}\n",
                   "\"tools\" are not written by built-in chat templates");
    assert_refused("{\"conversations\": [], \"tools\": \"[{}]\"}\n", "\"tools\" are not written");
    assert_refused(MESSAGES("1"), "not JSON: it must be an object");
    assert_refused(MESSAGES(SAY("user", "a") " " SAY("user", "a")), "the end of the messages");
    assert_refused(MESSAGES(SAY("user", "a") ","), "it must be an object");
    assert_refused(MESSAGES(SAY("user", "\\ud800")), "half of a surrogate pair");
    assert_refused("{\"segments\": [{\"role\": \"user\", \"text\": \"a\"}]}\n",
                   "segment 1 must have strings \"role\" and \"text\", and \"trained\"");
    assert_refused("{\"segments\": [" SEGMENT("x", "a", "true") "]}\n", "has the role \"x\"");
    assert_refused("{\"conversations\": [], \"system\": 1}\n", "\"system\" must be a string");
    assert_refused("{\"instruction\": \"a\", \"input\": 1, \"output\": \"b\"}\n",
                   "\"input\" must be a string");
    assert_refused("{\"instruction\": \"a\", \"output\": \"b\", \"history\": [[\"c\", \"d\"]]}\n",
                   "\"history\" is not read");
}

/* ---- templates ---- */

/* A conversation as text; end-of-text is |, begin of text is ^. */
static void assert_rendered(const char *name, const char *roles, const char *expected)
{
    ECH_CLEANUP(ech_tokenizer_close_at) ech_tokenizer *tokenizer = NULL;
    ech_chat chat = {0};
    ech_chat_text text = {0};
    ECH_FREED_TEXT is = {0};
    const ech_chat_template *row = ech_chat_templates;
    size_t message, at = 0;
    assert_int_equal(ech_tokenizer_open("bytes", &tokenizer), ECH_OK);
    while (strcmp(row->from, name) != 0) row++;
    for (; *roles; roles++) {
        ech_speaker role = *roles == 's'   ? ECH_SPEAKER_SYSTEM
                           : *roles == 'u' ? ECH_SPEAKER_USER
                                           : ECH_SPEAKER_ASSISTANT;
        ECH_PUSH(chat.message,
                 (ech_chat_message){role, role == ECH_SPEAKER_ASSISTANT, chat.text.n, 7});
        ech_text_append(&chat.text, " \xc2\xa0%c \n\t", *roles);
    }
    const char *why = ech_chat_check(&chat, row, &message);
    if (why) {
        assert_non_null(strstr(why, expected));
    } else {
        assert_int_equal(ech_chat_render(&chat, row, tokenizer, &text), ECH_OK);
        for (size_t i = 0; i < text.part.n; i++) {
            const ech_chat_part *part = &text.part.at[i];
            bool empty = part->id < 0 && part->end == at;
            if (part->id >= 0) ech_text_append(&is, i ? "|" : "^");
            if (part->trained && !empty) ech_text_append(&is, "[");
            ech_text_append_bytes(&is, text.text.at + at, part->end - at);
            if (part->trained && !empty) ech_text_append(&is, "]");
            at = part->end;
        }
        assert_string_equal(is.at, expected);
    }
    ech_chat_free(&chat);
    ech_chat_text_free(&text);
}

#define RAW(c) " \xc2\xa0" c " \n\t"

TEST(test_templates)
{
    assert_rendered("ChatML; Qwen3-2507", "ua",
                    "<|im_start|>user\n" RAW("u") "<|im_end|>\n<|im_start|>assistant\n[" RAW(
                        "a") "<|im_end|>]\n");
    assert_rendered("Qwen2", "u",
                    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
                    "<|im_start|>user\n" RAW("u") "<|im_end|>\n");
    assert_rendered(
        "Qwen2", "su",
        "<|im_start|>system\n" RAW("s") "<|im_end|>\n<|im_start|>user\n" RAW("u") "<|im_end|>\n");
    assert_rendered("Llama 3", "sua",
                    "^<|start_header_id|>system<|end_header_id|>\n\ns<|eot_id|>"
                    "<|start_header_id|>user<|end_header_id|>\n\nu<|eot_id|>"
                    "<|start_header_id|>assistant<|end_header_id|>\n\n[a<|eot_id|>]");
    assert_rendered("Gemma, Gemma 2", "ua",
                    "^<start_of_turn>user\nu<end_of_turn>\n<start_of_turn>model\n"
                    "[a<end_of_turn>]\n");
    assert_rendered("Gemma, Gemma 2", "sua", "has no system message");
    assert_rendered("Gemma 3", "suau",
                    "^<start_of_turn>user\n" RAW("s") "\n\nu<end_of_turn>\n<start_of_turn>model\n"
                                                      "[a<end_of_turn>]\n"
                                                      "<start_of_turn>user\nu<end_of_turn>\n");
    assert_rendered("Gemma 3", "s", "needs a user's message");
    assert_rendered("Mistral 7B v0.2", "uau",
                    "^[INST] " RAW("u") " [/INST][" RAW("a") "]|[][INST] " RAW("u") " [/INST]");
    assert_rendered("Mistral 7B v0.1", "su", "has no system message");
#define SYSTEM_31                                                                                  \
    "^<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"       \
    "Today Date: 26 Jul 2024\n\n"
    assert_rendered("Llama 3.1, 3.3", "u",
                    SYSTEM_31 "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nu<|eot_id|>");
    assert_rendered("Llama 3.1, 3.3", "su",
                    SYSTEM_31 "s<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nu<|eot_id|>");
    /* The system's message is written before the last question only if nothing answers that. */
    assert_rendered("Mistral 7B v0.3, Mixtral 8x22B v0.1", "sua",
                    "^[INST] " RAW("u") "[/INST] [a]|[]");
    assert_rendered("Mistral 7B v0.3, Mixtral 8x22B v0.1", "suau",
                    "^[INST] " RAW("u") "[/INST] [a]|[][INST] " RAW("s") "\n\n" RAW("u") "[/INST]");
    assert_rendered("Mistral Nemo, Large 2407", "ua",
                    "^[INST]" RAW("u") "[/INST][" RAW("a") "]|[]");
    assert_rendered("Phi-3", "sua",
                    "<|system|>\n" RAW("s") "<|end|>\n<|user|>\n" RAW(
                        "u") "<|end|>\n<|assistant|>\n[" RAW("a") "<|end|>]\n|[]");
    assert_rendered(
        "Zephyr, TinyLlama", "sua",
        "<|system|>\n" RAW("s") "|\n<|user|>\n" RAW("u") "|\n<|assistant|>\n[" RAW("a") "]|[]\n");
    assert_rendered(
        "Qwen3", "uaua",
        "<|im_start|>user\n" RAW("u") "<|im_end|>\n<|im_start|>assistant\n[" RAW(
            "a") "<|im_end|>]\n<|im_start|>user\n" RAW("u") "<|im_end|>\n<|im_start|>assistant\n[<"
                                                            "think>\n\n</think>\n\n" RAW("a") "<|"
                                                                                              "im_"
                                                                                              "end|"
                                                                                              ">]"
                                                                                              "\n");
}

static void assert_thinks(const char *answer, ech_chat_thought thought, const char *expected)
{
    ECH_FREED_TEXT is = {0};
    ech_chat_think(answer, strlen(answer), thought, &is);
    assert_string_equal(is.at ? is.at : "", expected);
}

/* Reasoning ends before the first </think>; the answer begins after the last one. */
TEST(test_reasoning)
{
    static const char both[] = "x<think>\n\nr\n\n</think>\n\na\n";
    assert_thinks(both, ECH_THOUGHT_REMOVED, "a\n");
    assert_thinks(both, ECH_THOUGHT_KEPT, "<think>\nr\n</think>\n\na\n");
    assert_thinks(both, ECH_THOUGHT_WRITTEN, "<think>\nr\n</think>\n\na\n");
    assert_thinks("\na", ECH_THOUGHT_REMOVED, "\na");
    assert_thinks("\na", ECH_THOUGHT_KEPT, "\na");
    assert_thinks("\na", ECH_THOUGHT_WRITTEN, "<think>\n\n</think>\n\na");
    assert_thinks("r</think>s</think>a", ECH_THOUGHT_KEPT, "<think>\nr\n</think>\n\na");
    assert_thinks("</think>", ECH_THOUGHT_KEPT, "");
    assert_thinks("", ECH_THOUGHT_REMOVED, "");
}

/* A tool's response is no question. */
TEST(test_last_question)
{
    static const struct {
        ech_speaker role;
        const char *text;
    } messages[] = {{ECH_SPEAKER_USER, "<tool_response>a</tool_response>"},
                    {ECH_SPEAKER_ASSISTANT, "b"},
                    {ECH_SPEAKER_USER, "<tool_response>"},
                    {ECH_SPEAKER_ASSISTANT, "c"},
                    {ECH_SPEAKER_USER, "<tool_response>d</tool_response>"},
                    {ECH_SPEAKER_ASSISTANT, "e"}};
    static const size_t last[] = {0, 1, 2, 2, 2, 2};
    ech_chat chat = {0};
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
        ECH_PUSH(chat.message, (ech_chat_message){messages[i].role, false, chat.text.n,
                                                  strlen(messages[i].text)});
        ech_text_append(&chat.text, "%s", messages[i].text);
        assert_int_equal(ech_chat_last_question(&chat), last[i]);
    }
    ech_chat_free(&chat);
}

/* A template is known by its text, with or without a newline at its end. */
TEST(test_template_of_a_text)
{
    static const char plain[] =
        "{% for message in messages %}{% if message['role'] == 'assistant' %}"
        "{{ 'Assistant: ' + message['content'] + eos_token }}{% elif message['role'] == 'user' %}"
        "{{ 'User: ' + message['content'] + '\n\n' }}{% else %}{{ message['content'] + '\n\n' }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant: ' }}{% endif %}";
    ECH_FREED_TEXT text = {0};
    assert_string_equal(ech_chat_template_name(ech_chat_template_of(plain)), "plain");
    ech_text_append(&text, "%s\n", plain);
    assert_string_equal(ech_chat_template_name(ech_chat_template_of(text.at)), "plain");
    ech_text_append(&text, "\n");
    assert_null(ech_chat_template_of(text.at));
    assert_null(ech_chat_template_of(""));
}

/* The conversation that a user is shown. */
static void note_token(const char *bytes, size_t n, ech_speaker role, bool trained, void *context)
{
    ech_text_append(context, "%d%s", (int)role, trained ? "!" : "");
    ech_text_append_bytes(context, bytes, n);
}

TEST(test_first_conversation)
{
    ECH_CLEANUP(ech_tokenizer_close_at) ech_tokenizer *tokenizer = NULL;
    ECH_FREED_TEXT is = {0};
    assert_int_equal(ech_tokenizer_open("bytes", &tokenizer), ECH_OK);
    write_text("in.jsonl",
               MESSAGES(SAY("user", "x")) MESSAGES(SAY("user", "a") "," SAY("assistant", "b")));
    const ech_import_options options = {.texts.in = in_scratch("in.jsonl"), .tokenizer = tokenizer};
    assert_int_equal(ech_data_first_chat(&options, note_token, &is), ECH_OK);
    assert_string_equal(is.at, "1U1s1e1r1:1 1a1\n1\n2A2s2s2i2s2t2a2n2t2:2 2!b2!<|endoftext|>");
}

static void nothing(const char *bytes, size_t n, ech_speaker role, bool trained, void *context)
{
    (void)bytes, (void)n, (void)role, (void)trained;
    *(bool *)context = true;
}

TEST(test_no_conversation_to_show)
{
    ECH_CLEANUP(ech_tokenizer_close_at) ech_tokenizer *tokenizer = NULL;
    bool called = false;
    assert_int_equal(ech_tokenizer_open("bytes", &tokenizer), ECH_OK);
    write_text("in.txt", "a text");
    const ech_import_options options = {.texts.in = in_scratch("in.txt"), .tokenizer = tokenizer};
    assert_int_equal(ech_data_first_chat(&options, nothing, &called), ECH_OK);
    assert_false(called);
}
