/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that plugins add to a table of the program. They stay until the process ends, so lookups
 * need no lock; some thread may add a row while others look one up.
 */
#ifndef ECH_BASE_ADDED_H
#define ECH_BASE_ADDED_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

enum { ECH_MOST_ADDED = 64 };

typedef struct ech_added {
    const char *what;     /* "optimizer" */
    pthread_mutex_t lock; /* of additions */
    const void *at[ECH_MOST_ADDED];
    const char *name[ECH_MOST_ADDED];
    atomic_size_t n;
    _Atomic(const char *) names; /* of all rows; NULL: none was added */
} ech_added;

/* An empty table, for static variables. */
#define ECH_ADDED(noun)                                                                            \
    {                                                                                              \
        .what = noun, .lock = PTHREAD_MUTEX_INITIALIZER                                            \
    }

/* The error for a row without a function that it must have. */
ech_status ech_added_check(const char *plugin, const char *name, const char *function,
                           bool is_there);
/* Adds a row of that name, both static. names: the program's own rows, separated by blanks. Errors:
 * ECH_EUSAGE, a row has this name, the name is empty or has a character other than letters, digits,
 * - and _, or there are too many. plugin: its name, for errors. */
ech_status ech_added_put(ech_added *added, const char *plugin, const char *name, const char *names,
                         const void *row);
/* NULL: none of that name. */
const void *ech_added_find(const ech_added *added, const char *name);
/* Names of all rows, the program's own first, each followed by a blank. */
const char *ech_added_names(const ech_added *added, const char *names);

#endif
