/* SPDX-License-Identifier: Apache-2.0
 *
 * For data alone: texts that are packed with gzip, read in order with memory that does not depend
 * on their size.
 */
#ifndef ECH_DATA_GUNZIP_H
#define ECH_DATA_GUNZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct ech_gunzip ech_gunzip;

/* By its name. */
bool ech_gunzip_is_packed(const char *path);

/* Opens a file of one or several members of gzip, one behind the other; *stored: its own bytes. */
ech_status ech_gunzip_open(const char *path, ech_gunzip **out, int64_t *stored);
void ech_gunzip_close(ech_gunzip *gunzip); /* accepts NULL */

/* Reads it from end to end, checksums included: how many bytes its text has. */
ech_status ech_gunzip_count(ech_gunzip *gunzip, int64_t *bytes);
/* n bytes of the text from `at` on. What lies before `keep` <= at is dropped; who asks for it
 * later has the file read from the beginning again. Errors name the file and where it is damaged
 * or cut off. */
ech_status ech_gunzip_read(ech_gunzip *gunzip, int64_t keep, int64_t at, size_t n, void *bytes);

#endif
