/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of features, in token files: a document is a sample, of ids and a label.
 */
#include <string.h>

#include "data/samples.h"

/* Bytes of a source's files that are held in memory. The samples of a step are short and lie
 * anywhere, so that reading them from files takes longer than training on them. */
enum { MOST_HELD = 1 << 28 };

/* Checks a file whose documents are samples: each has features, which are a prompt, and then a
 * label. *samples: how many. */
static ech_status count_examples(const ech_corpus_options *options, const char *path,
                                 const ech_token_file *file, int64_t *samples)
{
    int64_t longest = 0, which = 0, n = (int64_t)file->runs.run.n;
    for (int64_t i = 0; i < n; i += 2) {
        const ech_token_run *run = &file->runs.run.at[i];
        bool whole = i + 1 < n && run[0].opens && run[0].silent && !run[1].opens && !run[1].silent;
        int64_t label = whole ? run[1].first : 0;
        if (!whole || ech_token_run_end(&file->runs, (size_t)i + 1) != label + 1)
            ECH_FAIL(ECH_EINPUT,
                     "%s: document %lld of %s is no sample of features and one label: damaged; "
                     "make it again with `echelon data`",
                     options->key, (long long)i / 2, path);
        if (label - run->first <= longest) continue;
        longest = label - run->first;
        which = i / 2;
    }
    if (longest > options->sequence_length)
        ECH_FAIL(ECH_EUSAGE,
                 "data.sequence_length = %lld: sample %lld of %s has %lld features, the most of "
                 "all; use %lld",
                 (long long)options->sequence_length, (long long)which, path, (long long)longest,
                 (long long)longest);
    *samples = n / 2;
    return ECH_OK;
}

static ech_status open_features(const ech_corpus_options *options, const char *path,
                                ech_source *source)
{
    ECH_ASSERT(!options->whole_documents);
    ECH_TRY(ech_source_open_tokens(options, path, true, source));
    ECH_TRY(count_examples(options, path, source->file, &source->samples));
    ECH_TRY(ech_token_file_hold(source->file, MOST_HELD));
    if (source->samples == 0)
        ECH_FAIL(ECH_EINPUT, "%s: %s has no sample%s; use more data", options->key, path,
                 options->split[0] ? " in this part of the split" : "");
    return ECH_OK;
}

/* Labels are in the files like tokens. */
static void measure(const ech_source *source, ech_source_counts *out)
{
    const ech_token_runs *runs = &source->file->runs;
    *out = (ech_source_counts){.units = runs->tokens - source->samples,
                               .targets = source->samples,
                               .documents = ech_token_runs_documents(runs)};
}

static size_t scratch_bytes(const ech_loader_options *options)
{
    return ((size_t)options->sequence_length + 1) * sizeof(int32_t);
}

static ech_status read_features(const ech_source *source, const ech_loader_options *options,
                                int64_t position, int64_t s, void *scratch, const ech_batch *batch,
                                int64_t row)
{
    const ech_token_file *file = source->file;
    int32_t *ids = scratch;
    const ech_token_run *run = &file->runs.run.at[2 * s];
    int64_t at = row * options->sequence_length, n = run[1].first - run[0].first;
    size_t padding = (size_t)(options->sequence_length - n);
    (void)position;
    ECH_TRY(ech_token_file_read_run(file, (size_t)(2 * s), n + 1, options->vocabulary, ids));
    ECH_TRY(ech_token_file_read_values(file, (size_t)(2 * s), n, batch->values + at));
    if (ids[n] > 1)
        ECH_FAIL(ECH_EINPUT,
                 "%s: the label of sample %lld is %d, neither 0 nor 1: damaged; make it again with "
                 "`echelon data`",
                 file->part.at[0].path, (long long)s, (int)ids[n]);
    memcpy(batch->tokens + at, ids, (size_t)n * sizeof *ids);
    memset(batch->tokens + at + n, 0, padding * sizeof *batch->tokens);
    memset(batch->values + at + n, 0, padding * sizeof *batch->values);
    batch->targets[row] = ids[n];
    batch->weights[row] = 1;
    batch->lengths[row] = (int32_t)n;
    return ECH_OK;
}

static void prefetch(const ech_source *source, int64_t s)
{
    const ech_token_run *run = &source->file->runs.run.at[2 * s];
    ech_token_file_prefetch(source->file, (size_t)(2 * s), run[1].first - run[0].first + 1);
}

const ech_data_kind ech_data_kind_features = {.open = open_features,
                                              .measure = measure,
                                              .scratch = scratch_bytes,
                                              .fills = true,
                                              .read = read_features,
                                              .prefetch = prefetch,
                                              .identify = ech_source_identify_tokens};
