/* SPDX-License-Identifier: Apache-2.0
 *
 * TensorBoard's events as records of an event file, made in memory.
 */
#ifndef ECH_APP_TRAIN_EVENT_RECORD_H
#define ECH_APP_TRAIN_EVENT_RECORD_H

#include <stdint.h>

#include "base/text.h"

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

#endif
