/* SPDX-License-Identifier: Apache-2.0
 *
 * A fuzz target without a fuzzer: calls it with every file of a folder, and with each file's first
 * half. The sanitizers' build links it to each fuzz target (cmake/fuzz.cmake).
 *     replay CORPUS
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MOST_BYTES = 1 << 24 };

static int replay(const char *folder, const char *name)
{
    char path[4096], *bytes;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (ech_file_read(path, MOST_BYTES, &bytes, &n) != ECH_OK) return 1;
    /* Copies of the exact size, so that reading one byte more is seen. */
    for (size_t used = n;; used /= 2) {
        uint8_t *copy = malloc(used ? used : 1);
        if (!copy) abort();
        memcpy(copy, bytes, used);
        LLVMFuzzerTestOneInput(copy, used);
        free(copy);
        if (used < n || used == 0) break;
    }
    free(bytes);
    return 0;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    int files = 0, failed = 0;
    if (!folder) {
        fprintf(stderr, "usage: replay CORPUS, a folder\n");
        return 2;
    }
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.') {
            failed += replay(argv[1], entry->d_name);
            files++;
        }
    closedir(folder);
    printf("%d files of %s\n", files, argv[1]);
    return failed || files == 0;
}
