/* SPDX-License-Identifier: Apache-2.0
 *
 * Names and lists of checkpoint folders.
 */
#include "checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/foreign.h"
#include "checkpoint/manifest.h"

enum { NAME_BYTES = 40 };

static const char *const suffixes[] = {
    [ECH_FOLDER_FINAL] = "", [ECH_FOLDER_OLD] = ".old", [ECH_FOLDER_TEMPORARY] = ".tmp"};

static void print_name(int64_t step, ech_folder_kind kind, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "step-%08" PRId64 "%s", step, suffixes[kind]);
}

char *ech_folder_path(const char *directory, int64_t step, ech_folder_kind kind)
{
    char name[NAME_BYTES];
    print_name(step, kind, name);
    return ech_file_join(directory, name);
}

bool ech_folder_parse(const char *name, int64_t *step, ech_folder_kind *kind)
{
    int64_t number;
    if (sscanf(name, "step-%18" SCNd64, &number) != 1 || number < 0) return false;
    for (int k = ECH_FOLDER_FINAL; k <= ECH_FOLDER_TEMPORARY; k++) {
        char made[NAME_BYTES];
        print_name(number, (ech_folder_kind)k, made);
        if (strcmp(name, made) != 0) continue;
        *step = number;
        *kind = (ech_folder_kind)k;
        return true;
    }
    return false;
}

static int newest_first(const void *a, const void *b)
{
    const ech_folder *x = a, *y = b;
    if (x->step != y->step) return x->step > y->step ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

static int has_name(const struct dirent *entry)
{
    ech_folder folder;
    return ech_folder_parse(entry->d_name, &folder.step, &folder.kind);
}

ech_status ech_folder_list(const char *directory, ech_folders *out)
{
    struct dirent **entries = NULL;
    int n = scandir(directory, &entries, has_name, NULL), why = n < 0 ? errno : 0;
    /* A file has no folders in it; that none can be made there is an error of the save. */
    bool below_file = why == ENOTDIR && access(directory, F_OK) != 0;
    if (why && why != ENOENT && !below_file)
        ECH_FAIL(ECH_EIO, "%s: cannot list it: %s", directory, ech_system_error(why));
    for (int i = 0; i < n; i++) {
        ech_folder folder = {.path = ech_file_join(directory, entries[i]->d_name)};
        ech_folder_parse(entries[i]->d_name, &folder.step, &folder.kind);
        ECH_PUSH(*out, folder);
        free(entries[i]);
    }
    free(entries);
    if (out->n) qsort(out->at, out->n, sizeof *out->at, newest_first);
    return ECH_OK;
}

static ech_status fail_none(const char *path)
{
    ECH_TRY(ech_foreign_check(path));
    ECH_FAIL(ECH_EUSAGE,
             "%s: neither a checkpoint (a folder with %s), nor a folder with step-00000000 "
             "folders, nor a run directory with checkpoints/",
             path, ECH_MANIFEST_NAME);
}

ech_status ech_folder_find(const char *path, ech_folders *out)
{
    ECH_FREED char *trimmed = ech_strdup(path), *below = ech_file_join(path, "checkpoints");
    size_t length = strlen(trimmed);
    while (length > 1 && trimmed[length - 1] == '/') trimmed[--length] = '\0';
    const char *slash = strrchr(trimmed, '/');
    ech_folder one = {.step = -1, .kind = ECH_FOLDER_FINAL};
    if ((ech_folder_parse(slash ? slash + 1 : trimmed, &one.step, &one.kind) &&
         ech_file_is_folder(trimmed)) ||
        ech_file_has(path, ECH_MANIFEST_NAME)) {
        one.path = ech_strdup(trimmed);
        ECH_PUSH(*out, one);
        return ECH_OK;
    }
    ECH_TRY(ech_folder_list(path, out));
    if (!out->n) ECH_TRY(ech_folder_list(below, out));
    return out->n ? ECH_OK : fail_none(path);
}

ech_status ech_folder_list_complete(const char *directory, ech_folders *out)
{
    ECH_TRY(ech_folder_list(directory, out));
    size_t complete = 0;
    for (size_t i = 0; i < out->n; i++) {
        const ech_folder folder = out->at[i];
        bool replaced = complete && out->at[complete - 1].step == folder.step;
        if (folder.kind == ECH_FOLDER_TEMPORARY || replaced)
            free(folder.path);
        else
            out->at[complete++] = folder;
    }
    out->n = complete;
    return ECH_OK;
}

void ech_folders_free(ech_folders *folders)
{
    for (size_t i = 0; i < folders->n; i++) free(folders->at[i].path);
    free(folders->at);
    *folders = (ech_folders){0};
}

int64_t ech_folder_completed(const ech_folder *folder)
{
    struct stat about;
    ECH_FREED char *manifest = ech_file_join(folder->path, ECH_MANIFEST_NAME);
    if (stat(manifest, &about) != 0) return 0;
    return (int64_t)about.st_mtim.tv_sec * 1000000000 + about.st_mtim.tv_nsec;
}

ech_status ech_folder_rename(const char *from, const char *to)
{
    if (rename(from, to) == 0) return ECH_OK;
    ECH_FAIL(ECH_EIO, "%s: cannot rename it to %s: %s", from, to, ech_system_error(errno));
}

/* ---- the checkpoint to resume from: the newest that is whole ---- */

ech_status ech_checkpoint_open_folder(const ech_folder *folder, bool verify, ech_checkpoint **out)
{
    ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *checkpoint = NULL;
    ECH_TRY(ech_checkpoint_open(folder->path, verify, &checkpoint));
    int64_t step = ech_checkpoint_get_info(checkpoint)->step;
    if (folder->step >= 0 && step != folder->step)
        ECH_FAIL(ECH_EINPUT,
                 "%s: its manifest says step %" PRId64
                 "; give the folder the name of that step again",
                 folder->path, step);
    *out = checkpoint;
    checkpoint = NULL;
    return ECH_OK;
}

/* Opens it; NULL if that fails, and with `says` a line that it is skipped and why. */
static ech_checkpoint *open_or_skip(const ech_folder *folder, bool verify, bool says)
{
    bool was_quiet = ech_log_set_quiet(true);
    ech_checkpoint *checkpoint = NULL;
    ech_status st = ech_checkpoint_open_folder(folder, verify, &checkpoint);
    ech_log_set_quiet(was_quiet);
    if (st != ECH_OK && says) ech_log_warn("checkpoint skipped: %s", ech_last_error());
    return checkpoint;
}

/* The newest one after step *newest that opens. *newest becomes the newest step (-1: none). */
static ech_status open_first(const char *directory, bool verify, int64_t *newest,
                             ech_checkpoint **out)
{
    ECH_CLEANUP(ech_folders_free) ech_folders folders = {0};
    ECH_TRY(ech_folder_list_complete(directory, &folders));
    int64_t before = *newest;
    *newest = folders.n ? folders.at[0].step : -1;
    for (size_t i = 0; i < folders.n && !*out && folders.at[i].step > before; i++)
        *out = open_or_skip(&folders.at[i], verify, verify);
    return ECH_OK;
}

ech_status ech_checkpoint_open_newest(const char *directory, bool verify, ech_checkpoint **out)
{
    ECH_CLEANUP(ech_folders_free) ech_folders folders = {0};
    ech_checkpoint *checkpoint = NULL;
    int64_t newest = -1, before;
    do { /* a run that saves may have removed what was listed */
        before = newest;
        ECH_TRY(open_first(directory, verify, &newest, &checkpoint));
    } while (!checkpoint && newest > before);
    if (!checkpoint) ECH_TRY(ech_folder_list_complete(directory, &folders));
    for (size_t i = 0; i < folders.n && !checkpoint && !verify; i++)
        ech_checkpoint_close(open_or_skip(&folders.at[i], false, true));
    if (folders.n > 0 && !checkpoint)
        ECH_FAIL(ECH_EINPUT,
                 "%s: none of its %zu checkpoints is whole: move them away to begin anew, or name "
                 "another folder",
                 directory, folders.n);
    *out = checkpoint;
    return ECH_OK;
}

ech_status ech_checkpoint_open_run(const char *path, bool verify, ech_checkpoint **out)
{
    ECH_TRY(ech_checkpoint_open_newest(path, verify, out));
    if (*out) return ECH_OK;
    ECH_FREED char *below = ech_file_join(path, "checkpoints");
    return ech_checkpoint_open_newest(below, verify, out);
}

ech_status ech_checkpoint_find(const char *path, bool verify, ech_checkpoint **out)
{
    if (ech_file_has(path, ECH_MANIFEST_NAME)) return ech_checkpoint_open(path, verify, out);
    ECH_TRY(ech_checkpoint_open_run(path, verify, out));
    return *out ? ECH_OK : fail_none(path);
}

/* ---- removing those that are not wanted any more ---- */

/* Takes the checkpoint's name from it first: a removal that is interrupted leaves a temporary
 * folder, not half a checkpoint. */
static ech_status try_to_remove(const char *directory, const ech_folder *folder)
{
    ECH_FREED char *temporary = ech_folder_path(directory, folder->step, ECH_FOLDER_TEMPORARY);
    ECH_TRY(ech_file_remove_all(temporary));
    ECH_TRY(ech_folder_rename(folder->path, temporary));
    return ech_file_remove_all(temporary);
}

/* One that its owner may not write stays. What cannot be removed now, the next save tries again:
 * the run goes on. */
static void remove_folder(const char *directory, const ech_folder *folder)
{
    if (access(folder->path, W_OK) != 0 && errno == EACCES) return;
    bool quiet = ech_log_set_quiet(true);
    ech_status status = try_to_remove(directory, folder);
    ech_log_set_quiet(quiet);
    if (status != ECH_OK) ech_log_warn("an old checkpoint stays: %s", ech_last_error());
    ech_clear_error();
}

/* The newest that verifies; newer ones will be replaced by the run, which was resumed from an older
 * one. */
static ech_status find_whole(const ech_folders *folders, size_t *out)
{
    ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *newest = NULL;
    bool quiet = ech_log_set_quiet(true);
    *out = 0;
    while (*out < folders->n &&
           ech_checkpoint_open(folders->at[*out].path, true, &newest) != ECH_OK)
        (*out)++;
    ech_log_set_quiet(quiet);
    if (*out < folders->n) return ECH_OK;
    ECH_FAIL(ECH_EINPUT, "older checkpoints stay, since none is whole: %s", ech_last_error());
}

/* ---- the best ---- */

double ech_folder_valid_loss(const ech_folder *folder)
{
    ech_checkpoint *checkpoint = open_or_skip(folder, false, false);
    if (!checkpoint) return (double)NAN;
    const ech_checkpoint_info *info = ech_checkpoint_get_info(checkpoint);
    bool has = info->validated.is && info->validated.step == info->step;
    double loss = has ? info->validated.loss : (double)NAN;
    ech_checkpoint_close(checkpoint);
    return loss;
}

bool ech_folder_is_among_best(const double *losses, size_t n, size_t i, int64_t best)
{
    int64_t better = 0;
    if (isnan(losses[i])) return false;
    for (size_t k = 0; k < n; k++)
        better += losses[k] < losses[i] || (losses[k] == losses[i] && k > i);
    return better < best;
}

/* Removes all from `first` on but the best of all. */
static void remove_all_but_best(const char *directory, const ech_folders *folders, size_t first,
                                int64_t best)
{
    ECH_FREED double *losses = ech_calloc(folders->n + 1, sizeof *losses);
    bool some = best > 0 && first < folders->n;
    for (size_t i = 0; some && i < folders->n; i++)
        losses[i] = ech_folder_valid_loss(&folders->at[i]);
    for (size_t i = first; i < folders->n; i++)
        if (!some || !ech_folder_is_among_best(losses, folders->n, i, best))
            remove_folder(directory, &folders->at[i]);
}

ech_status ech_checkpoint_prune(const char *directory, int64_t keep, int64_t best, int64_t proven)
{
    if (keep <= 0) return ECH_OK;
    ECH_CLEANUP(ech_folders_free) ech_folders folders = {0};
    ECH_TRY(ech_folder_list_complete(directory, &folders));
    size_t first = 0, stay = 0;
    while (stay < folders.n && folders.at[stay].step > proven) stay++;
    stay++; /* the newest of at most that step */
    if (stay < folders.n && (size_t)keep < folders.n) ECH_TRY(find_whole(&folders, &first));
    if (stay < first + (size_t)keep) stay = first + (size_t)keep;
    remove_all_but_best(directory, &folders, stay, best);
    return ECH_OK;
}
