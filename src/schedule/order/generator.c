/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of generators, and what several of them do.
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
                           const char **key, ech_text *why)
{
    if (!generator->accepts) return ech_shape_has_one_chunk(shape, generator->name, key, why);
    return generator->accepts(shape, key, why);
}

bool ech_shape_has_one_chunk(const ech_pipeline_shape *shape, const char *schedule,
                             const char **key, ech_text *why)
{
    if (shape->chunks == 1) return true;
    *key = "parallel.virtual_stages";
    ech_text_append(why,
                    "parallel.schedule = %s has one virtual stage a rank; use 1, or "
                    "parallel.schedule = interleaved",
                    schedule);
    return false;
}

bool ech_shape_is_uniform(const ech_pipeline_shape *shape, const char *schedule,
                          const char *instead, const char **key, ech_text *why)
{
    if (shape->uniform) return true;
    *key = "parallel.stage_replicas";
    ech_text_append(why,
                    "parallel.schedule = %s needs as many replicas of every stage; give all %d "
                    "stages the same number, or use parallel.schedule = %s",
                    schedule, shape->stages, instead);
    return false;
}

bool ech_shape_has_chunks_or_replicas(const ech_pipeline_shape *shape, const char *schedule,
                                      const char **key, ech_text *why)
{
    if (shape->chunks == 1 || shape->uniform) return true;
    *key = "parallel.stage_replicas";
    ech_text_append(why,
                    "parallel.schedule = %s with %d virtual stages a rank needs as many replicas "
                    "of every stage; give all %d stages the same number, or set "
                    "parallel.virtual_stages = 1",
                    schedule, shape->chunks, shape->stages);
    return false;
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
