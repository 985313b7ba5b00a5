/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line: `echelon COMMAND ...`, a file and a row of commands.def each.
 */
#ifndef ECH_APP_COMMAND_H
#define ECH_APP_COMMAND_H

#include "base/status.h"

/* What the process tells its caller. */
enum {
    ECH_EXIT_DONE = 0,
    ECH_EXIT_FAILED = 1,
    ECH_EXIT_USAGE = 2,
    ECH_EXIT_STOPPED = 75 /* saved after a signal; run again to go on */
};

/* Finds the command and runs it; returns the exit code. */
int ech_command_run(int argc, char **argv);

/* A command's own part: argv[0] is "echelon NAME". With ECH_OK the process exits with *code, which is
 * ECH_EXIT_DONE unless the command sets it; errors were logged and have their own codes. */
#define X(name, arguments, help) ech_status ech_command_##name(int argc, char **argv, int *code);
#include "app/commands.def"
#undef X

#endif
