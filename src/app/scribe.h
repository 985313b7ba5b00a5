/* SPDX-License-Identifier: Apache-2.0
 *
 * Who writes down what a run tells of itself, so that no lane waits for a disk: a thread that takes
 * plain records, in their order, from a ring of fixed size. Nothing is dropped: where the ring is full,
 * because what is written to stands still, who hands over waits, and says so.
 *
 *     ech_scribe_begin(&setup, &scribe);
 *     record *r = ech_scribe_slot(scribe);    // to be filled
 *     ech_scribe_hand(scribe);                // setup.write(setup.context, r) on the thread
 *     ech_scribe_end(scribe);                 // all is written
 *
 * One thread hands over; any may wait until what was handed over is written.
 */
#ifndef ECH_APP_SCRIBE_H
#define ECH_APP_SCRIBE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_scribe ech_scribe;

typedef struct ech_scribe_setup {
    const char *what;    /* that is written, for warnings: copied */
    size_t record_bytes; /* of each record */
    int records;         /* that may wait */
    /* Writes one; on the thread. The record is free again when it returns. */
    void (*write)(void *context, void *record);
    void *context;
} ech_scribe_setup;

/* Starts the thread, which speaks with the rank of this one, or not at all if this one is quiet. */
ech_status ech_scribe_begin(const ech_scribe_setup *setup, ech_scribe **out);
/* The next record, zeroed; waits while the ring is full. */
void *ech_scribe_slot(ech_scribe *scribe);
void ech_scribe_hand(ech_scribe *scribe);
/* Until all that was handed over before is written. */
void ech_scribe_settle(ech_scribe *scribe);
/* Settles and ends the thread. Accepts NULL. */
void ech_scribe_end(ech_scribe *scribe);

#endif
