/* SPDX-License-Identifier: Apache-2.0
 *
 * Paths as users write them where no shell has read them.
 */
#ifndef ECH_BASE_PATH_H
#define ECH_BASE_PATH_H

#include <stdbool.h>

#include "base/text.h"

/* Appends the path with "~" at its beginning replaced by $HOME, and "${NAME}" anywhere by the
 * variable's value. A path without these is as it was, so expanding twice is expanding once. words:
 * the text is several paths divided by blanks; one may be in quotes, and a backslash takes a blank,
 * a quote or a backslash as it is; values are put in so that they stay in their word. False: *why
 * says what cannot be meant: another $, ~user, a variable that is not set, "s3://". */
bool ech_path_expand(const char *text, bool words, ech_text *out, ech_text *why);

#endif
