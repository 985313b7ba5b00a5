/* SPDX-License-Identifier: Apache-2.0
 *
 * A QUIET step allocates nothing. Functions that wrap the C library's count the calls of the
 * allocator in a training list after the first, from when the last rank has begun the list until a
 * rank has ended it. The list waits for the device at most once a turn.
 */
#include "app/allocations.h"
#include "app/probe.h"

static atomic_int entered;

/* Queues that are threads allocate what is put on them. */
static bool applies(const ech_design *design)
{
    return ech_device_find(ech_config_name(design->config, "parallel.device"))->is_immediate;
}

static void fail_for(const probe_run *run)
{
    char where[300];
    allocations_print_culprit(where, sizeof where);
    probe_fail("a %s list allocates %lld times, last at %s", ech_list_name(run->list),
               (long long)atomic_load(&allocations.ours), where);
}

/* All ranks meet before and after the list. */
static void observe(void *state, const probe_run *run, probe_moment moment)
{
    int64_t *waits = state;
    if (moment == PROBE_BEFORE) {
        *waits = ech_exec_counted(run->session->exec)->host_waits;
        atomic_store(&allocations.ours, 0);
        if (atomic_fetch_add(&entered, 1) + 1 < run->design->world) return;
        atomic_store(&entered, 0);
        atomic_store(&allocations.counting, true);
    } else if (moment == PROBE_AFTER) {
        atomic_store(&allocations.counting, false);
        int64_t waited = ech_exec_counted(run->session->exec)->host_waits - *waits;
        if (atomic_load(&allocations.ours)) fail_for(run);
        if (waited > probe_list(run)->turns)
            probe_fail("rank %d waits %lld times for its device in %d turns", run->rank,
                       (long long)waited, probe_list(run)->turns);
    }
}

const probe probe_quiet = {.name = "quiet",
                           .state = sizeof(int64_t),
                           .applies = applies,
                           .observe = observe,
                           .lists = PROBE_QUIET,
                           .plain = true};
