/* SPDX-License-Identifier: Apache-2.0
 *
 * Expansion of paths that users write in places without a shell.
 */
#ifndef ECH_BASE_PATH_H
#define ECH_BASE_PATH_H

#include <stdbool.h>

#include "base/text.h"

/* Appends the path with "~" at its beginning replaced by $HOME, and "${NAME}" anywhere by the
 * variable's value. Other paths are unchanged, so expansion is idempotent. words: the text is
 * several paths separated by blanks; a path may be in quotes, and a backslash escapes a blank, a
 * quote or a backslash; inserted values stay in their word. False: *why says what is not supported:
 * another $, ~user, a variable that is not set, "s3://". */
bool ech_path_expand(const char *text, bool words, ech_text *out, ech_text *why);

/* A word of a text of several paths, without its quotes and backslashes. */
typedef struct ech_path_word {
    char *text; /* owned; NULL: there is none */
    bool quoted;
    bool open; /* its quote does not end */
} ech_path_word;

void ech_path_word_free(ech_path_word *word);
/* The next word; *at moves past it. One in quotes ends at the next such quote. A backslash before a
 * blank, a quote or a backslash makes it part of the word. */
ech_path_word ech_path_next_word(const char **at);
/* Appends a word, not in quotes, such that ech_path_next_word returns it. */
void ech_path_append_word(const char *word, ech_text *out);
/* Appends a word as it is typed into a shell: in single quotes if that would read anything else
 * into it. */
void ech_path_append_typed(const char *word, ech_text *out);

#endif
