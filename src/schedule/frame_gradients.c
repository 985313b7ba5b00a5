/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the frame pass for gradients that leave the device (ech_bucket_leaves): it decides
 * when a bucket's sum so far goes to the host and returns (gradient accumulation with offloading),
 * and when complete gradients leave for good.
 *
 * A use is a block's work on gradients for one sequence chunk: successive steps that write some. If
 * more than memory.prefetch uses lie between two uses of a bucket in the same turn, its sum is on
 * the host during that time (where each micro-batch's gradients are scattered, the shard's sum).
 * Backwards and scatters add to it on the device, so the order of additions and the bits are the
 * same as without offloading. Before use v begins, everything that left after use v - 1 - prefetch
 * has gone. So the device holds the gradients of at most 2 (1 + prefetch) uses, half of them
 * leaving, and the gradients that are being summed over ranks.
 */
#include <stdlib.h>
#include <string.h>

#include "schedule/framing.h"
#include "schedule/operands.h"

/* A bucket's part in a use. */
typedef struct visit {
    int bucket;
    int next;           /* of the same use; -1: none */
    bool comes, leaves; /* its sum comes from the host before the use, or goes there after it */
} visit;

typedef struct gradient_use {
    int first, last; /* lowered steps */
    int visit;       /* first visit */
    int gone;        /* the last step so far that frees memory of gradients; -1: none */
    int fetch;       /* the last step that fetches some for this use; -1: none */
} gradient_use;

struct ech_frame_gradients {
    int *use_of; /* [lowered steps] the use to which the step belongs; -1: none */
    ECH_LIST(gradient_use) use;
    ECH_LIST(visit) visit;
    int gone; /* the last step so far that frees memory of gradients; -1: none */
    /* [sums] buckets of a turn that are being summed over ranks; the first `begun` of them were
     * complete before this use. */
    int *summed, sums, begun, turn;
};

/* ---- uses ---- */

static bool is_same_use(const ech_step *a, const ech_step *b)
{
    return a->turn == b->turn && a->micro == b->micro && a->block == b->block;
}

static void begin_use(ech_framing *f, int s)
{
    struct ech_frame_gradients *g = f->gradients;
    const gradient_use *now = g->use.n ? &g->use.at[g->use.n - 1] : NULL;
    if (!now || !is_same_use(&f->from[now->last], &f->from[s]))
        ECH_PUSH(g->use, (gradient_use){.first = s, .visit = -1, .gone = -1, .fetch = -1});
    g->use.at[g->use.n - 1].last = s;
    g->use_of[s] = (int)g->use.n - 1;
}

static void note_writer(void *context, size_t s, int bucket)
{
    ech_framing *f = context;
    struct ech_frame_gradients *g = f->gradients;
    const ech_bucket *of = &f->plan->bucket.at[bucket];
    if (!ech_bucket_leaves(of)) return;
    if (g->use_of[s] < 0) begin_use(f, (int)s);
    gradient_use *u = &g->use.at[g->use_of[s]];
    for (int i = u->visit; i >= 0; i = g->visit.at[i].next)
        if (g->visit.at[i].bucket == bucket) return;
    ECH_PUSH(g->visit, (visit){.bucket = bucket, .next = u->visit});
    u->visit = (int)g->visit.n - 1;
}

static int turn_of(const ech_framing *f, int at)
{
    return f->from[f->gradients->use.at[at].first].turn;
}

/* True if use u changes the bucket's sum; where instances are scattered, only a complete one
 * does. */
static bool adds(const ech_framing *f, int u, int bucket)
{
    const gradient_use *of = &f->gradients->use.at[u];
    bool each = ech_bucket_scatters_each(&f->plan->bucket.at[bucket]), completes = false;
    for (int s = of->first; s <= of->last && each; s++)
        for (int i = f->first_ready[s]; i >= 0; i = f->next_ready[i])
            completes |= i % (int)f->plan->bucket.n == bucket;
    return completes || !each;
}

static void find_moves(ech_framing *f)
{
    struct ech_frame_gradients *g = f->gradients;
    size_t buckets = f->plan->bucket.n;
    ECH_FREED int *at = ech_calloc(buckets + 1, sizeof *at);     /* its last use, + 1 */
    ECH_FREED int *last = ech_calloc(buckets + 1, sizeof *last); /* its last visit */
    for (int u = 0; u < (int)g->use.n; u++)
        for (int i = g->use.at[u].visit; i >= 0; i = g->visit.at[i].next) {
            visit *v = &g->visit.at[i];
            int before = at[v->bucket] - 1;
            if (!adds(f, u, v->bucket)) continue;
            bool again = before >= 0 && turn_of(f, before) == turn_of(f, u);
            v->comes = again && u - before > f->plan->prefetch;
            if (v->comes) g->visit.at[last[v->bucket]].leaves = true;
            last[v->bucket] = i;
            at[v->bucket] = u + 1;
        }
}

void ech_frame_begin_gradients(ech_framing *f)
{
    size_t buckets = f->plan->bucket.n;
    if (f->plan->states == ECH_SPACE_DEVICE) return;
    struct ech_frame_gradients *g = f->gradients = ech_pool_alloc(f->pool, sizeof *g);
    g->use_of = ech_pool_alloc(f->pool, f->n * sizeof *g->use_of);
    g->summed = ech_pool_alloc(f->pool, buckets * sizeof *g->summed);
    g->gone = -1;
    for (size_t s = 0; s < f->n; s++) g->use_of[s] = -1;
    ech_list lowered = {.step.at = f->from,
                        .step.n = f->n,
                        .numbering = f->list->numbering,
                        .purpose = f->list->purpose};
    ech_list_each_writer(f->plan, &lowered, note_writer, f);
    find_moves(f);
}

void ech_frame_end_gradients(ech_framing *f)
{
    struct ech_frame_gradients *g = f->gradients;
    if (!g) return;
    free(g->use.at);
    free(g->visit.at);
}

/* ---- steps ---- */

void ech_frame_await_gradients(ech_framing *f, size_t s)
{
    struct ech_frame_gradients *g = f->gradients;
    int now = g ? g->use_of[s] : -1, before = now - 1 - f->plan->prefetch;
    if (now < 0 || g->use.at[now].first != (int)s) return;
    if (before >= 0 && g->use.at[before].gone >= 0)
        ech_list_add_after(f->list, g->use.at[before].gone);
    if (g->use.at[now].fetch >= 0) ech_list_add_after(f->list, g->use.at[now].fetch);
}

static int add_copy(ech_framing *f, ech_step_kind kind, int turn, int bucket, int after)
{
    const ech_bucket *of = &f->plan->bucket.at[bucket];
    bool out = kind == ECH_STEP_OFFLOAD;
    int here = ech_frame_add(f, kind, turn, bucket, after);
    ech_step *step = &f->list->step.at[here];
    step->resource = ECH_RESOURCE_GRADIENTS;
    step->from = out ? ECH_SPACE_DEVICE : ECH_SPACE_HOST;
    step->to = out ? ECH_SPACE_HOST : ECH_SPACE_DEVICE;
    step->bytes = ech_bucket_summed(of) * (int64_t)ech_dtype_bytes(of->dtype);
    return here;
}

void ech_frame_leave(ech_framing *f, int bucket)
{
    struct ech_frame_gradients *g = f->gradients;
    const ech_bucket *of = &f->plan->bucket.at[bucket];
    if (!ech_bucket_leaves(of)) return;
    if (!ech_frame_is_shared(f->plan, of->group)) {
        g->gone = ech_frame_take_norm(f, bucket);
        return;
    }
    g->turn = f->buckets.turn;
    g->summed[g->sums++] = bucket;
}

/* Makes the compute lane wait for the sums over ranks that began before this use and ran
 * concurrently with it. */
static void end_sums(ech_framing *f)
{
    struct ech_frame_gradients *g = f->gradients;
    if (g->turn != f->buckets.turn) return;
    for (int i = 0; i < g->begun; i++) g->gone = ech_frame_take_norm(f, g->summed[i]);
    g->sums -= g->begun;
    memmove(g->summed, g->summed + g->begun, (size_t)g->sums * sizeof *g->summed);
    g->begun = g->sums;
}

static void bring(ech_framing *f, int ended)
{
    struct ech_frame_gradients *g = f->gradients;
    size_t next = (size_t)(ended + 1 + f->plan->prefetch);
    if (next >= g->use.n) return;
    gradient_use *u = &g->use.at[next];
    int turn = f->from[u->first].turn;
    for (int i = u->visit; i >= 0; i = g->visit.at[i].next) {
        if (!g->visit.at[i].comes) continue;
        u->fetch = add_copy(f, ECH_STEP_FETCH, turn, g->visit.at[i].bucket, g->gone);
        ech_list_add_after(f->list, f->now[g->use.at[ended].last]);
    }
}

void ech_frame_end_use(ech_framing *f, size_t s)
{
    struct ech_frame_gradients *g = f->gradients;
    int ended = g ? g->use_of[s] : -1;
    if (ended < 0 || g->use.at[ended].last != (int)s) return;
    gradient_use *u = &g->use.at[ended];
    end_sums(f);
    for (int i = u->visit; i >= 0; i = g->visit.at[i].next) {
        int bucket = g->visit.at[i].bucket;
        bool scattered = ech_bucket_scatters_each(&f->plan->bucket.at[bucket]);
        if (g->visit.at[i].leaves)
            g->gone = add_copy(f, ECH_STEP_OFFLOAD, f->from[s].turn, bucket,
                               scattered ? f->buckets.on[bucket].step : f->now[s]);
    }
    u->gone = g->gone;
    bring(f, ended);
}

void ech_frame_forget_sums(ech_framing *f)
{
    if (f->gradients) f->gradients->sums = f->gradients->begun = 0;
}
