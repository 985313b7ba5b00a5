/* SPDX-License-Identifier: Apache-2.0
 *
 * Watches over a launcher that this process has started, and translates signals for it.
 *
 * Open MPI's mpirun hands SIGUSR1 and SIGUSR2 on, MPICH's mpiexec dies of SIGUSR2; at SIGTERM both
 * kill the ranks, and the time that they can be told to give them is also the time until they end a
 * job of which a rank has died. So signals for the ranks go straight to one of them, which tells the
 * others, and the launcher keeps its quick temper.
 */
#ifndef ECH_APP_SUPERVISE_H
#define ECH_APP_SUPERVISE_H

#include "app/witness.h"
#include "base/status.h"

/* Starts words[0] (a path, or a name in PATH) with the arguments words[1] .. NULL, without standard
 * input, and waits for its end. SIGUSR1 and SIGUSR2 are handed on; the first SIGTERM, SIGINT or
 * SIGHUP becomes `stop_signal`: to a process below it that runs the program that this process runs,
 * or to itself if there is none. The second becomes SIGTERM, all further ones SIGKILL, to itself. If
 * this process dies, it gets SIGTERM, and SIGKILL if `witness` (or NULL) says that it hangs. */
ech_status ech_supervise(char *const *words, int stop_signal, ech_witness *witness,
                         ech_ending *ending);

#endif
