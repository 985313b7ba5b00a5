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

#endif
