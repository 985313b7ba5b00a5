/* SPDX-License-Identifier: Apache-2.0
 *
 * A tiny run of the library. After cmocka.h.
 */
#ifndef ECH_TESTS_LIBRARY_TINY_RUN_H
#define ECH_TESTS_LIBRARY_TINY_RUN_H

#include <echelon.h>

#include "app/fixture.h"
#include "unit.h"

enum { STEPS = 4 };

static const char run_file[] =
    "data: {train: \"${ECHELON_TEST}/train\", valid: \"${ECHELON_TEST}/valid\",\n"
    "       sequence_length: 16}\n"
    "model: {architecture: llama, hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4,\n"
    "        vocab_size: 260, intermediate_size: 48}\n"
    "training: {steps: 4, global_batch_size: 8, micro_batch_size: 1, validate_every: 2,\n"
    "           validate_samples: 8}\n"
    "optimizer: {learning_rate: 1e-2}\n"
    "parallel: {comm: local}\n"
    "log: {tensorboard: false}\n";

/* The words of a grid, one by one, with a folder of its own. */
static inline echelon_run *open_run(const char *words, const char *folder)
{
    echelon_run *run;
    ECH_FREED char *copy = ech_strdup(words);
    char *rest = NULL;
    setenv("ECHELON_TEST", fixture_folder, 1); /* paths of a user's own text are expanded */
    assert_int_equal(echelon_run_open_text(run_file, "the test", &run), ECHELON_OK);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        *value = '\0';
        if (echelon_run_set(run, word, value + 1)) fail_msg("%s", echelon_last_error());
    }
    assert_int_equal(echelon_run_set(run, "log.directory", folder), ECHELON_OK);
    return run;
}

/* The sum of squares of all tensors' bytes, read as numbers, by which runs are compared. */
static inline double read_all(echelon_training *training)
{
    double sum = 0;
    for (int i = 0; i < echelon_tensor_count(training); i++) {
        echelon_tensor is = {.size = sizeof is};
        assert_int_equal(echelon_tensor_at(training, i, &is), ECHELON_OK);
        ECH_FREED unsigned char *data = ech_calloc((size_t)is.bytes, 1);
        assert_int_equal(echelon_tensor_read(training, i, data, (size_t)is.bytes), ECHELON_OK);
        for (int64_t k = 0; k < is.bytes; k++) sum += (double)(k % 251 + 1) * (double)data[k];
    }
    return sum;
}

/* The call's status and what it says. */
static inline void fails(echelon_status status, echelon_status expected, const char *said)
{
    assert_int_equal(status, expected);
    if (!strstr(echelon_last_error(), said))
        fail_msg("\"%s\" does not say \"%s\"", echelon_last_error(), said);
}

#endif
