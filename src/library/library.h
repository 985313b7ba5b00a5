/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files that implement include/echelon.h. Private to src/library.
 */
#ifndef ECH_LIBRARY_LIBRARY_H
#define ECH_LIBRARY_LIBRARY_H

#include <echelon.h>

#include "app/setup/run.h"
#include "base/text.h"

struct echelon_run {
    char *file, *text;      /* owned; text NULL: it is in the file */
    ECH_LIST(char *) words; /* "section.key=value"; owned */
    ech_text value;         /* of the last echelon_run_get */
};

/* To be called first by every function that can fail: clears the thread's last error. Until someone
 * gets the log, nobody does. */
void ech_library_enter(void);
/* The run's file, text and keys, without ranks; borrowed from the run, with a list that the caller
 * frees. */
ech_run_arguments ech_library_arguments(const echelon_run *run);
/* Checks that a caller has set its struct's size. */
ech_status ech_library_check_size(size_t size);
/* Prints the error on standard error if nobody gets the log: before a process of several ends, by
 * which its caller never sees the error. */
void ech_library_say(const char *error);
/* Copies to a caller's struct as many bytes as both know: its first field is its size. */
void ech_library_give(void *to, size_t size, const void *from, size_t known);
/* The caller's options, completed with zeros; NULL: only zeros. */
void ech_library_take(void *to, size_t known, const void *from);

#endif
