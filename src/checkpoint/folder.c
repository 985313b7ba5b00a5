/* SPDX-License-Identifier: Apache-2.0
 *
 * Names and lists of checkpoint folders.
 */
#include "checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/open.h"

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

ech_status ech_folder_list(const char *directory, ech_folder **folders, size_t *n)
{
    ECH_LIST(ech_folder) list = {0};
    DIR *dir = opendir(directory);
    /* Below a file there is nothing; that nothing can be made there is said by who wants to. */
    bool below_file = !dir && errno == ENOTDIR && access(directory, F_OK) != 0;
    if (!dir && errno != ENOENT && !below_file) {
        ECH_FAIL(ECH_EIO, "%s: cannot list it: %s", directory, strerror(errno));
    }
    errno = 0;
    for (struct dirent *at; dir && (at = readdir(dir)) != NULL; errno = 0) {
        int64_t step;
        ech_folder_kind kind;
        if (!ech_folder_parse(at->d_name, &step, &kind)) continue;
        ECH_PUSH(list, (ech_folder){step, kind, ech_file_join(directory, at->d_name)});
    }
    int why = dir ? errno : 0;
    if (dir) closedir(dir);
    if (why) {
        ech_folder_free(list.at, list.n);
        ECH_FAIL(ECH_EIO, "%s: cannot list it: %s", directory, strerror(why));
    }
    if (list.n) qsort(list.at, list.n, sizeof *list.at, newest_first);
    *folders = list.at;
    *n = list.n;
    return ECH_OK;
}

/* The path as a folder of its own; false if it is none. */
static bool is_one(const char *path, ech_folder *out)
{
    char *trimmed = ech_strdup(path);
    size_t length = strlen(trimmed);
    while (length > 1 && trimmed[length - 1] == '/') trimmed[--length] = '\0';
    const char *slash = strrchr(trimmed, '/');
    *out = (ech_folder){.step = -1, .kind = ECH_FOLDER_FINAL, .path = trimmed};
    bool named = ech_folder_parse(slash ? slash + 1 : trimmed, &out->step, &out->kind) &&
                 ech_file_is_folder(trimmed);
    bool is = named || ech_file_has(path, ECH_MANIFEST_NAME);
    if (!is) free(trimmed);
    return is;
}

ech_status ech_folder_fail_none(const char *path)
{
    ECH_FAIL(ECH_EUSAGE,
             "%s: neither a checkpoint (a folder with %s), nor a folder with step-00000000 "
             "folders, nor a run directory with checkpoints/",
             path, ECH_MANIFEST_NAME);
}

ech_status ech_folder_find(const char *path, ech_folder **folders, size_t *n)
{
    ech_folder one;
    if (is_one(path, &one)) {
        *folders = ech_calloc(1, sizeof one);
        **folders = one;
        *n = 1;
        return ECH_OK;
    }
    ECH_TRY(ech_folder_list(path, folders, n));
    if (*n == 0) {
        char *below = ech_file_join(path, "checkpoints");
        free(*folders);
        ech_status st = ech_folder_list(below, folders, n);
        free(below);
        ECH_TRY(st);
    }
    if (*n > 0) return ECH_OK;
    free(*folders);
    return ech_folder_fail_none(path);
}

ech_status ech_folder_list_complete(const char *directory, ech_folder **folders, size_t *n)
{
    ECH_TRY(ech_folder_list(directory, folders, n));
    size_t complete = 0;
    for (size_t i = 0; i < *n; i++) {
        ech_folder *folder = &(*folders)[i];
        bool replaced = complete && (*folders)[complete - 1].step == folder->step;
        if (folder->kind == ECH_FOLDER_TEMPORARY || replaced) {
            free(folder->path);
        } else {
            (*folders)[complete++] = *folder;
        }
    }
    *n = complete;
    return ECH_OK;
}

void ech_folder_free(ech_folder *folders, size_t n)
{
    for (size_t i = 0; i < n; i++) free(folders[i].path);
    free(folders);
}

ech_status ech_folder_rename(const char *from, const char *to)
{
    if (rename(from, to) != 0) {
        ECH_FAIL(ECH_EIO, "%s: cannot rename it to %s: %s", from, to, strerror(errno));
    }
    return ECH_OK;
}

/* ---- scan ----
 *
 * Finding the checkpoint to go on from: the newest that is whole, by what lies in the folder and
 * not by a pointer that could lie. */

/* A folder that was renamed by hand would put its step at a wrong step of the run. */
static ech_status check_step(const ech_folder *folder, const ech_checkpoint *checkpoint)
{
    int64_t step = ech_checkpoint_get_info(checkpoint)->step;
    if (folder->step < 0 || step == folder->step) return ECH_OK;
    ECH_FAIL(ECH_EINPUT, "%s: its manifest says step %" PRId64 ": was it renamed?", folder->path,
             step);
}

ech_status ech_checkpoint_open_folder(const ech_folder *folder, bool verify, ech_checkpoint **out)
{
    ech_checkpoint *checkpoint;
    ECH_TRY(ech_checkpoint_open(folder->path, verify, &checkpoint));
    ech_status st = check_step(folder, checkpoint);
    if (st == ECH_OK)
        *out = checkpoint;
    else
        ech_checkpoint_close(checkpoint);
    return st;
}

/* Opens it, or says, if it should, that it is skipped and why, in one line. */
static ech_checkpoint *open_or_skip(const ech_folder *folder, bool verify, bool says)
{
    bool was_quiet = ech_log_set_quiet(true);
    ech_checkpoint *checkpoint = NULL;
    ech_status st = ech_checkpoint_open_folder(folder, verify, &checkpoint);
    ech_log_set_quiet(was_quiet);
    if (st != ECH_OK && says) ech_log_warn("checkpoint skipped: %s", ech_last_error());
    return checkpoint;
}

ech_status ech_checkpoint_open_newest(const char *directory, bool verify, ech_checkpoint **out)
{
    ech_folder *folders;
    size_t n;
    ECH_TRY(ech_folder_list_complete(directory, &folders, &n));
    ech_checkpoint *checkpoint = NULL;
    for (size_t i = 0; i < n && !checkpoint; i++)
        checkpoint = open_or_skip(&folders[i], verify, verify);
    for (size_t i = 0; i < n && !checkpoint && !verify; i++)
        ech_checkpoint_close(open_or_skip(&folders[i], false, true));
    ech_folder_free(folders, n);
    if (n > 0 && !checkpoint) {
        ECH_FAIL(ECH_EINPUT,
                 "%s: none of its %zu checkpoints is whole: move them away to begin anew, or name "
                 "another folder",
                 directory, n);
    }
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
    ech_checkpoint *found;
    if (ech_file_has(path, ECH_MANIFEST_NAME)) return ech_checkpoint_open(path, verify, out);
    ECH_TRY(ech_checkpoint_open_run(path, verify, &found));
    if (!found) return ech_folder_fail_none(path);
    *out = found;
    return ECH_OK;
}

/* ---- removing those that are not wanted any more ---- */

/* Takes the checkpoint's name from it first: a removal that is interrupted leaves a temporary
 * folder, not half a checkpoint. */
static ech_status remove_folder(const char *directory, const ech_folder *folder)
{
    ECH_FREED char *temporary = ech_folder_path(directory, folder->step, ECH_FOLDER_TEMPORARY);
    ECH_TRY(ech_file_remove_all(temporary));
    ECH_TRY(ech_folder_rename(folder->path, temporary));
    return ech_file_remove_all(temporary);
}

/* The newest of at most that step; n: none. */
static size_t find_proven(const ech_folder *folders, size_t n, int64_t step)
{
    size_t i = 0;
    while (i < n && folders[i].step > step) i++;
    return i;
}

/* The newest that verifies; newer ones will be replaced by the run, which was resumed from an older one. */
static ech_status find_whole(const ech_folder *folders, size_t n, size_t *out)
{
    ech_checkpoint *newest = NULL;
    bool quiet = ech_log_set_quiet(true);
    *out = 0;
    while (*out < n && ech_checkpoint_open(folders[*out].path, true, &newest) != ECH_OK) (*out)++;
    ech_log_set_quiet(quiet);
    ech_checkpoint_close(newest);
    if (*out < n) return ECH_OK;
    ECH_FAIL(ECH_EINPUT, "older checkpoints stay, since none is whole: %s", ech_last_error());
}

ech_status ech_checkpoint_prune(const char *directory, int64_t keep, int64_t proven)
{
    if (keep <= 0) return ECH_OK;
    ech_folder *folders;
    size_t n, first = 0;
    ECH_TRY(ech_folder_list_complete(directory, &folders, &n));
    ech_status st = ECH_OK;
    size_t stay = find_proven(folders, n, proven) + 1;
    if (stay < n && (size_t)keep < n) st = find_whole(folders, n, &first);
    if (stay < first + (size_t)keep) stay = first + (size_t)keep;
    for (size_t i = stay; i < n && st == ECH_OK; i++) st = remove_folder(directory, &folders[i]);
    ech_folder_free(folders, n);
    return st;
}
