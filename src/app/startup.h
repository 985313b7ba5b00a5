/* SPDX-License-Identifier: Apache-2.0
 *
 * What must be so before libraries begin: for main.c alone.
 */
#ifndef ECH_APP_STARTUP_H
#define ECH_APP_STARTUP_H

/* Ends the process with a message where the limit on address space (ulimit -v) is too small for
 * OpenBLAS, which otherwise tries to map its buffers for ever, before main begins. To be called ahead of all
 * constructors: it uses system calls alone. */
void ech_startup_check(int argc, char **argv, char **environment);

/* Memory that a library has freed is kept: what oneDNN and MPI take for one call, they take again for the next,
 * and the system would hand out its pages each time. */
void ech_startup_keep_memory(void);

#endif
