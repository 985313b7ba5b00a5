/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening one checkpoint folder: the manifest first, then the files it lists, against it.
 */
#include "checkpoint/open.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"

static ech_status open_tensors(ech_checkpoint *checkpoint, ech_checkpoint_file file)
{
    if (checkpoint->manifest.files[file].bytes < 0) return ECH_OK;
    char *path = ech_file_join(checkpoint->path, ech_checkpoint_file_name(file));
    ech_status st = ech_safetensors_open(path, &checkpoint->tensors[file]);
    free(path);
    return st;
}

static ech_status read_text(ech_checkpoint *checkpoint, ech_checkpoint_file file)
{
    if (checkpoint->manifest.files[file].bytes < 0) return ECH_OK;
    char **text = ech_checkpoint_file_text(&checkpoint->manifest.info, file);
    char *path = ech_file_join(checkpoint->path, ech_checkpoint_file_name(file));
    size_t n;
    ech_status st = ech_file_read(path, ECH_TEXT_LIMIT, text, &n);
    free(path);
    return st;
}

static ech_status read_manifest(ech_checkpoint *checkpoint)
{
    char *path = ech_file_join(checkpoint->path, ECH_MANIFEST_NAME);
    char *text = NULL;
    size_t n;
    ech_status st;
    if (ech_file_exists(path)) {
        st = ech_file_read(path, ECH_MANIFEST_LIMIT, &text, &n);
    } else {
        st = ech_fail_at(__FILE__, __LINE__, ECH_EINPUT, "%s: has no %s: no whole checkpoint",
                         checkpoint->path, ECH_MANIFEST_NAME);
    }
    if (st == ECH_OK) st = ech_manifest_parse(path, text, n, &checkpoint->manifest);
    free(text);
    free(path);
    return st;
}

static ech_status open_all(ech_checkpoint *checkpoint, bool verify)
{
    ECH_TRY(read_manifest(checkpoint));
    ECH_TRY(ech_manifest_verify(&checkpoint->manifest, checkpoint->path, verify));
    ECH_TRY(open_tensors(checkpoint, ECH_FILE_MODEL));
    ECH_TRY(open_tensors(checkpoint, ECH_FILE_STATE));
    ECH_TRY(read_text(checkpoint, ECH_FILE_CONFIG));
    ECH_TRY(read_text(checkpoint, ECH_FILE_TOKENIZER));
    ECH_TRY(read_text(checkpoint, ECH_FILE_TOKENIZER_CONFIG));
    return ECH_OK;
}

ech_status ech_checkpoint_open(const char *path, bool verify, ech_checkpoint **out)
{
    ech_checkpoint *checkpoint = ech_calloc(1, sizeof *checkpoint);
    checkpoint->path = ech_strdup(path);
    ech_status st = open_all(checkpoint, verify);
    if (st != ECH_OK) {
        ech_checkpoint_close(checkpoint);
        return st;
    }
    *out = checkpoint;
    return ECH_OK;
}

void ech_checkpoint_close(ech_checkpoint *checkpoint)
{
    if (!checkpoint) return;
    ech_safetensors_close(checkpoint->tensors[ECH_FILE_MODEL]);
    ech_safetensors_close(checkpoint->tensors[ECH_FILE_STATE]);
    ech_manifest_free(&checkpoint->manifest);
    free(checkpoint->path);
    free(checkpoint);
}

const char *ech_checkpoint_path(const ech_checkpoint *checkpoint)
{
    return checkpoint->path;
}

const ech_checkpoint_info *ech_checkpoint_get_info(const ech_checkpoint *checkpoint)
{
    return &checkpoint->manifest.info;
}
