/* SPDX-License-Identifier: Apache-2.0
 *
 * Arbitrary texts as blends and as splits: refused, or paths with a weight each or none; shares in
 * order; and of the blend that the weights make, every source within one sample of its share.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/corpus.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* A period as short as this takes a thousandth of the time of a corpus' own, and is looked at from
 * end to end. */
enum { MOST_SOURCES = 16, PERIOD = 1 << 10 };

static void check_blend(const int64_t *weights, int sources)
{
    ech_blend blend;
    int64_t had[MOST_SOURCES] = {0};
    ech_blend_create(weights, sources, PERIOD, &blend);
    int64_t P = blend.period;
    if (P > PERIOD + sources) abort();
    for (int64_t g = 0; g < P; g++) {
        int64_t sample;
        int k = ech_blend_at(&blend, g, &sample);
        if (sample != had[k]++) abort();
        for (int i = 0; i < sources; i++)
            if (llabs(blend.count[i] * (g + 1) - had[i] * P) >= P && sources > 1) abort();
    }
    ech_blend_free(&blend);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_corpus_words words;
    int64_t bound[4];
    char *text = ech_calloc(n + 1, 1);
    memcpy(text, bytes, n);
    ech_log_set_quiet(true);
    if (ech_corpus_read_words("data.train", text, &words) == ECH_OK) {
        if (words.path.n == 0 || (words.weight.n && words.weight.n != words.path.n)) abort();
        for (size_t i = 0; i < words.weight.n; i++)
            if (words.weight.at[i] <= 0) abort();
        if (words.weight.n && words.path.n <= MOST_SOURCES)
            check_blend(words.weight.at, (int)words.path.n);
        ech_corpus_words_free(&words);
    }
    if (ech_text_to_bounds(text, bound)) {
        if (bound[0] != 0 || bound[3] <= 0) abort();
        for (int i = 0; i < 3; i++)
            if (bound[i] > bound[i + 1]) abort();
    }
    free(text);
    return 0;
}
