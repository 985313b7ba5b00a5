/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole documents as samples: the packing against one that tries all bins, what a sample has, which
 * documents are used, and the counts of a run.
 */
#include "data/documents.h"
#include "data/loaders.h"

#include "base/random.h"

/* ---- best fit ---- */

enum { ITEMS = 300, MOST_BINS = ITEMS };

/* By the rule's words: each item, by descending length, goes into the fullest bin that it fits; of
 * several, into the one that got its last item first. */
static int64_t pack_naively(const int32_t *length, int64_t n, int32_t capacity, int64_t *bin)
{
    int64_t room[MOST_BINS], since[MOST_BINS], bins = 0, number[MOST_BINS], known = 0, step = 0;
    for (int64_t i = 0; i < n; i++) bin[i] = -1;
    for (int32_t wanted = capacity; wanted > 0; wanted--) {
        for (int64_t i = 0; i < n; i++) {
            int64_t best = -1;
            if (length[i] != wanted) continue;
            for (int64_t b = 0; b < bins; b++) {
                if (room[b] < wanted) continue;
                bool better = best < 0 || room[b] < room[best] ||
                              (room[b] == room[best] && since[b] < since[best]);
                if (better) best = b;
            }
            if (best < 0) room[best = bins++] = capacity;
            room[best] -= wanted;
            since[best] = step++;
            bin[i] = best;
        }
    }
    for (int64_t b = 0; b < bins; b++) number[b] = -1;
    for (int64_t i = 0; i < n; i++) {
        if (number[bin[i]] < 0) number[bin[i]] = known++;
        bin[i] = number[bin[i]];
    }
    return bins;
}

TEST(test_best_fit_against_all_bins)
{
    static const int32_t capacities[] = {1, 2, 7, 63, 64, 65, 200, 4096, 5000, 300000};
    int32_t length[ITEMS];
    int64_t bin[ITEMS], expected[ITEMS];
    for (size_t c = 0; c < sizeof capacities / sizeof *capacities; c++) {
        for (uint64_t seed = 0; seed < 20; seed++) {
            int64_t n = (int64_t)(seed < 2 ? seed : ITEMS - seed);
            /* Of all lengths; or of short ones, which come often. */
            uint64_t most = (uint64_t)capacities[c] >> (seed % 2 ? 0 : 3);
            for (int64_t i = 0; i < n; i++) {
                uint64_t word = ech_random_word((ech_random_key){.seed = seed}, (uint64_t)i);
                length[i] = (int32_t)(word % (most ? most : 1)) + 1;
            }
            int64_t bins = pack_naively(length, n, capacities[c], expected);
            assert_int_equal(ech_best_fit(length, n, capacities[c], bin), bins);
            for (int64_t i = 0; i < n; i++) assert_int_equal(bin[i], expected[i]);
        }
    }
}

/* 9, 6 and 5 open bins; 4 fits 6 exactly, 3 and 2 fill 5 up, and 1 goes to 9. */
TEST(test_best_fit_spelled_out)
{
    const int32_t length[] = {3, 9, 2, 6, 4, 1, 5};
    const int64_t expected[] = {0, 1, 0, 2, 2, 1, 0};
    int64_t bin[7];
    assert_int_equal(ech_best_fit(length, 7, 10, bin), 3);
    for (int i = 0; i < 7; i++) assert_int_equal(bin[i], expected[i]);
}

/* ---- samples ---- */

/* Documents of these lengths, of which the first third of tokens is a prompt; ids count on. */
static const int64_t lengths[] = {5, 12, 1, 9, 3, 30, 2, 8, 8, 1, 13, 4, 10, 7};
enum { DOCUMENTS = sizeof lengths / sizeof *lengths, LENGTH = 10 };

static bool is_prompt(int64_t document, int64_t i)
{
    return i < lengths[document] / 3;
}

static int64_t first_of(int64_t document)
{
    int64_t first = 0;
    for (int64_t d = 0; d < document; d++) first += lengths[d];
    return first;
}

static void write_documents(const char *name)
{
    ech_token_writer *writer;
    int32_t id = 0;
    assert_int_equal(ech_token_writer_create(in_scratch(name), 1000, &writer), ECH_OK);
    for (int64_t d = 0; d < DOCUMENTS; d++) {
        for (int64_t i = 0; i < lengths[d]; i++, id++)
            assert_int_equal(is_prompt(d, i) ? ech_token_writer_add_prompt(writer, &id, 1)
                                             : ech_token_writer_add(writer, &id, 1),
                             ECH_OK);
        assert_int_equal(ech_token_writer_end_document(writer), ECH_OK);
    }
    assert_int_equal(ech_token_writer_finish(writer), ECH_OK);
}

static ech_corpus *open_whole(const char *name, bool drops, const char *split, ech_split part)
{
    ech_corpus_options options = {.key = "data.train",
                                  .sources = in_scratch(name),
                                  .split = split,
                                  .part = part,
                                  .sequence_length = LENGTH,
                                  .document_mask = true,
                                  .whole_documents = true,
                                  .drop_longer = drops};
    ech_corpus *corpus;
    assert_int_equal(ech_corpus_open(&options, &corpus), ECH_OK);
    return corpus;
}

static ech_loader_options whole_options(void)
{
    ech_loader_options options = sample_options();
    options.sequence_length = LENGTH;
    options.document_mask = true;
    options.shuffle = false;
    options.global_batch_size = options.micro_batch_size = 1;
    return options;
}

static int64_t document_of(int64_t token)
{
    int64_t d = 0;
    while (first_of(d + 1) <= token) d++;
    return d;
}

/* Checks a document that begins at place *t of a row; moves *t after it. Returns its targets. */
static int64_t check_document(const ech_batch *batch, int64_t *t, int64_t d)
{
    int64_t n = lengths[d] < LENGTH ? lengths[d] : LENGTH, begin = *t, counted = 0;
    for (int64_t i = 0; i < n; i++, ++*t) {
        bool pair = i + 1 < n, counts = pair && !is_prompt(d, i + 1);
        assert_int_equal(batch->tokens[*t], first_of(d) + i);
        assert_int_equal(batch->targets[*t], pair ? first_of(d) + i + 1 : 0);
        assert_true(batch->weights[*t] == (counts ? 1.0f : 0.0f));
        assert_int_equal(batch->starts[*t], begin);
        counted += counts;
    }
    return counted;
}

/* Checks all samples; returns the documents that they have, as bits. */
static uint64_t check_samples(const ech_corpus *corpus, int64_t *tokens, int64_t *targets)
{
    uint64_t seen = 0;
    int64_t before = -1;
    ech_loader *loader = start(corpus, whole_options(), 0);
    *tokens = *targets = 0;
    for (int64_t s = 0; s < ech_corpus_samples(corpus); s++) {
        const ech_batch *batch = next(loader, s);
        int64_t t = 0, counted = 0, last = -1;
        while (t < batch->lengths[0]) {
            int64_t d = document_of(batch->tokens[t]);
            assert_false(seen >> d & 1);
            assert_true(d > last); /* in the order of the stream */
            if (last < 0) assert_true(d > before);
            if (last < 0) before = d;
            last = d;
            seen |= UINT64_C(1) << d;
            counted += check_document(batch, &t, d);
        }
        assert_true(batch->step_tokens == (double)counted);
        *tokens += t;
        *targets += counted;
        for (int64_t used = t; t < LENGTH; t++) {
            assert_int_equal(batch->tokens[t] | batch->targets[t], 0);
            assert_true(batch->weights[t] == 0.0f);
            assert_int_equal(batch->starts[t], used);
        }
    }
    ech_loader_destroy(loader);
    return seen;
}

TEST(test_samples_of_whole_documents)
{
    write_documents("w");
    for (int drops = 0; drops < 2; drops++) {
        ech_corpus *corpus = open_whole("w", drops, "", ECH_SPLIT_TRAIN);
        ech_corpus_counts counts;
        uint64_t expected = 0;
        int64_t tokens, targets;
        for (int64_t d = 0; d < DOCUMENTS; d++)
            if (!drops || lengths[d] <= LENGTH) expected |= UINT64_C(1) << d;
        assert_int_equal(check_samples(corpus, &tokens, &targets), expected);
        ech_corpus_count(corpus, 3 * ech_corpus_samples(corpus), &counts);
        assert_true(counts.tokens == 3.0 * (double)tokens);
        assert_true(counts.targets == 3.0 * (double)targets);
        assert_true(counts.padding == 3.0 * (double)(ech_corpus_samples(corpus) * LENGTH - tokens));
        assert_true(counts.least_epochs == 3 && counts.most_epochs == 3);
        assert_int_equal(counts.documents, DOCUMENTS);
        assert_int_equal(counts.longer, 3);
        assert_int_equal(counts.left_out, drops ? 12 + 30 + 13 : 2 + 20 + 3);
        assert_int_equal(ech_corpus_samples(corpus), drops ? 6 : 9);
        ech_corpus_close(corpus);
    }
}

/* Each document is in one part of a split, whole. */
TEST(test_parts_of_a_split)
{
    uint64_t all = 0;
    write_documents("w");
    for (int part = 0; part < 3; part++) {
        int64_t tokens, targets;
        ech_corpus *corpus = open_whole("w", false, "8,3,3", (ech_split)part);
        ech_loader *loader = start(corpus, whole_options(), 0);
        for (int64_t s = 0; s < ech_corpus_samples(corpus); s++) {
            const ech_batch *batch = next(loader, s);
            for (int64_t t = 0; t < batch->lengths[0]; t++)
                if (batch->starts[t] == t) all |= UINT64_C(1) << document_of(batch->tokens[t]);
        }
        ech_loader_destroy(loader);
        assert_true((check_samples(corpus, &tokens, &targets) & ~all) == 0);
        ech_corpus_close(corpus);
    }
    assert_int_equal(all, (UINT64_C(1) << DOCUMENTS) - 1);
}

/* Files without an index: documents are between ends of text. Every token comes once an epoch in a
 * shuffled order, which a loader that begins later has, too. */
TEST(test_plain_files_and_epochs)
{
    enum { PLAIN = 120 };
    uint16_t ids[PLAIN];
    int seen[2][PLAIN] = {{0}};
    for (int i = 0; i < PLAIN; i++) ids[i] = (uint16_t)(i % 7 == 3 || i % 11 == 1 ? 999 : i);
    write_file("plain.bin", ids, sizeof ids);
    ech_corpus_options wanted = {.key = "data.train",
                                 .sources = in_scratch("plain.bin"),
                                 .split = "",
                                 .sequence_length = LENGTH,
                                 .end_of_text = 999,
                                 .document_mask = true,
                                 .whole_documents = true};
    ech_corpus *corpus;
    assert_int_equal(ech_corpus_open(&wanted, &corpus), ECH_OK);
    ech_loader_options options = whole_options();
    options.shuffle = true;
    int64_t samples = ech_corpus_samples(corpus);
    ech_loader *loader = start(corpus, options, 0);
    ECH_FREED int32_t *first = ech_calloc((size_t)samples, LENGTH * sizeof *first);
    for (int64_t s = 0; s < 2 * samples; s++) {
        const ech_batch *batch = next(loader, s);
        for (int64_t t = 0; t < batch->lengths[0]; t++)
            if (batch->tokens[t] != 999) seen[s / samples][batch->tokens[t]]++;
        if (s >= samples)
            memcpy(first + (s - samples) * LENGTH, batch->tokens, LENGTH * sizeof *first);
    }
    ech_loader_destroy(loader);
    for (int i = 0; i < PLAIN; i++)
        for (int epoch = 0; epoch < 2; epoch++)
            assert_int_equal(seen[epoch][i], ids[i] != 999 ? 1 : 0);
    loader = start(corpus, options, samples);
    for (int64_t s = 0; s < samples; s++)
        assert_memory_equal(next(loader, samples + s)->tokens, first + s * LENGTH,
                            LENGTH * sizeof *first);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

TEST(test_all_documents_are_dropped)
{
    ech_token_writer *writer;
    const int32_t ids[LENGTH + 1] = {0};
    assert_int_equal(ech_token_writer_create(in_scratch("long"), 1000, &writer), ECH_OK);
    assert_int_equal(ech_token_writer_add(writer, ids, LENGTH + 1), ECH_OK);
    assert_int_equal(ech_token_writer_end_document(writer), ECH_OK);
    assert_int_equal(ech_token_writer_finish(writer), ECH_OK);
    ech_corpus_options options = {.key = "data.train",
                                  .sources = in_scratch("long"),
                                  .split = "",
                                  .sequence_length = LENGTH,
                                  .document_mask = true,
                                  .whole_documents = true,
                                  .drop_longer = true};
    ech_corpus *corpus;
    assert_int_equal(ech_corpus_open(&options, &corpus), ECH_EINPUT);
    assert_error_has("have more than data.sequence_length = 10 tokens");
    options.drop_longer = false;
    assert_int_equal(ech_corpus_open(&options, &corpus), ECH_OK);
    ech_corpus_close(corpus);
}

/* An answer after a prompt that fills the sample. */
TEST(test_all_targets_are_left_out)
{
    ech_token_writer *writer;
    const int32_t ids[LENGTH + 1] = {0};
    assert_int_equal(ech_token_writer_create(in_scratch("late"), 1000, &writer), ECH_OK);
    assert_int_equal(ech_token_writer_add_prompt(writer, ids, LENGTH + 1), ECH_OK);
    assert_int_equal(ech_token_writer_add(writer, ids, 3), ECH_OK);
    assert_int_equal(ech_token_writer_end_document(writer), ECH_OK);
    assert_int_equal(ech_token_writer_finish(writer), ECH_OK);
    ech_corpus_options options = {.key = "data.train",
                                  .sources = in_scratch("late"),
                                  .split = "",
                                  .sequence_length = LENGTH,
                                  .document_mask = true,
                                  .whole_documents = true};
    ech_corpus *corpus;
    assert_int_equal(ech_corpus_open(&options, &corpus), ECH_EINPUT);
    assert_error_has("no target in samples of data.sequence_length = 10 tokens: with data.packing "
                     "= documents its 3 targets are left out");
    options.sequence_length = LENGTH + 2;
    assert_int_equal(ech_corpus_open(&options, &corpus), ECH_OK);
    ech_corpus_close(corpus);
}

/* Streams are counted, too; the padding is of the last sample. */
TEST(test_counts_of_a_stream)
{
    ech_corpus_counts counts;
    ech_corpus *corpus = counting_corpus("t", TOKENS);
    ech_corpus_count(corpus, SAMPLES / 2, &counts);
    assert_int_equal(counts.samples, SAMPLES / 2);
    assert_int_equal(counts.epoch_samples, SAMPLES);
    assert_true(counts.tokens == 79 && counts.targets == 79 && counts.padding == 1);
    assert_true(counts.least_epochs == 0.5 && counts.most_epochs == 0.5);
    assert_int_equal(counts.longer + counts.left_out, 0);
    ech_corpus_close(corpus);
}
