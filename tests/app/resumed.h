/* SPDX-License-Identifier: Apache-2.0
 *
 * A run trained to its end, and once more from the checkpoint before the last one: both leave the
 * same bits. After fixture.h.
 */
#ifndef ECH_TESTS_APP_RESUMED_H
#define ECH_TESTS_APP_RESUMED_H

#include "app/train/train.h"

enum { RESUMED_FILES = 2 };
static const char *const resumed_files[RESUMED_FILES] = {"model/model.safetensors",
                                                         "state/state.safetensors"};

typedef struct resumed_bytes {
    char *at[RESUMED_FILES];
    size_t n[RESUMED_FILES];
} resumed_bytes;

/* The checkpoint of a step. */
static inline char *resumed_folder(const ech_config *config, int64_t step)
{
    ech_text path = {0};
    ech_text_append(&path, "%s/checkpoints/step-%08lld", config->log.directory, (long long)step);
    return path.at;
}

/* Whether there is one to go on from. */
static inline bool resumed_can(const ech_config *config)
{
    char *path = resumed_folder(config, config->training.steps - config->checkpoint.every);
    bool can = ech_file_exists(path);
    free(path);
    return can;
}

/* Trains, goes on from what is there, and reads what it leaves. */
static inline ech_status resumed_train(const ech_config *config, int ranks, resumed_bytes *out)
{
    ech_training training = {0};
    ECH_TRY(fixture_run(config, ranks, ech_train_rank, &training));
    char *folder = resumed_folder(config, config->training.steps);
    ech_status status = ECH_OK;
    for (int f = 0; f < RESUMED_FILES && status == ECH_OK; f++) {
        char *path = ech_file_join(folder, resumed_files[f]);
        status = ech_file_read(path, 1 << 26, &out->at[f], &out->n[f]);
        free(path);
    }
    if (status == ECH_OK) status = ech_file_remove_all(folder);
    free(folder);
    return status;
}

/* Begins with an empty run directory. False: `why`, of n bytes, says what is different. */
static inline bool resumed_is_same(const ech_config *config, int ranks, char *why, size_t n)
{
    resumed_bytes whole = {0}, resumed = {0};
    bool same = false;
    if (ech_file_remove_all(config->log.directory) != ECH_OK ||
        resumed_train(config, ranks, &whole) != ECH_OK || !resumed_can(config) ||
        resumed_train(config, ranks, &resumed) != ECH_OK) {
        snprintf(why, n, "training: %s", ech_last_error());
    } else {
        same = true;
        for (int f = 0; f < RESUMED_FILES; f++)
            if (whole.n[f] != resumed.n[f] || memcmp(whole.at[f], resumed.at[f], whole.n[f]) != 0) {
                same = false;
                snprintf(why, n, "a resumed run leaves another %s", resumed_files[f]);
            }
    }
    for (int f = 0; f < RESUMED_FILES; f++) {
        free(whole.at[f]);
        free(resumed.at[f]);
    }
    return same;
}

#endif
