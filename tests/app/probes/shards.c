/* SPDX-License-Identifier: Apache-2.0
 *
 * SHARDS have the sizes of ZeRO's formulas (Rajbhandari et al. 2020, section 5 and 7). Each of N
 * ranks keeps an N-th of the optimizer states, and at stage 3 of the weights, too. A scatter and a
 * gather together send as much as one sum. If each of m micro-batches is scattered, the ranks send
 * m + 1 times half a sum.
 */
#include <string.h>

#include "app/probe.h"
#include "schedule/traffic.h"

static bool applies(const ech_design *design)
{
    return design->config->parallel.zero > 0 &&
           design->config->parallel.compression == ECH_COMPRESSION_NONE;
}

static int members(const ech_plan *plan, const ech_bucket *bucket)
{
    return ech_layout_group_size(plan->layout, plan->model, plan->rank, bucket->group);
}

static void expect(const char *what, int64_t bytes, int64_t wanted)
{
    if (bytes != wanted)
        probe_fail("%s: %lld bytes, by the formula %lld", what, (long long)bytes,
                   (long long)wanted);
}

static void check_kept(const ech_plan *plan, const ech_bucket *bucket)
{
    int64_t n = bucket->elements / members(plan, bucket);
    for (int s = 0; s < bucket->states; s++)
        expect("states", plan->persistent.at[bucket->state[s].value].bytes,
               n * (int64_t)ech_dtype_bytes(bucket->state[s].dtype));
    if (ech_bucket_is_gathered(bucket))
        expect("weights", plan->persistent.at[bucket->weights].bytes,
               n * (int64_t)ech_dtype_bytes(bucket->weight_dtype));
}

/* An expert's parameters are shared out over the ranks with the same experts. Tensor ranks may have
 * other rows, whose sums go over them, too. */
static void check_expert(const ech_plan *plan, const ech_bucket *bucket)
{
    const ech_layout *layout = plan->layout;
    const char *name = plan->model->param.at[plan->bucket_param.at[bucket->first_param]].name;
    int ranks = layout->replicas[layout->coordinates[plan->rank].stage] * layout->context;
    int N = ranks / (int)layout->sharding.expert;
    if (layout->tensor == 1 && strstr(name, "experts.%d") && members(plan, bucket) != N)
        probe_fail("%s: %d ranks share, by the formula %d", name, members(plan, bucket), N);
}

/* What several ranks have alike they share out, but layer states, and frozen weights below ZeRO
 * 3. */
static void check_bucket(const ech_plan *plan, const ech_bucket *bucket)
{
    if (ech_bucket_is_sharded(bucket))
        check_kept(plan, bucket);
    else if (members(plan, bucket) > 1 && !bucket->commits && !(bucket->frozen && plan->zero < 3))
        probe_fail("a bucket of block %d is not shared out over %d ranks", bucket->block,
                   members(plan, bucket));
}

/* What the bucket's sums and gathers send in a list; weights that are gathered for each use are not
 * counted. */
static int64_t sent_of(const ech_plan *plan, const ech_list *list, const ech_bucket *bucket)
{
    int N = members(plan, bucket);
    if (bucket->frozen) return 0;
    int64_t half = bucket->elements / N * (N - 1) * (int64_t)ech_dtype_bytes(bucket->wire);
    if (!ech_bucket_scatters_each(bucket)) return 2 * list->turns * half;
    return list->turns * (list->numbering.micro_batches + !ech_bucket_is_gathered(bucket)) * half;
}

/* Where weights are sent in the type of gradients, and an optimizer's statistics are not sent at
 * all. */
static void check_sent(const ech_plan *plan)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int64_t wanted = 0;
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    const ech_traffic *data = &traffic[ECH_TRAFFIC_DATA];
    if (plan->reduction != ECH_REDUCTION_DIRECT && plan->reduction != ECH_REDUCTION_RING) return;
    ech_plan_traffic(plan, traffic);
    int64_t sent = ech_traffic_all(data).bytes;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        if (bucket->rounds || bucket->wire != bucket->weight_dtype ||
            ech_bucket_is_gathered(bucket))
            return;
        wanted += sent_of(plan, list, bucket);
    }
    expect("sums and gathers", sent, wanted);
}

static void observe(void *state, const probe_run *run, probe_moment moment)
{
    const ech_plan *plan = run->session->plan;
    (void)state;
    if (moment != PROBE_OPENED) return;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        check_bucket(plan, &plan->bucket.at[b]);
        check_expert(plan, &plan->bucket.at[b]);
    }
    check_sent(plan);
}

const probe probe_shards = {.name = "shards", .applies = applies, .observe = observe};
