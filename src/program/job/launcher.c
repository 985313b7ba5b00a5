/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of mpirun and mpiexec, and of echelon launch.
 */
#include "program/job/launcher.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program/job/rank_process.h"
#include "base/path.h"
#include "comm/comm.h"
#include "device/device.h"

static void set(ech_launch_line *line, const char *name)
{
    if (!getenv(name)) ECH_PUSH(line->setting, name); /* otherwise the user knows better */
}

void ech_launch_line_add(ech_launch_line *line, const char *word)
{
    ECH_PUSH(line->word, word ? ech_strdup(word) : NULL);
}

/* All cores for every rank, and more ranks than cores if the user wants that. Version 5 has another
 * launcher (PRRTE). */
static void add_open_mpi(const ech_launch *launch, ech_launch_line *out)
{
    if (launch->is_root) {
        set(out, "OMPI_ALLOW_RUN_AS_ROOT");
        set(out, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
    }
    bool is_prrte = atoi(launch->version + strlen("Open MPI ")) >= 5;
    if (!is_prrte) set(out, "OMPI_MCA_rmaps_base_oversubscribe");
    if (launch->ranks > launch->cores) set(out, "OMPI_MCA_mpi_yield_when_idle");
    ech_launch_line_add(out, "--bind-to");
    ech_launch_line_add(out, "none");
    if (is_prrte) {
        ech_launch_line_add(out, "--map-by");
        ech_launch_line_add(out, ":oversubscribe");
    } else {
        ech_launch_line_add(out, "--quiet"); /* its words about an end bury the ranks' */
    }
}

void ech_launch_line_begin(const ech_launch *launch, ech_launch_line *out)
{
    char ranks[16];
    *out = (ech_launch_line){0};
    snprintf(ranks, sizeof ranks, "%d", launch->ranks);
    if (launch->is_own) {
        ech_launch_line_add(out, launch->program);
        ech_launch_line_add(out, "launch");
        ech_launch_line_add(out, ranks);
    } else if (launch->launcher) {
        ech_launch_line_add(out, launch->launcher);
        ech_launch_line_add(out, "-n");
        ech_launch_line_add(out, ranks);
        add_open_mpi(launch, out);
    }
    ech_launch_line_add(out, launch->program);
}

void ech_launch_line_print(const ech_launch_line *line, ech_text *out)
{
    for (size_t i = 0; i < line->setting.n; i++) ech_text_append(out, "%s=1 ", line->setting.at[i]);
    for (size_t i = 0; i + 1 < line->word.n; i++) {
        if (i > 0) ech_text_append(out, " ");
        ech_path_append_typed(line->word.at[i], out);
    }
}

void ech_launch_line_free(ech_launch_line *line)
{
    for (size_t i = 0; i < line->word.n; i++) free(line->word.at[i]);
    free(line->setting.at);
    free(line->word.at);
    *line = (ech_launch_line){0};
}

void ech_launch_line_set(const ech_launch_line *line)
{
    for (size_t i = 0; i < line->setting.n; i++) setenv(line->setting.at[i], "1", 0);
}

ech_status ech_launch_self(int ranks, ech_launch_by by, ech_launch_line *out)
{
    char program[PATH_MAX];
    if (!ech_rank_process_program("/proc/self/exe", program, sizeof program))
        ECH_FAIL(ECH_EIO, "/proc/self/exe: cannot be read: %s; mount /proc", strerror(errno));
    bool by_mpi = by == ECH_LAUNCH_MPI;
    ech_launch launch = {.version = by_mpi ? ech_comm_version(ECH_COMM_mpi) : "",
                         .launcher = by_mpi ? ech_comm_launcher(ECH_COMM_mpi) : NULL,
                         .is_own = by == ECH_LAUNCH_OWN,
                         .program = program,
                         .ranks = ranks,
                         .cores = ech_device_find("cpu")->cores(),
                         .is_root = geteuid() == 0};
    ech_launch_line_begin(&launch, out);
    return ECH_OK;
}
