/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks and settings of the process before libraries start; only main.c uses them.
 */
#ifndef ECH_PROGRAM_STARTUP_H
#define ECH_PROGRAM_STARTUP_H

/* Ends the process with a message if the limit on address space (ulimit -v) is too small for
 * OpenBLAS, whose constructor would retry forever to map its buffers. Called before all
 * constructors, so it uses system calls only. */
void ech_startup_check(int argc, char **argv, char **environment);

/* Makes the allocator hold freed memory instead of returning it to the system: oneDNN and MPI
 * allocate the same buffers in each call, and the system would have to provide zeroed pages each
 * time. */
void ech_startup_keep_memory(void);

/* Under a limit on address space: prepares the message for the case that a library ends the process
 * with a signal (base/last_words.h). */
void ech_startup_prepare_words(void);

#endif
