/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's arena on disk, when it starts.
 */
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "exec/state.h"

/* Without values on disk the files of a killed run are removed all the same, if this run trains;
 * other runs only read. */
static ech_status take(ech_exec *exec, int64_t bytes)
{
    const ech_config *config = exec->config;
    ECH_FREED char *folder = ech_config_is_auto(config->memory.offload_directory)
                                 ? ech_file_join(config->log.directory, "offload")
                                 : ech_strdup(config->memory.offload_directory);
    if (bytes == 0) {
        if (exec->plan->list[ECH_LIST_TRAIN].step.n > 0) ech_disk_sweep(folder);
        return ECH_OK;
    }
    ECH_ASSERT(exec->plan->alignment[ECH_SPACE_DISK] % ECH_DISK_ALIGNMENT == 0);
    ECH_TRY(ech_disk_create(folder, "memory.offload_directory", exec->plan->rank,
                            ech_align(bytes, ECH_DISK_ALIGNMENT), &exec->disk));
    exec->arena[ECH_SPACE_DISK] = ech_disk_addresses(exec->disk);
    return ECH_OK;
}

/* True if some rank may have values there; all ranks agree. */
static bool offloads_to_disk(const ech_config *config)
{
    return config->memory.offload_activations == ECH_OFFLOAD_DISK ||
           config->memory.offload_optimizer == ECH_OFFLOAD_DISK ||
           config->memory.offload_parameters == ECH_OFFLOAD_DISK;
}

typedef struct outcome {
    ech_status status;
    bool is_cached; /* its file has no direct I/O */
} outcome;

static int find(const outcome *all, int size, bool fails)
{
    int rank = 0;
    while (rank < size && !(fails ? all[rank].status != ECH_OK : all[rank].is_cached)) rank++;
    return rank;
}

/* A folder is bad, or slow, for many ranks: only the first reports it. If one fails, all end. */
ech_status ech_exec_take_disk(ech_exec *exec)
{
    int64_t bytes = exec->plan->arena_bytes[ECH_SPACE_DISK];
    if (!offloads_to_disk(exec->config)) return take(exec, bytes);
    int size = exec->plan->layout->world, me = exec->plan->rank;
    ECH_FREED outcome *all = ech_calloc((size_t)size, sizeof *all);
    bool quiet = ech_log_set_quiet(true);
    outcome own = {.status = take(exec, bytes)};
    ech_log_set_quiet(quiet);
    own.is_cached = exec->disk && !ech_disk_is_direct(exec->disk);
    ECH_TRY(ech_group_all_gather(ech_exec_world(exec), all, &own, sizeof *all, size));
    int failed = find(all, size, true);
    if (failed == me) ECH_FAIL(own.status, "%s", ech_last_error());
    if (failed < size) return all[failed].status;
    if (find(all, size, false) == me)
        ech_log_info("%s: its file system has no direct I/O (O_DIRECT): offloaded tensors pass "
                     "through the page cache, which uses host memory",
                     ech_disk_path(exec->disk));
    return ECH_OK;
}
