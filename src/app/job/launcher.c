/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of mpirun and mpiexec.
 */
#include "app/job/launcher.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "device/device.h"

static void set(ech_launch_line *line, const char *name)
{
    ech_text text = {0};
    if (getenv(name)) return; /* the user knows better */
    ech_text_append(&text, "%s=1", name);
    ECH_PUSH(line->setting, text.at);
}

static void add(ech_launch_line *line, const char *word)
{
    ECH_PUSH(line->word, ech_strdup(word));
}

/* All cores for every rank, and more ranks than cores if the user wants that. */
static void add_open_mpi(const ech_launch *launch, ech_launch_line *out)
{
    if (launch->is_root) {
        set(out, "OMPI_ALLOW_RUN_AS_ROOT");
        set(out, "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
    }
    set(out, "OMPI_MCA_rmaps_base_oversubscribe");
    if (launch->ranks > launch->cores) set(out, "OMPI_MCA_mpi_yield_when_idle");
    add(out, "--bind-to");
    add(out, "none");
    add(out, "--quiet"); /* its words about an end bury the ranks' and say less */
}

static void add_launcher(const ech_launch *launch, ech_launch_line *out)
{
    char ranks[16];
    snprintf(ranks, sizeof ranks, "%d", launch->ranks);
    add(out, launch->launcher);
    add(out, "-n");
    add(out, ranks);
    if (strncmp(launch->version, "Open MPI", strlen("Open MPI")) == 0) add_open_mpi(launch, out);
}

void ech_launcher_line(const ech_launch *launch, ech_launch_line *out)
{
    *out = (ech_launch_line){0};
    if (launch->launcher) add_launcher(launch, out);
    add(out, launch->program);
    for (int i = 0; i < launch->n; i++) add(out, launch->words[i]);
    ECH_PUSH(out->word, NULL);
}

/* In single quotes where a shell would read anything else into it. */
static void append_quoted(const char *word, ech_text *out)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./=:,+-@%";
    if (*word && word[strspn(word, plain)] == '\0') {
        ech_text_append(out, "%s", word);
        return;
    }
    ech_text_append(out, "'");
    for (const char *at = word; *at; at++)
        if (*at == '\'')
            ech_text_append(out, "'\\''");
        else
            ech_text_append_bytes(out, at, 1);
    ech_text_append(out, "'");
}

void ech_launch_line_print(const ech_launch_line *line, ech_text *out)
{
    for (size_t i = 0; i < line->setting.n; i++) ech_text_append(out, "%s ", line->setting.at[i]);
    for (size_t i = 0; i + 1 < line->word.n; i++) {
        if (i > 0) ech_text_append(out, " ");
        append_quoted(line->word.at[i], out);
    }
}

void ech_launch_line_free(ech_launch_line *line)
{
    for (size_t i = 0; i < line->setting.n; i++) free(line->setting.at[i]);
    for (size_t i = 0; i < line->word.n; i++) free(line->word.at[i]);
    free(line->setting.at);
    free(line->word.at);
    *line = (ech_launch_line){0};
}

void ech_launch_line_set(const ech_launch_line *line)
{
    for (size_t i = 0; i < line->setting.n; i++) {
        char *name = ech_strdup(line->setting.at[i]), *value = strchr(name, '=');
        *value++ = '\0';
        setenv(name, value, 0);
        free(name);
    }
}

ech_status ech_launch_self(int ranks, bool by_launcher, char *const *words, int n,
                           ech_launch_line *out)
{
    char program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0) ECH_FAIL(ECH_EIO, "/proc/self/exe: cannot be read: %s", strerror(errno));
    program[length] = '\0';
    const ech_comm_backend *mpi = ech_comm_find("mpi");
    ech_launch launch = {.version = ech_comm_version(mpi),
                         .launcher = by_launcher ? ech_comm_launcher(mpi) : NULL,
                         .program = program,
                         .ranks = ranks,
                         .cores = ech_device_find("cpu")->cores(),
                         .is_root = geteuid() == 0,
                         .words = words,
                         .n = n};
    ech_launcher_line(&launch, out);
    return ECH_OK;
}
