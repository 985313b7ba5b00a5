/* SPDX-License-Identifier: Apache-2.0
 *
 * Removing checkpoints that are not wanted any more.
 */
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"

/* Takes the checkpoint's name from it first: a removal that is interrupted leaves a temporary
 * folder, not half a checkpoint. */
static ech_status remove_folder(const char *directory, const ech_folder *folder)
{
    char *temporary = ech_folder_path(directory, folder->step, ECH_FOLDER_TEMPORARY);
    ech_status st = ech_file_remove_all(temporary);
    if (st == ECH_OK) st = ech_folder_rename(folder->path, temporary);
    if (st == ECH_OK) st = ech_file_remove_all(temporary);
    free(temporary);
    return st;
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
