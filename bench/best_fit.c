/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the time of packing a million documents into samples by best fit, for three lengths of
 * samples. Lengths of documents are log-normal, with a median of 400 tokens; longer documents than
 * a sample are truncated.
 *
 *     cmake --build build/release --target bench_best_fit && build/release/bench/bench_best_fit
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/random.h"
#include "data/documents.h"

enum { DOCUMENTS = 1000000 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* About normal, as a sum of twelve. */
static double draw_normal(uint64_t i)
{
    double sum = -6;
    for (uint64_t k = 0; k < 12; k++)
        sum += ech_random_unit(ech_random_word((ech_random_key){.seed = 1}, 12 * i + k));
    return sum;
}

int main(void)
{
    static const int64_t lengths[] = {2048, 8192, 131072};
    ech_token_runs runs = {.documents = true};
    for (uint64_t i = 0; i < DOCUMENTS; i++) {
        double tokens = ceil(400 * exp(1.2 * draw_normal(i)));
        ech_token_runs_add(&runs, runs.tokens, (int64_t)tokens, true, false);
    }
    printf("%d documents, %lld tokens\n", (int)DOCUMENTS, (long long)runs.tokens);
    for (int k = 0; k < 3; k++) {
        ech_documents documents;
        double start = now();
        ech_documents_pack(&runs, lengths[k], false, &documents);
        double seconds = now() - start;
        int64_t samples = ech_documents_samples(&documents);
        printf("samples of %6lld tokens: %.2f s, %8lld samples, %.4f%% padding, %.2f%% truncated\n",
               (long long)lengths[k], seconds, (long long)samples,
               100 - 100.0 * (double)documents.tokens / ((double)samples * (double)lengths[k]),
               100.0 * (double)(runs.tokens - documents.tokens) / (double)runs.tokens);
        ech_documents_free(&documents);
    }
    free(runs.run.at);
    return 0;
}
