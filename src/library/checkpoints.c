/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of checkpoints.
 */
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folder.h"
#include "library/library.h"

typedef struct row {
    echelon_checkpoint is; /* its texts are owned: the path by `folders` */
    char *problem;         /* NULL: none */
} row;

struct echelon_checkpoints {
    ech_folders folders;
    row *row; /* [folders.n] */
};

/* As `echelon checkpoint list` reads it. */
static row read_row(const ech_folder *folder)
{
    ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *checkpoint = NULL;
    const char *why = NULL;
    row r = {
        .is = {.path = folder->path, .step = folder->step, .problem = "", .loss = (double)NAN}};
    bool quiet = ech_log_set_quiet(true);
    if (folder->kind == ECH_FOLDER_TEMPORARY)
        why = "not finished: it is being written, or its writer died; the next save removes it";
    else if (ech_checkpoint_open_folder(folder, false, &checkpoint) != ECH_OK)
        why = ech_last_error();
    ech_log_set_quiet(quiet);
    if (why) {
        r.is.problem = r.problem = ech_strdup(why);
        return r;
    }
    const ech_checkpoint_info *info = ech_checkpoint_get_info(checkpoint);
    r.is.step = info->step;
    r.is.complete = 1;
    r.is.bytes = ech_checkpoint_bytes(checkpoint);
    r.is.ranks = info->ranks;
    r.is.loss = info->loss;
    return r;
}

echelon_status echelon_checkpoints_list(const char *path, echelon_checkpoints **out)
{
    ech_library_enter();
    ECH_NEED(path);
    ECH_NEED(out);
    echelon_checkpoints *list = ech_handle_create(sizeof *list, ECH_HANDLE_CHECKPOINTS);
    ech_status status = ech_folder_find(path, &list->folders);
    if (status != ECH_OK) {
        echelon_checkpoints_free(list);
        return (echelon_status)status;
    }
    list->row = ech_calloc(list->folders.n, sizeof *list->row);
    for (size_t i = 0; i < list->folders.n; i++) list->row[i] = read_row(&list->folders.at[i]);
    ech_clear_error();
    *out = list;
    return ECHELON_OK;
}

void echelon_checkpoints_free(echelon_checkpoints *checkpoints)
{
    if (!checkpoints) return;
    ECH_USE_HANDLE(checkpoints, CHECKPOINTS, );
    for (size_t i = 0; i < checkpoints->folders.n && checkpoints->row; i++)
        free(checkpoints->row[i].problem);
    free(checkpoints->row);
    ech_folders_free(&checkpoints->folders);
    ech_handle_destroy(checkpoints);
}

int echelon_checkpoints_count(const echelon_checkpoints *checkpoints)
{
    ECH_USE_HANDLE(checkpoints, CHECKPOINTS, 0);
    return (int)checkpoints->folders.n;
}

echelon_status echelon_checkpoints_at(const echelon_checkpoints *checkpoints, int index,
                                      echelon_checkpoint *out)
{
    ech_library_enter();
    ECH_USE(checkpoints, CHECKPOINTS);
    ECH_NEED_STRUCT(out);
    if (index < 0 || index >= echelon_checkpoints_count(checkpoints))
        ECH_REFUSE("there is no checkpoint %d; there are %d", index,
                   echelon_checkpoints_count(checkpoints));
    ech_library_give(out, out->size, &checkpoints->row[index].is, sizeof(echelon_checkpoint));
    return ECHELON_OK;
}
