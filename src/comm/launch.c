/* SPDX-License-Identifier: Apache-2.0
 *
 * Environment variables by which launchers are recognized.
 */
#include "comm/launch.h"

#include <stdbool.h>

#include "base/text.h"

/* A launcher is seen when `size` holds a number above `above` and all of `with` are set. */
typedef struct launcher {
    const char *name, *size;
    long above;
    const char *with[2];
} launcher;

/* Slurm: an salloc shell and a batch script have SLURM_NTASKS, but only a task that srun started is
 * in a step, with the number of the step's tasks. Most telling first. */
static const launcher launchers[] = {
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", 1, {0}},
    {"MPICH's mpiexec", "PMI_SIZE", 1, {0}},
    {"the mpiexec of MPICH or Intel MPI", "MPI_LOCALNRANKS", 1, {0}},
    {"Slurm's srun", "SLURM_STEP_NUM_TASKS", 1, {"SLURM_PROCID", "SLURM_STEP_ID"}},
    {"a PMIx launcher", "PMIX_RANK", 0, {0}},
};

static bool is_seen(const launcher *l, ech_launch_lookup lookup)
{
    const char *text = lookup(l->size);
    int64_t size;
    if (!text || !ech_text_to_int(text, &size) || size <= l->above) return false;
    for (int i = 0; i < 2; i++)
        if (l->with[i] && !lookup(l->with[i])) return false;
    return true;
}

ech_status ech_launch_check(ech_launch_lookup lookup, int mpi_size, const char *mpi_version,
                            const char *mpi_launcher)
{
    if (mpi_size != 1) return ECH_OK;
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const launcher *l = &launchers[i];
        if (!is_seen(l, lookup)) continue;
        ECH_FAIL(ECH_EUSAGE,
                 "started as one of several by %s (%s=%s), but this build's MPI (%s) sees a lone "
                 "rank: start it with %s -n N echelon ..., with srun --mpi=pmix, or let "
                 "echelon --ranks N do so",
                 l->name, l->size, lookup(l->size), mpi_version, mpi_launcher);
    }
    return ECH_OK;
}
