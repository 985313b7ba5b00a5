/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.json: what a checkpoint folder holds, with a hash of every 16 MiB of every file and one
 * of its own text. It is written last; docs/formats.md shows it.
 */
#ifndef ECH_CHECKPOINT_MANIFEST_H
#define ECH_CHECKPOINT_MANIFEST_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/hash.h"

enum { ECH_MANIFEST_LIMIT = 16 << 20 }; /* bytes */

typedef struct ech_manifest {
    ech_checkpoint_info info; /* without the texts of files of their own */
    struct {
        int64_t bytes;    /* -1: there is no such file */
        ech_hash *hashes; /* one a range of ECH_HASH_RANGE bytes */
    } files[ECH_FILES];
} ech_manifest;

/* Appends the manifest's text. */
ech_status ech_manifest_print(const ech_manifest *manifest, ech_text *out);
/* The manifest behind a text; `path` names it in errors. Released with ech_manifest_free. */
ech_status ech_manifest_parse(const char *path, const char *text, size_t n, ech_manifest *out);
void ech_manifest_free(ech_manifest *manifest);

/* Whether a text is, or was before it was damaged, a manifest of ours: others use the name, too. */
bool ech_manifest_is_ours(const char *text, size_t n);

/* Compares a file below `folder` that the manifest has with it: its size, and its hashes if they are
 * wanted. Errors name file and bytes. */
ech_status ech_manifest_verify_file(const ech_manifest *manifest, const char *folder,
                                    ech_checkpoint_file file, bool hashes);
/* Compares the files below `folder` with the manifest: sizes, hashes of the texts, and those of tensors
 * too if `all`. Errors name file and bytes. */
ech_status ech_manifest_verify(const ech_manifest *manifest, const char *folder, bool all);

#endif
