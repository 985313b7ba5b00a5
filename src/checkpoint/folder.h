/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of checkpoint folders: step-%08d is a checkpoint; step-%08d.tmp is being written, or was
 * when the writer died; step-%08d.old is a checkpoint whose successor of the same step takes its
 * name just now.
 */
#ifndef ECH_CHECKPOINT_FOLDER_H
#define ECH_CHECKPOINT_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "checkpoint/checkpoint.h"

typedef enum ech_folder_kind {
    ECH_FOLDER_FINAL,
    ECH_FOLDER_OLD,
    ECH_FOLDER_TEMPORARY
} ech_folder_kind;

typedef struct ech_folder {
    int64_t step;
    ech_folder_kind kind;
    char *path;
} ech_folder;

/* DIRECTORY/step-00000100[.old|.tmp] in new memory, released with free(). */
char *ech_folder_path(const char *directory, int64_t step, ech_folder_kind kind);
/* Whether a name is exactly one that ech_folder_path makes. */
bool ech_folder_parse(const char *name, int64_t *step, ech_folder_kind *kind);

/* All folders of these names below `directory`, newest first, of one step the final one first.
 * None if the directory does not exist. Released with ech_folder_free. */
ech_status ech_folder_list(const char *directory, ech_folder **folders, size_t *n);
/* What a path means, newest first: itself if it has a manifest or a checkpoint's name, otherwise all
 * folders of these names below it or below PATH/checkpoints. ECH_EUSAGE if there is none. */
ech_status ech_folder_find(const char *path, ech_folder **folders, size_t *n);
/* Says that a path means none. */
ech_status ech_folder_fail_none(const char *path);
void ech_folder_free(ech_folder *folders, size_t n);

/* The same without those that are no checkpoints: temporary ones, and old ones beside a final one.
 * So an old one counts exactly when its successor did not get to its name. */
ech_status ech_folder_list_complete(const char *directory, ech_folder **folders, size_t *n);

/* Opens it, as ech_checkpoint_open, and compares its step with its name's (step -1: any name). */
ech_status ech_checkpoint_open_folder(const ech_folder *folder, bool verify, ech_checkpoint **out);

/* The newest below a folder of checkpoints or of a run, as ech_checkpoint_open_newest. */
ech_status ech_checkpoint_open_run(const char *path, bool verify, ech_checkpoint **out);

/* rename(2); what was durable before stays so, the new name is so once the parent is synced. */
ech_status ech_folder_rename(const char *from, const char *to);

#endif
