/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: the list of files that an import reads, and a check of its output's path.
 */
#ifndef ECH_DATA_TEXTS_H
#define ECH_DATA_TEXTS_H

#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/data.h"
#include "data/text_kind.h"

typedef struct ech_data_text_file {
    char *path; /* first, for ech_text_compare */
    ech_text_form form;
    int64_t bytes;                /* of its text, unpacked */
    int64_t stored;               /* size of the file, which differs if it is packed */
    int64_t seconds, nanoseconds; /* time of the last change, since 1970 */
} ech_data_text_file;

typedef struct ech_texts {
    ECH_LIST(ech_data_text_file) file;
    int64_t bytes; /* of all texts */
} ech_texts;

/* Lists the file source->in, or the regular files below the folder, in the byte order of paths.
 * Links to files are followed; a link to a folder is an error, since it may lead to the same text
 * twice, or into a cycle. Of a folder are skipped: hidden files and folders (".name"); with a
 * warning, dangling links and files whose kind is not to be read there (data/text_kind.h;
 * source->as_text and binary choose more). A packed file is unpacked once to find its text's size.
 * Errors: a kind that is not read. */
ech_status ech_texts_find(const ech_data_text_source *source, ech_texts *out);
/* Checks that no file with the prefix `out` would overwrite `in`, or be inside of the folder `in`,
 * where the next import would read it. Makes the folder of `out` first. */
ech_status ech_texts_check_output(const char *in, const char *out);
void ech_texts_free(ech_texts *texts);

#endif
