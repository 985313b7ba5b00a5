/* SPDX-License-Identifier: Apache-2.0
 *
 * Listing the texts in folders, in an order that does not depend on the file system.
 */
#include "data/texts.h"

#include <errno.h>
#include <fts.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "data/text_file.h"
#include "data/token_index.h"
#include "data/token_origin.h"

enum { DEEPEST_FOLDER = 256 };

static ech_status add_entry(ech_texts *texts, FTS *tree, FTSENT *entry)
{
    const char *path = entry->fts_path;
    struct stat info = *entry->fts_statp;
    int why = entry->fts_errno;
    switch (entry->fts_info) {
    case FTS_DP:
        return ECH_OK;
    case FTS_NS:
    case FTS_SLNONE:
        ECH_FAIL(ECH_EIO, "%s: cannot read it: %s", path, ech_system_error(why));
    case FTS_DNR:
        ECH_FAIL(ECH_EIO, "%s: cannot open the folder: %s", path, ech_system_error(why));
    }
    if (entry->fts_level > 0 && entry->fts_name[0] == '.') {
        fts_set(tree, entry, FTS_SKIP);
    } else if (entry->fts_level > DEEPEST_FOLDER && S_ISDIR(info.st_mode)) {
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: more than %d folders deep; import the folders below it one by one", path,
                 (int)DEEPEST_FOLDER);
    } else if (S_ISLNK(info.st_mode) && stat(path, &info) != 0) {
        ech_log_warn("%s: left out: the target of the link does not exist", path);
    } else if (S_ISREG(info.st_mode)) {
        ECH_PUSH(texts->file, (ech_data_text_file){.path = ech_strdup(path),
                                                   .seconds = info.st_mtim.tv_sec,
                                                   .nanoseconds = info.st_mtim.tv_nsec});
    } else if (!S_ISDIR(info.st_mode)) {
        ECH_FAIL(ECH_EUSAGE,
                 "%s: neither a regular file nor a folder: write the text to a file first", path);
    } else if (entry->fts_info == FTS_SL) {
        ECH_FAIL(ECH_EUSAGE, "%s: a link to a folder: import that folder itself, or copy it here",
                 path);
    }
    return ECH_OK;
}

static void close_tree(FTS **tree)
{
    if (*tree) fts_close(*tree);
}

static ech_status add_tree(ech_texts *texts, const char *in)
{
    ECH_FREED char *path = ech_strdup(in);
    char *const roots[] = {path, NULL};
    ECH_CLEANUP(close_tree)
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_NOCHDIR, NULL);
    for (FTSENT *entry; tree && (entry = fts_read(tree));) ECH_TRY(add_entry(texts, tree, entry));
    if (errno != 0) ECH_FAIL(ECH_EIO, "%s: cannot list: %s", in, ech_system_error(errno));
    return ECH_OK;
}

/* ---- what of the list is read ---- */

/* The kind of a file, from its first n bytes of text. */
static ech_text_kind find_kind(const ech_data_text_source *source, const char *path,
                               const char *first, size_t n)
{
    ech_text_kind kind = ech_text_kind_of(path, first, n);
    bool foreign = kind.use == ECH_TEXT_FOREIGN || kind.use == ECH_TEXT_DATA;
    bool chosen = foreign ? source->binary : source->as_text;
    return chosen ? (ech_text_kind){.form = ECH_TEXT_PLAIN} : kind;
}

/* Whether a file of this kind is read; `named`: it is the only one, by the user's word. */
static ech_status decide(const ech_data_text_file *file, ech_text_kind kind, bool named, bool *read)
{
    bool aside = kind.use == ECH_TEXT_ASIDE;
    *read = kind.use == ECH_TEXT_READ || (named && aside && !kind.hint);
    if (*read) return ECH_OK;
    if (named || kind.use == ECH_TEXT_DATA)
        ECH_FAIL(ECH_EINPUT, "%s: is %s; %s", file->path, kind.is, kind.hint);
    return ECH_OK;
}

static ech_status measure(const ech_data_text_source *source, bool named, ech_data_text_file *file,
                          ech_text_kind *kind, bool *read)
{
    ECH_CLEANUP(ech_text_file_close_at) ech_text_file *text = NULL;
    ECH_FREED char *first = ech_calloc(ECH_TEXT_KIND_FIRST, 1);
    size_t n;
    ECH_TRY(ech_text_file_open(file->path, &text, &file->stored));
    ECH_TRY(ech_text_file_peek(text, ECH_TEXT_KIND_FIRST, first, &n));
    *kind = find_kind(source, file->path, first, n);
    file->form = kind->form;
    ECH_TRY(decide(file, *kind, named, read));
    return *read ? ech_text_file_count(text, &file->bytes) : ECH_OK;
}

/* Keeps the files that are read. */
static ech_status choose(const ech_data_text_source *source, ech_texts *texts)
{
    enum { MOST_SHOWN = 10 };
    bool named = !ech_file_is_folder(source->in), read;
    size_t n = texts->file.n, left_out = 0;
    for (size_t i = 0; i < n; i++) {
        ech_data_text_file *file = &texts->file.at[i];
        ech_text_kind kind;
        ECH_TRY(measure(source, named, file, &kind, &read));
        if (!read && left_out++ < MOST_SHOWN)
            ech_log_warn("%s: left out: it is %s%s", file->path, kind.is,
                         kind.use == ECH_TEXT_ASIDE ? "; --as-text reads it" : "");
        if (!read) continue;
        texts->bytes += file->bytes;
        ech_data_text_file kept = texts->file.at[i - left_out];
        texts->file.at[i - left_out] = *file;
        *file = kept; /* freed with the others */
    }
    for (size_t i = n - left_out; i < n; i++) free(texts->file.at[i].path);
    texts->file.n = n - left_out;
    if (left_out > MOST_SHOWN)
        ech_log_warn("%s: %zu files are left out; %d are named above", source->in,
                     left_out, MOST_SHOWN);
    return ECH_OK;
}

ech_status ech_texts_find(const ech_data_text_source *source, ech_texts *out)
{
    ECH_CLEANUP(ech_texts_free) ech_texts texts = {0};
    ECH_TRY(add_tree(&texts, source->in));
    if (texts.file.n > 1)
        qsort(texts.file.at, texts.file.n, sizeof *texts.file.at, ech_text_compare);
    ECH_TRY(choose(source, &texts));
    *out = texts;
    texts = (ech_texts){0};
    return ECH_OK;
}

ech_status ech_data_count_texts(const ech_data_text_source *source, int64_t *files, int64_t *bytes)
{
    ECH_CLEANUP(ech_texts_free) ech_texts texts = {0};
    ECH_TRY(ech_texts_find(source, &texts));
    if (texts.bytes == 0)
        ECH_FAIL(ECH_EINPUT, "%s: has no text in it; name a file or folder with text", source->in);
    *files = (int64_t)texts.file.n;
    *bytes = texts.bytes;
    return ECH_OK;
}

static ech_status find_real(const char *path, char real[PATH_MAX])
{
    if (!realpath(path, real))
        ECH_FAIL(ECH_EIO, "%s: cannot be resolved: %s", path, ech_system_error(errno));
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
    struct stat from;
    if (stat(in, &from) != 0)
        ECH_FAIL(ECH_EIO, "%s: cannot read it: %s", in, ech_system_error(errno));
    for (size_t i = 0; i < sizeof suffixes / sizeof suffixes[0]; i++) {
        ECH_FREED char *path = ech_token_path(out, suffixes[i]);
        if (ech_file_are_same(in, path))
            ECH_FAIL(ECH_EUSAGE, "%s would be overwritten: give another prefix than %s", in, out);
    }
    return ECH_OK;
}

ech_status ech_texts_check_output(const char *in, const char *out)
{
    ECH_FREED char *folder = ech_file_parent(out);
    const char *slash = strrchr(out, '/');
    if (*out == '\0' || (slash && slash[1] == '\0'))
        ECH_FAIL(ECH_EUSAGE, "\"%s\" is no prefix; add a name to it, as in DIR/NAME", out);
    ECH_TRY(ech_file_make_folder(folder));
    return ech_file_is_folder(in) ? check_outside(in, folder, out) : check_not_same(in, out);
}

void ech_texts_free(ech_texts *texts)
{
    for (size_t i = 0; i < texts->file.n; i++) free(texts->file.at[i].path);
    free(texts->file.at);
    *texts = (ech_texts){0};
}
