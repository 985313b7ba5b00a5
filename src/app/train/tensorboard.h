/* SPDX-License-Identifier: Apache-2.0
 *
 * TensorBoard's event files: one per start of a run, in the run directory, so that `tensorboard
 * --logdir runs` shows each folder as a run. Rank 0 only.
 */
#ifndef ECH_APP_TRAIN_TENSORBOARD_H
#define ECH_APP_TRAIN_TENSORBOARD_H

#include <stdint.h>

#include "base/journal.h"
#include "base/text.h"

/* ---- TensorBoard's events as records of an event file, made in memory ---- */

/* Each appends one record: u64 length, masked CRC-32C of the length, the event, masked CRC-32C of
 * the event (tensorboard/compat/tensorflow_stub/pywrap_tensorflow.py). `wall_time`: seconds since
 * 1970. */

/* The first record of every file. */
void ech_event_version(double wall_time, ech_text *out);
/* A start of the run whose first training step is `step`. TensorBoard discards events of earlier
 * files at `step` and later. */
void ech_event_start(double wall_time, int64_t step, ech_text *out);

typedef struct ech_event_scalar {
    const char *tag;
    double value; /* stored as fp32 */
} ech_event_scalar;
enum { ECH_EVENT_SCALARS = 32 }; /* at most per record */
void ech_event_scalars(double wall_time, int64_t step, const ech_event_scalar *scalars, int n,
                       ech_text *out);
/* For TensorBoard's tab Histograms: counts[n] of numbers between `first` + i and `first` + i + 1.
 */
void ech_event_histogram(double wall_time, int64_t step, const char *tag, int first,
                         const double *counts, int n, ech_text *out);
/* Text for TensorBoard's tab Text, as Markdown. Invalid UTF-8 is written unchanged. */
void ech_event_text(double wall_time, int64_t step, const char *tag, const char *text,
                    ech_text *out);

/* Makes a new file in `folder`. Its name has the time, the machine and the number of the start
 * (from 1), so that names sort in the order of starts. The run starts after
 * `first_step` steps: TensorBoard will discard events of earlier files at later steps. Errors:
 * ECH_EIO. */
ech_status ech_event_file_open(const char *folder, int64_t first_step, int64_t start,
                               ech_journal **out);

#endif
