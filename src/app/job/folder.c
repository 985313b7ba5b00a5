/* SPDX-License-Identifier: Apache-2.0
 *
 * The environment variables that tell Open MPI 4 and 5 where to put its files.
 */
#include "app/job/folder.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* Shared memory only where the folder is memory. */
static const struct setting {
    const char *name;
    bool shares;
} settings[] = {
    {"OMPI_MCA_orte_tmpdir_base", false},
    {"PRTE_MCA_prte_tmpdir_base", false},
    {"OMPI_MCA_btl_vader_backing_directory", true},
    {"OMPI_MCA_btl_sm_backing_directory", true},
};
enum { SETTINGS = sizeof settings / sizeof *settings };

/* Whether a scheduler has allocated several machines, or a host file names some. */
static bool has_several_machines(void)
{
    static const char *const lists[] = {"PBS_NODEFILE", "LSB_HOSTS", "PE_HOSTFILE",
                                        "OMPI_MCA_orte_default_hostfile"};
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");
    int64_t n;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (getenv(lists[i])) return true;
    return nodes && (!ech_text_to_int(nodes, &n) || n > 1);
}

ech_status ech_job_folder_create(ech_transient *out)
{
    *out = (ech_transient){.hold = -1};
    if (has_several_machines()) return ECH_OK;
    ECH_TRY(ech_transient_create(true, out));
    bool is_memory = strncmp(out->path, "/dev/shm/", strlen("/dev/shm/")) == 0;
    for (int i = 0; i < SETTINGS; i++)
        if (is_memory || !settings[i].shares) setenv(settings[i].name, out->path, 0);
    return ECH_OK;
}

void ech_job_folder_destroy(const ech_transient *folder)
{
    if (folder->hold < 0) return;
    for (int i = 0; i < SETTINGS; i++) {
        const char *value = getenv(settings[i].name);
        if (value && strcmp(value, folder->path) == 0) unsetenv(settings[i].name);
    }
    ech_transient_remove(folder);
}
