/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the checkpoint to go on from: the newest that is whole, by what lies in the folder and
 * not by a pointer that could lie.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "checkpoint/open.h"

/* A folder that was renamed by hand would put its step into the wrong place of the run. */
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

/* The newest that is not behind that step; n: none. */
static size_t find_proven(const ech_folder *folders, size_t n, int64_t step)
{
    size_t i = 0;
    while (i < n && folders[i].step > step) i++;
    return i;
}

/* The newest that verifies; what is newer is about to be replaced by a run that went back behind it. */
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
