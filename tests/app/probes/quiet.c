/* SPDX-License-Identifier: Apache-2.0
 *
 * A QUIET step allocates nothing: from when the last rank has begun a training list that is not the
 * first until one has ended it, calls of the allocator are counted by functions that stand in front
 * of the C library's; and the list waits for the device once a turn at most.
 */
#include "app/probe.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static atomic_bool counting;
static atomic_int entered;
static atomic_llong ours; /* allocations; those of libraries are their own affair */
static void *_Atomic culprit;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* oneDNN allocates small objects at each call, and so does the C++ library for it; OpenMP a small
 * one for each region. */
static bool is_theirs(void *caller)
{
    static const char *const libraries[] = {"libdnnl", "libstdc++", "libgomp", "libomp"};
    Dl_info info;
    if (dladdr(caller, &info) == 0) return false;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
        if (strstr(info.dli_fname, libraries[i])) return true;
    return false;
}

static void note(void *caller)
{
    if (!atomic_load(&counting) || is_theirs(caller)) return;
    atomic_fetch_add(&ours, 1);
    atomic_store(&culprit, caller);
}

#define NOTE() note(__builtin_return_address(0))

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

void *malloc(size_t bytes)
{
    NOTE();
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    NOTE();
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    NOTE();
    return __libc_realloc(old, bytes);
}

void *memalign(size_t align, size_t bytes)
{
    NOTE();
    return __libc_memalign(align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    NOTE();
    return __libc_memalign(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
    NOTE();
    void *memory = __libc_memalign(align, bytes);
    if (memory) *out = memory;
    return memory ? 0 : ENOMEM;
}
#endif

/* Queues that are threads allocate what is put on them. */
static bool applies(const ech_design *design)
{
    return ech_device_find(ech_config_name(design->config, "parallel.device"))->is_immediate;
}

static void fail_for(const probe_run *run)
{
    Dl_info info = {0};
    void *caller = atomic_load(&culprit);
    if (dladdr(caller, &info) == 0) info = (Dl_info){.dli_fname = "?"};
    probe_fail("a %s list allocates %lld times, last at %s+0x%zx", ech_list_name(run->list),
               (long long)atomic_load(&ours), info.dli_fname,
               (size_t)((char *)caller - (char *)info.dli_fbase));
}

/* All ranks meet before and after the list. */
static void observe(void *state, const probe_run *run, probe_moment moment)
{
    int64_t *waits = state;
    if (moment == PROBE_BEFORE) {
        *waits = ech_exec_host_waits(run->session->exec);
        atomic_store(&ours, 0);
        if (atomic_fetch_add(&entered, 1) + 1 < run->design->world) return;
        atomic_store(&entered, 0);
        atomic_store(&counting, true);
    } else if (moment == PROBE_AFTER) {
        atomic_store(&counting, false);
        int64_t waited = ech_exec_host_waits(run->session->exec) - *waits;
        if (atomic_load(&ours)) fail_for(run);
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
