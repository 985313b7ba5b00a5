/* SPDX-License-Identifier: Apache-2.0
 *
 * For targets that open files: a folder for them, in memory where there is such a place, gone at
 * the end.
 */
#ifndef ECH_TESTS_DATA_FUZZ_FOLDER_H
#define ECH_TESTS_DATA_FUZZ_FOLDER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"

static char folder[256];

static inline void remove_folder(void)
{
    ech_file_remove_all(folder);
}

static inline void make_folder(void)
{
    const char *root = ech_file_is_folder("/dev/shm") ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%s/ech-fuzz-XXXXXX", root);
    if (!mkdtemp(folder)) abort();
    atexit(remove_folder);
}

static inline void write_source(const char *name, const void *bytes, size_t n)
{
    char *path = ech_file_join(folder, name);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, n, file) != n || fclose(file) != 0) abort();
    free(path);
}

#endif
