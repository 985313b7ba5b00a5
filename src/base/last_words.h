/* SPDX-License-Identifier: Apache-2.0
 *
 * Last words: the message if a library ends this process with a signal (a failed assertion, a
 * failed allocation) instead of returning an error.
 */
#ifndef ECH_BASE_LAST_WORDS_H
#define ECH_BASE_LAST_WORDS_H

/* Makes SIGABRT, SIGSEGV, SIGBUS and SIGFPE print `text` (borrowed) as an error in one line and end
 * the process with exit code 1. NULL restores their previous effect. Returns the previous text. For
 * one thread of the process at a time. */
const char *ech_last_words_set(const char *text);

#endif
