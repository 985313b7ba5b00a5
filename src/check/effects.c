/* SPDX-License-Identifier: Apache-2.0
 *
 * What steps do to a bucket (effects.def), turn by turn, and whether what they need has been done: so when a turn has ended all facts
 * hold that the promise names. Each step knows that the one before it on its bucket has ended.
 */
#include <string.h>

#include "check/turns.h"

#define F(name) (ech_facts) ECH_FACT_##name

enum { OTHER, GRADIENTS };
enum { BUCKET, PIECE };

typedef struct effect {
    bool is, works, of_piece;
    ech_facts needs, unless, gives;
} effect;

static const effect effects[ECH_STEPS] = {
#define FACT(...)
#define EFFECT(kind, works, of, needs, unless, gives)                                              \
    [ECH_STEP_##kind] = {true, works == GRADIENTS, of == PIECE, needs, unless, gives},
#include "check/effects.def"
};

static const char *const texts[ECH_FACTS] = {
#define FACT(name, text) text,
#define EFFECT(...)
#include "check/effects.def"
};

static const char *first_text(ech_facts facts)
{
    int at = 0;
    while (at < ECH_FACTS - 1 && !(facts >> at & 1)) at++;
    return texts[at];
}

const char *ech_fact_text(ech_facts facts)
{
    int at = ECH_FACTS - 1;
    while (at > 0 && !(facts >> at & 1)) at--;
    return texts[at];
}

/* Weights that have met go to where they are kept; a fold is of shards, or of tensor ranks; a sender's norm comes before the sum. */
static effect effect_of(const ech_turns *t, const ech_step *step, const ech_promise *p)
{
    effect e = effects[step->kind];
    if (step->kind == ECH_STEP_OFFLOAD_WEIGHTS && p->due & F(HOME))
        e = (effect){.is = true, .needs = F(WHOLE), .gives = F(HOME)};
    if (step->kind == ECH_STEP_FOLD && step->group == p->group)
        e.gives = F(FOLD_SHARDS);
    else if (step->kind == ECH_STEP_FOLD)
        e.needs |= F(FOLD_SHARDS);
    if (ech_protocol_promise_of(t->plan)->norms == ECH_NORMS_SENDER) {
        if (step->kind == ECH_STEP_NORM) e.needs &= ~F(SUM);
        if (step->kind == ECH_STEP_SCATTER_GRADS) e.needs |= F(NORM) | F(CLIP);
    }
    return e;
}

/* ---- turns ---- */

/* What must have been done so far with statistics, too. */
static ech_facts due_of(const ech_promise *p, const ech_course *on)
{
    return p->due | (on->rounds ? p->of_round[on->rounds - 1] : 0);
}

/* Of several pieces the last goes on with what is done once. */
static bool has_ended(const ech_promise *p, const ech_course *on, bool last)
{
    ech_facts due = due_of(p, on) & ~(last ? 0 : F(WHOLE));
    return on->rounds == p->rounds && (on->has & due) == due;
}

void ech_turns_begin(const ech_turns *t, ech_bucket_state *b)
{
    bool pushed = ech_protocol_promise_of(t->plan)->adds == ECH_ADDS_PUSH;
    bool serves = ech_layout_serves(t->plan->layout, t->plan->rank);
    if (serves && !pushed && b->now.turn < t->list->turns) b->now.has = F(WRITTEN);
}

/* The gradients' way is over: they have left for the host, or the turn has ended. */
static void end_turn(const ech_turns *t, ech_bucket_state *b)
{
    memset(b->of, 0, (size_t)t->list->numbering.micro_batches * sizeof *b->of);
    b->summed = b->sum = 0;
    b->now = (ech_course){.turn = b->now.turn + 1, .step = b->now.step};
    ech_turns_begin(t, b);
    if (b->now.turn >= t->list->turns || !b->written_in[b->now.turn]) return;
    b->now.has = F(WRITTEN);
    b->now.step = b->written_in[b->now.turn] - 1;
}

/* ---- effects ---- */

static int pieces_of(const ech_turns *t, const ech_step *step)
{
    return t->plan->bucket.at[step->index].pieces;
}

/* The step sums a micro-batch's gradients, which have been written, once; the turn's first sum
 * overwrites. *before: the last step that writes them. */
static ech_status sum_instance(const ech_turns *t, int s, ech_bucket_state *b, int *before)
{
    const ech_step *step = &t->list->step.at[s];
    ech_instance_state *of = ech_turns_instance(t, s, step->index);
    if (!of || !of->step || of->summed)
        return ech_list_reject(t->plan, t->list, s, "sums gradients that are not there");
    if (step->adds != (b->summed > 0))
        return ech_list_reject(t->plan, t->list, s, "%s to what %d others have left",
                               step->adds ? "adds" : "does not add", b->summed);
    *before = of->step - 1;
    of->summed = true;
    b->summed++;
    if (!ech_turns_have_accesses(t)) return ECH_OK;
    return ech_turns_write_sum(t, s, step->index, ech_list_shard_sum(t->plan, t->list, step));
}

/* A stage that comes once follows the last piece, and knows that the updates of all have ended. */
static ech_status join_pieces(const ech_turns *t, int s, const ech_bucket_state *b, int *before)
{
    const ech_step *step = &t->list->step.at[s];
    int place = step->turn % 2;
    if (b->left[place] > 1)
        return ech_list_reject(t->plan, t->list, s,
                               "comes before the updates of %d other pieces of its bucket",
                               b->left[place] - 1);
    for (int k = 0; k < pieces_of(t, step); k++)
        if (b->away[place][k].step > *before) *before = b->away[place][k].step;
    return ECH_OK;
}

static ech_status check_facts(const ech_turns *t, int s, const ech_promise *p, const ech_course *on,
                              const effect *e)
{
    const ech_step *step = &t->list->step.at[s];
    ech_facts due = due_of(p, on), lacks = e->needs & due & ~on->has;
    bool other_kind = (e->gives & F(UPDATE) && step->kind != p->update) ||
                      (e->gives & F(WHOLE) && step->kind != p->spread);
    if (lacks)
        return ech_list_reject(t->plan, t->list, s, "comes where its bucket's %s is next, round %d",
                               first_text(lacks), on->rounds);
    if (e->gives & ~due || other_kind)
        return ech_list_reject(t->plan, t->list, s,
                               "makes the %s of a bucket for which nobody has promised that",
                               first_text(e->gives));
    if ((e->gives | e->unless) & on->has)
        return ech_list_reject(t->plan, t->list, s, "comes after the %s of its bucket",
                               first_text((e->gives | e->unless) & on->has));
    return ECH_OK;
}

/* A round begins when the one before has ended, and its steps have its number. */
static ech_status check_round(const ech_turns *t, int s, const ech_promise *p, ech_course *on,
                              const effect *e)
{
    const ech_step *step = &t->list->step.at[s];
    bool begins = e->is && !e->gives, updates = e->gives & F(UPDATE);
    bool of_round = e->gives & (ech_facts)ECH_FACTS_OF_ROUND;
    if (updates && on->rounds < p->rounds)
        return ech_list_reject(t->plan, t->list, s, "comes where its bucket's %s is next, round %d",
                               first_text(F(STATISTICS)), on->rounds);
    if ((begins || of_round) && (step->count != on->rounds - of_round || (begins && on->rounds == p->rounds)))
        return ech_list_reject(t->plan, t->list, s, "is of round %d; its bucket has begun %d of %d",
                               step->count, on->rounds, p->rounds);
    if (!begins) return ECH_OK;
    on->rounds++;
    on->has = (on->has & ~(ech_facts)ECH_FACTS_OF_ROUND) | F(STATISTICS);
    return ECH_OK;
}

/* Who meets is who has what the step puts together; and what it works on has been summed. */
static ech_status check_extents(const ech_turns *t, int s, const ech_promise *p,
                                const ech_course *on, const effect *e)
{
    const ech_step *step = &t->list->step.at[s];
    ech_layout_group group = p->group;
    if (step->kind == ECH_STEP_REDUCE_LEFT || step->kind == ECH_STEP_REDUCE_RIGHT)
        group = p->factors;
    if (e->gives & F(FOLD)) group = ECH_GROUP_TENSOR;
    if (ech_step_gathers(step) && step->group != group)
        return ech_list_reject(t->plan, t->list, s, "meets other ranks than those of %s",
                               ech_layout_group_name(group));
    bool updates = !e->gives || e->gives & (F(UPDATE) | F(AWAY));
    bool all = p->updates.n > p->part.n || (p->updates.n && p->updates.first != p->part.first);
    if (updates && on->scattered && all)
        return ech_list_reject(t->plan, t->list, s, "works on %lld elements, and has the sum of %lld",
                               (long long)p->updates.n, (long long)p->part.n);
    return ECH_OK;
}

/* Who accesses gradients on the device accesses their sum so far. Of compressed ones the norm is that of what is sent. */
static ech_status check_access(const ech_turns *t, int s, const ech_bucket_state *b,
                               const effect *e)
{
    const ech_step *step = &t->list->step.at[s];
    ech_instance_state *of = step->micro >= 0 ? ech_turns_instance(t, s, step->index) : NULL;
    bool sent = step->kind == ECH_STEP_NORM && b->promise.due & F(RESIDUAL);
    if (!e->works || sent) return ECH_OK;
    if (ech_turns_have_accesses(t) && (b->accessed != s + 1 || (of && of->accessed != s + 1)))
        return ech_list_reject(t->plan, t->list, s, "does not access the gradients of bucket %d",
                               step->index);
    if (!of && b->sum && step->accesses &&
        ech_list_gradients(t->plan, t->list, step, step->index) != b->sum)
        return ech_list_reject(t->plan, t->list, s,
                               "works on gradients of bucket %d that are not their sum",
                               step->index);
    return ECH_OK;
}

/* before: the step that it must know to have ended. */
static ech_status check_waits(const ech_turns *t, int s, int before)
{
    const ech_step *step = &t->list->step.at[s], *read = &t->list->step.at[t->read];
    ech_lane lane = t->list->step.at[before].lane;
    if (lane != step->lane && t->known.step[step->lane][lane] < before)
        return ech_list_reject(t->plan, t->list, s,
                               "does not wait for step %d, the last on its bucket", before);
    if (step->lane == ECH_LANE_HOST &&
        (read->kind != ECH_STEP_READ_UPDATE || read->turn != step->turn ||
         t->known.step[step->lane][read->lane] < t->read))
        return ech_list_reject(t->plan, t->list, s, "does not wait for the turn's scalars");
    return ECH_OK;
}

/* Gradients have left, or a turn, or the update of a piece, has ended. */
static ech_status go_on(const ech_turns *t, int s, ech_bucket_state *b, ech_course *on, bool last,
                        bool leaves)
{
    const ech_step *step = &t->list->step.at[s];
    bool ended = has_ended(&b->promise, on, last);
    int place = step->turn % 2;
    if (leaves && b->left[place])
        return ech_list_reject(t->plan, t->list, s, "comes before the update of turn %d has ended",
                               b->away[place]->turn);
    for (int k = 0; leaves && k < pieces_of(t, step); k++) b->away[place][k] = b->now;
    if (leaves) b->left[place] = pieces_of(t, step);
    if (ended && on != &b->now) b->left[place]--;
    if (on == &b->now && (leaves || ended)) end_turn(t, b);
    return ECH_OK;
}

/* last: `on` is of all of the bucket, or of its last piece. */
static ech_status advance(ech_turns *t, int s, ech_bucket_state *b, ech_course *on, bool last)
{
    const ech_step *step = &t->list->step.at[s];
    const ech_promise *p = &b->promise;
    effect e = effect_of(t, step, p);
    int before = on->step, micro_batches = t->list->numbering.micro_batches;
    bool in_parts = step->kind == ECH_STEP_SCATTER_GRADS && step->micro >= 0;
    if (on != &b->now && has_ended(p, on, last))
        return ech_list_reject(t->plan, t->list, s, "is of a piece whose update has ended");
    ECH_TRY(check_facts(t, s, p, on, &e));
    ECH_TRY(check_round(t, s, p, on, &e));
    ECH_TRY(check_extents(t, s, p, on, &e));
    if (on != &b->now && !e.of_piece) ECH_TRY(join_pieces(t, s, b, &before));
    if (in_parts) ECH_TRY(sum_instance(t, s, b, &before));
    if (b->summed && b->summed < micro_batches && !in_parts)
        return ech_list_reject(t->plan, t->list, s, "comes when %d of %d micro-batches are summed",
                               b->summed, micro_batches);
    ECH_TRY(check_waits(t, s, before));
    ECH_TRY(check_access(t, s, b, &e));
    if (e.gives & F(SUM)) on->scattered = step->kind == ECH_STEP_SCATTER_GRADS;
    if (!in_parts || b->summed == micro_batches) on->has |= e.gives;
    on->step = s;
    return go_on(t, s, b, on, last, e.gives & F(AWAY));
}

/* A step of an update whose gradients have left: of a piece, or of all after the last one. */
static ech_status update_piece(ech_turns *t, int s, ech_bucket_state *b)
{
    const ech_step *step = &t->list->step.at[s];
    int pieces = pieces_of(t, step), piece = ech_step_piece(step);
    if (piece < 0 || piece > pieces || (piece && pieces == 1))
        return ech_list_reject(t->plan, t->list, s, "is of piece %d; its bucket has %d", piece,
                               pieces);
    if (!piece && pieces > 1 && effect_of(t, step, &b->promise).of_piece)
        return ech_list_reject(t->plan, t->list, s,
                               "comes where its bucket's update goes piece by piece");
    int at = piece ? piece - 1 : pieces - 1;
    return advance(t, s, b, &b->away[step->turn % 2][at], at == pieces - 1);
}

/* ---- steps of all buckets, and of a list's end ---- */

/* A push has come: its gradients are those of the turn. */
static ech_status serve(ech_turns *t, int s)
{
    const ech_step *step = &t->list->step.at[s];
    for (size_t b = 0; b < t->plan->bucket.n; b++) {
        ech_course *now = &t->bucket[b].now;
        if (step->turn != now->turn || now->has)
            return ech_list_reject(t->plan, t->list, s,
                                   "comes before the push of turn %d is served", now->turn);
        now->has = F(WRITTEN);
        now->step = s;
    }
    return ECH_OK;
}

/* The norm is that of all buckets. */
static ech_status clip(ech_turns *t, int s)
{
    const ech_step *step = &t->list->step.at[s];
    int place = step->turn % 2;
    for (int b = 0; b < (int)t->plan->bucket.n; b++) {
        ech_bucket_state *of = &t->bucket[b];
        bool away = of->left[place] && of->away[place]->turn == step->turn;
        ech_course *on = away ? of->away[place] : &of->now;
        ech_facts norm = of->promise.due & F(NORM);
        if (!(of->promise.due & F(CLIP)) || on->turn > step->turn) continue;
        if (on->turn < step->turn || (on->has & norm) != norm)
            return ech_list_reject(t->plan, t->list, s, "comes before the norm of bucket %d", b);
        for (int k = 0; k < (away ? t->plan->bucket.at[b].pieces : 1); k++)
            on[k].has |= F(CLIP);
    }
    return ECH_OK;
}

/* Behind a list all have the newest weights, by one step for each bucket. */
static ech_status meet(ech_turns *t, int s)
{
    int b = t->list->step.at[s].index;
    if (t->bucket[b].now.turn != t->list->turns)
        return ech_list_reject(t->plan, t->list, s, "comes before all pushes are served");
    if (t->bucket[b].met)
        return ech_list_reject(t->plan, t->list, s, "distributes a bucket's weights again");
    if (t->list->step.at[s].turn != 0)
        return ech_list_reject(t->plan, t->list, s, "is of a turn; the whole span's is turn 0");
    t->bucket[b].met = true;
    return ECH_OK;
}

static bool is_meeting(const ech_turns *t, const ech_step *step)
{
    const ech_protocol_promise *of = ech_protocol_promise_of(t->plan);
    if (of->meets != ECH_MEETS_LIST || step->kind != of->spread) return false;
    return ech_step_gathers(step) ? step->group == ECH_GROUP_SERVED
                                  : t->bucket[step->index].now.turn == t->list->turns;
}

ech_status ech_turns_take(ech_turns *t, int s)
{
    const ech_step *step = &t->list->step.at[s];
    if (step->kind == ECH_STEP_READ_UPDATE) t->read = s;
    if (step->kind == ECH_STEP_SERVE) return serve(t, s);
    if (step->kind == ECH_STEP_CLIP) return clip(t, s);
    if (!ech_step_has_bucket(step) || ech_step_brings_weights(step)) return ECH_OK;
    if (step->index < 0 || step->index >= (int)t->plan->bucket.n)
        return ech_list_reject(t->plan, t->list, s, "is of a bucket that this rank does not have");
    if (is_meeting(t, step)) return meet(t, s);
    ech_bucket_state *b = &t->bucket[step->index];
    int place = step->turn % 2;
    if (!effects[step->kind].is)
        return ech_list_reject(t->plan, t->list, s, "is of no turn's update");
    if (step->turn >= 0 && b->left[place] && step->turn == b->away[place]->turn)
        return update_piece(t, s, b);
    if (step->turn != b->now.turn)
        return ech_list_reject(t->plan, t->list, s, "is of turn %d; its bucket is in turn %d",
                               step->turn, b->now.turn);
    if (!(b->now.has & F(WRITTEN)))
        return ech_list_reject(t->plan, t->list, s, "is of a bucket that nothing has written");
    return advance(t, s, b, &b->now, true);
}

ech_status ech_turns_end(const ech_turns *t)
{
    bool meets = ech_protocol_promise_of(t->plan)->meets == ECH_MEETS_LIST;
    for (size_t i = 0; i < t->plan->bucket.n; i++) {
        const ech_bucket_state *b = &t->bucket[i];
        int left = (b->left[0] > 0) + (b->left[1] > 0);
        if (b->now.turn != t->list->turns || b->now.has || left)
            return ech_list_reject(t->plan, t->list, (int)t->list->step.n - 1,
                                   "ends a list without every update: bucket %zu had %d of %d", i,
                                   b->now.turn - left, t->list->turns);
        if (meets && !b->met)
            return ech_list_reject(t->plan, t->list, (int)t->list->step.n - 1,
                                   "ends a list without the weights of bucket %zu that others have updated",
                                   i);
    }
    return ECH_OK;
}
