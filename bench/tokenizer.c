/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures how fast one thread encodes text: bench_tokenizer SOURCE TEXT. The text is repeated up
 * to 64 MB and encoded in pieces of 1 MiB, as in an import. The best of five rounds counts, in
 * processor time of the thread. tokenizer.py compares it with Hugging Face's library.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/file.h"
#include "data/data.h"

enum { ROUNDS = 5, MOST_TEXT = 1 << 30, PIECE = 1 << 20 };
#define BYTES ((size_t)64000000)

static double core_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static char *repeat(const char *text, size_t n)
{
    char *all = ech_calloc(BYTES, 1);
    for (size_t at = 0; at < BYTES; at += n)
        memcpy(all + at, text, BYTES - at < n ? BYTES - at : n);
    return all;
}

static ech_status encode_all(const ech_tokenizer *tokenizer, const char *text, int64_t *tokens)
{
    ech_coder *coder = ech_coder_create(tokenizer);
    ech_ids ids = {0};
    ech_status status = ECH_OK;
    *tokens = 0;
    for (size_t at = 0, n; at < BYTES && status == ECH_OK; at += n) {
        size_t left = BYTES - at, most = left < PIECE ? left : PIECE;
        n = most == left ? left : ech_tokenizer_split(tokenizer, text + at, most);
        if (n == 0) n = left;
        ids.n = 0;
        status = ech_coder_encode(coder, text + at, n, at == 0, &ids);
        *tokens += (int64_t)ids.n;
    }
    free(ids.at);
    ech_coder_destroy(coder);
    return status;
}

int main(int argc, char **argv)
{
    ech_tokenizer *tokenizer;
    char *text;
    size_t n;
    if (argc != 3) {
        fprintf(stderr, "usage: %s SOURCE TEXT\n", argv[0]);
        return 2;
    }
    if (ech_tokenizer_open(argv[1], &tokenizer) != ECH_OK) return 2;
    if (ech_file_read(argv[2], MOST_TEXT, &text, &n) != ECH_OK || n == 0) return 2;
    char *all = repeat(text, n);
    double best = 0;
    int64_t tokens = 0;
    for (int round = 0; round < ROUNDS; round++) {
        double start = core_seconds();
        if (encode_all(tokenizer, all, &tokens) != ECH_OK) return 1;
        double rate = (double)BYTES / (core_seconds() - start) / 1e6;
        if (rate > best) best = rate;
    }
    printf("%.1f MB/s %lld tokens\n", best, (long long)tokens);
    free(all);
    free(text);
    ech_tokenizer_close(tokenizer);
    return 0;
}
