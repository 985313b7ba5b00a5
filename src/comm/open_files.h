/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to src/comm: the limit on open files. Libraries that reach it end the process instead of
 * returning an error.
 */
#ifndef ECH_COMM_OPEN_FILES_H
#define ECH_COMM_OPEN_FILES_H

#include "base/status.h"

/* Checks that this process may have `needed` files open in all; raises the soft limit if necessary.
 * `by`: the backend that needs them. Errors: ECH_EUSAGE. */
ech_status ech_open_files_check(const char *by, int needed);

#endif
