/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs whose model comes from model.init_from alone. After cmocka.h.
 */
#ifndef ECH_TESTS_APP_TRAIN_FROM_H
#define ECH_TESTS_APP_TRAIN_FROM_H

#include "app/runs.h"
#include "app/setup/initial.h"
#include "unit.h"

/* Trains as a run file says that names no architecture: `model` are lines of its model section,
 * `more` lines of other sections. */
static inline ech_status train_from_with(const char *run, const char *from, const char *model,
                                         int steps, const char *more)
{
    ech_text yaml = {0};
    char path[300];
    ech_config *config;
    ech_text_append(&yaml,
                    "model:\n  init_from: %s/%s\n%s"
                    "data:\n  train: %s/train\n  sequence_length: 9\n"
                    "training:\n  steps: %d\n  global_batch_size: 12\n"
                    "optimizer:\n  learning_rate: 1e-2\n"
                    "parallel:\n  comm: local\n  threads: 1\n"
                    "log:\n  directory: %s/%s\n%s",
                    fixture_folder, from, model, fixture_folder, steps, fixture_folder, run, more);
    snprintf(path, sizeof path, "%s/from.yaml", fixture_folder);
    assert_int_equal(ech_file_write(path, yaml.at, yaml.n), ECH_OK);
    ech_text_free(&yaml);
    ech_status status = ech_setup_config(path, NULL, 0, &config);
    if (status == ECH_OK) {
        ech_training training = {0};
        ech_tokenizer *tokenizer = NULL;
        ech_design design = {0};
        int32_t end = -1;
        status = ech_initial_open_tokenizer(config, &tokenizer, &end);
        if (status == ECH_OK) status = ech_design_create(config, tokenizer, 2, 2, &design);
        design.end_of_text = end;
        if (status == ECH_OK) status = ech_design_run(&design, ech_train_rank, &training);
        ech_design_destroy(&design);
        ech_tokenizer_close(tokenizer);
        ech_config_destroy(config);
    }
    return status;
}

static inline ech_status train_from(const char *run, const char *from, int steps, const char *more)
{
    return train_from_with(run, from, "", steps, more);
}

#endif
