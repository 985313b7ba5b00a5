/* SPDX-License-Identifier: Apache-2.0
 *
 * Signal handling of jobs: runs a child, which is a launcher of ranks or one process with all
 * ranks, and translates signals for it.
 *
 * Launchers treat signals differently: Open MPI's mpirun forwards SIGUSR1 and SIGUSR2, MPICH's
 * mpiexec dies of SIGUSR2. At SIGTERM both kill the ranks after a grace time. They wait equally
 * long before they end a job after a rank has died, so this time must stay short. Hence signals for
 * the ranks are sent directly to one rank, which tells the others, and the launcher's grace time is
 * not changed.
 */
#ifndef ECH_PROGRAM_JOB_SUPERVISE_H
#define ECH_PROGRAM_JOB_SUPERVISE_H

#include "program/job/monitor.h"
#include "base/status.h"

typedef struct ech_child {
    char *const *words; /* a path, or a name in PATH; arguments; NULL */
    /* signals go to a rank process below the child; otherwise to the child itself */
    bool is_launcher;
    int stop_signal; /* tells a rank to save and stop; 0: no signal does */
} ech_child;

/* Starts a child without standard input and waits until it has ended. SIGUSR1 and SIGUSR2 are
 * forwarded as soon as the receiver has handlers for them. For each SIGTERM, each SIGHUP and the
 * first SIGINT the receiver gets stop_signal. For the second SIGINT a launcher gets SIGTERM, which
 * kills its ranks, and another child SIGKILL; for all further ones the child gets SIGKILL. If
 * stop_signal is 0, the first of these signals counts as the second SIGINT. If this process dies,
 * the child gets SIGTERM. If `monitor` finds that the child hangs, the child gets SIGKILL; if it
 * does not end then, it counts as ended by SIGKILL. Errors: ECH_EIO; then no child was started. */
ech_status ech_supervise(const ech_child *child, ech_monitor *monitor, ech_job_end *end);

#endif
