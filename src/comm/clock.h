/* SPDX-License-Identifier: Apache-2.0
 *
 * Clock synchronization: the offset from each machine's clock to the clock of rank 0's machine.
 */
#ifndef ECH_COMM_CLOCK_H
#define ECH_COMM_CLOCK_H

#include "comm/comm.h"

/* The consecutive ranks of one machine, which share a clock. */
typedef struct ech_machine {
    int first; /* the lowest rank */
    int ranks; /* number of ranks */
} ech_machine;
ech_machine ech_machine_of(const ech_comm *comm); /* this rank's; not collective */

typedef struct ech_comm_clock_offset {
    double seconds; /* this machine's clock + seconds = the clock of rank 0's machine */
    double error;   /* bound of the error of `seconds`: half of the shortest round trip */
} ech_comm_clock_offset;

/* Measures *out; changes no clock. Rank 0 queries the clock of the first rank of every other
 * machine 32 times and assumes that it was read half-way through the shortest round trip (Cristian
 * 1989). The clock is ech_clock_now() + ahead. The offset holds at the time of the call; clocks
 * drift by some microseconds per second. machine: ech_machine_of(comm). ahead: 0. Tests on one
 * machine pass other values, the same on all ranks of a pretended machine, to have several machines
 * whose clocks differ. Errors: as for ech_comm_wait. Collective over the first `ranks` ranks. */
ech_status ech_comm_clock_agree(ech_comm *comm, int ranks, ech_machine machine, double ahead,
                                ech_comm_clock_offset *out);

#endif
