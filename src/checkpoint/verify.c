/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing a checkpoint's files with its manifest.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "checkpoint/manifest.h"

static ech_status verify_hashes(int fd, const char *path, int64_t bytes, const ech_hash *hashes)
{
    for (int64_t i = 0; i < ech_hash_ranges(bytes); i++) {
        ech_hash hash;
        ECH_TRY(ech_hash_file_range(fd, path, bytes, i, NULL, &hash));
        if (ech_hash_equal(hash, hashes[i])) continue;
        int64_t begin = i * ECH_HASH_RANGE;
        int64_t end = bytes - begin < ECH_HASH_RANGE ? bytes : begin + ECH_HASH_RANGE;
        char is[ECH_HASH_DIGITS + 1], must[ECH_HASH_DIGITS + 1];
        ech_hash_print(hash, is);
        ech_hash_print(hashes[i], must);
        ECH_FAIL(ECH_EINPUT,
                 "%s: bytes %" PRId64 "..%" PRId64 " are damaged: XXH3-128 %s, the manifest "
                 "says %s",
                 path, begin, end, is, must);
    }
    return ECH_OK;
}

static ech_status verify_file(const char *path, int64_t bytes, const ech_hash *hashes)
{
    int fd;
    int64_t has;
    ECH_TRY(ech_file_open(path, &fd, &has));
    ech_status st = ECH_OK;
    if (has != bytes)
        st = ech_fail_at(__FILE__, __LINE__, ECH_EINPUT,
                         "%s: has %" PRId64 " bytes, the manifest says %" PRId64, path, has, bytes);
    else if (hashes)
        st = verify_hashes(fd, path, bytes, hashes);
    close(fd);
    return st;
}

ech_status ech_manifest_verify_file(const ech_manifest *manifest, const char *folder,
                                    ech_checkpoint_file file, bool hashes)
{
    if (manifest->files[file].bytes < 0) return ECH_OK;
    char *path = ech_file_join(folder, ech_checkpoint_file_name(file));
    ech_status st = verify_file(path, manifest->files[file].bytes,
                                hashes ? manifest->files[file].hashes : NULL);
    free(path);
    return st;
}

ech_status ech_manifest_verify(const ech_manifest *manifest, const char *folder, bool all)
{
    for (int f = 0; f < ECH_FILES; f++) {
        bool is_text = f != ECH_FILE_MODEL && f != ECH_FILE_STATE;
        ECH_TRY(ech_manifest_verify_file(manifest, folder, (ech_checkpoint_file)f, all || is_text));
    }
    return ECH_OK;
}
