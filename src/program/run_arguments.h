/* SPDX-License-Identifier: Apache-2.0
 *
 * The command line of a run for those parts of the program that do not use the library.
 */
#ifndef ECH_PROGRAM_RUN_ARGUMENTS_H
#define ECH_PROGRAM_RUN_ARGUMENTS_H

#include "app/setup/run.h"
#include "program/run_line.h"

/* Borrows the line. The caller frees the list `assignment`. */
ech_run_arguments ech_run_line_arguments(const ech_run_line *line);

#endif
