/* SPDX-License-Identifier: Apache-2.0
 *
 * PEAKS equal the ledger: of each kind of memory a rank has had live as many bytes at once as its
 * plan says of the lists that have run, and of all working memory together.
 */
#include "app/probe.h"
#include "schedule/peaks.h"

/* A worker passes over what it has no push for, and what is offloaded then lives on in the ledger.
 */
static bool applies(const ech_design *design)
{
    return design->layout->sums != ECH_SUMS_SERVERS ||
           design->config->memory.offload_activations == ECH_OFFLOAD_NONE;
}

static int64_t planned_peak(const probe_run *run, ech_memory_kind kind)
{
    const ech_plan *plan = run->session->plan;
    int64_t peak = 0;
    for (ech_list_kind l = 0; l < ECH_LIST_KINDS; l++)
        if (probe_has_run(run, l) && plan->list[l].peak[kind] > peak)
            peak = plan->list[l].peak[kind];
    for (size_t i = 0; i < plan->persistent.n; i++)
        if (plan->persistent.at[i].kind == kind)
            peak += ech_plan_align(plan, kind, plan->persistent.at[i].bytes);
    return peak;
}

/* The list in which it is largest may not have run. */
static void check_working(const probe_run *run)
{
    ech_working planned = ech_plan_working(run->session->plan);
    int64_t measured = ech_exec_working(run->session->exec);
    bool reached = !planned.list || probe_has_run(run, planned.list->kind);
    if (measured > planned.bytes || (reached && measured < planned.bytes))
        probe_fail("rank %d: %lld bytes of working memory, planned %lld", run->rank,
                   (long long)measured, (long long)planned.bytes);
}

static void observe(void *state, const probe_run *run, probe_moment moment)
{
    (void)state;
    int64_t measured[ECH_MEMORY_KINDS];
    if (moment != PROBE_CLOSED) return;
    ech_exec_peaks(run->session->exec, measured);
    for (ech_memory_kind kind = 0; kind < ECH_MEMORY_KINDS; kind++) {
        int64_t planned = planned_peak(run, kind);
        if (measured[kind] != planned)
            probe_fail("rank %d, %s: %lld bytes, planned %lld", run->rank, ech_memory_name(kind),
                       (long long)measured[kind], (long long)planned);
    }
    check_working(run);
}

const probe probe_peaks = {.name = "peaks", .applies = applies, .observe = observe};
