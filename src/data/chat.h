/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: conversations. A conversation has messages. A chat template turns it into a
 * text, and the tokenizer turns that into ids, exactly as Hugging Face's apply_chat_template does
 * (add_generation_prompt=False), with return_assistant_tokens_mask.
 */
#ifndef ECH_DATA_CHAT_H
#define ECH_DATA_CHAT_H

#include "base/memory.h"
#include "data/data.h"

typedef struct ech_chat_message {
    ech_speaker role;
    bool trained; /* an answer that is trained on */
    size_t at, n; /* its content: bytes of ech_chat.text */
} ech_chat_message;

typedef struct ech_chat {
    ECH_LIST(ech_chat_message) message;
    ech_text text;
    bool rendered; /* messages are parts of the text that a template has written already */
} ech_chat;

void ech_chat_clear(ech_chat *chat); /* no messages; keeps the memory */
void ech_chat_free(ech_chat *chat);  /* accepts {0} */
/* True if some message is trained on. */
bool ech_chat_trains(const ech_chat *chat);

/* Checks the order of roles: perhaps a system message, then user and assistant in turn. Returns
 * NULL, or what is wrong with message *message. chat_template: that it has a system message; NULL:
 * any has. */
const char *ech_chat_check(const ech_chat *chat, const ech_chat_template *chat_template,
                           size_t *message);

/* True if the template does not write the conversation's system message. */
bool ech_chat_loses_system(const ech_chat *chat, const ech_chat_template *chat_template);

/* What becomes of the reasoning of an answer, <think>...</think>, under a template that thinks. */
typedef enum ech_chat_thought {
    ECH_THOUGHT_REMOVED, /* of an answer before the last question */
    ECH_THOUGHT_KEPT,    /* written if there is some */
    ECH_THOUGHT_WRITTEN  /* written, though it may be empty: of the last message */
} ech_chat_thought;

/* Appends an answer as Qwen3's template writes it. Its reasoning is what stands before the first
 * </think> and after the last <think> before that; newlines around it are not part of it. */
void ech_chat_think(const char *answer, size_t n, ech_chat_thought thought, ech_text *out);
/* The number of the last user's message that is no response of a tool, as Qwen3's template looks
 * for it; the last message's if there is none. */
size_t ech_chat_last_question(const ech_chat *chat);

/* Part of a rendered conversation. */
typedef struct ech_chat_part {
    size_t end; /* where it ends in the text; it begins where the one before ends */
    int32_t id; /* this token instead of text, which is then empty; -1: text */
    ech_speaker role;
    bool trained;
} ech_chat_part;

typedef struct ech_chat_text {
    ech_text text;
    ECH_LIST(ech_chat_part) part;
} ech_chat_text;

void ech_chat_text_free(ech_chat_text *text); /* accepts {0} */
/* Replaces *out. Contents are normalized as the tokenizer does, so that its tokens are found in the
 * text. chat_template: not needed if the chat is rendered. */
ech_status ech_chat_render(const ech_chat *chat, const ech_chat_template *chat_template,
                           const ech_tokenizer *tokenizer, ech_chat_text *out);

/* A token of a conversation. A token is trained on if some of its bytes are. */
typedef struct ech_chat_token {
    int32_t id;
    ech_speaker role;
    bool trained;
} ech_chat_token;
typedef ECH_LIST(ech_chat_token) ech_chat_tokens;

/* Replaces *out by the text of a token, as texts have it: of special tokens the name. */
void ech_chat_put_form(const ech_tokenizer *tokenizer, int32_t id, ech_text *out);

/* Appends the tokens. The coder must not keep special tokens. */
ech_status ech_chat_encode(const ech_chat_text *text, const ech_tokenizer *tokenizer,
                           ech_coder *coder, ech_chat_tokens *out);

#endif
