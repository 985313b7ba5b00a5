/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the uses of gathered and fetched weights, and makes the steps that fetch and gather from
 * their stays.
 */
#include "schedule/weight_gathers.h"

#include <stdlib.h>

#include "schedule/weight_reads.h"
#include "schedule/residency.h"

/* A bucket that a stay of its block brings, and the first step that reads it. */
typedef struct need {
    int bucket, reader;
    int next; /* of the same stay; -1: none */
} need;

typedef struct visits {
    const ech_plan *plan;
    const ech_list *list;
    ech_weight_reads reads;
    ECH_LIST(ech_use) use; /* the resource: a block's weights */
    ECH_LIST(int) last;    /* [uses] the use's last step */
    ech_stay_list stay;
    int *stay_of;    /* [uses] */
    int *first_need; /* [stays] */
    ECH_LIST(need) need;
} visits;

static bool reads_brought(visits *v, const ech_step *step)
{
    const ech_read_list *reads = ech_weight_reads_of(&v->reads, step);
    bool some = false;
    for (size_t i = 0; i < reads->all.n; i++)
        some |= ech_bucket_is_brought(&v->plan->bucket.at[reads->all.at[i].bucket]);
    return some;
}

static void find_uses(visits *v)
{
    for (int s = 0; s < (int)v->list->step.n; s++) {
        const ech_step *step = &v->list->step.at[s];
        if (!reads_brought(v, step)) continue;
        if (!v->use.n || v->use.at[v->use.n - 1].resource != step->block) {
            ECH_PUSH(v->use, (ech_use){.resource = step->block});
            ECH_PUSH(v->last, s);
        }
        v->last.at[v->last.n - 1] = s;
    }
}

static void find_stays(visits *v)
{
    int blocks = (int)v->plan->model->block.n;
    ECH_FREED int *now = ech_calloc((size_t)blocks + 1, sizeof *now); /* stays of blocks */
    size_t begun = 0;
    ech_residency(v->use.at, v->use.n, blocks, v->plan->keeps ? (int)v->use.n : v->plan->prefetch,
                  &v->stay);
    v->stay_of = ech_calloc(v->use.n + 1, sizeof *v->stay_of);
    for (int i = 0; i < (int)v->use.n; i++) {
        int block = v->use.at[i].resource;
        if (begun < v->stay.n && v->stay.at[begun].first == i) now[block] = (int)begun++;
        v->stay_of[i] = now[block];
    }
}

/* Notes that the stay needs the bucket, from the step on, unless it is known already. */
static void note_need(visits *v, int stay, int bucket, int step)
{
    int *link = &v->first_need[stay];
    for (; *link >= 0; link = &v->need.at[*link].next)
        if (v->need.at[*link].bucket == bucket) return;
    *link = (int)v->need.n;
    ECH_PUSH(v->need, (need){bucket, step, -1});
}

static void find_needs(visits *v)
{
    size_t use = 0;
    v->first_need = ech_calloc(v->stay.n + 1, sizeof *v->first_need);
    for (size_t i = 0; i < v->stay.n; i++) v->first_need[i] = -1;
    for (int s = 0; use < v->use.n && s < (int)v->list->step.n; s++) {
        const ech_read_list *reads = ech_weight_reads_of(&v->reads, &v->list->step.at[s]);
        for (size_t i = 0; i < reads->all.n; i++) {
            int bucket = reads->all.at[i].bucket;
            if (ech_bucket_is_brought(&v->plan->bucket.at[bucket]))
                note_need(v, v->stay_of[use], bucket, s);
        }
        use += v->last.at[use] == s;
    }
}

/* Weights arrive in hops, each after the previous one; the reader waits for the last. */
static void add_hop(const visits *v, const need *of, ech_insertion *hop, bool last,
                    ech_insertion_list *brings)
{
    const ech_step *reader = &v->list->step.at[of->reader];
    hop->step.block = reader->block;
    hop->step.index = of->bucket;
    hop->step.turn = reader->turn;
    hop->step.version = reader->version;
    hop->before[0] = last ? of->reader : -1;
    ECH_PUSH(*brings, *hop);
    hop->follows[0] = (int)brings->n - 1;
}

static void add_fetch(const visits *v, const need *of, ech_insertion *hop, ech_space from,
                      ech_space to, ech_insertion_list *brings)
{
    const ech_bucket *bucket = &v->plan->bucket.at[of->bucket];
    hop->step = ech_step_make(ECH_STEP_FETCH);
    hop->step.resource = ECH_RESOURCE_WEIGHTS;
    hop->step.from = from;
    hop->step.to = to;
    hop->step.bytes = v->plan->persistent.at[bucket->weights].bytes;
    add_hop(v, of, hop, to == ECH_SPACE_DEVICE && !ech_bucket_is_gathered(bucket), brings);
}

/* Adds a FETCH for weights stored elsewhere (from disk through the host); a GATHER_WEIGHTS for
 * sharded weights; or both in sequence. */
static void add_steps(const visits *v, const ech_stay *stay, const need *of,
                      ech_insertion_list *brings)
{
    const ech_bucket *bucket = &v->plan->bucket.at[of->bucket];
    ech_insertion hop = {.before = {-1, -1}, .follows = {-1, -1}};
    hop.after = stay->room_after < 0 ? -1 : v->last.at[stay->room_after];
    if (ech_bucket_is_fetched(bucket) && v->plan->weights == ECH_SPACE_DISK)
        add_fetch(v, of, &hop, ECH_SPACE_DISK, ECH_SPACE_HOST, brings);
    if (ech_bucket_is_fetched(bucket))
        add_fetch(v, of, &hop, ECH_SPACE_HOST, ECH_SPACE_DEVICE, brings);
    if (!ech_bucket_is_gathered(bucket)) return;
    hop.step = ech_step_make(ECH_STEP_GATHER_WEIGHTS);
    hop.step.group = bucket->group;
    add_hop(v, of, &hop, true, brings);
}

void ech_pass_resident(const ech_plan *plan, ech_list *list)
{
    visits v = {.plan = plan, .list = list};
    ECH_FREED ech_insertion_list brings = {0};
    ech_weight_reads_begin(&v.reads, plan, list->purpose);
    find_uses(&v);
    find_stays(&v);
    find_needs(&v);
    for (size_t i = 0; i < v.stay.n; i++)
        for (int n = v.first_need[i]; n >= 0; n = v.need.at[n].next)
            add_steps(&v, &v.stay.at[i], &v.need.at[n], &brings);
    ech_list_insert(list, &brings);
    ech_weight_reads_end(&v.reads);
    free(v.use.at);
    free(v.last.at);
    free(v.stay.at);
    free(v.stay_of);
    free(v.first_need);
    free(v.need.at);
}
