/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of generators, and what several of them share.
 */
#include <string.h>

#include "schedule/order/generate.h"

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

void ech_order_add(ech_order *order, ech_action action, int chunk, int micro)
{
    ECH_PUSH(*order, (ech_order_item){.action = action, .chunk = chunk, .micro = micro});
}

void ech_order_add_backward(ech_order *order, int chunk, int micro)
{
    ech_order_add(order, ECH_B, chunk, micro);
    ech_order_add(order, ECH_W, chunk, micro);
}
