/* SPDX-License-Identifier: Apache-2.0
 *
 * The reports of a training step by sparse codes of kept values, as numbers for people.
 */
#ifndef ECH_APP_CODES_H
#define ECH_APP_CODES_H

#include "base/text.h"
#include "model/model.h"

typedef struct ech_code_metrics {
    bool sparse;    /* the model has sparse codes; otherwise nothing else is set */
    double spilled; /* tensors that were denser than memory.encode_density, over all ranks */
    double density; /* share of non-zeros in all encoded tensors */
} ech_code_metrics;

/* Computes them from ech_readings.reports. */
ech_code_metrics ech_code_metrics_of(const ech_model *model, const double *reports);
/* Raises density[b], [blocks], to the share of non-zeros in the sparse codes of block b. */
void ech_code_metrics_raise(const ech_model *model, const double *reports, double *density);
/* Appends the keys of a line of metrics.jsonl; nothing without sparse codes. */
void ech_code_metrics_json(const ech_code_metrics *metrics, ech_text *json);

#endif
