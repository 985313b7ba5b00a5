/* SPDX-License-Identifier: Apache-2.0
 *
 * Configurations that know the families' names, and little else.
 */
#ifndef ECH_TESTS_MODEL_IMPORT_NAMES_H
#define ECH_TESTS_MODEL_IMPORT_NAMES_H

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/model.h"

static inline ech_config *import_config(void)
{
    const ech_config_names names[] = {{"models", ech_family_names()}, {"optimizers", "adamw"},
                                      {"curves", "cosine"},           {"comms", "mpi"},
                                      {"devices", "cpu queued"},      {"reductions", "direct"},
                                      {"gates", ech_gate_names()},    {"losses", "cross_entropy"}};
    ech_config *config;
    ech_status st = ech_config_create(names, sizeof names / sizeof *names, &config);
    ECH_ASSERT(st == ECH_OK);
    return config;
}

/* Words of keys and values, as on a command line. */
static inline void import_set(ech_config *config, const char *words)
{
    char *all = ech_strdup(words), *rest = all;
    for (char *word; (word = strsep(&rest, " "));) {
        ech_status st = ech_config_set(config, word);
        ECH_ASSERT(st == ECH_OK);
    }
    free(all);
}

#endif
