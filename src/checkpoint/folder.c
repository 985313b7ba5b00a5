/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of checkpoint folders.
 */
#include "checkpoint/folder.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/open.h"

enum { NAME_BYTES = 40 };

static const char *const suffixes[] = {
    [ECH_FOLDER_FINAL] = "", [ECH_FOLDER_OLD] = ".old", [ECH_FOLDER_TEMPORARY] = ".tmp"};

static void print_name(int64_t step, ech_folder_kind kind, char name[NAME_BYTES])
{
    snprintf(name, NAME_BYTES, "step-%08" PRId64 "%s", step, suffixes[kind]);
}

char *ech_folder_path(const char *directory, int64_t step, ech_folder_kind kind)
{
    char name[NAME_BYTES];
    print_name(step, kind, name);
    return ech_file_join(directory, name);
}

bool ech_folder_parse(const char *name, int64_t *step, ech_folder_kind *kind)
{
    int64_t number;
    if (sscanf(name, "step-%18" SCNd64, &number) != 1 || number < 0) return false;
    for (int k = ECH_FOLDER_FINAL; k <= ECH_FOLDER_TEMPORARY; k++) {
        char made[NAME_BYTES];
        print_name(number, (ech_folder_kind)k, made);
        if (strcmp(name, made) != 0) continue;
        *step = number;
        *kind = (ech_folder_kind)k;
        return true;
    }
    return false;
}

static int newest_first(const void *a, const void *b)
{
    const ech_folder *x = a, *y = b;
    if (x->step != y->step) return x->step > y->step ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

ech_status ech_folder_list(const char *directory, ech_folder **folders, size_t *n)
{
    ECH_LIST(ech_folder) list = {0};
    DIR *dir = opendir(directory);
    /* Below a file there is nothing; that nothing can be made there is said by who wants to. */
    bool below_file = !dir && errno == ENOTDIR && access(directory, F_OK) != 0;
    if (!dir && errno != ENOENT && !below_file) {
        ECH_FAIL(ECH_EIO, "%s: cannot list it: %s", directory, strerror(errno));
    }
    errno = 0;
    for (struct dirent *at; dir && (at = readdir(dir)) != NULL; errno = 0) {
        int64_t step;
        ech_folder_kind kind;
        if (!ech_folder_parse(at->d_name, &step, &kind)) continue;
        ECH_PUSH(list, (ech_folder){step, kind, ech_file_join(directory, at->d_name)});
    }
    int why = dir ? errno : 0;
    if (dir) closedir(dir);
    if (why) {
        ech_folder_free(list.at, list.n);
        ECH_FAIL(ECH_EIO, "%s: cannot list it: %s", directory, strerror(why));
    }
    if (list.n) qsort(list.at, list.n, sizeof *list.at, newest_first);
    *folders = list.at;
    *n = list.n;
    return ECH_OK;
}

/* The path as a folder of its own; false if it is none. */
static bool is_one(const char *path, ech_folder *out)
{
    char *trimmed = ech_strdup(path);
    size_t length = strlen(trimmed);
    while (length > 1 && trimmed[length - 1] == '/') trimmed[--length] = '\0';
    const char *slash = strrchr(trimmed, '/');
    *out = (ech_folder){.step = -1, .kind = ECH_FOLDER_FINAL, .path = trimmed};
    bool named = ech_folder_parse(slash ? slash + 1 : trimmed, &out->step, &out->kind) &&
                 ech_file_is_folder(trimmed);
    bool is = named || ech_file_has(path, ECH_MANIFEST_NAME);
    if (!is) free(trimmed);
    return is;
}

ech_status ech_folder_fail_none(const char *path)
{
    ECH_FAIL(ECH_EUSAGE,
             "%s: neither a checkpoint (a folder with %s), nor a folder with step-00000000 "
             "folders, nor a run directory with checkpoints/",
             path, ECH_MANIFEST_NAME);
}

ech_status ech_folder_find(const char *path, ech_folder **folders, size_t *n)
{
    ech_folder one;
    if (is_one(path, &one)) {
        *folders = ech_calloc(1, sizeof one);
        **folders = one;
        *n = 1;
        return ECH_OK;
    }
    ECH_TRY(ech_folder_list(path, folders, n));
    if (*n == 0) {
        char *below = ech_file_join(path, "checkpoints");
        free(*folders);
        ech_status st = ech_folder_list(below, folders, n);
        free(below);
        ECH_TRY(st);
    }
    if (*n > 0) return ECH_OK;
    free(*folders);
    return ech_folder_fail_none(path);
}

ech_status ech_folder_list_complete(const char *directory, ech_folder **folders, size_t *n)
{
    ECH_TRY(ech_folder_list(directory, folders, n));
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++) {
        ech_folder *folder = &(*folders)[i];
        bool replaced = kept && (*folders)[kept - 1].step == folder->step;
        if (folder->kind == ECH_FOLDER_TEMPORARY || replaced) {
            free(folder->path);
        } else {
            (*folders)[kept++] = *folder;
        }
    }
    *n = kept;
    return ECH_OK;
}

void ech_folder_free(ech_folder *folders, size_t n)
{
    for (size_t i = 0; i < n; i++) free(folders[i].path);
    free(folders);
}

ech_status ech_folder_rename(const char *from, const char *to)
{
    if (rename(from, to) != 0) {
        ECH_FAIL(ECH_EIO, "%s: cannot rename it to %s: %s", from, to, strerror(errno));
    }
    return ECH_OK;
}
