/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoint folders by name: step-%08d, the training step, is a checkpoint; step-%08d.tmp is
 * unfinished; step-%08d.old is a checkpoint that is being replaced by a new one of the same
 * training step (here: step). None is collective.
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
    int64_t step;         /* of its name; -1: another name */
    ech_folder_kind kind; /* ECH_FOLDER_FINAL if step is -1 */
    char *path;           /* owned by ech_folders */
} ech_folder;

/* Initialize with {0} and release with ech_folders_free, also after failures. */
typedef ECH_LIST(ech_folder) ech_folders;
void ech_folders_free(ech_folders *folders);

/* DIRECTORY/step-00000100[.old|.tmp] in new memory, released with free(). */
char *ech_folder_path(const char *directory, int64_t step, ech_folder_kind kind);
/* Parses the last component of a path. False: it is not a name from ech_folder_path. */
bool ech_folder_parse(const char *name, int64_t *step, ech_folder_kind *kind);

/* Appends the folders with such names in `directory`, the highest step first, and of equal steps in
 * the order of ech_folder_kind. Uses only names. None if the directory does not exist. Errors:
 * ECH_EIO. */
ech_status ech_folder_list(const char *directory, ech_folders *out);
/* The same, but only folders whose name is complete: no .tmp, and no .old if there is a final one
 * of its step. */
ech_status ech_folder_list_complete(const char *directory, ech_folders *out);
/* Lists the folders that a path names: the path itself, if its last component is such a name or if
 * it has a manifest; otherwise those in PATH, or if it has none those in PATH/checkpoints, ordered
 * likewise. ECH_EUSAGE: none. */
ech_status ech_folder_find(const char *path, ech_folders *out);

/* As ech_checkpoint_open, and checks that the manifest has folder->step (unless folder->step is
 * -1). */
ech_status ech_checkpoint_open_folder(const ech_folder *folder, bool verify, ech_checkpoint **out);

/* The validation loss at the step of a folder's checkpoint, from its manifest alone. NaN: the run
 * did not validate there, or the folder cannot be opened, which is not logged. */
double ech_folder_valid_loss(const ech_folder *folder);
/* True if fewer than `best` of the n losses are lower than loss i, or are equal and of an earlier
 * checkpoint. The newest checkpoint comes first; a NaN has no rank. */
bool ech_folder_is_among_best(const double *losses, size_t n, size_t i, int64_t best);

/* ech_checkpoint_open_newest of PATH, or if there is no checkpoint of PATH/checkpoints. */
ech_status ech_checkpoint_open_run(const char *path, bool verify, ech_checkpoint **out);

/* When the folder's checkpoint was completed: its manifest's time, in ns since 1970; 0: it has no
 * manifest. */
int64_t ech_folder_completed(const ech_folder *folder);

/* rename(2); the new name is durable only after ech_file_sync_parent. Errors: ECH_EIO. */
ech_status ech_folder_rename(const char *from, const char *to);

#endif
