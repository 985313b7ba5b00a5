/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies from space to space: FETCH towards the device, OFFLOAD away from it. They touch pairs of
 * values of equal size, one read and one written.
 */
#include "schedule/step/step.h"
#include "schedule/operands.h"

static void touch(ech_accessor *a)
{
    static void (*const by_resource[])(ech_accessor *) = {
#define X(name, text, touch, meaning) ech_touch_##touch,
#include "schedule/resources.def"
#undef X
    };
    by_resource[a->step->resource](a);
}

static void print(const ech_step *step, ech_text *out)
{
    static const char *const names[] = {
#define X(name, text, touch, meaning) text,
#include "schedule/resources.def"
#undef X
    };
    ech_text_append(out, " %s", names[step->resource]);
    if (step->micro >= 0)
        ech_text_append(out, " %d.%d/%d", step->chunk, step->micro, step->block);
    else
        ech_text_append(out, " %d", step->index);
    ech_text_append(out, " %s to %s", ech_space_name(step->from), ech_space_name(step->to));
}

static ech_work work(const ech_step_query *q)
{
    return (ech_work){.bytes = (double)q->step->bytes};
}

static double seconds(const ech_step_query *q)
{
    bool disk = q->step->from == ECH_SPACE_DISK || q->step->to == ECH_SPACE_DISK;
    return ech_cost_copy(&q->costs->rates, (double)q->step->bytes, disk);
}

static void count(ech_traffic_count *c, const ech_step *step)
{
    ech_traffic_add_copy(c, step->from, step->to, step->bytes);
}

const ech_step_methods ech_copy_methods = {touch, print, work, seconds, count};

/* ---- a bucket's stored weights ---- */

void ech_touch_fetched_weights(ech_accessor *a)
{
    int64_t elements = ech_bucket_kept(&a->plan->bucket.at[a->step->index]);
    int from = a->step->from == a->plan->weights
                   ? ech_plan_weights(a->plan, a->step->index, a->step->version)
                   : ech_access_weights_of(a, a->step->index);
    ech_access_pair(a, from, ech_access_new_weights(a, a->step->index, a->step->to, elements));
}

/* ---- a bucket's gradients, summed so far ---- */

void ech_touch_sum_of_gradients(ech_accessor *a)
{
    int *sum = &a->plan->bucket.at[a->step->index].sum_on_host;
    if (a->step->kind == ECH_STEP_FETCH) {
        int from = *sum;
        ech_access_pair(a, from, ech_access_renew_sum(a, a->step->index));
    } else {
        int from = *ech_access_summed(a, a->step->index);
        ech_access_pair(a, from, *sum = ech_access_twin(a, from, ECH_MEMORY_GRADIENTS_ON_HOST));
    }
}

/* ---- kept activations of a sequence chunk ---- */

/* When it leaves, each value gets a copy in the next space; when it returns, each of these becomes
 * another value. */
static void touch_value(ech_accessor *a, int local)
{
    static const ech_memory_kind kinds[ECH_SPACES] = {
        [ECH_SPACE_DEVICE] = ECH_MEMORY_ACTIVATIONS,
        [ECH_SPACE_HOST] = ECH_MEMORY_ACTIVATIONS_ON_HOST,
        [ECH_SPACE_DISK] = ECH_MEMORY_ACTIVATIONS_ON_DISK};
    const ech_step *step = a->step;
    bool out = step->kind == ECH_STEP_OFFLOAD;
    ech_space near = out ? step->from : step->to;
    int first = (int)a->plan->persistent.n;
    int value = ech_list_value_of(a->plan, a->list, a->plan->model->block.at[step->block], local,
                                  step->micro, ECH_INSTANCE_FORWARD);
    ECH_ASSERT(value >= first);
    for (; ech_memory_space(a->list->value.at[value - first].kind) != near;)
        value = a->list->value.at[value - first].copy;
    int other = ech_access_twin(a, value, kinds[step->to]);
    ech_value *of = &a->list->value.at[value - first];
    ECH_ASSERT(!(out ? of->copy : of->returned)); /* it is kept by one block */
    if (out) {
        of->copy = other;
        ech_access_pair(a, value, other);
    } else {
        of->returned = other;
        ech_access_pair(a, ech_list_instance(a->plan, a->list, of->copy, ECH_INSTANCE_BACKWARD),
                        other);
    }
}

void ech_touch_kept(ech_accessor *a)
{
    ech_step_each_kept(a->plan, a->step->block, touch_value, a);
}

/* ---- values carried between sequence chunks ---- */

/* The value has one copy in each space further from the device, for all chunks; in each nearer
 * space each return is another value. */
static void touch_carried(ech_accessor *a, int local)
{
    static const ech_memory_kind kinds[ECH_SPACES] = {
        [ECH_SPACE_DEVICE] = ECH_MEMORY_KV_CACHE,
        [ECH_SPACE_HOST] = ECH_MEMORY_KV_CACHE_ON_HOST,
        [ECH_SPACE_DISK] = ECH_MEMORY_KV_CACHE_ON_DISK};
    const ech_step *step = a->step;
    int first = (int)a->plan->persistent.n;
    int from = ech_access_value_of(a, step->block, local, step->micro), to;
    while (ech_memory_space(a->list->value.at[from - first].kind) != step->from)
        from = a->list->value.at[from - first].copy;
    to = a->list->value.at[from - first].copy;
    if (step->kind == ECH_STEP_FETCH) {
        to = ech_access_twin(a, from, kinds[step->to]);
        a->list->value.at[to - first].copy = from;
        ech_access_bring(a, local, to);
    } else if (!to) {
        to = ech_access_twin(a, from, kinds[step->to]);
        a->list->value.at[from - first].copy = to;
    }
    ech_access_pair(a, from, to);
}

void ech_touch_carried(ech_accessor *a)
{
    const ech_block *block = a->plan->model->block.at[a->step->block];
    for (int local = 0; local < (int)block->value.n; local++)
        if (ech_list_carries(a->list, block, local, a->step->resource)) touch_carried(a, local);
}
