/* SPDX-License-Identifier: Apache-2.0
 *
 * Which folder of weights is meant.
 */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "checkpoint/open.h"
#include "checkpoint/shards_parts.h"

/* ---- whether one that belongs to a checkpoint is as it was saved ---- */

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* What is below state/ is of no use here, and may be gone. */
static ech_status verify_model(const char *path, const char *checkpoint, bool all)
{
    ECH_FREED char *text = NULL;
    size_t n;
    ech_manifest manifest;
    ECH_TRY(ech_file_read(path, ECH_MANIFEST_LIMIT, &text, &n));
    bool is_ours = ech_manifest_is_ours(text, n);
    ech_status st = is_ours ? ech_manifest_parse(path, text, n, &manifest) : ECH_OK;
    if (!is_ours || st != ECH_OK) return st;
    for (int f = 0; f < ECH_FILES && st == ECH_OK; f++)
        if (f != ECH_FILE_STATE)
            st = ech_manifest_verify_file(&manifest, checkpoint, (ech_checkpoint_file)f,
                                          all || f != ECH_FILE_MODEL);
    ech_manifest_free(&manifest);
    return st;
}

/* A folder with a checkpoint's name has a manifest, unless it was never finished. */
static ech_status verify_below(const char *checkpoint, bool all)
{
    int64_t step;
    ech_folder_kind kind;
    if (!ech_file_has(checkpoint, ECH_MANIFEST_NAME)) {
        if (!ech_folder_parse(last_name(checkpoint), &step, &kind)) return ECH_OK;
        ECH_FAIL(ECH_EINPUT, "%s: has no " ECH_MANIFEST_NAME ": no whole checkpoint", checkpoint);
    }
    ECH_FREED char *path = ech_file_join(checkpoint, ECH_MANIFEST_NAME);
    return verify_model(path, checkpoint, all);
}

ech_status ech_shards_verify(const char *folder, bool all)
{
    ECH_FREED char *real = realpath(folder, NULL); /* links and "." are other names of the same */
    ech_status st = ECH_OK;
    if (real && strcmp(last_name(real), "model") == 0) {
        char *checkpoint = ech_file_parent(real);
        st = verify_below(checkpoint, all);
        free(checkpoint);
    }
    return st;
}

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
