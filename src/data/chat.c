/* SPDX-License-Identifier: Apache-2.0
 *
 * From conversations to text, and from text to tokens with roles.
 */
#include "data/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "data/bpe/coder.h"
#include "data/chat_template.h"

void ech_chat_clear(ech_chat *chat)
{
    chat->message.n = 0;
    chat->text.n = 0;
    chat->rendered = false;
}

void ech_chat_free(ech_chat *chat)
{
    free(chat->message.at);
    ech_text_free(&chat->text);
    *chat = (ech_chat){0};
}

bool ech_chat_trains(const ech_chat *chat)
{
    for (size_t i = 0; i < chat->message.n; i++)
        if (chat->message.at[i].trained) return true;
    return false;
}

const char *ech_chat_check(const ech_chat *chat, const ech_chat_template *chat_template,
                           size_t *message)
{
    bool system = chat->message.n > 0 && chat->message.at[0].role == ECH_SPEAKER_SYSTEM;
    *message = 0;
    if (chat->rendered) return NULL;
    if (system && chat_template && chat_template->system_use == ECH_SYSTEM_REFUSED)
        return "the chat template has no system message; put its content into the user's message, "
               "or choose another --chat-template";
    if (system && chat_template && chat_template->system_use == ECH_SYSTEM_JOINED &&
        chat->message.n == 1)
        return "a system message needs a user's message, which the chat template puts it into";
    for (*message = system; *message < chat->message.n; ++*message) {
        bool asks = (*message - system) % 2 == 0;
        if (chat->message.at[*message].role != (asks ? ECH_SPEAKER_USER : ECH_SPEAKER_ASSISTANT))
            return asks ? "here a user's message must come: after a system message, which may be "
                          "left out, user and assistant alternate"
                        : "here an assistant's message must come: user and assistant alternate";
    }
    return NULL;
}

static bool has_system(const ech_chat *chat)
{
    return !chat->rendered && chat->message.n > 0 && chat->message.at[0].role == ECH_SPEAKER_SYSTEM;
}

bool ech_chat_loses_system(const ech_chat *chat, const ech_chat_template *chat_template)
{
    return has_system(chat) && chat_template->system_use == ECH_SYSTEM_LAST &&
           chat->message.at[chat->message.n - 1].role != ECH_SPEAKER_USER;
}

/* ---- to text ---- */

void ech_chat_text_free(ech_chat_text *text)
{
    ech_text_free(&text->text);
    free(text->part.at);
    *text = (ech_chat_text){0};
}

/* Python's str.isspace, which str.strip and Jinja's filter trim use. */
static bool is_space(uint32_t c)
{
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

static void trim(const char **text, size_t *n)
{
    uint32_t code;
    size_t end = 0;
    for (size_t length; *n && is_space((ech_utf8_next(*text, *n, &code), code)); *n -= length) {
        length = ech_utf8_next(*text, *n, &code);
        *text += length;
    }
    for (size_t at = 0, length; at < *n; at += length) {
        length = ech_utf8_next(*text + at, *n - at, &code);
        if (!is_space(code)) end = at + length;
    }
    *n = end;
}

static ech_status append_run(const char *run, size_t n, void *text)
{
    ech_text_append_bytes(text, run, n);
    return ECH_OK;
}

typedef struct renderer {
    const ech_chat_template *how;
    const ech_tokenizer *tokenizer;
    ech_chat_text *out;
} renderer;

/* Ends a part of text. */
static void end_part(const renderer *r, ech_speaker role, bool trained)
{
    ECH_PUSH(r->out->part, (ech_chat_part){r->out->text.n, -1, role, trained});
}

static void put_token(const renderer *r, int32_t id, ech_speaker role, bool trained)
{
    ECH_PUSH(r->out->part, (ech_chat_part){r->out->text.n, id, role, trained});
}

static ech_status put_content(const renderer *r, const char *text, size_t n, bool trims)
{
    if (trims) trim(&text, &n);
    return ech_bpe_each_run(r->tokenizer->bpe->form, text, n, append_run, &r->out->text);
}

static void put(const renderer *r, const char *text)
{
    ech_text_append_bytes(&r->out->text, text, strlen(text));
}

/* Ways in which a message's content is written. */
typedef struct message_form {
    const char *joined; /* the system's content, which stands before it; NULL: none */
    size_t joined_n;
    ech_chat_thought thought; /* of an answer, if the template thinks */
} message_form;

static ech_status render_content(const renderer *r, const ech_chat_message *message,
                                 const char *content, ech_chat_thought thought)
{
    bool answers = message->role == ECH_SPEAKER_ASSISTANT;
    bool trims =
        r->how->does & ECH_CHAT_TRIMS || (answers && r->how->does & ECH_CHAT_TRIMS_ANSWERS);
    ECH_FREED_TEXT text = {0};
    if (!answers || !(r->how->does & ECH_CHAT_THINKS))
        return put_content(r, content, message->n, trims);
    ech_chat_think(content, message->n, thought, &text);
    return put_content(r, text.at ? text.at : "", text.n, false);
}

static ech_status render_message(const renderer *r, const ech_chat_message *message,
                                 const char *content, const message_form *form)
{
    const ech_chat_marks *marks = &r->how->message[message->role];
    put(r, marks->before);
    if (form->joined) {
        ECH_TRY(put_content(r, form->joined, form->joined_n, false));
        put(r, ECH_CHAT_JOINT);
    }
    end_part(r, message->role, false);
    ECH_TRY(render_content(r, message, content, form->thought));
    put(r, marks->after);
    end_part(r, message->role, message->trained);
    if (marks->ends) put_token(r, r->tokenizer->end_of_text, message->role, message->trained);
    put(r, marks->rest);
    end_part(r, message->role, false);
    return ECH_OK;
}

static ech_status copy_rendered(const renderer *r, const ech_chat *chat)
{
    for (size_t i = 0; i < chat->message.n; i++) {
        const ech_chat_message *message = &chat->message.at[i];
        ECH_TRY(put_content(r, chat->text.at + message->at, message->n, false));
        end_part(r, message->role, message->trained);
    }
    return ECH_OK;
}

static ech_chat_thought thought_at(const ech_chat *chat, size_t last_question, size_t i)
{
    bool follows = last_question < i;
    return !follows                  ? ECH_THOUGHT_REMOVED
           : i + 1 < chat->message.n ? ECH_THOUGHT_KEPT
                                     : ECH_THOUGHT_WRITTEN;
}

/* All messages; a system message that has none of its own is put into another one. */
static ech_status render_messages(const renderer *r, const ech_chat *chat)
{
    const ech_chat_message *message = chat->message.at;
    ech_system_use use = r->how->system_use;
    const char *content = chat->text.at ? chat->text.at : "";
    bool moves = has_system(chat) && (use == ECH_SYSTEM_JOINED || use == ECH_SYSTEM_LAST);
    size_t into = use == ECH_SYSTEM_LAST ? chat->message.n - 1 : 1;
    size_t last_question = ech_chat_last_question(chat);
    for (size_t i = moves; i < chat->message.n; i++) {
        message_form form = {.thought = thought_at(chat, last_question, i)};
        if (moves && i == into && message[i].role == ECH_SPEAKER_USER) {
            form.joined = content + message[0].at;
            form.joined_n = message[0].n;
        }
        ECH_TRY(render_message(r, &message[i], content + message[i].at, &form));
    }
    return ECH_OK;
}

ech_status ech_chat_render(const ech_chat *chat, const ech_chat_template *chat_template,
                           const ech_tokenizer *tokenizer, ech_chat_text *out)
{
    const renderer r = {chat_template, tokenizer, out};
    size_t n = chat->message.n;
    out->text.n = out->part.n = 0;
    if (chat->rendered) return copy_rendered(&r, chat);
    if (chat_template->does & ECH_CHAT_BEGINS)
        put_token(&r, tokenizer->begin_of_text, ECH_SPEAKER_SYSTEM, false);
    if (chat_template->system && !has_system(chat))
        ECH_TRY(render_message(
            &r, &(ech_chat_message){.role = ECH_SPEAKER_SYSTEM, .n = strlen(chat_template->system)},
            chat_template->system, &(message_form){0}));
    ECH_TRY(render_messages(&r, chat));
    if (chat_template->does & ECH_CHAT_CLOSES && n > 0)
        put_token(&r, tokenizer->end_of_text, chat->message.at[n - 1].role,
                  chat->message.at[n - 1].trained);
    return ECH_OK;
}

/* ---- to tokens ---- */

void ech_chat_put_form(const ech_tokenizer *tokenizer, int32_t id, ech_text *out)
{
    const ech_bpe *bpe = tokenizer->bpe;
    const ech_bpe_token *token = &bpe->token.at[id];
    out->n = 0;
    if (token->silent)
        ech_text_append_bytes(out, bpe->bytes.at + token->at, token->n);
    else
        ech_bpe_decode(bpe, id, false, out);
}

/* The length of text that has these bytes at its beginning, with U+2581 as a blank; -1: none. */
static int64_t match(const char *text, size_t n, const char *bytes, size_t count)
{
    const size_t blank = strlen(ECH_BPE_BLANK);
    size_t at = 0;
    for (size_t i = 0; i < count; i++) {
        bool same = at < n && text[at] == bytes[i];
        bool marked =
            bytes[i] == ' ' && n - at >= blank && memcmp(text + at, ECH_BPE_BLANK, blank) == 0;
        if (!same && !marked) return -1;
        at += same ? 1 : blank;
    }
    return (int64_t)at;
}

typedef struct walk {
    const ech_chat_text *text;
    const ech_tokenizer *tokenizer;
    ech_text form;
    size_t at;   /* bytes of the text before the next token */
    size_t part; /* which it is in */
} walk;

/* Finds where the next token is in the text, up to `end`: *from to w->at. Encoding may have put a
 * blank before it, or left out white space around an added token. */
static bool find_token(walk *w, int32_t id, size_t end, size_t *from)
{
    const char *text = w->text->text.at;
    ech_chat_put_form(w->tokenizer, id, &w->form);
    for (size_t at = w->at;; at++) {
        for (size_t added = 0; added <= (w->form.n > 0 && w->form.at[0] == ' '); added++) {
            int64_t n = match(text + at, end - at, w->form.at + added, w->form.n - added);
            if (n < 0) continue;
            *from = at;
            w->at = at + (size_t)n;
            return true;
        }
        if (at == end || !is_space((unsigned char)text[at])) return false;
    }
}

/* The token that has bytes [from, to): it has the role of the first part in it. */
static ech_chat_token make_token(walk *w, int32_t id, size_t from, size_t to)
{
    const ech_chat_part *part = w->text->part.at;
    while (w->part + 1 < w->text->part.n && (part[w->part].end <= from || part[w->part].id >= 0))
        w->part++;
    ech_chat_token token = {id, part[w->part].role, part[w->part].trained};
    for (size_t p = w->part; p + 1 < w->text->part.n && part[p].end < to; p++)
        token.trained = token.trained || (part[p + 1].trained && part[p + 1].end > part[p].end);
    return token;
}

/* Text parts that follow one another, up to `end`, in one piece: tokens may cross their ends. */
static ech_status encode_text(walk *w, size_t end, bool begins, ech_coder *coder,
                              ech_chat_tokens *out)
{
    ech_ids ids = {0};
    const char *text = w->text->text.at;
    ech_status status = ech_coder_encode(coder, text + w->at, end - w->at, begins, &ids);
    for (size_t i = 0; i < ids.n && status == ECH_OK; i++) {
        size_t from;
        if (find_token(w, ids.at[i], end, &from))
            ECH_PUSH(*out, make_token(w, ids.at[i], from, w->at));
        else
            status = ech_fail_at(__FILE__, __LINE__, ECH_EUNSUPPORTED,
                                 "the tokenizer changes the text at \"%.20s\", so that its tokens "
                                 "cannot be assigned to roles",
                                 text + w->at);
    }
    w->at = end;
    free(ids.at);
    return status;
}

ech_status ech_chat_encode(const ech_chat_text *text, const ech_tokenizer *tokenizer,
                           ech_coder *coder, ech_chat_tokens *out)
{
    walk w = {.text = text, .tokenizer = tokenizer};
    bool again = tokenizer->bpe->prefix != ECH_BPE_PREFIX_FIRST; /* a blank after a token */
    size_t n = text->part.n;
    ech_status status = ECH_OK;
    for (size_t i = 0; i < n && status == ECH_OK; i++) {
        const ech_chat_part *part = &text->part.at[i];
        bool last = i + 1 == n || part[1].id >= 0;
        if (part->id >= 0)
            ECH_PUSH(*out, (ech_chat_token){part->id, part->role, part->trained});
        else if (last && part->end > w.at)
            status = encode_text(&w, part->end, out->n == 0 || again, coder, out);
    }
    ech_text_free(&w.form);
    return status;
}
