/* SPDX-License-Identifier: Apache-2.0
 *
 * Chen's figure from the values of a plan and their lives. Values of working kinds count, on the
 * device. Without sharing each value has bytes of its own. With sharing the bytes at a tick are
 * those of the values that live then. A value that a result overwrites in place ends where the
 * result begins; without in-place computation it lives until the call has read it.
 */
#include "app/plan/figure.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "schedule/peaks.h"

static bool counts(const ech_value *v)
{
    return ech_memory_is_working(v->kind) && ech_memory_space(v->kind) == ECH_SPACE_DEVICE;
}

/* True if a call computes the value's successor in its place. */
static bool is_overwritten(const ech_list *list, const ech_value *v)
{
    return v->successor >= 0 && !list->value.at[v->successor].brought;
}

static int64_t fullest(const ech_list *list, bool in_place)
{
    int end = 0;
    for (size_t i = 0; i < list->value.n; i++)
        if (list->value.at[i].dies >= end) end = list->value.at[i].dies + 1;
    ECH_FREED int64_t *change = ech_calloc((size_t)end + 2, sizeof *change);
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[i];
        if (!counts(v)) continue;
        change[v->born] += v->bytes;
        change[v->dies + 1 + (!in_place && is_overwritten(list, v))] -= v->bytes;
    }
    int64_t now = 0, most = 0;
    for (int tick = 0; tick < end + 2; tick++) {
        now += change[tick];
        if (now > most) most = now;
    }
    return most;
}

ech_memory_bytes ech_memory_bytes_of(const ech_plan *plan)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    ech_memory_bytes of = {.shared = fullest(list, false), .both = fullest(list, true)};
    for (size_t i = 0; i < list->value.n; i++) {
        const ech_value *v = &list->value.at[i];
        if (!counts(v)) continue;
        of.neither += v->bytes;
        if (!is_overwritten(list, v)) of.in_place += v->bytes;
    }
    for (int b = 0; b < (int)plan->model->block.n; b++)
        if (plan->segment[b] >= 0 && b - plan->segment[b] >= of.longest)
            of.longest = b - plan->segment[b] + 1;
    return of;
}

/* Of the run with that recomputation: the rank that needs the most with both. */
static ech_status measure(const ech_design *design, int recompute, ech_memory_bytes *out, int *rank)
{
    ech_design other = {0};
    ech_config *config = ech_config_copy(design->config);
    config->memory.recompute = recompute;
    config->memory.recompute_blocks = ECH_AUTO;
    config->memory.device_limit = ECH_LIMIT_UNKNOWN; /* it is compared, not run */
    config->memory.host_limit = 0;
    int ranks = ech_layout_ranks(design->layout);
    ech_status status = ech_design_create(config, design->tokenizer, ranks, 1, &other);
    for (int c = 0; status == ECH_OK && c < other.layout->classes.n; c++) {
        ech_plan *plan = NULL;
        status = ech_design_plan_unchecked(&other, other.layout->classes.first[c], &plan);
        if (status != ECH_OK) break;
        ech_memory_bytes of = ech_memory_bytes_of(plan);
        if (c == 0 || of.both > out->both) {
            *out = of;
            *rank = plan->rank;
        }
        ech_plan_destroy(plan);
    }
    ech_design_destroy(&other);
    ech_config_destroy(config);
    return status;
}

static void print_row(const char *what, int64_t of, int64_t whole, ech_text *out)
{
    ech_text_append(out, "  %-34s %10s   1/%.1f\n", what, ECH_BYTES(of),
                    (double)whole / (double)(of > 0 ? of : 1));
}

ech_status ech_memory_figure(const ech_design *design, ech_text *out)
{
    ech_memory_bytes plain = {0}, again = {0};
    int rank = 0, other = 0;
    ECH_TRY(measure(design, ECH_RECOMPUTE_NONE, &plain, &rank));
    bool quiet = ech_log_set_quiet(true);
    ech_status status = measure(design, ECH_RECOMPUTE_FULL, &again, &other);
    ech_log_set_quiet(quiet);
    ech_text_append(out, "activations, their gradients and scratch of a step, rank %d:\n", rank);
    print_row("each value has its own bytes", plain.neither, plain.neither, out);
    print_row("gradients in place", plain.in_place, plain.neither, out);
    print_row("values share bytes", plain.shared, plain.neither, out);
    print_row("both", plain.both, plain.neither, out);
    if (status == ECH_OK) {
        char what[80];
        snprintf(what, sizeof what, "both, segments of %s recomputed",
                 ECH_COUNT(again.longest, "layer"));
        print_row(what, again.both, plain.neither, out);
        ech_text_append(out, "Segments take 1/%.1f of the memory of both. Chen et al. 2016: ",
                        (double)plain.both / (double)(again.both > 0 ? again.both : 1));
        ech_text_append(out, "1/6.9 (7 of 48 GB, a residual network of 1,000 layers).\n");
    } else {
        ech_text_append(out, "Segments cannot be recomputed: %s\n", ech_last_error());
    }
    return ECH_OK;
}
