/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts communicators in the lists of a plan, as exec/queue.c and groups join them.
 */
#include "app/setup/parts.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "comm/comm.h"

/* Whom a rank's lists meet: members of each channel's group, and peers by queue of messages. */
typedef struct meetings {
    const ech_plan *plan;
    int channel[ECH_CHANNELS]; /* 0: not used */
    int lane[ECH_CHANNELS];
    bool rings[ECH_CHANNELS]; /* the library's own collectives */
    bool *met; /* [queues][world] */
} meetings;

static void add_step(meetings *m, const ech_step *step, int *members)
{
    const ech_plan *plan = m->plan;
    if (ech_step_sends(step) || ech_step_receives(step))
        m->met[ech_step_queue(step) * plan->layout->world + step->peer] = true;
    int channel = ech_step_gathers(step) ? ech_step_channel(step) : -1;
    if (channel < 0) return;
    bool sums = ech_step_is_sum(step) && plan->reduction == ECH_REDUCTION_LIBRARY;
    if (!m->channel[channel])
        m->channel[channel] =
            ech_layout_members(plan->layout, plan->model, plan->rank, step->group, members);
    bool gathers = ech_step_gathers_shards(plan, step);
    m->rings[channel] |= sums || (gathers && ech_group_gathers_by_ring(m->channel[channel]));
    m->lane[channel] = step->lane;
}

static void add(ech_communicators *out, const ech_comm_backend *comm, int members, int queue,
                bool rings)
{
    if (members < 2) return;
    out->n++;
    out->bytes += ech_comm_library_bytes(comm, members, ech_queue_blocks(queue), rings);
}

/* A server has a channel of pushes for each worker. */
static int channels_of(const ech_plan *plan, int channel)
{
    bool pushed = ech_channel_group(channel) == ECH_GROUP_PUSHED;
    return pushed && ech_layout_serves(plan->layout, plan->rank) ? ech_layout_workers(plan->layout)
                                                                 : 1;
}

ech_communicators ech_communicators_of(const ech_design *design, const ech_plan *plan)
{
    ech_communicators out = {0};
    int world = design->world, queues = ech_queues_of(plan->model->block.n);
    const ech_comm_backend *comm = ech_comm_of_kind((ech_comm_kind)design->config->parallel.comm);
    const ech_device *device = ech_device_find(ech_config_name(design->config, "parallel.device"));
    if (world < 2 || !comm || !device || device->is_immediate) return out;
    if (ech_comm_library_bytes(comm, 0, 0, false) == 0) return out;
    meetings m = {.plan = plan, .met = ech_calloc((size_t)queues * (size_t)world, sizeof *m.met)};
    ECH_FREED int *members = ech_calloc((size_t)world, sizeof *members);
    for (int l = 0; l < ECH_LIST_KINDS; l++)
        for (size_t s = 0; s < plan->list[l].step.n; s++)
            add_step(&m, &plan->list[l].step.at[s], members);
    for (int i = 0; i < queues * world; i++) add(&out, comm, m.met[i] ? 2 : 0, i / world, false);
    for (int c = 0; c < ECH_CHANNELS; c++)
        for (int i = 0; i < channels_of(plan, c); i++)
            add(&out, comm, m.channel[c], m.lane[c], m.rings[c]);
    free(m.met);
    out.bytes += ech_comm_library_bytes(comm, 0, 0, false);
    return out;
}

void ech_communicators_print(const ech_communicators *joined, ech_text *out)
{
    if (joined->n)
        ech_text_append(out, "    %-21s %12s  (at most, besides the arenas, for %s)\n", "NCCL",
                        ECH_BYTES(joined->bytes), ECH_COUNT(joined->n, "communicator"));
}
