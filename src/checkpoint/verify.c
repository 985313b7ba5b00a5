/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing a checkpoint's files with its manifest.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/manifest.h"

static ech_status verify_hashes(int fd, const char *path, int64_t bytes, const ech_hash *hashes,
                                const ech_hash_visitor *visitor)
{
    for (int64_t i = 0; i < ech_hash_ranges(bytes); i++) {
        ech_hash hash;
        ECH_TRY(ech_hash_file_range(fd, path, bytes, i, visitor, &hash));
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

static ech_status verify_file(const char *path, int64_t bytes, const ech_hash *hashes,
                              const ech_hash_visitor *visitor)
{
    int fd;
    int64_t has;
    ECH_TRY(ech_file_open(path, &fd, &has));
    ech_status st = ECH_OK;
    if (has != bytes)
        st = ech_fail_at(__FILE__, __LINE__, ECH_EINPUT,
                         "%s: has %" PRId64 " bytes, the manifest says %" PRId64, path, has, bytes);
    else if (hashes)
        st = verify_hashes(fd, path, bytes, hashes, visitor);
    close(fd);
    return st;
}

/* ---- tensors: finite as well ---- */

typedef struct scan {
    const ech_safetensors *file;
    ech_safetensors_element found;
} scan;

static void see(void *context, const char *bytes, size_t n, int64_t offset)
{
    scan *s = context;
    if (!s->found.name) s->found = ech_safetensors_nonfinite(s->file, bytes, n, offset);
}

/* One pass over the bytes. Where the header cannot be read, the hashes say where it is damaged. */
static ech_status verify_tensors(const char *path, int64_t bytes, const ech_hash *hashes)
{
    ech_safetensors *file = NULL;
    bool quiet = ech_log_set_quiet(true);
    ech_status st = ech_safetensors_open(path, &file);
    ech_log_set_quiet(quiet);
    if (st != ECH_OK) return verify_file(path, bytes, hashes, NULL);
    scan s = {.file = file};
    st = verify_file(path, bytes, hashes, &(ech_hash_visitor){see, &s});
    if (st == ECH_OK && s.found.name)
        st = ech_fail_at(__FILE__, __LINE__, ECH_EINPUT,
                         "%s: tensor '%s', element %" PRId64
                         " is %s: saved by a run that had gone wrong by then",
                         path, s.found.name, s.found.index, s.found.value);
    ech_safetensors_close(file);
    return st;
}

ech_status ech_manifest_verify_file(const ech_manifest *manifest, const char *folder,
                                    ech_checkpoint_file file, bool hashes)
{
    int64_t bytes = manifest->files[file].bytes;
    if (bytes < 0) return ECH_OK;
    bool is_text = file != ECH_FILE_MODEL && file != ECH_FILE_STATE;
    ECH_FREED char *path = ech_file_join(folder, ech_checkpoint_file_name(file));
    ech_status st =
        hashes && !is_text
            ? verify_tensors(path, bytes, manifest->files[file].hashes)
            : verify_file(path, bytes, hashes ? manifest->files[file].hashes : NULL, NULL);
    return st;
}

ech_status ech_manifest_verify(const ech_manifest *manifest, const char *folder, bool all)
{
    for (int f = 0; f < ECH_FILES; f++) {
        bool is_text = f >= (int)ECH_FIRST_TEXT;
        ECH_TRY(ech_manifest_verify_file(manifest, folder, (ech_checkpoint_file)f, all || is_text));
    }
    return ECH_OK;
}
