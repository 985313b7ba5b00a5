/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of sparse codes, added over layers.
 */
#include "app/codes.h"

#include <string.h>

#include "app/metrics.h"
#include "kernel/codes.h"
#include "layer/layers.h"

/* The counts of the next sparse code of the block, from its report *k on; NULL: there is none. *k
 * and *at then stand after them. */
static const double *next_counts(const ech_block *block, size_t *k, const double **at)
{
    while (*k < block->report.n) {
        const ech_reported *report = &block->report.at[(*k)++];
        const double *counts = *at;
        *at += report->numbers;
        if (strcmp(report->kind, ECH_SPARSE_REPORT) == 0) return counts;
    }
    return NULL;
}

ech_code_metrics ech_code_metrics_of(const ech_model *model, const double *reports)
{
    ech_code_metrics out = {0};
    double nonzeros = 0, elements = 0;
    for (size_t b = 0; b < model->block.n; b++) {
        const double *at = reports + model->block.at[b]->first_report, *counts;
        for (size_t k = 0; (counts = next_counts(model->block.at[b], &k, &at));) {
            out.sparse = true;
            out.spilled += counts[ECH_SPARSE_SPILLED];
            nonzeros += counts[ECH_SPARSE_NONZEROS];
            elements += counts[ECH_SPARSE_ELEMENTS];
        }
    }
    out.density = elements > 0 ? nonzeros / elements : 0;
    return out;
}

void ech_code_metrics_raise(const ech_model *model, const double *reports, double *density)
{
    for (size_t b = 0; b < model->block.n; b++) {
        const double *at = reports + model->block.at[b]->first_report, *counts;
        for (size_t k = 0; (counts = next_counts(model->block.at[b], &k, &at));)
            if (counts[ECH_SPARSE_NONZEROS] > density[b] * counts[ECH_SPARSE_ELEMENTS])
                density[b] = counts[ECH_SPARSE_NONZEROS] / counts[ECH_SPARSE_ELEMENTS];
    }
}

void ech_code_metrics_json(const ech_code_metrics *m, ech_text *json)
{
    if (!m->sparse) return;
    ech_metrics_int(json, "encode_spilled", (int64_t)m->spilled);
    ech_metrics_real(json, "encode_density", m->density);
}
