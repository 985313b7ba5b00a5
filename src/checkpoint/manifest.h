/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.json: the content of a checkpoint folder, with a hash of each 16 MiB of each file and
 * one of its own text. It is written last. Format: docs/formats.md. None is collective.
 */
#ifndef ECH_CHECKPOINT_MANIFEST_H
#define ECH_CHECKPOINT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hash.h"

#define ECH_MANIFEST_NAME "manifest.json"
enum { ECH_MANIFEST_LIMIT = 64 << 20 }; /* bytes: of 30 TB of files */

typedef struct ech_manifest {
    ech_checkpoint_info info; /* without info.text */
    struct {
        int64_t bytes;    /* -1: there is no such file */
        ech_hash *hashes; /* [ech_hash_ranges(bytes)]; owned */
    } files[ECH_FILES];   /* by ech_checkpoint_file */
} ech_manifest;

/* Appends the manifest's text. Errors: a run file that is not UTF-8; more than ECH_MANIFEST_LIMIT
 * bytes. */
ech_status ech_manifest_print(const ech_manifest *manifest, ech_text *out);
/* Parses a manifest's text, which is untrusted; `path` is its name in errors. Release with
 * ech_manifest_free. */
ech_status ech_manifest_parse(const char *path, const char *text, size_t n, ech_manifest *out);
void ech_manifest_free(ech_manifest *manifest);

/* True if a text is a checkpoint's manifest, possibly damaged. Other programs have files of this
 * name, too. */
bool ech_manifest_is_ours(const char *text, size_t n);

/* Compares a file of the checkpoint in `folder` with its entry in the manifest: the size; with
 * `hashes` also the hashes, and a file of tensors must be finite. ECH_OK if the manifest has no
 * such file. Errors name file and bytes. */
ech_status ech_manifest_verify_file(const ech_manifest *manifest, const char *folder,
                                    ech_checkpoint_file file, bool hashes);
/* If the folder is the model/ of a checkpoint, compares it with the checkpoint's manifest: the
 * sizes of all files and the hashes of texts; with `all` also the hashes of the weights. Any other
 * folder: ECH_OK, nothing is compared. */
ech_status ech_manifest_verify_model(const char *folder, bool all);

#endif
