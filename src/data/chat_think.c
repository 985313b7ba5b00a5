/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers with reasoning, as the chat template of Qwen3 writes them.
 */
#include <string.h>

#include "data/chat.h"

static const char opens[] = "<think>", closes[] = "</think>";

/* Bytes of somebody else's text. */
typedef struct span {
    const char *at;
    size_t n;
} span;

static span trim_newlines(span s, bool left, bool right)
{
    for (; left && s.n && s.at[0] == '\n'; s.n--) s.at++;
    while (right && s.n && s.at[s.n - 1] == '\n') s.n--;
    return s;
}

/* The text before the first `word`; false: there is none. */
static bool cut_before(span s, const char *word, span *out)
{
    const char *found = s.n ? memmem(s.at, s.n, word, strlen(word)) : NULL;
    if (!found) return false;
    *out = (span){s.at, (size_t)(found - s.at)};
    return true;
}

/* The text after the last `word`; all of it if there is none. */
static span cut_after_last(span s, const char *word)
{
    span head;
    while (cut_before(s, word, &head)) {
        size_t skipped = head.n + strlen(word);
        s = (span){s.at + skipped, s.n - skipped};
    }
    return s;
}

void ech_chat_think(const char *answer, size_t n, ech_chat_thought thought, ech_text *out)
{
    span rest = {answer, n}, reasoning = {answer, 0};
    if (cut_before(rest, closes, &reasoning)) {
        reasoning = cut_after_last(trim_newlines(reasoning, false, true), opens);
        reasoning = trim_newlines(reasoning, true, false);
        rest = trim_newlines(cut_after_last(rest, closes), true, false);
    }
    bool written =
        thought == ECH_THOUGHT_WRITTEN || (thought == ECH_THOUGHT_KEPT && reasoning.n > 0);
    if (written) {
        reasoning = trim_newlines(reasoning, true, true);
        rest = trim_newlines(rest, true, false);
        ech_text_append(out, "%s\n", opens);
        ech_text_append_bytes(out, reasoning.at, reasoning.n);
        ech_text_append(out, "\n%s\n\n", closes);
    }
    ech_text_append_bytes(out, rest.at, rest.n);
}

static bool is_response(span s)
{
    static const char begin[] = "<tool_response>", end[] = "</tool_response>";
    size_t b = strlen(begin), e = strlen(end);
    return s.n >= b && s.n >= e && memcmp(s.at, begin, b) == 0 &&
           memcmp(s.at + s.n - e, end, e) == 0;
}

size_t ech_chat_last_question(const ech_chat *chat)
{
    for (size_t i = chat->message.n; i-- > 0;) {
        const ech_chat_message *message = &chat->message.at[i];
        if (message->role == ECH_SPEAKER_USER &&
            !is_response((span){chat->text.at + message->at, message->n}))
            return i;
    }
    return chat->message.n - 1;
}
