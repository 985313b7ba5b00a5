/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: reads files of text, plain or packed by gzip, with memory that does not depend on their size.
 */
#ifndef ECH_DATA_TEXT_FILE_H
#define ECH_DATA_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_text_file ech_text_file;

/* Whether the path ends in .gz: a file of one or several gzip members. */
bool ech_text_file_is_packed(const char *path);

/* *stored: the file's size. */
ech_status ech_text_file_open(const char *path, ech_text_file **out, int64_t *stored);
void ech_text_file_close(ech_text_file *file); /* accepts NULL */
ECH_DESTROY_AT(ech_text_file, ech_text_file_close)

/* *bytes: the size of its text. A packed file is unpacked for that, and its checksums are checked. */
ech_status ech_text_file_count(ech_text_file *file, int64_t *bytes);
/* Reads n bytes of the text from `at` on. A packed file is unpacked from its beginning if bytes before `at` were
 * read already. Errors name the file and where it is damaged or truncated. */
ech_status ech_text_file_read(ech_text_file *file, int64_t at, size_t n, void *bytes);

#endif
