/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of generators.
 */
#include <string.h>

#include "schedule/order/order.h"

#define X(identifier, name, help) extern const ech_generator ech_generator_row_##identifier;
#include "schedule/order/schedules.def"
#undef X

static const ech_generator *const rows[] = {
#define X(identifier, name, help) &ech_generator_row_##identifier,
#include "schedule/order/schedules.def"
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
#define X(identifier, name, help) name " "
#include "schedule/order/schedules.def"
#undef X
        ;
}

bool ech_generator_accepts(const ech_generator *generator, const ech_pipeline_shape *shape,
                           ech_text *why)
{
    return !generator->accepts || generator->accepts(shape, why);
}
