/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of generators; items of orders and their rules; the order of evaluation.
 */
#include "schedule/order/order.h"

#include <stdlib.h>
#include <string.h>

#include "schedule/order/items.h"

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

/* ---- items and their rules ---- */

const char ech_order_letters[ECH_ACTIONS] = {[ECH_F] = 'F', [ECH_B] = 'B', [ECH_W] = 'W'};

void ech_order_add(ech_order *order, ech_action action, int chunk, int micro)
{
    ECH_PUSH(*order, (ech_order_item){.action = action, .chunk = chunk, .micro = micro});
}

void ech_order_add_backward(ech_order *order, int chunk, int micro)
{
    ech_order_add(order, ECH_B, chunk, micro);
    ech_order_add(order, ECH_W, chunk, micro);
}

void ech_order_item_print(ech_order_item item, ech_text *out)
{
    ech_text_append(out, "%c%d.%d", ech_order_letters[item.action], item.chunk, item.micro);
}

ech_order_progress ech_order_progress_begin(int chunks, int micro_batches)
{
    return (ech_order_progress){.chunks = chunks,
                                .micro_batches = micro_batches,
                                .next = ech_calloc((size_t)chunks * ECH_ACTIONS, sizeof(int))};
}

void ech_order_progress_end(ech_order_progress *progress)
{
    free(progress->next);
    *progress = (ech_order_progress){0};
}

static bool exists(int value, int count, const char *what, ech_text *why)
{
    if (value >= 0 && value < count) return true;
    ech_text_append(why, "%s not in 0 .. %d", what, count - 1);
    return false;
}

static bool must_follow(ech_order_item before, ech_text *why)
{
    ech_order_item_print(before, why);
    ech_text_append(why, " must come before it");
    return false;
}

bool ech_order_progress_add(ech_order_progress *progress, ech_order_item item, ech_text *why)
{
    if (!exists(item.chunk, progress->chunks, "chunk", why)) return false;
    if (!exists(item.micro, progress->micro_batches, "micro-batch", why)) return false;
    int *next = &progress->next[item.chunk * ECH_ACTIONS];
    if (item.micro < next[item.action]) {
        ech_text_append(why, "comes twice");
        return false;
    }
    ech_order_item before = {item.action, item.chunk, next[item.action]};
    if (item.micro > before.micro) return must_follow(before, why);
    if (item.action != ECH_F && next[item.action - 1] <= item.micro) {
        before = (ech_order_item){item.action - 1, item.chunk, item.micro};
        return must_follow(before, why);
    }
    next[item.action]++;
    return true;
}

bool ech_order_progress_done(const ech_order_progress *progress, bool split, ech_text *why)
{
    for (int action = ECH_F; action <= (split ? ECH_W : ECH_B); action++)
        for (int chunk = 0; chunk < progress->chunks; chunk++) {
            int next = progress->next[chunk * ECH_ACTIONS + action];
            if (next == progress->micro_batches) continue;
            ech_order_item_print((ech_order_item){(ech_action)action, chunk, next}, why);
            ech_text_append(why, " is missing");
            return false;
        }
    return true;
}

/* ---- whole orders ---- */

void ech_order_forwards(const ech_pipe *pipe, ech_order *order)
{
    int p = pipe->stages, m = pipe->micro_batches;
    for (int first = 0; first < m; first += p) {
        int end = m - first < p ? m : first + p;
        for (int chunk = 0; chunk < pipe->chunks; chunk++)
            for (int micro = first; micro < end; micro++) ech_order_add(order, ECH_F, chunk, micro);
    }
}

int ech_order_in_flight(const ech_order *order)
{
    int now = 0, most = 0;
    for (size_t i = 0; i < order->n; i++) {
        now += order->at[i].action == ECH_F;
        now -= order->at[i].action == ECH_W;
        if (now > most) most = now;
    }
    return most;
}
