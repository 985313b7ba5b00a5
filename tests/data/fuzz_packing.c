/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary bytes as a file that may be packed: refused, or a text that is the same however it is
 * read.
 * */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/fuzz_folder.h"
#include "data/text_file.h"
#include "data/text_kind.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

enum { MOST = 1 << 20 };

/* All at once, in pieces with gaps, and from the beginning again. */
static void read_text(ech_text_file *text, int64_t n)
{
    unsigned char *all = ech_calloc((size_t)n + 1, 1), piece[7];
    if (ech_text_file_read(text, 0, (size_t)n, all) != ECH_OK) abort();
    for (int64_t at = 0; at < n; at += 9) {
        size_t m = n - at < 7 ? (size_t)(n - at) : 7;
        if (ech_text_file_read(text, at, m, piece) != ECH_OK) abort();
        if (memcmp(piece, all + at, m) != 0) abort();
    }
    free(all);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    if (!folder[0]) make_folder();
    ech_log_set_quiet(true);
    write_source("t", bytes, n);
    char *path = ech_file_join(folder, "t");
    ech_text_file *text = NULL;
    int64_t stored, length;
    char first[64];
    size_t known;
    if (ech_text_file_open(path, &text, &stored) != ECH_OK || stored != (int64_t)n) abort();
    if (ech_text_file_peek(text, sizeof first, first, &known) == ECH_OK)
        ech_text_kind_of(path, first, known);
    if (ech_text_file_count(text, &length) == ECH_OK && length <= MOST) read_text(text, length);
    ech_text_file_close(text);
    free(path);
    return 0;
}
