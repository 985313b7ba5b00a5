/* SPDX-License-Identifier: Apache-2.0
 *
 * One clock for all ranks: how far each machine's is from that of rank 0's machine.
 */
#ifndef ECH_COMM_CLOCK_H
#define ECH_COMM_CLOCK_H

#include "comm/comm.h"

/* Ranks that share a clock follow each other. */
typedef struct ech_machine {
    int first, ranks;
} ech_machine;
ech_machine ech_machine_of(const ech_comm *comm); /* this rank's */

typedef struct ech_comm_clock_offset {
    double seconds; /* to be added to this machine's clock to have that of rank 0's */
    double error;   /* at most so far off: half of the shortest round trip; 0 on rank 0's machine */
} ech_comm_clock_offset;

/* Rank 0 asks the first rank of every other machine 32 times for its clock, and takes its time to have
 * been read half-way through the shortest round trip (Cristian 1989). `now`: the machine's clock; it is
 * as of now, and clocks drift by some microseconds a second. Collective over all ranks. */
ech_status ech_comm_clock_agree(ech_comm *comm, ech_machine machine,
                                double (*now)(const void *context), const void *context,
                                ech_comm_clock_offset *out);

#endif
