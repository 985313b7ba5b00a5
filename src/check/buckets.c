/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks gradients: each parameter of the rank's blocks is in one bucket. In every turn each bucket
 * is written by all its writers (gradient accumulation), and then gets everything that its protocol
 * promises (effects.c). The writers are found from the model, and from the accesses if the list has
 * them: a step accesses exactly the gradients that it writes, and a step that works on a bucket's
 * gradients accesses these and no others.
 *
 * If gradients leave the device between the steps that write them, one value holds their sum so
 * far. Steps write that value and no other, copies move it, and the bucket's next step reads the
 * latest.
 */
#include "base/log.h"
#include "check/promise.h"

/* ---- parameters ---- */

/* Each parameter that one of the rank's blocks uses is in exactly one bucket, and no other
 * parameter is. */
static ech_status check_params(const ech_plan *plan)
{
    size_t params = plan->model->param.n;
    ECH_FREED int *found = ech_calloc(params + 1, sizeof *found);
    for (size_t i = 0; i < plan->bucket_param.n; i++) found[plan->bucket_param.at[i]]++;
    for (size_t p = 0; p < params; p++) {
        bool used = ech_layout_holds(plan->layout, plan->rank, (int)p);
        if (found[p] == used && used == (plan->param[p].elements > 0)) continue;
        ECH_FAIL(ECH_EINTERNAL,
                 "schedule check, rank %d: %s is in %d buckets, with %lld elements, and %s of this "
                 "rank's blocks uses it",
                 plan->rank, plan->model->param.at[p].name, found[p],
                 (long long)plan->param[p].elements, used ? "one" : "none");
    }
    return ECH_OK;
}

/* ---- steps ---- */

/* A micro-batch's number in its turn. */
static int number_of(const ech_turns *t, int micro)
{
    return ech_micro_at(t->list->numbering, micro).micro_batch;
}

struct ech_micro_gradients *ech_turns_micro(const ech_turns *t, int s, int bucket)
{
    int micro = t->list->step.at[s].micro;
    return micro >= 0 ? &t->bucket[bucket].of[number_of(t, micro)] : NULL;
}

static ech_status write_bucket(ech_turns *t, int s, int bucket)
{
    ech_bucket_state *b = &t->bucket[bucket];
    struct ech_micro_gradients *of = ech_turns_micro(t, s, bucket);
    int turn = t->list->step.at[s].turn;
    ech_facts more = b->now.has & ~(ech_facts)ECH_FACT_WRITTEN;
    if (b->promise.commits && turn > b->now.turn) {
        b->written_in[turn] = s + 1;
        return ECH_OK;
    }
    if (turn != b->now.turn)
        return ECH_REJECT(t, s,
                          "writes a gradient of bucket %d in turn %d; the bucket is in turn %d",
                          bucket, turn, b->now.turn);
    if (!of || more || of->summed)
        return ECH_REJECT(t, s, "writes a gradient after its %s",
                          ech_fact_text(more ? more : ECH_FACT_SUM));
    of->step = s + 1;
    b->now.has |= ECH_FACT_WRITTEN;
    b->now.step = s;
    return ECH_OK;
}

ech_status ech_turns_write_sum(const ech_turns *t, int s, int bucket, int value)
{
    ech_bucket_state *b = &t->bucket[bucket];
    if (b->promise.commits) return ECH_OK; /* a value for each turn */
    if (!b->sum) b->sum = value;
    if (b->sum == value) return ECH_OK;
    return ECH_REJECT(t, s, "writes gradients of bucket %d apart from their sum so far", bucket);
}

static bool copies_gradients(const ech_step *step)
{
    bool copies = step->kind == ECH_STEP_FETCH || step->kind == ECH_STEP_OFFLOAD;
    return copies && step->resource == ECH_RESOURCE_GRADIENTS;
}

/* A copy moves the sum so far to another value. */
static ech_status move_sum(ech_turns *t, int s)
{
    const ech_step *step = &t->list->step.at[s];
    const ech_access *pair = &t->list->access.at[step->first_access];
    if (!copies_gradients(step)) return ECH_OK;
    if (step->index < 0 || step->index >= (int)t->plan->bucket.n)
        return ECH_REJECT(t, s, "is of a bucket that this rank does not have");
    ech_bucket_state *b = &t->bucket[step->index];
    if (step->turn != b->now.turn || b->now.has != ECH_FACT_WRITTEN)
        return ECH_REJECT(t, s, "copies gradients of bucket %d, which are not being written",
                          step->index);
    if (!ech_list_has_accesses(t->plan, t->list)) return ECH_OK;
    if (step->accesses != 2 || pair[0].value != b->sum)
        return ECH_REJECT(t, s, "copies gradients of bucket %d that are not their sum so far",
                          step->index);
    b->sum = pair[1].value;
    return ECH_OK;
}

static ech_status check_accesses(ech_turns *t, int s)
{
    const ech_step *step = &t->list->step.at[s];
    bool has_bucket = ech_step_has_bucket(step) || copies_gradients(step);
    for (int i = 0; i < step->accesses; i++) {
        const ech_access *access = &t->list->access.at[step->first_access + i];
        int value = access->value - (int)t->plan->persistent.n;
        if (value < 0 || t->list->value.at[value].kind != ECH_MEMORY_GRADIENTS) continue;
        int bucket = t->list->value.at[value].index, micro = t->list->value.at[value].micro;
        if (has_bucket && bucket != step->index)
            return ECH_REJECT(t, s, "accesses gradients of bucket %d", bucket);
        if (micro >= 0 && (step->micro < 0 || number_of(t, step->micro) != number_of(t, micro)))
            return ECH_REJECT(t, s, "accesses gradients of another micro-batch");
        *(micro < 0 ? &t->bucket[bucket].accessed : &ech_turns_micro(t, s, bucket)->accessed) =
            s + 1;
        if (!access->write || step->block < 0) continue;
        ECH_TRY(write_bucket(t, s, bucket));
        if (micro < 0) ECH_TRY(ech_turns_write_sum(t, s, bucket, access->value));
    }
    return move_sum(t, s);
}

/* The bucket of the step's next access to gradients, from *i on; -1: there is none. */
static int next_gradients(const ech_turns *t, const ech_step *step, int *i)
{
    while (*i < step->accesses) {
        int value = t->list->access.at[step->first_access + (*i)++].value;
        if (value < (int)t->plan->persistent.n) continue;
        const ech_value *v = &t->list->value.at[value - (int)t->plan->persistent.n];
        if (v->kind == ECH_MEMORY_GRADIENTS) return v->index;
    }
    return -1;
}

/* A step of a block accesses gradients in the order in which its calls write them, and no
 * others. */
static ech_status write_by_model(ech_turns *t, int s)
{
    const ech_step *step = &t->list->step.at[s];
    int phase = ech_step_kind_phase(step->kind), at = 0;
    if (phase < 0) return ECH_OK;
    const ech_block *block = t->plan->model->block.at[step->block];
    for (int c = step->first_call; c < step->first_call + step->calls; c++) {
        const ech_block_call *call = &block->program[phase].at[c];
        for (const ech_operand *o = NULL; (o = ech_call_next(block, call, ECH_TRAIN, o));) {
            if (o->port != ECH_PORT_DPARAM) continue;
            int bucket = t->plan->param[o->value].bucket;
            int found = next_gradients(t, step, &at);
            if (found != bucket && ech_list_has_accesses(t->plan, t->list))
                return ECH_REJECT(t, s, "does not access the gradients of bucket %d", bucket);
            ECH_TRY(write_bucket(t, s, bucket));
        }
    }
    int more = next_gradients(t, step, &at);
    if (more < 0) return ECH_OK;
    return ECH_REJECT(t, s, "accesses gradients of bucket %d", more);
}

/* True if rounds of statistics do without what pieces bring to the host: weights, and element-wise
 * states. */
static bool rounds_are_whole(const ech_plan *plan, const ech_bucket *bucket)
{
    for (int i = 0; i < bucket->params; i++) {
        int param = plan->bucket_param.at[bucket->first_param + i];
        ech_space home = plan->param[param].master >= 0 ? plan->states : plan->weights;
        ech_rounds_read read =
            ech_optimizer_rounds_read(plan->optimizer, &plan->model->param.at[param]);
        if (read == ECH_ROUNDS_READ_ALL) return false;
        if (read == ECH_ROUNDS_READ_PARAM && home != ECH_SPACE_HOST) return false;
    }
    return true;
}

/* Pieces cover the part of a bucket that the rank updates, each element once, and end with it. They
 * split no unit of the optimizer, and no bucket whose optimizer needs all of it. */
static ech_status check_pieces(const ech_plan *plan, int index, const ech_promise *p)
{
    const ech_bucket *bucket = &plan->bucket.at[index];
    int64_t first, all = ech_bucket_updated(bucket, &first), end = 0;
    if (bucket->pieces == 1) return ECH_OK;
    bool may = bucket->pieces > 1 && p->due & ECH_FACT_AWAY &&
               (p->rounds == 0 || rounds_are_whole(plan, bucket)) &&
               bucket->piece % bucket->unit == 0;
    for (int k = 1; k <= bucket->pieces && may; k++) {
        int64_t n = ech_bucket_piece(bucket, k, &first);
        may = n > 0 && first == end;
        end += n;
    }
    if (may && end == all) return ECH_OK;
    ECH_FAIL(ECH_EINTERNAL,
             "schedule check, rank %d: bucket %d is cut into %d pieces of %lld elements, which do "
             "not make up the %lld that the rank updates, or may not be cut",
             plan->rank, index, bucket->pieces, (long long)bucket->piece, (long long)all);
}

ech_status ech_check_buckets(const ech_plan *plan, const ech_list *list)
{
    size_t buckets = plan->bucket.n, pieces = 0, turns = (size_t)list->turns;
    size_t micro_batches = (size_t)list->numbering.micro_batches;
    ECH_TRY(check_params(plan));
    ECH_FREED ech_bucket_state *bucket = ech_calloc(buckets + 1, sizeof *bucket);
    for (size_t b = 0; b < buckets; b++) {
        ECH_TRY(ech_promise_find(plan, list, (int)b, &bucket[b].promise));
        if (ech_list_trains(list)) ECH_TRY(check_pieces(plan, (int)b, &bucket[b].promise));
        pieces += (size_t)plan->bucket.at[b].pieces;
    }
    ECH_FREED struct ech_micro_gradients *of = ech_calloc(buckets * micro_batches + 1, sizeof *of);
    ECH_FREED int *written_in = ech_calloc(buckets * turns + 1, sizeof *written_in);
    ECH_FREED ech_course *away = ech_calloc(2 * pieces + 1, sizeof *away);
    ech_course *next = away;
    ech_turns t = {.plan = plan, .list = list, .bucket = bucket, .known = ech_known_begin()};
    for (size_t b = 0; b < buckets; b++) {
        bucket[b].written_in = &written_in[b * turns];
        bucket[b].of = &of[b * micro_batches];
        for (int turn = 0; turn < 2; turn++, next += plan->bucket.at[b].pieces)
            bucket[b].away[turn] = next;
        ech_turns_begin(&t, &bucket[b]);
    }
    for (int s = 0; s < (int)list->step.n; s++) {
        ech_known_learn(&t.known, list, &list->step.at[s]);
        ECH_TRY(check_accesses(&t, s));
        ECH_TRY(write_by_model(&t, s));
        ECH_TRY(ech_turns_take(&t, s));
    }
    return ech_turns_end(&t);
}
