/* SPDX-License-Identifier: Apache-2.0
 *
 * Listing the texts in folders, in an order that does not depend on the file system.
 */
#include "data/texts.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "data/gunzip.h"
#include "data/token_index.h"
#include "data/token_origin.h"

enum { DEEPEST_FOLDER = 256 };

static ech_status add_folder(ech_texts *texts, const char *path, int depth);

/* Takes over `path`. */
static ech_status add_path(ech_texts *texts, char *path, int depth)
{
    struct stat info, link;
    ech_status st = ECH_OK;
    if (depth > 0 && !ech_file_exists(path) && ech_file_is_link(path)) {
        ech_log_warn("%s: a link to what is not there; left out", path);
    } else if (stat(path, &info) != 0 || lstat(path, &link) != 0) {
        st = ech_fail_at(__FILE__, __LINE__, ECH_EIO, "%s: cannot read it: %s", path,
                         strerror(errno));
    } else if (S_ISREG(info.st_mode)) {
        ECH_PUSH(texts->file, (ech_data_text_file){path, info.st_size, info.st_size,
                                                   info.st_mtim.tv_sec, info.st_mtim.tv_nsec});
        return ECH_OK;
    } else if (!S_ISDIR(info.st_mode)) {
        st = ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE,
                         "%s: neither a regular file nor a folder: write the text to a file first",
                         path);
    } else if (S_ISLNK(link.st_mode) && depth > 0) {
        st =
            ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE,
                        "%s: a link to a folder: import that folder itself, or copy it here", path);
    } else {
        st = add_folder(texts, path, depth);
    }
    free(path);
    return st;
}

static ech_status add_entries(ech_texts *texts, const char *path, DIR *folder, int depth)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (!entry && errno != 0) ECH_FAIL(ECH_EIO, "%s: cannot list: %s", path, strerror(errno));
        if (!entry) return ECH_OK;
        const char *name = entry->d_name;
        if (name[0] == '.') continue;
        ECH_TRY(add_path(texts, ech_file_join(path, name), depth));
    }
}

static ech_status add_folder(ech_texts *texts, const char *path, int depth)
{
    if (depth > DEEPEST_FOLDER)
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: more than %d folders deep", path, (int)DEEPEST_FOLDER);
    DIR *folder = opendir(path);
    if (!folder) ECH_FAIL(ECH_EIO, "%s: cannot open the folder: %s", path, strerror(errno));
    ech_status st = add_entries(texts, path, folder, depth + 1);
    closedir(folder);
    return st;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(((const ech_data_text_file *)a)->path, ((const ech_data_text_file *)b)->path);
}

static ech_status measure(ech_data_text_file *file)
{
    ech_gunzip *gunzip;
    if (!ech_gunzip_is_packed(file->path)) return ECH_OK;
    ECH_TRY(ech_gunzip_open(file->path, &gunzip, &file->stored));
    ech_status st = ech_gunzip_count(gunzip, &file->bytes);
    ech_gunzip_close(gunzip);
    return st;
}

ech_status ech_texts_find(const char *in, ech_texts *out)
{
    ech_texts texts = {0};
    ech_status st = add_path(&texts, ech_strdup(in), 0);
    for (size_t i = 0; i < texts.file.n && st == ECH_OK; i++) {
        st = measure(&texts.file.at[i]);
        texts.bytes += texts.file.at[i].bytes;
    }
    if (st != ECH_OK) {
        ech_texts_free(&texts);
        return st;
    }
    if (texts.file.n > 1) qsort(texts.file.at, texts.file.n, sizeof *texts.file.at, compare_paths);
    *out = texts;
    return ECH_OK;
}

static ech_status find_real(const char *path, char real[PATH_MAX])
{
    if (!realpath(path, real))
        ECH_FAIL(ECH_EIO, "%s: cannot find where it is: %s", path, strerror(errno));
    return ECH_OK;
}

static ech_status check_outside(const char *in, const char *folder, const char *out)
{
    char from[PATH_MAX], to[PATH_MAX];
    ECH_TRY(find_real(in, from));
    ECH_TRY(find_real(folder, to));
    size_t n = strcmp(from, "/") == 0 ? 0 : strlen(from);
    if (strncmp(from, to, n) == 0 && (to[n] == '/' || to[n] == '\0'))
        ECH_FAIL(ECH_EUSAGE,
                 "%s lies in the folder %s that is read: the next import would read the tokens as "
                 "text; give a prefix elsewhere",
                 out, in);
    return ECH_OK;
}

static ech_status check_not_same(const char *in, const char *out)
{
    static const char *const suffixes[] = {".bin",       ".idx",       ECH_TOKEN_ORIGIN,
                                           "-train.bin", "-train.idx", "-train" ECH_TOKEN_ORIGIN,
                                           "-valid.bin", "-valid.idx", "-valid" ECH_TOKEN_ORIGIN};
    struct stat from, to;
    if (stat(in, &from) != 0) ECH_FAIL(ECH_EIO, "%s: cannot read it: %s", in, strerror(errno));
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        char *path = ech_token_path(out, suffixes[i]);
        bool same = stat(path, &to) == 0 && from.st_dev == to.st_dev && from.st_ino == to.st_ino;
        free(path);
        if (same)
            ECH_FAIL(ECH_EUSAGE, "%s would be overwritten: give another prefix than %s", in, out);
    }
    return ECH_OK;
}

ech_status ech_texts_check_output(const char *in, const char *out)
{
    ECH_FREED char *place = ech_file_parent(out);
    const char *slash = strrchr(out, '/');
    ech_status st = ECH_OK;
    if (*out == '\0' || (slash && slash[1] == '\0'))
        st = ech_fail_at(__FILE__, __LINE__, ECH_EUSAGE, "\"%s\" is no prefix: add a name to it",
                         out);
    if (st == ECH_OK) st = ech_file_make_folder(place);
    if (st == ECH_OK && ech_file_is_folder(in))
        st = check_outside(in, place, out);
    else if (st == ECH_OK)
        st = check_not_same(in, out);
    return st;
}

void ech_texts_free(ech_texts *texts)
{
    for (size_t i = 0; i < texts->file.n; i++) free(texts->file.at[i].path);
    free(texts->file.at);
    *texts = (ech_texts){0};
}
