/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to data: reads text of gzip files in order, with memory that does not depend on their size.
 */
#ifndef ECH_DATA_GUNZIP_H
#define ECH_DATA_GUNZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_gunzip ech_gunzip;

/* Whether the path ends in .gz. */
bool ech_gunzip_is_packed(const char *path);

/* Opens a file of one or several gzip members; *stored: the file's size. */
ech_status ech_gunzip_open(const char *path, ech_gunzip **out, int64_t *stored);
void ech_gunzip_close(ech_gunzip *gunzip); /* accepts NULL */

/* Unpacks the whole file, checking its checksums; *bytes: the size of its text. */
ech_status ech_gunzip_count(ech_gunzip *gunzip, int64_t *bytes);
/* Reads n bytes of the text from `at` on. The bytes before `needed` <= at are dropped: to read these later, the file
 * is unpacked from its beginning. Errors name the file and where it is damaged or truncated. */
ech_status ech_gunzip_read(ech_gunzip *gunzip, int64_t needed, int64_t at, size_t n, void *bytes);

#endif
