/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding the checkpoint to go on from: the newest that verifies, by what lies in the folder and
 * not by a pointer that could lie.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
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

/* Opens it, or says that it is skipped and why, in one line. */
static ech_checkpoint *open_or_skip(const ech_folder *folder)
{
    bool was_quiet = ech_log_set_quiet(true);
    ech_checkpoint *checkpoint = NULL;
    ech_status st = ech_checkpoint_open_folder(folder, true, &checkpoint);
    ech_log_set_quiet(was_quiet);
    if (st != ECH_OK) ech_log_warn("checkpoint skipped: %s", ech_last_error());
    return checkpoint;
}

ech_status ech_checkpoint_open_newest(const char *directory, ech_checkpoint **out)
{
    ech_folder *folders;
    size_t n;
    ECH_TRY(ech_folder_list_complete(directory, &folders, &n));
    ech_checkpoint *checkpoint = NULL;
    for (size_t i = 0; i < n && !checkpoint; i++) checkpoint = open_or_skip(&folders[i]);
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

ech_status ech_checkpoint_find(const char *path, ech_checkpoint **out)
{
    char *manifest = ech_file_join(path, ECH_MANIFEST_NAME);
    bool is_checkpoint = ech_file_exists(manifest);
    free(manifest);
    if (is_checkpoint) return ech_checkpoint_open(path, true, out);

    ech_checkpoint *found = NULL;
    ECH_TRY(ech_checkpoint_open_newest(path, &found));
    if (!found) {
        char *below = ech_file_join(path, "checkpoints");
        ech_status st = ech_checkpoint_open_newest(below, &found);
        free(below);
        ECH_TRY(st);
    }
    if (!found) {
        ECH_FAIL(ECH_EUSAGE,
                 "%s: neither a checkpoint (a folder with %s), nor a folder with step-00000000 "
                 "folders, nor a run directory with checkpoints/",
                 path, ECH_MANIFEST_NAME);
    }
    *out = found;
    return ECH_OK;
}
