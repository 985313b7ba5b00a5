/* SPDX-License-Identifier: Apache-2.0
 *
 * A configuration that knows the families' names, and little else.
 */
#ifndef ECH_TESTS_MODEL_IMPORT_NAMES_H
#define ECH_TESTS_MODEL_IMPORT_NAMES_H

#include "model/model.h"

static inline ech_config *import_config(void)
{
    const ech_config_names names[] = {{"models", ech_family_names()}, {"optimizers", "adamw"},
                                      {"curves", "cosine"},           {"comms", "mpi"},
                                      {"devices", "cpu queued"},      {"reductions", "direct"},
                                      {"gates", ech_gate_names()}};
    ech_config *config;
    ech_status st = ech_config_create(names, sizeof names / sizeof *names, &config);
    ECH_ASSERT(st == ECH_OK);
    return config;
}

#endif
