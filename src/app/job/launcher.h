/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line that runs this program as N ranks, by a launcher or in one process.
 */
#ifndef ECH_APP_JOB_LAUNCHER_H
#define ECH_APP_JOB_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

/* What the command line depends on. */
typedef struct ech_launch {
    const char *version;  /* of MPI: "Open MPI 4.1.4" */
    const char *launcher; /* path; NULL: none */
    const char *program;  /* path */
    int ranks, cores;
    bool is_root;
    char *const *words; /* [n] the program's arguments */
    int n;
} ech_launch;

typedef struct ech_launch_line {
    ECH_LIST(char *) setting; /* environment, NAME=value, only names that are not set yet */
    ECH_LIST(char *) word;    /* argv; the last is NULL, which is counted */
} ech_launch_line;

/* Fills *out. */
void ech_launcher_line(const ech_launch *launch, ech_launch_line *out);
/* Appends the line as typed into a shell. */
void ech_launch_line_print(const ech_launch_line *line, ech_text *out);
void ech_launch_line_free(ech_launch_line *line);

/* Puts the settings into this process's environment. */
void ech_launch_line_set(const ech_launch_line *line);

/* The line that runs this program with these words: by this build's launcher, or as one process. */
ech_status ech_launch_self(int ranks, bool by_launcher, char *const *words, int n,
                           ech_launch_line *out);

#endif
