/* SPDX-License-Identifier: Apache-2.0
 *
 * The reports of a training step by the gates of mixtures of experts, as numbers for people.
 */
#ifndef ECH_APP_EXPERTS_H
#define ECH_APP_EXPERTS_H

#include "base/text.h"
#include "model/model.h"

enum { ECH_MOST_LOADS = 256 };

typedef struct ech_expert_metrics {
    int64_t experts; /* of the layer with most; 0: the model has none, and nothing else is set */
    /* rows of the fullest expert over the layer's mean; the largest of all layers */
    double most;
    /* share of choices dropped for lack of capacity, or randomly not sent */
    double dropped;
    double entropy; /* of a row's probabilities, in nats; mean over rows and layers */
    double auxiliary, importance,
        load;  /* losses with their coefficients: mean over balance groups, summed over layers */
    int loads; /* entries of `of`: experts, or 0 if there are more than ECH_MOST_LOADS */
    /* rows that chose expert i of any layer, over their mean: 1 is balance */
    float of[ECH_MOST_LOADS];
} ech_expert_metrics;

/* Computes them from ech_readings.reports. */
void ech_expert_metrics_take(const ech_model *model, const double *reports,
                             ech_expert_metrics *out);
/* Appends the keys of a line of metrics.jsonl; nothing if there are no experts. */
void ech_expert_metrics_json(const ech_expert_metrics *metrics, ech_text *json);

#endif
