/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line that runs this program as N ranks, by a launcher or in one process.
 */
#ifndef ECH_PROGRAM_JOB_LAUNCHER_H
#define ECH_PROGRAM_JOB_LAUNCHER_H

#include <stdbool.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

/* What the command line depends on. Texts are borrowed. */
typedef struct ech_launch {
    const char *version;  /* the MPI library's, which decides the options: "Open MPI 4.1.4" */
    const char *launcher; /* path of mpirun; NULL: the program is started without one */
    bool is_own;          /* `echelon launch` starts the program; launcher is ignored */
    const char *program;  /* path */
    int ranks;            /* for the launcher; not used without one */
    int cores;            /* of this machine */
    bool is_root;         /* the user is root, which Open MPI refuses by default */
} ech_launch;

typedef struct ech_launch_line {
    /* Names (static) of environment variables that must be 1. Variables that are set already are
     * not listed. */
    ECH_LIST(const char *) setting;
    ECH_LIST(char *) word; /* argv, owned */
} ech_launch_line;

/* Begins a line: settings, the launcher with its options, and the program's path. Release with
 * ech_launch_line_free. */
void ech_launch_line_begin(const ech_launch *launch, ech_launch_line *out);
/* The program that starts a job's ranks. */
typedef enum ech_launch_by {
    ECH_LAUNCH_NOBODY, /* none: they are threads of one process */
    ECH_LAUNCH_MPI,    /* this build's mpirun or mpiexec */
    ECH_LAUNCH_OWN     /* echelon launch */
} ech_launch_by;
/* Begins a line for this program on this machine. Errors, ECH_EIO: /proc does not show the path of
 * this program. */
ech_status ech_launch_self(int ranks, ech_launch_by by, ech_launch_line *out);
/* Adds an argument of the program, which is copied. After the last one, NULL completes the line. */
void ech_launch_line_add(ech_launch_line *line, const char *word);
/* Appends a complete line with its settings, as it would be typed into a shell. */
void ech_launch_line_print(const ech_launch_line *line, ech_text *out);
/* Sets the settings to 1 in this process's environment. */
void ech_launch_line_set(const ech_launch_line *line);
void ech_launch_line_free(ech_launch_line *line);

#endif
