/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line that starts this program again as N ranks, and whether somebody has done so
 * already.
 */
#ifndef ECH_APP_JOB_LAUNCHER_H
#define ECH_APP_JOB_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"

/* getenv, or a test's own. */
typedef const char *(*ech_launcher_lookup)(const char *name);

typedef struct ech_launched {
    const char *by;     /* "Open MPI's mpirun" */
    int64_t size, rank; /* of how many, which; size 0: not told */
} ech_launched;
/* Whether a launcher started this process as a rank. */
bool ech_launcher_seen(ech_launcher_lookup lookup, ech_launched *out);

/* What a command line depends on. */
typedef struct ech_launch {
    const char *version;  /* of MPI: "Open MPI 4.1.4" */
    const char *launcher; /* path; NULL: none */
    const char *program;  /* path */
    int ranks, cores;
    bool is_root;
    char *const *words; /* the program's */
    int n;
} ech_launch;

typedef struct ech_launch_line {
    ECH_LIST(char *) setting; /* NAME=value for the environment, where `lookup` has no NAME */
    ECH_LIST(char *) word;    /* ends with a NULL that is counted */
} ech_launch_line;

void ech_launcher_line(const ech_launch *launch, ech_launcher_lookup lookup, ech_launch_line *out);
/* As a user would type it into a shell. */
void ech_launch_line_print(const ech_launch_line *line, ech_text *out);
void ech_launch_line_free(ech_launch_line *line);

/* Puts the settings into the environment. */
void ech_launch_line_set(const ech_launch_line *line);

/* The line that starts this program again with these words: below a launcher, or by itself. */
ech_status ech_launch_self(int ranks, bool by_launcher, char *const *words, int n,
                           ech_launch_line *out);

#endif
