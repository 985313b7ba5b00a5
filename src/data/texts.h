/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: which files an import reads, and may write.
 */
#ifndef ECH_DATA_TEXTS_H
#define ECH_DATA_TEXTS_H

#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"

typedef struct ech_data_text_file {
    char *path;
    int64_t bytes;                /* of its text */
    int64_t stored;               /* of the file: less where it is packed */
    int64_t seconds, nanoseconds; /* when it was changed last */
} ech_data_text_file;

typedef struct ech_texts {
    ECH_LIST(ech_data_text_file) file;
    int64_t bytes; /* of all together */
} ech_texts;

/* The file `in`, or every regular file below the folder `in`, ascending by path (compared byte
 * by byte, so everywhere the same). Links to files are read; a link to a folder is an error,
 * since what is behind it may be the same text again, or endless. In folders hidden files and
 * folders, whose names begin with a dot, are left out, and so, with a warning, are links to
 * nothing. Of a .gz, which is read once for it, the text counts. */
ech_status ech_texts_find(const char *in, ech_texts *out);
/* Makes the folder of the prefix `out`. What is written there must be neither what is read nor, if
 * `in` is a folder, lie in it, where the next import would read it. */
ech_status ech_texts_check_output(const char *in, const char *out);
void ech_texts_free(ech_texts *texts);

#endif
