/* SPDX-License-Identifier: Apache-2.0
 *
 * From objects of JSON to conversations.
 */
#include "data/text_chats.h"

#include <string.h>

const char *const ech_chat_keys[ECH_CHAT_KEYS] = {"messages", "conversations", "instruction",
                                                  "input",    "output",        "system",
                                                  "history",  "segments",      "tools"};

ech_status ech_text_complain(const ech_text_object *o, size_t at, const char *why)
{
    ECH_FAIL(ECH_EINPUT,
             "%s:%lld:%zu: not JSON: %s; correct it here, or leave out bad lines with --skip-bad",
             o->path, (long long)o->line, at + 1, why);
}

bool ech_text_has(const ech_text_object *o, ech_json_span span)
{
    return span.n > 0 && !(span.n == 4 && memcmp(o->text + span.at, "null", 4) == 0);
}

static bool is_list(const ech_text_object *o, ech_json_span span)
{
    return span.n > 0 && o->text[span.at] == '[';
}

static bool is_string(const ech_text_object *o, ech_json_span span)
{
    return span.n > 0 && o->text[span.at] == '"';
}

/* ---- messages ---- */

static ech_status add_message(const ech_text_object *o, ech_json_span content, ech_speaker role,
                              bool trained, ech_chat *chat)
{
    ECH_FREED_TEXT room = {0};
    const char *text;
    size_t n;
    const char *why = ech_json_decode(o->text, content, &room, &text, &n);
    if (why) return ech_text_complain(o, content.at, why);
    ECH_PUSH(chat->message,
             (ech_chat_message){role, trained && role == ECH_SPEAKER_ASSISTANT, chat->text.n, n});
    ech_text_append_bytes(&chat->text, text, n);
    return ECH_OK;
}

/* Names of roles, as several trainers write them. */
static const struct {
    const char *name;
    ech_speaker role;
} roles[] = {{"system", ECH_SPEAKER_SYSTEM}, {"user", ECH_SPEAKER_USER},
             {"human", ECH_SPEAKER_USER},    {"assistant", ECH_SPEAKER_ASSISTANT},
             {"gpt", ECH_SPEAKER_ASSISTANT}, {"model", ECH_SPEAKER_ASSISTANT}};

static ech_status find_role(const ech_text_object *o, ech_json_span span, size_t number,
                            ech_speaker *out)
{
    ECH_FREED_TEXT room = {0};
    const char *name;
    size_t n;
    const char *why = ech_json_decode(o->text, span, &room, &name, &n);
    if (why) return ech_text_complain(o, span.at, why);
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        *out = roles[i].role;
        if (strlen(roles[i].name) == n && memcmp(roles[i].name, name, n) == 0) return ECH_OK;
    }
    ECH_FAIL(ECH_EINPUT,
             "%s:%lld: message %zu has the role \"%.*s\"; known are system, user (human) and "
             "assistant (gpt, model)",
             o->path, (long long)o->line, number, n < 40 ? (int)n : 40, name);
}

/* True if a value is empty: not there, null, "", [] or "[]". */
static bool is_empty(const ech_text_object *o, ech_json_span span)
{
    size_t at = span.at, end = span.at + span.n;
    if (!ech_text_has(o, span)) return true;
    bool quoted = o->text[at] == '"';
    at += quoted;
    end -= quoted;
    if (at == end) return true;
    return o->text[at] == '[' && ech_json_skip_blanks(o->text, end, at + 1) == end - 1;
}

#define RENDER_IT "python -m echelon.chats IN OUT --tokenizer FOLDER"

enum { ROLE, FROM, CONTENT, VALUE, TOOL_CALLS, REASONING, KEYS };

static ech_status read_message(const ech_text_object *o, size_t *at, bool trained, ech_chat *chat)
{
    static const char *const keys[KEYS] = {"role",  "from",       "content",
                                           "value", "tool_calls", "reasoning_content"};
    ech_json_span span[KEYS];
    ech_speaker role;
    const char *why = ech_json_find(o->text, o->n, *at, keys, KEYS, span, at);
    if (why) return ech_text_complain(o, *at, why);
    ech_json_span name = span[ROLE].n ? span[ROLE] : span[FROM];
    ech_json_span content = span[CONTENT].n ? span[CONTENT] : span[VALUE];
    size_t number = chat->message.n + 1;
    if (!is_string(o, name))
        ECH_FAIL(ECH_EINPUT, "%s:%lld: message %zu has no string \"role\" (or \"from\")", o->path,
                 (long long)o->line, number);
    ECH_TRY(find_role(o, name, number, &role));
    if (!is_empty(o, span[TOOL_CALLS]) || !is_empty(o, span[REASONING]))
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: message %zu has \"%s\", which built-in chat templates do not write; "
                 "render the conversations with " RENDER_IT,
                 o->path, (long long)o->line, number,
                 keys[is_empty(o, span[TOOL_CALLS]) ? REASONING : TOOL_CALLS]);
    if (!is_string(o, content))
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: message %zu has no string \"content\" (or \"value\"); lists of parts "
                 "are not read",
                 o->path, (long long)o->line, number);
    return add_message(o, content, role, trained, chat);
}

/* Reads an element of a list, which begins at *at, and moves *at to its end. */
typedef ech_status (*read_element)(const ech_text_object *o, size_t *at, bool trained,
                                   ech_chat *chat);

static ech_status read_list(const ech_text_object *o, ech_json_span list, bool trained,
                            read_element read, ech_chat *chat)
{
    size_t end = list.at + list.n, at = ech_json_skip_blanks(o->text, end, list.at + 1);
    if (o->text[at] == ']') return ECH_OK;
    for (;;) {
        ECH_TRY(read(o, &at, trained, chat));
        at = ech_json_skip_blanks(o->text, end, at);
        if (at < end && o->text[at] == ']') return ECH_OK;
        if (at == end || o->text[at] != ',')
            return ech_text_complain(o, at, "expected a comma or the end of the messages");
        at = ech_json_skip_blanks(o->text, end, at + 1);
    }
}

static ech_status read_messages(const ech_text_object *o, ech_json_span list, bool trained,
                                ech_chat *chat)
{
    return read_list(o, list, trained, read_message, chat);
}

/* Part of a text that another program has rendered. */
static ech_status read_segment(const ech_text_object *o, size_t *at, bool trained, ech_chat *chat)
{
    static const char *const keys[] = {"role", "text", "trained"};
    ech_json_span span[3];
    ech_speaker role;
    const char *why = ech_json_find(o->text, o->n, *at, keys, 3, span, at);
    if (why) return ech_text_complain(o, *at, why);
    size_t number = chat->message.n + 1;
    bool yes = span[2].n == 4 && memcmp(o->text + span[2].at, "true", 4) == 0;
    bool no = span[2].n == 5 && memcmp(o->text + span[2].at, "false", 5) == 0;
    if (!is_string(o, span[0]) || !is_string(o, span[1]) || !(yes || no))
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: segment %zu must have strings \"role\" and \"text\", and \"trained\" "
                 "true or false",
                 o->path, (long long)o->line, number);
    ECH_TRY(find_role(o, span[0], number, &role));
    ECH_TRY(add_message(o, span[1], role, false, chat));
    chat->message.at[number - 1].trained = trained && yes;
    return ECH_OK;
}

/* ---- forms ---- */

/* A system message that an object has beside its conversation. */
static ech_status read_system(const ech_text_object *o, ech_json_span system, ech_chat *chat)
{
    if (!ech_text_has(o, system)) return ECH_OK;
    if (!is_string(o, system))
        ECH_FAIL(ECH_EINPUT, "%s:%lld: \"system\" must be a string", o->path, (long long)o->line);
    if (system.n == 2) return ECH_OK; /* "" */
    return add_message(o, system, ECH_SPEAKER_SYSTEM, false, chat);
}

/* The instruction, with the input on another line. */
static ech_status read_alpaca(const ech_text_object *o, const ech_json_span *span, ech_chat *chat)
{
    ech_json_span input = span[ECH_CHAT_INPUT], history = span[ECH_CHAT_HISTORY];
    if (is_list(o, history) && o->text[ech_json_skip_blanks(o->text, o->n, history.at + 1)] != ']')
        ECH_FAIL(ECH_EINPUT,
                 "%s:%lld: \"history\" is not read; write the conversation as \"messages\"",
                 o->path, (long long)o->line);
    if (ech_text_has(o, input) && !is_string(o, input))
        ECH_FAIL(ECH_EINPUT, "%s:%lld: \"input\" must be a string", o->path, (long long)o->line);
    ECH_TRY(read_system(o, span[ECH_CHAT_SYSTEM], chat));
    ECH_TRY(add_message(o, span[ECH_CHAT_INSTRUCTION], ECH_SPEAKER_USER, false, chat));
    if (is_string(o, input) && input.n > 2) {
        ech_chat_message *message = &chat->message.at[chat->message.n - 1];
        size_t n = chat->message.n, at = message->at;
        ech_text_append(&chat->text, "\n");
        ECH_TRY(add_message(o, input, ECH_SPEAKER_USER, false, chat));
        chat->message.n = n;
        chat->message.at[n - 1].n = chat->text.n - at;
    }
    return add_message(o, span[ECH_CHAT_OUTPUT], ECH_SPEAKER_ASSISTANT, true, chat);
}

static ech_status check_tools(const ech_text_object *o, ech_json_span tools)
{
    if (is_empty(o, tools)) return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s:%lld: \"tools\" are not written by built-in chat templates; render the "
             "conversations with " RENDER_IT,
             o->path, (long long)o->line);
}

static ech_status read_form(const ech_text_object *o, const ech_json_span *span,
                            ech_json_span prompt, ech_json_span completion, ech_chat *chat,
                            bool *found)
{
    *found = true;
    chat->rendered = is_list(o, span[ECH_CHAT_SEGMENTS]);
    if (chat->rendered) return read_list(o, span[ECH_CHAT_SEGMENTS], true, read_segment, chat);
    if (is_list(o, span[ECH_CHAT_MESSAGES]) || is_list(o, span[ECH_CHAT_CONVERSATIONS]))
        ECH_TRY(check_tools(o, span[ECH_CHAT_TOOLS]));
    if (is_list(o, span[ECH_CHAT_MESSAGES]))
        return read_messages(o, span[ECH_CHAT_MESSAGES], true, chat);
    if (is_list(o, span[ECH_CHAT_CONVERSATIONS])) {
        ECH_TRY(read_system(o, span[ECH_CHAT_SYSTEM], chat));
        return read_messages(o, span[ECH_CHAT_CONVERSATIONS], true, chat);
    }
    if (is_list(o, prompt) && is_list(o, completion)) {
        ECH_TRY(read_messages(o, prompt, false, chat));
        return read_messages(o, completion, true, chat);
    }
    if (is_string(o, span[ECH_CHAT_INSTRUCTION]) && is_string(o, span[ECH_CHAT_OUTPUT]))
        return read_alpaca(o, span, chat);
    *found = false;
    return ECH_OK;
}

ech_status ech_text_read_chat(const ech_text_object *o, const ech_json_span *span,
                              ech_json_span prompt, ech_json_span completion,
                              const ech_chat_template *chat_template, ech_chat *chat, bool *found)
{
    size_t message;
    ech_chat_clear(chat);
    ECH_TRY(read_form(o, span, prompt, completion, chat, found));
    const char *why = *found ? ech_chat_check(chat, chat_template, &message) : NULL;
    if (!why) return ECH_OK;
    ECH_FAIL(ECH_EINPUT, "%s:%lld: message %zu: %s", o->path, (long long)o->line, message + 1, why);
}
