/* SPDX-License-Identifier: Apache-2.0
 *
 * The TensorBoard view of a run: an event file for each start of it, in the run directory, so that
 * `tensorboard --logdir runs` shows a run a folder. Rank 0 only.
 */
#ifndef ECH_APP_TRAIN_EVENT_FILE_H
#define ECH_APP_TRAIN_EVENT_FILE_H

#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

/* ---- TensorBoard's events as records of an event file, made in memory ---- */

/* All of them append one record: u64 length, masked CRC-32C of the length, the event, masked CRC-32C of the
 * event (tensorboard/compat/tensorflow_stub/pywrap_tensorflow.py). `wall_time`: seconds since 1970. */

/* The first record of every file. */
void ech_event_version(double wall_time, ech_text *out);
/* A start of the run: TensorBoard forgets what the file before says of `step` and later steps. */
void ech_event_start(double wall_time, int64_t step, ech_text *out);

typedef struct ech_event_scalar {
    const char *tag;
    double value; /* kept as fp32 */
} ech_event_scalar;
enum { ECH_EVENT_SCALARS = 32 }; /* at most in a record */
void ech_event_scalars(double wall_time, int64_t step, const ech_event_scalar *scalars, int n,
                       ech_text *out);
/* For the tab Text, which reads it as Markdown. Bytes that are no UTF-8 stay as they are. */
void ech_event_text(double wall_time, int64_t step, const char *tag, const char *text,
                    ech_text *out);

typedef struct ech_events ech_events;

/* A new file in `folder`, named after the time, the machine and the number of this start (1: the
 * first), so that files sort in the order of starts; what earlier ones say of steps after `first_step` is taken back. Errors:
 * it cannot be made. */
ech_status ech_events_open(const char *folder, int64_t first_step, int64_t start, ech_events **out);
/* Each is one write, in a journal (base/journal.h): it never fails. `wall_time`: seconds since 1970. */
void ech_events_scalars(ech_events *events, double wall_time, int64_t step,
                        const ech_event_scalar *scalars, int n);
void ech_events_text(ech_events *events, int64_t step, const char *tag, const char *text);
void ech_events_close(ech_events *events); /* accepts NULL */

#endif
