/* SPDX-License-Identifier: Apache-2.0
 *
 * Histograms of the exponents of gradients, layer by layer (Micikevicius et al. 2018, "Mixed
 * precision training", figure 3, shows why fp16 needs a loss scale). They are taken from a step's
 * gradients where the norm is computed: summed over ranks, before clipping, without the loss scale.
 * Each element counts once, so the histogram is the same under any layout, except for rounding.
 */
#ifndef ECH_APP_TRAIN_HISTOGRAMS_H
#define ECH_APP_TRAIN_HISTOGRAMS_H

#include "app/train/progress.h"
#include "exec/exec.h"

typedef struct ech_histograms ech_histograms;

/* Makes those of a rank. `plan` is borrowed. */
ech_histograms *ech_histograms_create(const ech_plan *plan);
void ech_histograms_destroy(ech_histograms *histograms); /* accepts NULL */
/* The next run of ECH_LIST_TRAIN counts its gradients, until the observer is removed. */
void ech_histograms_begin(ech_histograms *histograms, ech_exec *exec);
/* After that run: adds the counts of all ranks, and submits a note for each layer with trained
 * parameters to `progress` (NULL: on another rank than the first). Collective. */
ech_status ech_histograms_finish(ech_histograms *histograms, ech_exec *exec, int64_t step,
                                 ech_progress *progress);

/* ---- records ---- */

/* Appends the keys of a line of metrics.jsonl after "step". */
void ech_histogram_json(const ech_histogram *histogram, ech_text *json);
/* Appends an event for TensorBoard's tab Histograms. */
void ech_histogram_event(double wall_time, const ech_histogram *histogram, ech_text *out);

#endif
