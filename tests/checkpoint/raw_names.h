/* SPDX-License-Identifier: Apache-2.0
 *
 * A configuration for model files without names.
 */
#ifndef ECH_TESTS_CHECKPOINT_RAW_NAMES_H
#define ECH_TESTS_CHECKPOINT_RAW_NAMES_H

#include "checkpoint/raw.h"

static inline ech_config *raw_config(void)
{
    const ech_config_names names[] = {{"models", "gpt2 llama"}, {"optimizers", "adamw"},
                                      {"curves", "cosine"},     {"comms", "mpi"},
                                      {"reductions", "direct"}, {"tokenizers", "bytes"}};
    ech_config *config;
    ech_status st = ech_config_create(names, sizeof names / sizeof *names, &config);
    ECH_ASSERT(st == ECH_OK);
    return config;
}

#endif
