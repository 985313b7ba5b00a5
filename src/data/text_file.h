/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: reads files of text, plain or packed (data/packing.h), with memory that does not
 * depend on their size. A file's text is what is packed in it, or all of a plain file.
 * */
#ifndef ECH_DATA_TEXT_FILE_H
#define ECH_DATA_TEXT_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_text_file ech_text_file;

/* *stored: the file's size in bytes, packed if it is. Errors: a packing that this build cannot
 * unpack; a name that ends in .gz, .zst, .xz or .bz2 although the first bytes differ. */
ech_status ech_text_file_open(const char *path, ech_text_file **out, int64_t *stored);
void ech_text_file_close(ech_text_file *file); /* accepts NULL */
ECH_DESTROY_AT(ech_text_file, ech_text_file_close)

/* *bytes: the size of its text. For this, a packed file is unpacked completely, which checks its
 * checksums. */
ech_status ech_text_file_count(ech_text_file *file, int64_t *bytes);
/* Reads exactly n bytes of the text from byte `at` on. Reading a packed file backwards (`at` before
 * the end of the last read) unpacks it again from its beginning. Errors name the file and where it
 * is damaged or truncated. */
ech_status ech_text_file_read(ech_text_file *file, int64_t at, size_t n, void *bytes);
/* Reads the first `most` bytes of the text; *n: their number, smaller only if the text is
 * shorter. */
ech_status ech_text_file_peek(ech_text_file *file, size_t most, void *bytes, size_t *n);

#endif
