/* SPDX-License-Identifier: Apache-2.0
 *
 * Binds a rank's compute threads to cores; these threads touch its memory first, so that it is in
 * near memory. Ranks of a machine that may run on the same cores divide them in order of rank, so
 * that each thread of a kernel has a core of its own. A thread that moves loses its caches, and two
 * on one core delay all others at the end of each loop. A rank with a GPU has the cores near it. A
 * job that needs at most half of the cores is not bound; threads for messages and files never are.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "exec/state.h"

/* Variables by which a user binds OpenMP's threads. */
static const char *binding_variable(void)
{
    static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY",
                                        "KMP_AFFINITY"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i])) return names[i];
    return NULL;
}

/* What this rank knows about other ranks that may run on its cores. */
typedef struct neighbours {
    int sharing, index; /* ranks with the same cores, and this one's index among them */
    bool strange;       /* others have some of these cores */
} neighbours;

static neighbours look_around(const ech_exec *exec, const ech_core_set *sets)
{
    neighbours found = {0};
    int me = exec->plan->rank, size = exec->plan->layout->world;
    for (int r = 0; r < size; r++) {
        if (!ech_comm_is_near(exec->comm, &r, 1)) continue;
        bool same = ech_cores_are_same(&sets[r], &sets[me]);
        found.sharing += same;
        found.index += same && r < me;
        found.strange |= !same && ech_cores_overlap(&sets[r], &sets[me]);
    }
    return found;
}

/* True if another job of equal size could get cores that this one does not use. Jobs do not know
 * about each other, and all would be bound to the same first cores. */
static bool has_room(const ech_core_set *set, int wanted, int *core)
{
    return 2 * wanted <= ech_cores_order(set, 0, core);
}

/* NULL: success. */
static const char *bind(ech_exec *exec, const ech_core_set *mine, const neighbours *others)
{
    int threads = exec->context->threads, wanted = threads * others->sharing;
    int cores = ech_cores_count(mine);
    if (binding_variable()) return "not pinned: an environment variable binds OpenMP's threads";
    if (others->strange) return "not pinned: ranks have different cores, and some in common";
    if (cores == 0) return "not pinned: the system does not say which cores there are";
    /* others, such as other containers, have the rest */
    if (ech_device_find("cpu")->cores() < cores)
        return "not pinned: a control group's quota leaves fewer cores";
    if (wanted > cores) return "not pinned: more threads than cores";
    ECH_FREED int *core = ech_calloc(ECH_MOST_CORES, sizeof *core);
    exec->is_bound = !has_room(mine, wanted, core);
    if (exec->is_bound) {
        ech_cores_order(mine, wanted, core);
        ech_kernel_context_bind(exec->context, core + (size_t)others->index * (size_t)threads);
    }
    return exec->is_bound ? NULL : "not pinned: there is room for another job";
}

static void *pass(void *hold)
{
    pthread_mutex_lock(hold);
    pthread_mutex_unlock(hold);
    return NULL;
}

/* OpenMP ends the process if it cannot start its threads. So the same number is started here first,
 * all at the same time. */
static ech_status try_threads(const ech_exec *exec)
{
    int most = (int)exec->config->parallel.threads - 1 + exec->plan->host_threads, n = 0;
    ECH_FREED pthread_t *threads = ech_calloc((size_t)most + 1, sizeof *threads);
    pthread_mutex_t hold = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&hold);
    while (n < most && pthread_create(&threads[n], NULL, pass, &hold) == 0) n++;
    pthread_mutex_unlock(&hold);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    if (n == most) return ECH_OK;
    ECH_FAIL(ECH_EIO,
             "cannot start another thread for kernels: " ECH_NO_THREAD
             ", or use fewer parallel.threads than %d",
             (int)exec->config->parallel.threads);
}

/* The cores of this rank: of those that it may run on, the ones near its device, if any are. */
static ech_core_set cores_of(const ech_exec *exec)
{
    if (!exec->device->near) return exec->cores_before;
    const ech_core_set near = exec->device->near();
    const ech_core_set both = ech_cores_common(&near, &exec->cores_before);
    return ech_cores_count(&both) > 0 ? both : exec->cores_before;
}

ech_status ech_threads_bind(ech_exec *exec)
{
    ECH_TRY(try_threads(exec));
    int size = exec->plan->layout->world;
    exec->binding = "not pinned: parallel.pin is false";
    if (exec->config->parallel.pin == ECH_PIN_FALSE) return ECH_OK;
    ECH_FREED ech_core_set *sets = ech_calloc((size_t)size, sizeof *sets);
    exec->cores_before = ech_cores_mine();
    const ech_core_set mine = cores_of(exec);
    ECH_TRY(ech_group_all_gather(ech_exec_world(exec), sets, &mine, sizeof *sets, size));
    neighbours others = look_around(exec, sets);
    const char *why_not = bind(exec, &mine, &others);
    exec->binding = why_not ? why_not : "pinned";
    return ECH_OK;
}

void ech_threads_unbind(ech_exec *exec)
{
    if (exec->is_bound) ech_cores_bind_set(&exec->cores_before);
}

const char *ech_exec_binding(const ech_exec *exec)
{
    return exec->binding;
}

/* Large values only; memory between them is left to its first use. */
static void touch_values(const ech_exec *exec, const ech_value *values, size_t n)
{
    for (const ech_value *v = values; v < values + n; v++)
        if (v->bytes >= 1 << 20 && ech_memory_space(v->kind) == ECH_SPACE_DEVICE)
            ech_kernel_context_touch(exec->context, ech_exec_at(exec, v), (size_t)v->bytes);
}

/* Kernels divide a tensor among threads. Some values share memory, and the first touch decides
 * where it is: persistent values come first, then training's. */
void ech_threads_touch(ech_exec *exec)
{
    const ech_plan *plan = exec->plan;
    touch_values(exec, plan->persistent.at, plan->persistent.n);
    touch_values(exec, plan->list[ECH_LIST_TRAIN].value.at, plan->list[ECH_LIST_TRAIN].value.n);
    ech_kernel_context_touch(exec->context, exec->arena[ECH_SPACE_DEVICE],
                             (size_t)plan->arena_bytes[ECH_SPACE_DEVICE]);
}
