/* SPDX-License-Identifier: Apache-2.0
 *
 * The environment variables that tell Open MPI 4 and 5 where to put its files.
 */
#include "app/job/folder.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/transient.h"

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

struct ech_job_folder {
    char path[256];
    int hold;
    bool is_set[SETTINGS];
};

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

ech_status ech_job_folder_create(ech_job_folder **out)
{
    ech_job_folder folder = {.hold = -1};
    *out = NULL;
    if (has_several_machines()) return ECH_OK;
    ECH_TRY(ech_transient_create(true, folder.path, sizeof folder.path, &folder.hold));
    bool is_memory = strncmp(folder.path, "/dev/shm/", strlen("/dev/shm/")) == 0;
    for (int i = 0; i < SETTINGS; i++) {
        folder.is_set[i] = !getenv(settings[i].name) && (is_memory || !settings[i].shares);
        if (folder.is_set[i])
            setenv(settings[i].name, folder.path, 1); /* otherwise the user knows better */
    }
    *out = ech_calloc(1, sizeof **out);
    **out = folder;
    return ECH_OK;
}

void ech_job_folder_destroy(ech_job_folder *folder)
{
    if (!folder) return;
    for (int i = 0; i < SETTINGS; i++)
        if (folder->is_set[i]) unsetenv(settings[i].name);
    bool quiet = ech_log_set_quiet(true); /* what cannot be removed now the next start removes */
    ech_file_remove_all(folder->path);
    ech_log_set_quiet(quiet);
    close(folder->hold);
    free(folder);
}
