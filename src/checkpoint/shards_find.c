/* SPDX-License-Identifier: Apache-2.0
 *
 * Which folder of weights, or whose run file, is meant.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "checkpoint/open.h"
#include "checkpoint/shards.h"

#define CONFIG "config.json"

static bool has(const char *folder, const char *name)
{
    char *path = ech_file_join(folder, name);
    bool is_there = ech_file_exists(path);
    free(path);
    return is_there;
}

/* The newest checkpoint below `directory` that opens; NULL: none. */
static ech_status open_newest(const char *directory, ech_checkpoint **out)
{
    ech_folder *folders;
    size_t n;
    *out = NULL;
    ECH_TRY(ech_folder_list_complete(directory, &folders, &n));
    bool quiet = ech_log_set_quiet(true);
    for (size_t i = 0; i < n && !*out; i++)
        if (ech_checkpoint_open(folders[i].path, false, out) != ECH_OK) *out = NULL;
    ech_log_set_quiet(quiet);
    ech_folder_free(folders, n);
    return ECH_OK;
}

ech_status ech_shards_run_file(const char *directory, char **path, char **run_yaml)
{
    ech_checkpoint *checkpoint;
    ECH_TRY(open_newest(directory, &checkpoint));
    *path = checkpoint ? ech_strdup(ech_checkpoint_path(checkpoint)) : NULL;
    *run_yaml = checkpoint ? ech_strdup(ech_checkpoint_get_info(checkpoint)->run_yaml) : NULL;
    ech_checkpoint_close(checkpoint);
    return ECH_OK;
}

/* model/ of the newest checkpoint of a folder of checkpoints or of a run directory; NULL: none. */
static ech_status find_run(const char *path, char **folder)
{
    ech_checkpoint *checkpoint;
    char *below = ech_file_join(path, "checkpoints");
    ech_status st = open_newest(path, &checkpoint);
    if (st == ECH_OK && !checkpoint) st = open_newest(below, &checkpoint);
    free(below);
    ECH_TRY(st);
    *folder = checkpoint ? ech_file_join(ech_checkpoint_path(checkpoint), "model") : NULL;
    ech_checkpoint_close(checkpoint);
    return ECH_OK;
}

ech_status ech_shards_find(const char *path, char **folder)
{
    if (!ech_file_is_folder(path))
        ECH_FAIL(ECH_EUSAGE, "%s: no such folder; name a Hugging Face model's, or a run directory",
                 path);
    char *model = ech_file_join(path, "model"), *found = NULL;
    if (has(path, CONFIG))
        found = ech_strdup(path);
    else if (has(model, CONFIG))
        found = ech_strdup(model);
    free(model);
    if (!found) ECH_TRY(find_run(path, &found));
    if (!found)
        ECH_FAIL(
            ECH_EUSAGE,
            "%s: has no " CONFIG
            ", and no checkpoint with one; name a Hugging Face model's folder, a checkpoint or "
            "a run directory",
            path);
    *folder = found;
    return ECH_OK;
}
