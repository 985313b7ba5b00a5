/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs a child, which is a launcher of ranks or one process with all ranks, and translates signals for it.
 *
 * Launchers treat signals differently: Open MPI's mpirun forwards SIGUSR1 and SIGUSR2, MPICH's mpiexec dies
 * of SIGUSR2. At SIGTERM both kill the ranks after a grace time, which is also the time that they take to end
 * a job after the death of a rank, so it must stay short. Hence signals for the ranks are sent directly to
 * one rank, which tells the others, and the launcher's grace time stays as it is.
 */
#ifndef ECH_APP_JOB_SUPERVISE_H
#define ECH_APP_JOB_SUPERVISE_H

#include "app/job/monitor.h"
#include "base/status.h"

typedef struct ech_child {
    char *const *words; /* a path, or a name in PATH; arguments; NULL */
    bool is_launcher;   /* signals go to a rank process below it; otherwise to the child itself */
    int stop_signal;    /* tells a rank to save and stop; 0: none does */
} ech_child;

/* Starts a child without standard input and waits until it has ended. SIGUSR1 and SIGUSR2 are forwarded as
 * soon as the receiver has handlers for them. SIGTERM, SIGHUP and the first SIGINT are sent as stop_signal,
 * each time. The second SIGINT is sent to a launcher as SIGTERM, which kills its ranks, and to another child
 * as SIGKILL; all further ones are SIGKILL. Without a stop_signal, the first signal of all these counts as the
 * second SIGINT. If this process dies, the child gets SIGTERM. If `monitor` finds that the child
 * hangs, it gets SIGKILL; if it does not even end then, it counts as ended by SIGKILL. */
ech_status ech_supervise(const ech_child *child, ech_monitor *monitor, ech_job_end *end);

#endif
