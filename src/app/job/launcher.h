/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line that runs this program as N ranks, by a launcher or in one process.
 */
#ifndef ECH_APP_JOB_LAUNCHER_H
#define ECH_APP_JOB_LAUNCHER_H

#include <stdbool.h>

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
} ech_launch;

typedef struct ech_launch_line {
    ECH_LIST(const char *)
    setting;               /* environment variables to be 1, only those that are not set yet */
    ECH_LIST(char *) word; /* argv */
} ech_launch_line;

/* Fills *out up to the program's name. */
void ech_launch_line_begin(const ech_launch *launch, ech_launch_line *out);
/* The same for this program, run by this build's launcher or as one process. Errors: ECH_EIO. */
ech_status ech_launch_self(int ranks, bool by_launcher, ech_launch_line *out);
/* Adds an argument of the program, which is copied; NULL ends the line. */
void ech_launch_line_add(ech_launch_line *line, const char *word);
/* Appends a line that has ended, as typed into a shell. */
void ech_launch_line_print(const ech_launch_line *line, ech_text *out);
/* Puts the settings into this process's environment. */
void ech_launch_line_set(const ech_launch_line *line);
void ech_launch_line_free(ech_launch_line *line);

#endif
