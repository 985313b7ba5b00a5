/* SPDX-License-Identifier: Apache-2.0
 *
 * Watches over a child, a launcher of ranks or a rank, and translates signals for it.
 *
 * Open MPI's mpirun hands SIGUSR1 and SIGUSR2 on, MPICH's mpiexec dies of SIGUSR2; at SIGTERM both
 * kill the ranks, and the time that they can be told to give them is also the time until they end a
 * job of which a rank has died. So signals for the ranks go straight to one of them, which tells the
 * others, and the launcher keeps its quick temper.
 */
#ifndef ECH_APP_JOB_SUPERVISE_H
#define ECH_APP_JOB_SUPERVISE_H

#include "app/job/monitor.h"
#include "base/status.h"

typedef struct ech_child {
    char *const *words; /* a path, or a name in PATH; arguments; NULL */
    bool is_launcher; /* signals are for a process below it that runs the program that this process
                         * runs; otherwise for the child itself */
    int stop_signal;  /* what asks for an end with a save; 0: nothing does */
} ech_child;

/* Starts a child without standard input, and waits for its end. SIGUSR1 and SIGUSR2 are handed on as
 * soon as who gets them is ready for them; SIGTERM, SIGHUP and the first SIGINT become stop_signal,
 * however often. The second SIGINT becomes SIGTERM to a launcher, which kills its ranks; all further
 * ones, and for other children the second too, are SIGKILL. Without a stop_signal the first of all of
 * them counts as the second. If this process dies, the child gets SIGTERM, and SIGKILL if
 * `monitor` (or NULL) says that it hangs. One that cannot be killed counts as ended by SIGKILL. */
ech_status ech_supervise(const ech_child *child, ech_monitor *monitor, ech_ending *ending);

#endif
