/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparing a checkpoint's files with its manifest.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "checkpoint/folder.h"
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
                 "%s: bytes %" PRId64 "..%" PRId64 " are damaged: XXH3-128 %s, the manifest says "
                 "%s; use an older checkpoint, or copy it again",
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
    ech_status st =
        has == bytes && hashes ? verify_hashes(fd, path, bytes, hashes, visitor) : ECH_OK;
    close(fd);
    if (has == bytes) return st;
    ECH_FAIL(ECH_EINPUT,
             "%s: has %" PRId64 " bytes, the manifest says %" PRId64
             ": cut off or changed; use an older checkpoint, or copy it again",
             path, has, bytes);
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
    ECH_CLEANUP(ech_safetensors_close_at) ech_safetensors *file = NULL;
    bool quiet = ech_log_set_quiet(true);
    ech_status st = ech_safetensors_open(path, &file);
    ech_log_set_quiet(quiet);
    if (st != ECH_OK) return verify_file(path, bytes, hashes, NULL);
    scan s = {.file = file};
    ECH_TRY(verify_file(path, bytes, hashes, &(ech_hash_visitor){see, &s}));
    if (!s.found.name) return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s: tensor '%s', element %" PRId64
             " is %s: the run that saved it had already diverged; use an older checkpoint",
             path, s.found.name, s.found.index, s.found.value);
}

ech_status ech_manifest_verify_file(const ech_manifest *manifest, const char *folder,
                                    ech_checkpoint_file file, bool hashes)
{
    int64_t bytes = manifest->files[file].bytes;
    const ech_hash *wanted = hashes ? manifest->files[file].hashes : NULL;
    if (bytes < 0) return ECH_OK;
    ECH_FREED char *path = ech_file_join(folder, ech_checkpoint_file_name(file));
    return wanted && file < ECH_FIRST_TEXT ? verify_tensors(path, bytes, wanted)
                                           : verify_file(path, bytes, wanted, NULL);
}

/* ---- the model/ of a checkpoint, without the rest of it ---- */

static const char *last_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

ech_status ech_manifest_verify_model(const char *folder, bool all)
{
    ECH_FREED char *real = realpath(folder, NULL); /* links and "." are other names of the same */
    if (!real || strcmp(last_name(real), "model") != 0) return ECH_OK;
    ECH_FREED char *checkpoint = ech_file_parent(real), *text = NULL;
    ECH_FREED char *path = ech_file_join(checkpoint, ECH_MANIFEST_NAME);
    ECH_CLEANUP(ech_manifest_free) ech_manifest manifest = {0};
    ech_folder named;
    size_t n;
    if (!ech_file_exists(path)) {
        if (!ech_folder_parse(last_name(checkpoint), &named.step, &named.kind)) return ECH_OK;
        ECH_FAIL(ECH_EINPUT,
                 "%s: has no " ECH_MANIFEST_NAME
                 ": its save did not finish; use an older checkpoint",
                 checkpoint);
    }
    ECH_TRY(ech_file_read(path, ECH_MANIFEST_LIMIT, &text, &n));
    if (!ech_manifest_is_ours(text, n)) return ECH_OK;
    ECH_TRY(ech_manifest_parse(path, text, n, &manifest));
    for (int f = 0; f < ECH_FILES; f++) /* state/ is not read, and may be gone */
        if (f != ECH_FILE_STATE)
            ECH_TRY(ech_manifest_verify_file(&manifest, checkpoint, (ech_checkpoint_file)f,
                                             all || f >= ECH_FIRST_TEXT));
    return ECH_OK;
}
