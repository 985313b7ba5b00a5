/* SPDX-License-Identifier: Apache-2.0
 *
 * echelon checkpoint list|verify DIR
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "program/command.h"
#include "program/options.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"

static const char about[] =
    "Lists or verifies the checkpoints in DIR: a run directory, a folder of checkpoints, or one of "
    "them."
    "\v'list' prints a line for each, newest first, and what its manifest, headers and sizes show "
    "to be wrong. The lowest validation loss has a star. It exits with 0 whatever it finds.\n\n"
    "'verify' also reads every byte and compares all checksums. It exits with 0 if all are whole, "
    "with 1 if not, or if none is finished.";

typedef struct checkpoint_arguments {
    const char *action, *directory;
} checkpoint_arguments;

static const ech_word words[] = {
    {offsetof(checkpoint_arguments, action), "list or verify?", false},
    {offsetof(checkpoint_arguments, directory), "which run directory or checkpoint?", true}};

static void check(void *arguments, const struct argp_state *state)
{
    const checkpoint_arguments *in = arguments;
    if (strcmp(in->action, "list") != 0 && strcmp(in->action, "verify") != 0)
        argp_error(state, "%s: list or verify", in->action);
}

static const char *name_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* When the manifest was written: the last thing before the checkpoint had its name. */
static void print_time(const char *path, char *out, size_t size)
{
    struct stat info;
    struct tm local;
    ECH_FREED char *manifest = ech_file_join(path, "manifest.json");
    snprintf(out, size, "-");
    if (stat(manifest, &info) == 0 && localtime_r(&info.st_mtime, &local))
        strftime(out, size, "%Y-%m-%d %H:%M:%S", &local);
}

/* valid: the validation loss at its step; NaN: none. */
static void print_row(const char *name, const ech_checkpoint *checkpoint, double valid, bool best)
{
    const ech_checkpoint_info *info = ech_checkpoint_get_info(checkpoint);
    char when[32], loss[32] = "-", valid_loss[32] = "-";
    print_time(ech_checkpoint_path(checkpoint), when, sizeof when);
    if (isfinite(info->loss)) snprintf(loss, sizeof loss, "%.4f", info->loss);
    if (!isnan(valid)) snprintf(valid_loss, sizeof valid_loss, "%.4f", valid);
    printf("%-19s %10" PRId64 "  %-19s %11s %6d %9s %9s%s  %s\n", name, info->step, when,
           ECH_BYTES(ech_checkpoint_bytes(checkpoint)), info->ranks, loss, valid_loss,
           best ? "*" : " ", ech_dtype_name(ech_checkpoint_dtype(checkpoint)));
}

/* Prints a line about a checkpoint; an error becomes part of it. Returns whether it is whole, as
 * far as it was looked at. */
static bool show(const ech_folder *folder, bool verify, double valid, bool best)
{
    ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *checkpoint = NULL;
    const char *name = name_of(folder->path), *why = NULL;
    bool quiet = ech_log_set_quiet(true);
    if (folder->kind == ECH_FOLDER_TEMPORARY)
        why = "not finished: it is being written, or its writer died; the next save removes it";
    else if (ech_checkpoint_open_folder(folder, verify, &checkpoint) != ECH_OK)
        why = ech_last_error();
    ech_log_set_quiet(quiet);
    if (why)
        printf("%-19s broken: %s\n", name, why);
    else if (verify)
        printf("%-19s whole: all checksums of %s are right\n", name,
               ECH_BYTES(ech_checkpoint_bytes(checkpoint)));
    else
        print_row(name, checkpoint, valid, best);
    fflush(stdout); /* the next one may take minutes */
    return !why;
}

ech_status ech_command_checkpoint(int argc, char **argv, int *code)
{
    const ech_command_line line = {
        .usage = "list|verify DIR", .about = about, .word = words, .words = 2, .check = check};
    checkpoint_arguments in = {0};
    ECH_CLEANUP(ech_folders_free) ech_folders folders = {0};
    size_t whole = 0, all = 0;
    ech_command_line_parse(&line, argc, argv, &in);
    ECH_TRY(ech_folder_find(in.directory, &folders));
    bool verify = strcmp(in.action, "verify") == 0;
    if (!verify)
        printf("%-19s %10s  %-19s %11s %6s %9s %9s   %s\n", "checkpoint", "step", "time", "size",
               "ranks", "loss", "valid", "model");
    ECH_FREED double *losses = ech_calloc(folders.n + 1, sizeof *losses);
    for (size_t i = 0; i < folders.n; i++)
        losses[i] = folders.at[i].kind == ECH_FOLDER_TEMPORARY
                        ? (double)NAN
                        : ech_folder_valid_loss(&folders.at[i]);
    for (size_t i = 0; i < folders.n; i++) {
        /* an unfinished one is no checkpoint */
        if (verify && folders.at[i].kind == ECH_FOLDER_TEMPORARY) continue;
        all++;
        whole += show(&folders.at[i], verify, losses[i],
                      ech_folder_is_among_best(losses, folders.n, i, 1));
    }
    if (!verify) return ECH_OK;
    if (all == 0) printf("no finished checkpoint; unfinished ones do not count\n");
    if (all == 0 || whole < all) *code = ECH_EXIT_FAILED;
    return ECH_OK;
}
