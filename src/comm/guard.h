/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: a thread beside a rank that sees what the rank cannot, since it is in a call of
 * its library that does not come back: that such a call (start, end) takes longer than the deadline,
 * and that another rank of the machine has died, whose position it still prints before the launcher
 * ends the job. The first needs nobody; for the second the ranks share a board.
 */
#ifndef ECH_COMM_GUARD_H
#define ECH_COMM_GUARD_H

#include "comm/board.h"

typedef struct ech_guard ech_guard;

ech_status ech_guard_start(double deadline_seconds, ech_guard **out);
void ech_guard_stop(ech_guard *guard); /* accepts NULL */

/* A call begins that waits for other ranks without looking at the deadline, and it has ended. One that
 * is not over within the deadline, but at least 20 seconds, ends the process with exit code 1, and a line that says what `call` waits for. */
void ech_guard_enter(ech_guard *guard, const char *call);
void ech_guard_leave(ech_guard *guard);

/* From here on deaths show: of the ranks of `board`, beside this one's slot. A rank that dies without
 * having left the board, or having raised the flag, is reported once with all positions, and raises
 * the flag; a process that does not unwind then is ended. Silent where somebody else watches. */
void ech_guard_watch(ech_guard *guard, ech_board *board, int slot);

#endif
