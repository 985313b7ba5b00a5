/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a .gz: refused, or a text that is the same however it is read.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/fuzz_folder.h"
#include "data/text_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MOST = 1 << 20 };

/* All at once, in pieces with gaps, and from the beginning again. */
static void read_text(ech_text_file *gunzip, int64_t n)
{
    unsigned char *all = ech_calloc((size_t)n + 1, 1), piece[7];
    if (ech_text_file_read(gunzip, 0, (size_t)n, all) != ECH_OK) abort();
    for (int64_t at = 0; at < n; at += 9) {
        size_t m = n - at < 7 ? (size_t)(n - at) : 7;
        if (ech_text_file_read(gunzip, at, m, piece) != ECH_OK) abort();
        if (memcmp(piece, all + at, m) != 0) abort();
    }
    free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (!folder[0]) make_folder();
    ech_log_set_quiet(true);
    write_source("t.gz", bytes, n);
    char *path = ech_file_join(folder, "t.gz");
    ech_text_file *gunzip = NULL;
    int64_t stored, length;
    if (ech_text_file_open(path, &gunzip, &stored) != ECH_OK || stored != (int64_t)n) abort();
    if (ech_text_file_count(gunzip, &length) == ECH_OK && length <= MOST) read_text(gunzip, length);
    ech_text_file_close(gunzip);
    free(path);
    return 0;
}
