/* SPDX-License-Identifier: Apache-2.0
 *
 * Removing checkpoints that are not wanted any more.
 */
#include <stdlib.h>

#include "base/file.h"
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

ech_status ech_checkpoint_prune(const char *directory, int64_t keep)
{
    if (keep <= 0) return ECH_OK;
    ech_folder *folders;
    size_t n;
    ECH_TRY(ech_folder_list_complete(directory, &folders, &n));
    ech_status st = ECH_OK;
    if (n > (size_t)keep) {
        ech_checkpoint *newest = NULL;
        st = ech_checkpoint_open(folders[0].path, true, &newest);
        ech_checkpoint_close(newest);
    }
    for (size_t i = (size_t)keep; i < n && st == ECH_OK; i++) {
        st = remove_folder(directory, &folders[i]);
    }
    ech_folder_free(folders, n);
    return st;
}
