/* SPDX-License-Identifier: Apache-2.0
 *
 * Environment variables that identify launchers.
 */
#include "comm/launch.h"

#include <stdlib.h>

#include "base/text.h"

/* Recognized if `rank` is set and `size`, if there is such a variable, is at least `least`: Slurm
 * gives an salloc shell and the shell of `srun --pty bash` a step of one task, too. */
typedef struct launcher {
    const char *by, *rank, *size;
    int64_t least;
    bool without_mpi;
} launcher;

/* Most specific first. */
static const launcher launchers[] = {
    {"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", 1, false},
    {"MPICH's mpiexec", "PMI_RANK", "PMI_SIZE", 1, false},
    {"the mpiexec of MPICH or Intel MPI", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", 2, false},
    {"Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", 2, false},
    {"a PMIx launcher", "PMIX_RANK", NULL, 0, false},
    {"a launcher like torchrun", "RANK", "WORLD_SIZE", 2, true},
};
enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

static bool read_number(const char *name, int64_t *out)
{
    const char *text = getenv(name);
    return text && ech_text_to_int(text, out);
}

static bool is_seen(const launcher *l, ech_launched *out)
{
    ech_launched seen = {.by = l->by, .without_mpi = l->without_mpi};
    if (!read_number(l->rank, &seen.rank)) return false;
    if (l->size && !read_number(l->size, &seen.size)) return false;
    if (seen.size < l->least) return false;
    *out = seen;
    return true;
}

bool ech_launched_here(ech_launched *out)
{
    for (int i = 0; i < LAUNCHERS; i++)
        if (is_seen(&launchers[i], out)) return true;
    return false;
}

/* What makes its processes find each other. */
static void describe_remedy(const launcher *l, const char *program, ech_text *out)
{
    if (program && l->without_mpi) {
        ech_text_append(out, "set parallel.comm = ucx");
        return;
    }
    if (program) {
        ech_text_append(out, "start it with %s -n N echelon ..., with srun --mpi=pmix", program);
        return;
    }
    ech_text_append(out, "give each process RANK=$%s, WORLD_SIZE", l->rank);
    if (l->size) ech_text_append(out, "=$%s", l->size);
    ech_text_append(out, ", MASTER_ADDR and MASTER_PORT");
}

ech_status ech_launched_check(int size, const char *by, const char *program)
{
    for (int i = 0; i < LAUNCHERS && size == 1; i++) {
        ech_launched seen;
        const launcher *l = &launchers[i];
        if (!is_seen(l, &seen) || (l->size ? seen.size : seen.rank + 1) < 2) continue;
        const char *told = l->size ? l->size : l->rank;
        ECH_FREED_TEXT remedy = {0};
        describe_remedy(l, program, &remedy);
        ECH_FAIL(ECH_EUSAGE,
                 "started as one of several by %s (%s=%s), but parallel.comm = %s sees a lone "
                 "rank: %s, or let echelon --ranks N start the ranks",
                 seen.by, told, getenv(told), by, remedy.at);
    }
    return ECH_OK;
}
