/* SPDX-License-Identifier: Apache-2.0
 *
 * Which folder of weights is meant.
 */
#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "checkpoint/shards_parts.h"

#define CONFIG "config.json"

/* model/ of the newest checkpoint of a folder of checkpoints or of a run directory; NULL: none. */
static ech_status find_run(const char *path, char **folder)
{
    ech_checkpoint *checkpoint;
    ECH_TRY(ech_checkpoint_open_run(path, false, &checkpoint));
    *folder = checkpoint ? ech_file_join(ech_checkpoint_path(checkpoint), "model") : NULL;
    ech_checkpoint_close(checkpoint);
    return ECH_OK;
}

bool ech_shards_is_cache(const char *path)
{
    return ech_file_has(path, "snapshots") && ech_file_has(path, "blobs") &&
           !ech_file_has(path, CONFIG);
}

ech_status ech_shards_find(const char *path, char **folder)
{
    if (!ech_file_is_folder(path))
        ECH_FAIL(ECH_EUSAGE, "%s: no such folder; name a Hugging Face model's, or a run directory",
                 path);
    if (ech_shards_is_cache(path))
        ECH_FAIL(
            ECH_EUSAGE,
            "%s: Hugging Face's cache of a model, of all its versions; name one, a folder below "
            "%s/snapshots",
            path, path);
    char *model = ech_file_join(path, "model"), *found = NULL;
    if (ech_file_has(path, CONFIG))
        found = ech_strdup(path);
    else if (ech_file_has(model, CONFIG))
        found = ech_strdup(model);
    free(model);
    ech_status st = found ? ech_shards_verify(found, false) : find_run(path, &found);
    if (st != ECH_OK) {
        free(found);
        return st;
    }
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
