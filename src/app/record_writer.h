/* SPDX-License-Identifier: Apache-2.0
 *
 * A record writer: a thread that writes a run's metrics, log lines or traces, so that no lane waits
 * for a disk. It takes plain records in order from a ring of fixed size. None is dropped: when the
 * ring is full because the disk is slow, the submitting thread waits, with a warning.
 *
 *     ech_record_writer_begin(&setup, &writer);
 *     record *r = ech_record_writer_slot(writer); // then fill *r
 *     ech_record_writer_submit(writer);           // the thread calls setup.write(setup.context, r)
 *     ech_record_writer_end(writer);              // everything has been written
 *
 * One thread submits; any thread may flush.
 */
#ifndef ECH_APP_RECORD_WRITER_H
#define ECH_APP_RECORD_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_record_writer ech_record_writer;

typedef struct ech_record_writer_setup {
    const char *what;    /* names what is written, for warnings; copied */
    size_t record_bytes; /* of each record */
    int records;         /* number of slots of the ring */
    /* Writes one record; called on the thread. The record's slot is reused once this returns. */
    void (*write)(void *context, void *record);
    void *context; /* borrowed */
} ech_record_writer_setup;

/* Starts the thread. It logs as the calling thread does: with its rank, or not at all. Errors:
 * ECH_EIO (no thread). */
ech_status ech_record_writer_begin(const ech_record_writer_setup *setup, ech_record_writer **out);
/* The next record to fill, zeroed; waits while the ring is full. */
void *ech_record_writer_slot(ech_record_writer *writer);
/* Hands the record of the last ech_record_writer_slot to the thread. */
void ech_record_writer_submit(ech_record_writer *writer);
/* Waits until all records submitted before are written. */
void ech_record_writer_flush(ech_record_writer *writer);
/* Flushes and ends the thread. Accepts NULL. */
void ech_record_writer_end(ech_record_writer *writer);

#endif
