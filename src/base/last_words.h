/* SPDX-License-Identifier: Apache-2.0
 *
 * Last words: what is printed if a library ends this process by a signal (a failed assertion,
 * memory that it does not get) instead of returning an error.
 */
#ifndef ECH_BASE_LAST_WORDS_H
#define ECH_BASE_LAST_WORDS_H

/* From now on SIGABRT, SIGSEGV, SIGBUS and SIGFPE print `text` (borrowed) as an error in one line,
 * and end the process with exit code 1. NULL: these signals do what they did before. Returns what
 * was set before. For one thread of the process at a time. */
const char *ech_last_words_set(const char *text);

#endif
