/* SPDX-License-Identifier: Apache-2.0
 *
 * The communicators that a rank of a plan joins, and what they take of its GPU. Nothing is
 * collective.
 */
#ifndef ECH_APP_SETUP_COMMUNICATORS_H
#define ECH_APP_SETUP_COMMUNICATORS_H

#include "app/setup/setup.h"

typedef struct ech_communicators {
    int n;         /* one per channel, and one per boundary, kind of message and peer */
    int64_t bytes; /* of the GPU, at most (ech_comm_library_bytes), with the library's code */
} ech_communicators;

/* All 0 where messages need none: on the processor, with other backends than nccl, or one rank. */
ech_communicators ech_communicators_of(const ech_design *design, const ech_plan *plan);

/* Appends a line below ech_print_memory's; nothing without communicators. */
void ech_communicators_print(const ech_communicators *joined, ech_text *out);

#endif
