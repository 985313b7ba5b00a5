/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint folders by name: step-%08d is a checkpoint; step-%08d.tmp is unfinished; step-%08d.old is a checkpoint
 * that is being replaced by a new one of the same step.
 */
#ifndef ECH_CHECKPOINT_FOLDER_H
#define ECH_CHECKPOINT_FOLDER_H

#include "base/memory.h"
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

/* Initialize with {0} and release with ech_folders_free, also after failures. */
typedef ECH_LIST(ech_folder) ech_folders;
void ech_folders_free(ech_folders *folders);

/* DIRECTORY/step-00000100[.old|.tmp] in new memory, released with free(). */
char *ech_folder_path(const char *directory, int64_t step, ech_folder_kind kind);
/* Parses a folder's name. False: ech_folder_path does not make it. */
bool ech_folder_parse(const char *name, int64_t *step, ech_folder_kind *kind);

/* Lists the folders with such names in `directory`, newest first, of equal steps the final one first. None if the
 * directory does not exist. */
ech_status ech_folder_list(const char *directory, ech_folders *out);
/* The same, but complete checkpoints alone: without temporary ones, and without an old one if there is a final one of
 * its step. */
ech_status ech_folder_list_complete(const char *directory, ech_folders *out);
/* Lists the folders that a path names, newest first: the path itself if it has a manifest or a checkpoint's name;
 * otherwise the folders with such names in it, or else in PATH/checkpoints. ECH_EUSAGE: there is none. */
ech_status ech_folder_find(const char *path, ech_folders *out);

/* As ech_checkpoint_open, and checks that the checkpoint's step is the folder's (unless that is -1). */
ech_status ech_checkpoint_open_folder(const ech_folder *folder, bool verify, ech_checkpoint **out);

/* As ech_checkpoint_open_newest, for a folder of checkpoints or a run directory. */
ech_status ech_checkpoint_open_run(const char *path, bool verify, ech_checkpoint **out);

/* rename(2). The new name is durable after ech_file_sync_parent. */
ech_status ech_folder_rename(const char *from, const char *to);

#endif
