/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of generators.
 */
#include <string.h>

#include "schedule/schedule.h"

#define X(name, help) extern const ech_generator ech_generator_row_##name;
#include "schedule/schedules.def"
#undef X

static const ech_generator *const rows[] = {
#define X(name, help) &ech_generator_row_##name,
#include "schedule/schedules.def"
#undef X
};

const ech_generator *ech_generator_find(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i]->name, name) == 0) return rows[i];
    return NULL;
}

const char *ech_generator_names(void)
{
    return
#define X(name, help) #name " "
#include "schedule/schedules.def"
#undef X
        ;
}
