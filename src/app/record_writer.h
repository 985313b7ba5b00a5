/* SPDX-License-Identifier: Apache-2.0
 *
 * Who writes down what a run tells of itself, so that no lane waits for a disk: a thread that takes
 * plain records, in their order, from a ring of fixed size. Nothing is dropped: where the ring is full,
 * because what is written to stands still, who hands over waits, and says so.
 *
 *     ech_record_writer_begin(&setup, &writer);
 *     record *r = ech_record_writer_slot(writer);    // to be filled
 *     ech_record_writer_submit(writer);                // setup.write(setup.context, r) on the thread
 *     ech_record_writer_end(writer);                 // all is written
 *
 * One thread hands over; any may wait until what was handed over is written.
 */
#ifndef ECH_APP_RECORD_WRITER_H
#define ECH_APP_RECORD_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_record_writer ech_record_writer;

typedef struct ech_record_writer_setup {
    const char *what;    /* that is written, for warnings: copied */
    size_t record_bytes; /* of each record */
    int records;         /* that may wait */
    /* Writes one; on the thread. The record is free again when it returns. */
    void (*write)(void *context, void *record);
    void *context;
} ech_record_writer_setup;

/* Starts the thread, which speaks with the rank of this one, or not at all if this one is quiet. */
ech_status ech_record_writer_begin(const ech_record_writer_setup *setup, ech_record_writer **out);
/* The next record, zeroed; waits while the ring is full. */
void *ech_record_writer_slot(ech_record_writer *writer);
void ech_record_writer_submit(ech_record_writer *writer);
/* Until all that was handed over before is written. */
void ech_record_writer_flush(ech_record_writer *writer);
/* Settles and ends the thread. Accepts NULL. */
void ech_record_writer_end(ech_record_writer *writer);

#endif
