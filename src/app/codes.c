/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of sparse codes, added over layers.
 */
#include "app/codes.h"

#include <string.h>

#include "app/metrics.h"
#include "kernel/codes.h"
#include "layer/layers.h"

ech_code_metrics ech_code_metrics_of(const ech_model *model, const double *reports)
{
    ech_code_metrics out = {0};
    double nonzeros = 0, elements = 0;
    for (size_t b = 0; b < model->block.n; b++) {
        const ech_block *block = model->block.at[b];
        const double *at = reports + block->first_report;
        for (size_t k = 0; k < block->report.n; at += block->report.at[k++].numbers) {
            if (strcmp(block->report.at[k].kind, ECH_SPARSE_REPORT) != 0) continue;
            out.sparse = true;
            out.spilled += at[ECH_SPARSE_SPILLED];
            nonzeros += at[ECH_SPARSE_NONZEROS];
            elements += at[ECH_SPARSE_ELEMENTS];
        }
    }
    out.density = elements > 0 ? nonzeros / elements : 0;
    return out;
}

void ech_code_metrics_json(const ech_code_metrics *m, ech_text *json)
{
    if (!m->sparse) return;
    ech_metrics_int(json, "encode_spilled", (int64_t)m->spilled);
    ech_metrics_real(json, "encode_density", m->density);
}
