/* SPDX-License-Identifier: Apache-2.0
 *
 * A corpus of given token lists: each is a sample of its own, with its last targets alone.
 */
#include "data/data.h"
#include "unit.h"

enum { T = 5 };

TEST(test_samples_are_items)
{
    const int32_t a[] = {1, 2, 3}, b[] = {4, 5, 6, 7, 8, 9}, c[] = {10, 11};
    const ech_item items[] = {{a, 3, 1}, {b, 6, 5}, {c, 2, 1}};
    const int32_t tokens[3][T] = {{1, 2, 3}, {4, 5, 6, 7, 8}, {10, 11}};
    const int32_t targets[3][T] = {{2, 3}, {5, 6, 7, 8, 9}, {11}};
    const float weights[3][T] = {{0, 1}, {1, 1, 1, 1, 1}, {1}};
    const double counts[] = {1, 5, 1};
    ech_corpus *corpus;
    ech_loader *loader;
    assert_int_equal(ech_corpus_of_items(items, 3, T, &corpus), ECH_OK);
    assert_int_equal(ech_corpus_samples(corpus), 3);
    ech_loader_options options = {.sequence_length = T,
                                  .global_batch_size = 1,
                                  .micro_batch_size = 1,
                                  .data_degree = 1,
                                  .vocabulary = 12,
                                  .shares = 1,
                                  .last_position = 3,
                                  .prefetch = 1};
    assert_int_equal(ech_loader_create(corpus, &options, 0, &loader), ECH_OK);
    for (int s = 0; s < 3; s++) {
        const ech_batch *batch;
        assert_int_equal(ech_loader_next(loader, s, &batch), ECH_OK);
        assert_true(batch->step_tokens == counts[s]);
        assert_memory_equal(batch->tokens, tokens[s], sizeof tokens[s]);
        for (int t = 0; t < T; t++) assert_true(batch->weights[t] == weights[s][t]);
        for (int t = 0; t < T; t++)
            if (targets[s][t]) assert_int_equal(batch->targets[t], targets[s][t]);
    }
    ech_loader_destroy(loader);
    /* An id of another vocabulary is an error, as in files. */
    options.vocabulary = 9;
    assert_int_equal(ech_loader_create(corpus, &options, 0, &loader), ECH_OK);
    const ech_batch *batch;
    assert_int_equal(ech_loader_next(loader, 0, &batch), ECH_OK);
    assert_int_equal(ech_loader_next(loader, 1, &batch), ECH_EINPUT);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
}

ALL_TESTS(NULL, NULL)
