/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: conversations in objects of JSON, in the forms of other trainers:
 *
 *     {"messages": [{"role": "user", "content": "..."}, ...]}        OpenAI, TRL
 *     {"prompt": [messages], "completion": [messages]}               TRL
 *     {"conversations": [{"from": "human", "value": "..."}, ...], "system": "..."}    ShareGPT
 *     {"instruction": "...", "input": "...", "output": "...", "system": "..."}        Alpaca
 *     {"segments": [{"role": "user", "text": "...", "trained": false}, ...]}          rendered
 */
#ifndef ECH_DATA_TEXT_CHATS_H
#define ECH_DATA_TEXT_CHATS_H

#include "data/chat.h"
#include "data/json_scan.h"

/* An object of a file; errors name path and line. */
typedef struct ech_text_object {
    const char *path;
    int64_t line;
    const char *text;
    size_t n;
    bool valid;
} ech_text_object;

/* "FILE:LINE:COLUMN: no JSON: WHY". at: byte of the object. */
ech_status ech_text_complain(const ech_text_object *o, size_t at, const char *why);
/* True if there is a value, and it is not null. */
bool ech_text_has(const ech_text_object *o, ech_json_span span);

/* Values of an object by the keys of conversations; prompt and completion have keys of their
 * own. */
enum {
    ECH_CHAT_MESSAGES,
    ECH_CHAT_CONVERSATIONS,
    ECH_CHAT_INSTRUCTION,
    ECH_CHAT_INPUT,
    ECH_CHAT_OUTPUT,
    ECH_CHAT_SYSTEM,
    ECH_CHAT_HISTORY,
    ECH_CHAT_SEGMENTS,
    ECH_CHAT_TOOLS,
    ECH_CHAT_KEYS
};
extern const char *const ech_chat_keys[ECH_CHAT_KEYS];

/* Reads the conversation of an object, if it has one, into *chat. `prompt` and `completion`: values
 * that may be lists of messages. *found: there is one. Errors: messages without role and content, a
 * role that is not known, roles in an order that is impossible. */
ech_status ech_text_read_chat(const ech_text_object *o, const ech_json_span *span,
                              ech_json_span prompt, ech_json_span completion,
                              const ech_chat_template *chat_template, ech_chat *chat, bool *found);

#endif
