/* SPDX-License-Identifier: Apache-2.0
 *
 * Locations of virtual stages, and the micro-batches that they process.
 */
#include "layout/layout.h"

#include <stdlib.h>

/* ---- placements ---- */

int ech_placement_stage(ech_placement placement, int s, int p)
{
    switch (placement) {
#define X(name, stage, meaning)                                                                    \
    case ECH_PLACEMENT_##name:                                                                     \
        return stage;
#include "layout/placements.def"
    }
    return -1;
}

bool ech_placement_joins_ends(ech_placement placement, int stages, int chunks)
{
    return ech_placement_stage(placement, 0, stages) ==
           ech_placement_stage(placement, stages * chunks - 1, stages);
}

void ech_layout_assign(ech_layout *layout, const int *stage)
{
    int n = ech_layout_virtual_stages(layout);
    ECH_FREED int *chunks = ech_calloc((size_t)layout->stages, sizeof *chunks);
    free(layout->virtual_stage);
    free(layout->virtual_of);
    layout->virtual_stage = ech_calloc((size_t)n, sizeof *layout->virtual_stage);
    layout->virtual_of = ech_calloc((size_t)n, sizeof *layout->virtual_of);
    for (int s = 0; s < n; s++) {
        int chunk = chunks[stage[s]]++;
        ECH_ASSERT(chunk < layout->chunks);
        layout->virtual_stage[s] = (ech_virtual_stage){.stage = stage[s], .chunk = chunk};
        layout->virtual_of[stage[s] * layout->chunks + chunk] = s;
    }
}

/* ---- virtual stages ---- */

int ech_layout_virtual_stages(const ech_layout *layout)
{
    return layout->stages * layout->chunks;
}

int ech_layout_virtual_stage(const ech_layout *layout, int rank, int chunk)
{
    return layout->virtual_of[layout->coordinates[rank].stage * layout->chunks + chunk];
}

int ech_layout_neighbour(const ech_layout *layout, int rank, int chunk, bool after)
{
    int s = ech_layout_virtual_stage(layout, rank, chunk) + (after ? 1 : -1);
    return s < ech_layout_virtual_stages(layout) ? s : -1;
}

/* ---- micro-batches ---- */

int64_t ech_replica_micro_batches(int64_t micro_batches, int replicas, int replica)
{
    return (micro_batches - replica + replicas - 1) / replicas;
}

int64_t ech_replica_global_micro(int replicas, int replica, int64_t k)
{
    return k * replicas + replica;
}

int ech_layout_micro_batches(const ech_layout *layout, int rank)
{
    const ech_coordinates *here = &layout->coordinates[rank];
    if (ech_layout_serves(layout, rank)) return 0;
    return (int)ech_replica_micro_batches(layout->micro_batches, layout->replicas[here->stage],
                                          here->data);
}

int64_t ech_layout_global_micro(const ech_layout *layout, int rank, int64_t k)
{
    const ech_coordinates *here = &layout->coordinates[rank];
    return ech_replica_global_micro(layout->replicas[here->stage], here->data, k);
}

int64_t ech_layout_own_micro(const ech_layout *layout, int rank, int64_t q)
{
    return q / layout->replicas[layout->coordinates[rank].stage];
}

int ech_layout_rank_of(const ech_layout *layout, int virtual_stage, int64_t q, int rank)
{
    int stage = layout->virtual_stage[virtual_stage].stage;
    return ech_layout_rank_at(layout, stage, (int)(q % layout->replicas[stage]),
                              layout->coordinates[rank].context, layout->coordinates[rank].tensor);
}

int ech_layout_rank_at(const ech_layout *layout, int stage, int data, int context, int tensor)
{
    return layout->first_rank[stage] + (data * layout->context + context) * layout->tensor + tensor;
}
