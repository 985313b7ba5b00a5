/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: whom a call of the library waits for that has no names for ranks: out of the
 * board, or, before there is one, out of what the system shows of this launcher's processes.
 */
#ifndef ECH_COMM_ABSENT_H
#define ECH_COMM_ABSENT_H

#include "comm/board.h"

/* "rank 2 (process 4711) is stopped", or what else can be said. board NULL: there is none yet. */
void ech_absent_describe(const ech_board *board, ech_text *out);

#endif
