/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of gates, put together over layers.
 */
#include "app/experts.h"

#include <string.h>

#include "app/metrics.h"
#include "kernel/kernel.h"

/* Sums over layers. */
typedef struct gathered {
    int layers;
    double chosen, dropped, entropy, rows;
    double of[ECH_MOST_LOADS];
} gathered;

static double per(double sum, double n)
{
    return n > 0 ? sum / n : 0;
}

static void take_layer(const double *numbers, int64_t E, gathered *all, ech_expert_metrics *out)
{
    const double *dropped = numbers + E, *sums = dropped + E;
    double chosen = 0, most = 0, groups = sums[ECH_GATE_GROUPS];
    for (int64_t i = 0; i < E; i++) {
        chosen += numbers[i];
        if (numbers[i] > most) most = numbers[i];
        all->dropped += dropped[i];
        if (i < ECH_MOST_LOADS) all->of[i] += numbers[i];
    }
    double load = per(most * (double)E, chosen);
    if (load > out->most) out->most = load;
    if (E > out->experts) out->experts = E;
    all->layers++;
    all->chosen += chosen;
    all->dropped += sums[ECH_GATE_UNSENT];
    all->entropy += sums[ECH_GATE_ENTROPY];
    all->rows += sums[ECH_GATE_ROWS];
    out->auxiliary += per(sums[ECH_GATE_AUXILIARY], groups);
    out->importance += per(sums[ECH_GATE_IMPORTANCE], groups);
    out->load += per(sums[ECH_GATE_LOAD], groups);
}

void ech_expert_metrics_take(const ech_model *model, const double *reports, ech_expert_metrics *out)
{
    gathered all = {0};
    *out = (ech_expert_metrics){0};
    for (size_t b = 0; b < model->block.n; b++) {
        const ech_block *block = model->block.at[b];
        const double *at = reports + block->first_report;
        for (size_t k = 0; k < block->report.n; at += block->report.at[k++].numbers)
            if (strcmp(block->report.at[k].kind, ECH_GATE_REPORT) == 0)
                take_layer(at, (block->report.at[k].numbers - ECH_GATE_SUMS) / 2, &all, out);
    }
    out->dropped = per(all.dropped, all.chosen);
    out->entropy = per(all.entropy, all.rows);
    out->loads = out->experts <= ECH_MOST_LOADS ? (int)out->experts : 0;
    for (int i = 0; i < out->loads; i++)
        out->of[i] = (float)per(all.of[i] * (double)out->experts, all.chosen);
}

void ech_expert_metrics_json(const ech_expert_metrics *m, ech_text *json)
{
    if (!m->experts) return;
    ech_metrics_real(json, "expert_load_most", m->most);
    ech_metrics_real(json, "expert_dropped", m->dropped);
    ech_metrics_real(json, "router_entropy", m->entropy);
    ech_metrics_real(json, "router_auxiliary_loss", m->auxiliary);
    ech_metrics_real(json, "router_importance_loss", m->importance);
    ech_metrics_real(json, "router_load_loss", m->load);
    if (!m->loads) return;
    ech_text_append(json, ",\"expert_load\":[");
    for (int i = 0; i < m->loads; i++)
        ech_text_append(json, "%s%.4g", i ? "," : "", (double)m->of[i]);
    ech_text_append(json, "]");
}
