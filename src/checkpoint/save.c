/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving of checkpoints: plan, create (rank 0), write (all ranks), hash (divided among all), commit
 * (rank 0). Invariants:
 *
 *   1. A folder with a final name is complete: it is renamed after all fsyncs.
 *   2. While step N is replaced, either step-N or step-N.old is complete (the latter while step-N
 *      does not exist).
 *   3. Each phase ends on all ranks together (agree.h). One rank's failure is a failure of all
 *      before any of them continues, so no rank waits for one that has left.
 *   4. The manifest has the hashes of the bytes in memory. Ranks sum these bytes by range as they
 *      write them, and the bytes that are read back and hashed must have the same sums.
 *
 *   plan -> create (rank 0) -> write (all) -> hash (all, divided) -> commit (rank 0)
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/writing.h"
#include "base/memory.h"
#include "checkpoint/agree.h"
#include "checkpoint/folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/stored.h"

static const int64_t LAST_STEP = INT64_C(1) << 53; /* that the manifest can hold */

typedef struct save {
    ech_group *world;
    const char *directory;
    const ech_checkpoint_info *info;
    const ech_saved_tensor *tensors;
    int n;
    bool leads;           /* rank 0 */
    char *temporary;      /* step-N.tmp */
    ech_stored stored[ECH_FIRST_TEXT];
    char *path[ECH_FILES];
    uint64_t *sums[ECH_FILES]; /* by range, of the bytes in memory; stored's, but for texts */
    ech_manifest manifest;     /* its texts are info's */
    int64_t manifest_bytes;    /* known to rank 0, then to all */
} save;

/* ---- plan ---- */

static ech_status plan(save *s)
{
    if (s->info->step < 0 || s->info->step > LAST_STEP)
        ECH_FAIL(ECH_EINTERNAL, "a checkpoint cannot be of step %" PRId64, s->info->step);
    s->temporary = ech_folder_path(s->directory, s->info->step, ECH_FOLDER_TEMPORARY);
    for (ech_checkpoint_file f = 0; f < ECH_FILES; f++) {
        s->path[f] = ech_file_join(s->temporary, ech_checkpoint_file_name(f));
        if (f >= ECH_FIRST_TEXT) continue;
        ECH_TRY(ech_stored_plan(s->tensors, s->n, f, s->info->base, &s->stored[f]));
        s->sums[f] = s->stored[f].sums;
    }
    return ECH_OK;
}

/* ---- create: rank 0 makes the folder and all files at their full sizes ---- */

/* Removes what earlier saves left: temporary folders, and an old one whose successor is there. Any
 * other old one gets its name back. Only what is in the way of this save must go. */
static ech_status clear_remains(const char *directory, int64_t step)
{
    ECH_CLEANUP(ech_folders_free) ech_folders folders = {0};
    ECH_TRY(ech_folder_list(directory, &folders));
    for (size_t i = 0; i < folders.n; i++) {
        const ech_folder *folder = &folders.at[i];
        bool replaced = i > 0 && folder[-1].step == folder->step;
        if (folder->kind == ECH_FOLDER_FINAL) continue;
        ECH_FREED char *final = ech_folder_path(directory, folder->step, ECH_FOLDER_FINAL);
        bool quiet = ech_log_set_quiet(true);
        if (folder->step == step) ech_log_set_quiet(quiet);
        ech_status status = folder->kind == ECH_FOLDER_TEMPORARY || replaced
                                ? ech_file_remove_all(folder->path)
                                : ech_folder_rename(folder->path, final);
        ech_log_set_quiet(quiet);
        if (folder->step == step) ECH_TRY(status);
        if (status != ECH_OK) ech_log_warn("%s", ech_last_error());
    }
    return ECH_OK;
}

static ech_status apply_below(const char *folder, const char *name,
                              ech_status (*apply)(const char *path))
{
    ECH_FREED char *path = ech_file_join(folder, name);
    return apply(path);
}

static ech_status make_folders(const save *s)
{
    bool is_new = !ech_file_is_folder(s->directory);
    ECH_TRY(ech_file_make_folder(s->directory));
    if (is_new) ECH_TRY(apply_below(s->directory, "..", ech_file_sync_folder));
    ECH_TRY(clear_remains(s->directory, s->info->step));
    ECH_TRY(apply_below(s->temporary, "model", ech_file_make_folder));
    if (s->stored[ECH_FILE_STATE].n)
        ECH_TRY(apply_below(s->temporary, "state", ech_file_make_folder));
    return ECH_OK;
}

static ech_status create_file(save *s, int f)
{
    bool is_text = f >= (int)ECH_FIRST_TEXT;
    int64_t *bytes = &s->manifest.files[f].bytes;
    *bytes = -1;
    if (is_text ? !s->info->text[f].at : f != ECH_FILE_MODEL && !s->stored[f].n) return ECH_OK;
    *bytes = is_text ? (int64_t)s->info->text[f].n : s->stored[f].bytes;
    return is_text ? ech_file_write_inside(s->path[f], s->info->text[f].at, (size_t)*bytes)
                   : ech_stored_create(&s->stored[f], s->path[f]);
}

static ech_status create(save *s)
{
    if (!s->leads) return ECH_OK;
    ECH_TRY(make_folders(s));
    for (int f = 0; f < ECH_FILES; f++) ECH_TRY(create_file(s, f));
    return ECH_OK;
}

/* ---- write and hash ---- */

static ech_status write_boxes(save *s)
{
    for (int f = 0; f < (int)ECH_FIRST_TEXT; f++)
        ECH_TRY(ech_stored_write(&s->stored[f], s->path[f]));
    return ECH_OK;
}

/* All members learn which files there are, of what size, and the checksums of their bytes in
 * memory: of boxes of all ranks, and of headers and texts of rank 0. */
static ech_status exchange_sizes(save *s)
{
    int64_t bytes[ECH_FILES];
    for (int f = 0; f < ECH_FILES; f++) bytes[f] = s->manifest.files[f].bytes;
    ECH_TRY(ech_group_broadcast(s->world, 0, bytes, sizeof bytes));
    for (int f = 0; f < ECH_FILES; f++) {
        bool is_text = f >= (int)ECH_FIRST_TEXT;
        int64_t ranges = ech_hash_ranges(bytes[f]);
        s->manifest.files[f].bytes = bytes[f];
        if (bytes[f] < 0) continue;
        s->manifest.files[f].hashes = ech_calloc((size_t)ranges + 1, sizeof(ech_hash));
        if (is_text) s->sums[f] = ech_calloc((size_t)ranges + 1, sizeof *s->sums[f]);
        if (is_text && s->leads)
            ech_sum_bytes(s->sums[f], s->info->text[f].at, (size_t)bytes[f], 0);
        ECH_TRY(ech_agree_on_sums(s->world, s->sums[f], ranges));
    }
    return ECH_OK;
}

static void see_read_back(void *sum, const char *bytes, size_t n, int64_t offset)
{
    *(uint64_t *)sum += ech_sum_part(bytes, n, offset);
}

/* Range i, read back and hashed, must be what was in memory. */
static ech_status hash_range(const save *s, int f, int fd, int64_t i)
{
    uint64_t sum = 0;
    const ech_hash_visitor visitor = {see_read_back, &sum};
    int64_t bytes = s->manifest.files[f].bytes, begin = i * ECH_HASH_RANGE;
    ECH_TRY(
        ech_hash_file_range(fd, s->path[f], bytes, i, &visitor, &s->manifest.files[f].hashes[i]));
    if (sum == s->sums[f][i]) return ECH_OK;
    ECH_FAIL(ECH_EIO,
             "%s: bytes %" PRId64 "..%" PRId64
             " read back differ from those written; suspect this machine's memory or disk, or "
             "another program that writes into the folder",
             s->path[f], begin, bytes - begin < ECH_HASH_RANGE ? bytes : begin + ECH_HASH_RANGE);
}

/* Reads back and hashes this rank's ranges of one file: those whose number, over all files, is the
 * rank's modulo the ranks. *number: of the next range. */
static ech_status hash_file(const save *s, int f, int64_t *number)
{
    int fd = -1;
    ech_status st = ECH_OK;
    for (int64_t i = 0; i < ech_hash_ranges(s->manifest.files[f].bytes) && st == ECH_OK; i++) {
        if ((*number)++ % ech_group_size(s->world) != ech_group_index(s->world)) continue;
        if (fd < 0) fd = open(s->path[f], O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
            ECH_FAIL(ECH_EIO, "%s: cannot read it back: %s", s->path[f], ech_system_error(errno));
        st = hash_range(s, f, fd, i);
    }
    if (fd >= 0) close(fd);
    return st;
}

static ech_status hash_alone(const save *s, int f, int64_t range)
{
    int fd = open(s->path[f], O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        ECH_FAIL(ECH_EIO, "%s: cannot read it back: %s", s->path[f], ech_system_error(errno));
    ech_status st = hash_range(s, f, fd, range);
    close(fd);
    return st;
}

static ech_status hash_files(save *s)
{
    int64_t number = 0;
    for (int f = 0; f < ECH_FILES; f++)
        if (s->manifest.files[f].bytes >= 0) ECH_TRY(hash_file(s, f, &number));
    return ECH_OK;
}

static ech_status exchange_hashes(const save *s)
{
    for (int f = 0; f < ECH_FILES; f++)
        if (s->manifest.files[f].bytes >= 0) /* zero on all ranks but the one that hashed it */
            ECH_TRY(ech_agree_on_sums(s->world, (uint64_t *)s->manifest.files[f].hashes,
                                      2 * ech_hash_ranges(s->manifest.files[f].bytes)));
    return ECH_OK;
}

/* Rank 0 reads back what a rank that was lost (ech_comm_spare) has left. */
static ech_status hash_rest(save *s)
{
    for (int f = 0; f < ECH_FILES && s->leads; f++) {
        int64_t bytes = s->manifest.files[f].bytes;
        const ech_hash *hashes = s->manifest.files[f].hashes;
        for (int64_t i = 0; bytes >= 0 && i < ech_hash_ranges(bytes); i++)
            if (!hashes[i].high && !hashes[i].low) ECH_TRY(hash_alone(s, f, i));
    }
    return ECH_OK;
}

/* ---- commit: rank 0 ---- */

static ech_status write_manifest(save *s)
{
    s->manifest.info = *s->info;
    s->manifest.info.ranks = ech_group_size(s->world);
    ECH_FREED char *path = ech_file_join(s->temporary, ECH_MANIFEST_NAME), *back = NULL;
    ECH_FREED_TEXT text = {0};
    ECH_CLEANUP(ech_manifest_free) ech_manifest parsed = {0};
    size_t n;
    ECH_TRY(ech_manifest_print(&s->manifest, &text));
    /* what the reader would refuse is not written */
    ECH_TRY(ech_manifest_parse(path, text.at, text.n, &parsed));
    ECH_TRY(ech_file_write_inside(path, text.at, text.n));
    ECH_TRY(ech_file_read(path, ECH_MANIFEST_LIMIT, &back, &n));
    s->manifest_bytes = (int64_t)text.n;
    if (n == text.n && memcmp(back, text.at, n) == 0) return ECH_OK;
    ECH_FAIL(ECH_EIO, "%s: reads back differently from what was written; suspect memory or disk",
             path);
}

/* The card of the folder that is replaced is the user's own if it lacks the mark. */
static ech_status write_card(const save *s, const char *final)
{
    ECH_FREED char *path = ech_file_join(s->temporary, "model/README.md");
    ECH_FREED char *before = ech_file_join(final, "model/README.md"), *kept = NULL;
    size_t n = 0;
    if (!s->info->card) return ECH_OK;
    if (ech_file_exists(before) && !ech_file_is_link(before))
        ECH_TRY(ech_file_read(before, ECH_TEXT_LIMIT, &kept, &n));
    if (kept && !memmem(kept, n, ECH_CARD_MARK, strlen(ECH_CARD_MARK)))
        return ech_file_write_inside(path, kept, n);
    return ech_file_write_inside(path, s->info->card, strlen(s->info->card));
}

/* Gives the temporary folder its final name. A folder that has the name is renamed to step-N.old
 * first. */
static ech_status rename_to_final(const save *s, const char *final, const char *old)
{
    bool replaces = ech_file_exists(final);
    if (replaces) ECH_TRY(ech_folder_rename(final, old));
    ECH_TRY(ech_folder_rename(s->temporary, final));
    ECH_TRY(ech_file_sync_folder(s->directory));
    if (replaces) ECH_TRY(ech_file_remove_all(old));
    return ECH_OK;
}

static ech_status commit(save *s)
{
    if (!s->leads) return ECH_OK;
    ECH_FREED char *final = ech_folder_path(s->directory, s->info->step, ECH_FOLDER_FINAL);
    ECH_FREED char *old = ech_folder_path(s->directory, s->info->step, ECH_FOLDER_OLD);
    ECH_TRY(write_manifest(s));
    ECH_TRY(write_card(s, final));
    ECH_TRY(apply_below(s->temporary, "model", ech_file_sync_folder));
    if (s->stored[ECH_FILE_STATE].n)
        ECH_TRY(apply_below(s->temporary, "state", ech_file_sync_folder));
    ECH_TRY(ech_file_sync_folder(s->temporary));
    return rename_to_final(s, final, old);
}

/* ---- all of it ---- */

static ech_status together(save *s, ech_status (*work)(save *s))
{
    ech_joint joint;
    ech_joint_begin(&joint, s->world);
    return ech_joint_end(&joint, work(s));
}

static ech_status plan_together(save *s)
{
    ECH_TRY(together(s, plan));
    ECH_TRY(ech_agree_on_files(s->world, s->info->step, s->stored));
    ECH_TRY(ech_agree_on_boxes(s->world, s->tensors, s->n));
    return ECH_OK;
}

static ech_status put_together(save *s)
{
    ECH_TRY(together(s, create));
    ECH_TRY(together(s, write_boxes));
    ECH_TRY(exchange_sizes(s));
    ECH_TRY(together(s, hash_files));
    ECH_TRY(exchange_hashes(s));
    ECH_TRY(together(s, hash_rest));
    ECH_TRY(together(s, commit));
    return ech_group_broadcast(s->world, 0, &s->manifest_bytes, sizeof s->manifest_bytes);
}

/* The last error stays. */
static void remove_quietly(const char *folder)
{
    char why[2048];
    snprintf(why, sizeof why, "%s", ech_last_error());
    bool quiet = ech_log_set_quiet(true);
    (void)ech_file_remove_all(folder);
    ech_log_set_quiet(quiet);
    ech_set_last_error(why);
}

ech_status ech_checkpoint_save(ech_group *world, const char *directory,
                               const ech_checkpoint_info *info, const ech_saved_tensor *tensors,
                               int n, int64_t *bytes)
{
    save s = {.world = world, .directory = directory, .info = info, .tensors = tensors, .n = n};
    s.leads = ech_group_index(world) == 0;
    ech_status st = plan_together(&s);
    if (st == ECH_OK) {
        st = put_together(&s);
        /* a full disk gets its space back; what cannot be removed now, the next save removes */
        if (st != ECH_OK && s.leads) remove_quietly(s.temporary);
    }
    int64_t sum = s.manifest_bytes;
    for (int f = 0; f < ECH_FILES; f++) {
        if (s.manifest.files[f].bytes > 0) sum += s.manifest.files[f].bytes;
        free(s.manifest.files[f].hashes);
        if (f >= (int)ECH_FIRST_TEXT)
            free(s.sums[f]);
        else
            ech_stored_free(&s.stored[f]);
        free(s.path[f]);
    }
    free(s.temporary);
    if (st == ECH_OK) *bytes = sum;
    return st;
}
