/* SPDX-License-Identifier: Apache-2.0
 *
 * The help that `echelon help` prints to stdout: about the keys of run files, about features that
 * cannot be combined, and about techniques.
 */
#ifndef ECH_PROGRAM_HELP_H
#define ECH_PROGRAM_HELP_H

#include "base/status.h"

/* Every key in a few lines, and the names that a run file may choose. */
ech_status ech_help_keys(void);
/* The keys of the section `word`, or those whose name or help has the word, with their full help.
 * Error: there is none. */
ech_status ech_help_keys_with(const char *word);
/* Other tools' names for keys and values. */
ech_status ech_help_names(void);
/* All about a key ("parallel.zero"), or about all keys with that name ("schedule"): its full help,
 * the choices that read it, techniques and presets that set it, and rules that involve it. Error:
 * there is no such key; the nearest one is named. */
ech_status ech_help_key(const char *name);
/* All pairs of features that cannot be combined, and the keys that only some choices read. */
ech_status ech_help_together(void);
/* The matrix of techniques, in Markdown. */
ech_status ech_help_techniques(void);

#endif
