/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: the list of files that an import reads, and a check of its output's path.
 */
#ifndef ECH_DATA_TEXTS_H
#define ECH_DATA_TEXTS_H

#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct ech_data_text_file {
    char *path;
    int64_t bytes;                /* of its text, unpacked */
    int64_t stored;               /* of the file: another number if it is packed */
    int64_t seconds, nanoseconds; /* time of the last change, since 1970 */
} ech_data_text_file;

typedef struct ech_texts {
    ECH_LIST(ech_data_text_file) file;
    int64_t bytes; /* of all texts */
} ech_texts;

/* Lists the file `in`, or all regular files below the folder `in`, in the byte order of paths. Links to files are
 * followed; a link to a folder is an error, since it may lead to the same text twice, or into a cycle. Skipped are
 * hidden files and folders (".name") and, with a warning, dangling links. A .gz is unpacked once to find its text's
 * size. */
ech_status ech_texts_find(const char *in, ech_texts *out);
/* Checks that no file with the prefix `out` would overwrite `in`, or be inside of the folder `in`, where the next
 * import would read it. Makes the folder of `out` first. */
ech_status ech_texts_check_output(const char *in, const char *out);
void ech_texts_free(ech_texts *texts);

#endif
