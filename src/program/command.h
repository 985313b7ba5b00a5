/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line `echelon COMMAND ...`. Each command is a file cmd_NAME.c and a row of
 * commands.def.
 */
#ifndef ECH_PROGRAM_COMMAND_H
#define ECH_PROGRAM_COMMAND_H

#include "app/exit_code.h"
#include "base/status.h"

/* Finds the command and runs it; returns the exit code. */
int ech_command_run(int argc, char **argv);

/* A command. argv[0] is "echelon NAME". If it returns ECH_OK, the process exits with *code,
 * ECH_EXIT_DONE unless the command sets it; errors have been logged, and exit with 1, or 2 for
 * ECH_EUSAGE. */
#define X(name, arguments, help) ech_status ech_command_##name(int argc, char **argv, int *code);
#include "program/commands.def"
#undef X

#endif
