/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: the guard, a watchdog thread of a rank of `mpi`, for times in which the rank
 * hangs in a call of MPI. It ends the process when such a call (MPI_Init, MPI_Finalize) takes
 * longer than the deadline. It also reports the death of another rank of the machine, with all
 * positions on the board, before the launcher ends the job. No call is collective.
 */
#ifndef ECH_COMM_GUARD_H
#define ECH_COMM_GUARD_H

#include "comm/board.h"

typedef struct ech_guard ech_guard;

/* Errors: ECH_EIO, no thread. */
ech_status ech_guard_start(double deadline_seconds, ech_guard **out);
void ech_guard_stop(ech_guard *guard); /* ends the thread and frees the guard; accepts NULL */

/* Call these around a call of MPI that waits for other ranks without a deadline; `call` (borrowed)
 * names it in the error. If leave does not follow enter within the deadline (at least 20 s), the
 * guard prints an error, with the suspended ranks that it finds, and ends the process with exit
 * code 1. Time in which this process itself was suspended does not count. */
void ech_guard_enter(ech_guard *guard, const char *call);
void ech_guard_leave(ech_guard *guard);

/* Starts watching the processes of the other ranks on `board`; `slot` is this rank's. When one ends
 * without ech_board_leave, and the abort flag is not raised, the guard prints all positions (once
 * per machine), raises the flag, and ends this process if that has not ended within 5 s. Does
 * nothing on a board that the job monitor watches (is_watched). */
void ech_guard_watch(ech_guard *guard, ech_board *board, int slot);

#endif
