/* SPDX-License-Identifier: Apache-2.0
 *
 * The effects of steps on a bucket (effects.def), turn by turn, and whether their prerequisites
 * hold: so when a turn has ended all facts hold that the promise names. Each step waits for the
 * previous one on its bucket.
 */
#include <string.h>

#include "check/promise.h"
#include "schedule/operands.h"

#define F(name) (ech_facts) ECH_FACT_##name

enum { OTHER, GRADIENTS };
enum { BUCKET, PIECE };

typedef struct effect {
    bool works, of_piece;
    ech_facts needs, unless, gives;
} effect;

static const effect effects[ECH_STEPS] = {
#define EFFECT(kind, works, of, needs, unless, gives)                                              \
    [ECH_STEP_##kind] = {works == GRADIENTS, of == PIECE, needs, unless, gives},
#include "check/effects.def"
};

const char *ech_fact_text(ech_facts facts)
{
    static const char *const texts[] = {
#define FACT(name, text) text,
#include "check/effects.def"
    };
    int at = 0;
    while (at < ECH_FACTS - 1 && !(facts >> at & 1)) at++;
    return texts[at];
}

/* Gathered weights go to their storage; a fold is over shards, or over tensor ranks; if the
 * sender's norm counts, it comes before the sum. */
static effect effect_of(const ech_turns *t, const ech_step *step, const ech_promise *p)
{
    effect e = effects[step->kind];
    if (e.gives != F(WRITTEN)) e.needs |= F(WRITTEN);
    bool before = ech_protocol_promise_of(t->plan)->norms == ECH_NORMS_SENDER;
    if (step->kind == ECH_STEP_OFFLOAD_WEIGHTS && p->due & F(HOME))
        e = (effect){.needs = F(WRITTEN) | F(WHOLE), .gives = F(HOME)};
    if (step->kind == ECH_STEP_FOLD && step->group == p->group)
        e.gives = F(FOLD_SHARDS);
    else if (step->kind == ECH_STEP_FOLD)
        e.needs |= F(FOLD_SHARDS);
    if (before && step->kind == ECH_STEP_NORM) e.needs &= ~F(SUM);
    if (before && step->kind == ECH_STEP_SCATTER_GRADS) e.needs |= F(NORM) | F(CLIP);
    return e;
}

static bool is_of_round(const effect *e)
{
    return e->gives & (ech_facts)ECH_FACTS_OF_ROUND;
}

/* ---- turns ---- */

static ech_facts due_of(const ech_promise *p, const ech_course *on)
{
    return p->due | (on->rounds ? p->of_round[on->rounds - 1] : 0);
}

/* After the last of several pieces, the steps follow that are done once. */
static bool has_ended(const ech_promise *p, const ech_course *on, bool last)
{
    ech_facts due = due_of(p, on) & ~(last ? 0 : F(WHOLE));
    return on->rounds == p->rounds && (on->has & due) == due;
}

void ech_turns_begin(const ech_turns *t, ech_bucket_state *b)
{
    bool pushed = ech_protocol_promise_of(t->plan)->adds == ECH_ADDS_PUSH;
    bool serves = ech_layout_serves(t->plan->layout, t->plan->rank);
    bool over = b->now.turn == t->list->turns || !b->promise.due;
    if (serves && !pushed && b->now.turn < t->list->turns) b->now.has = F(WRITTEN);
    if (!b->promise.averages || b->mean || !over) return;
    b->promise = ech_promise_of_mean(t->plan);
    b->mean = true;
    b->now = (ech_course){.has = serves ? F(WRITTEN) : 0, .step = b->now.step};
}

/* Ends the path of the gradients: they have left for the host, or the turn has ended. */
static void end_turn(const ech_turns *t, ech_bucket_state *b)
{
    memset(b->of, 0, (size_t)t->list->numbering.micro_batches * sizeof *b->of);
    b->summed = b->sum = 0;
    b->now = (ech_course){.turn = b->now.turn + 1, .step = b->now.step};
    ech_turns_begin(t, b);
    if (b->mean || b->now.turn >= t->list->turns || !b->written_in[b->now.turn]) return;
    b->now.has = F(WRITTEN);
    b->now.step = b->written_in[b->now.turn] - 1;
}

/* ---- effects ---- */

/* The step's prerequisites hold, its effect is promised, and happens once. */
static ech_status check_facts(const ech_turns *t, int s, const ech_promise *p, const ech_course *on,
                              const effect *e)
{
    const ech_step *step = &t->list->step.at[s];
    bool begins = e->gives & F(STATISTICS), of_round = is_of_round(e);
    ech_facts due = due_of(p, on), lacks = e->needs & due & ~on->has;
    ech_facts done = on->has & ~(begins ? (ech_facts)ECH_FACTS_OF_ROUND : 0);
    bool other = !e->gives || e->gives & ~due ||
                 (e->gives & F(UPDATE) && step->kind != p->update) ||
                 (e->gives & F(WHOLE) && step->kind != p->spread);
    if (e->gives & F(UPDATE) && on->rounds < p->rounds) lacks |= F(STATISTICS);
    if (lacks)
        return ECH_REJECT(t, s, "comes where its bucket's %s is next, round %d",
                          ech_fact_text(lacks), on->rounds);
    if (other) return ECH_REJECT(t, s, "does what nobody has promised of its bucket");
    if ((e->gives | e->unless) & done)
        return ECH_REJECT(t, s, "comes after its bucket's %s",
                          ech_fact_text((e->gives | e->unless) & done));
    if (of_round && (step->count != on->rounds - !begins || (begins && on->rounds == p->rounds)))
        return ECH_REJECT(t, s, "is of round %d; its bucket has begun %d of %d", step->count,
                          on->rounds, p->rounds);
    return ECH_OK;
}

/* The step's group is the set of ranks whose parts it combines; and its operands have been
 * summed. */
static ech_status check_extent(const ech_turns *t, int s, const ech_promise *p,
                               const ech_course *on, const effect *e)
{
    const ech_step *step = &t->list->step.at[s];
    bool of_factors = step->kind == ECH_STEP_REDUCE_LEFT || step->kind == ECH_STEP_REDUCE_RIGHT;
    ech_layout_group group = of_factors ? p->factors : p->group;
    if (e->gives & F(FOLD)) group = ECH_GROUP_TENSOR;
    if (ech_step_gathers(step) && step->group != group)
        return ECH_REJECT(t, s, "does not meet the ranks of %s", ech_layout_group_name(group));
    if (on->scattered && !p->shares && e->gives & (F(UPDATE) | F(STATISTICS) | F(AWAY)))
        return ECH_REJECT(t, s, "works on more than the shard that is summed");
    return ECH_OK;
}

/* The step sums a micro-batch's complete gradients, once; the turn's first sum overwrites. *before:
 * the last step that writes them. */
static ech_status sum_micro(const ech_turns *t, int s, ech_bucket_state *b, int *before)
{
    const ech_step *step = &t->list->step.at[s];
    struct ech_micro_gradients *of = ech_turns_micro(t, s, step->index);
    if (!of->step || of->summed) return ECH_REJECT(t, s, "sums gradients that are not there");
    if (step->adds != (b->summed > 0))
        return ECH_REJECT(t, s, "%s to what %d others have left",
                          step->adds ? "adds" : "does not add", b->summed);
    *before = of->step - 1;
    of->summed = true;
    b->summed++;
    if (!ech_list_has_accesses(t->plan, t->list)) return ECH_OK;
    return ech_turns_write_sum(t, s, step->index, ech_list_shard_sum(t->plan, t->list, step));
}

/* Steps that are done once follow the last piece, and wait for the end of all pieces' updates. */
static ech_status join_pieces(const ech_turns *t, int s, const ech_bucket_state *b, int *before)
{
    const ech_step *step = &t->list->step.at[s];
    int parity = step->turn & 1;
    if (b->left[parity] > 1)
        return ECH_REJECT(t, s, "comes before the updates of %d other pieces of its bucket",
                          b->left[parity] - 1);
    for (int k = 0; k < t->plan->bucket.at[step->index].pieces; k++)
        if (b->away[parity][k].step > *before) *before = b->away[parity][k].step;
    return ECH_OK;
}

/* A step that accesses gradients on the device accesses their sum so far. The norm of compressed
 * gradients is the norm of the factors or selections that are sent. */
static ech_status check_access(const ech_turns *t, int s, const ech_bucket_state *b,
                               const effect *e)
{
    const ech_step *step = &t->list->step.at[s];
    bool sent = step->kind == ECH_STEP_NORM && b->promise.due & F(RESIDUAL);
    bool in_parts = step->micro >= 0;
    if (!e->works || sent || !ech_list_has_accesses(t->plan, t->list)) return ECH_OK;
    if (b->accessed != s + 1 || (in_parts && ech_turns_micro(t, s, step->index)->accessed != s + 1))
        return ECH_REJECT(t, s, "does not access the gradients of bucket %d", step->index);
    if (!in_parts && b->sum && ech_list_gradients(t->plan, t->list, step, step->index) != b->sum)
        return ECH_REJECT(t, s, "works on gradients of bucket %d that are not their sum",
                          step->index);
    return ECH_OK;
}

/* before: the step that it must wait for. */
static ech_status check_waits(const ech_turns *t, int s, int before)
{
    const ech_step *step = &t->list->step.at[s], *read = &t->list->step.at[t->read];
    ech_lane lane = t->list->step.at[before].lane;
    if (lane != step->lane && t->known.step[step->lane][lane] < before)
        return ECH_REJECT(t, s, "does not wait for step %d, the last on its bucket", before);
    if (step->lane == ECH_LANE_HOST &&
        (read->kind != ECH_STEP_READ_UPDATE || read->turn != step->turn ||
         t->known.step[step->lane][read->lane] < t->read))
        return ECH_REJECT(t, s, "does not wait for the turn's scalars");
    return ECH_OK;
}

/* last: `on` is the whole bucket, or its last piece. */
static ech_status advance(ech_turns *t, int s, ech_bucket_state *b, ech_course *on, bool last)
{
    const ech_step *step = &t->list->step.at[s];
    const ech_promise *p = &b->promise;
    effect e = effect_of(t, step, p);
    int before = on->step, micro_batches = t->list->numbering.micro_batches;
    bool in_parts = step->kind == ECH_STEP_SCATTER_GRADS && step->micro >= 0;
    if (on != &b->now && has_ended(p, on, last))
        return ECH_REJECT(t, s, "is of a piece whose update has ended");
    ECH_TRY(check_facts(t, s, p, on, &e));
    ECH_TRY(check_extent(t, s, p, on, &e));
    if (on != &b->now && !e.of_piece && !is_of_round(&e)) ECH_TRY(join_pieces(t, s, b, &before));
    if (in_parts) ECH_TRY(sum_micro(t, s, b, &before));
    if (on == &b->now && !in_parts && b->summed && b->summed < micro_batches)
        return ECH_REJECT(t, s, "comes when %d of %d micro-batches are summed", b->summed,
                          micro_batches);
    ECH_TRY(check_waits(t, s, before));
    if (e.gives & F(UPDATE) && on->round) ECH_TRY(check_waits(t, s, on->round - 1));
    ECH_TRY(check_access(t, s, b, &e));
    if (e.gives & F(SUM)) on->scattered = step->kind == ECH_STEP_SCATTER_GRADS;
    if (e.gives & F(STATISTICS)) on->has &= ~(ech_facts)ECH_FACTS_OF_ROUND;
    on->rounds += (e.gives & F(STATISTICS)) != 0;
    if (!in_parts || b->summed == micro_batches) on->has |= e.gives;
    on->step = s;
    int parity = step->turn & 1, pieces = t->plan->bucket.at[step->index].pieces;
    /* each piece continues from there */
    bool ended = has_ended(p, on, last), leaves = e.gives & F(AWAY);
    if (leaves && b->left[parity])
        return ECH_REJECT(t, s, "comes before the update of turn %d has ended",
                          b->away[parity]->turn);
    for (int k = 0; leaves && k < pieces; k++) b->away[parity][k] = *on;
    b->left[parity] += leaves ? pieces : ended && on != &b->now ? -1 : 0;
    if (on == &b->now && (ended || leaves)) end_turn(t, b);
    return ECH_OK;
}

/* The rounds are on the first piece's path, and hold for all pieces. */
static void spread_round(const ech_turns *t, int s, ech_course *piece)
{
    int pieces = t->plan->bucket.at[t->list->step.at[s].index].pieces;
    for (int k = 1; k < pieces; k++) {
        piece[k].has &= ~(ech_facts)ECH_FACTS_OF_ROUND;
        piece[k].has |= piece[0].has & (ech_facts)ECH_FACTS_OF_ROUND;
        piece[k].rounds = piece[0].rounds;
        piece[k].round = s + 1;
    }
}

/* A step of an update whose gradients have left: of one piece, of a round, or of all after the last
 * piece. */
static ech_status update_piece(ech_turns *t, int s, ech_bucket_state *b)
{
    const ech_step *step = &t->list->step.at[s];
    int pieces = t->plan->bucket.at[step->index].pieces, piece = ech_step_piece(step);
    if (piece < 0 || piece > pieces || (piece && pieces == 1))
        return ECH_REJECT(t, s, "is of piece %d; its bucket has %d", piece, pieces);
    effect e = effect_of(t, step, &b->promise);
    if (!piece && pieces > 1 && e.of_piece)
        return ECH_REJECT(t, s, "comes where its bucket's update goes piece by piece");
    ech_course *away = b->away[step->turn & 1];
    int at = piece ? piece - 1 : is_of_round(&e) ? 0 : pieces - 1;
    ECH_TRY(advance(t, s, b, &away[at], at == pieces - 1));
    if (is_of_round(&e)) spread_round(t, s, away);
    return ECH_OK;
}

/* ---- steps of all buckets, and at a list's end ---- */

/* A push has arrived: its gradients are the turn's. */
static ech_status serve(const ech_turns *t, int s, int b, ech_course *now)
{
    if (t->list->step.at[s].turn != now->turn || now->has)
        return ECH_REJECT(t, s, "comes before bucket %d of turn %d is served", b, now->turn);
    now->has = F(WRITTEN);
    now->step = s;
    return ECH_OK;
}

/* CLIP needs the norms of all buckets, even if their gradients have left. */
static ech_status clip(const ech_turns *t, int s, int b, ech_bucket_state *of)
{
    int turn = t->list->step.at[s].turn, pieces = t->plan->bucket.at[b].pieces;
    bool away = of->left[turn & 1] && of->away[turn & 1]->turn == turn;
    ech_course *on = away ? of->away[turn & 1] : &of->now;
    ech_facts norm = of->promise.due & F(NORM);
    if (!(of->promise.due & F(CLIP)) || on->turn > turn) return ECH_OK;
    if (on->turn < turn || (on->has & norm) != norm)
        return ECH_REJECT(t, s, "comes before the norm of bucket %d", b);
    for (int k = 0; k < (away ? pieces : 1); k++) on[k].has |= F(CLIP);
    return ECH_OK;
}

/* After a list all ranks get the updates of others, by one step per bucket. */
static bool is_meeting(const ech_turns *t, const ech_step *step)
{
    const ech_protocol_promise *of = ech_protocol_promise_of(t->plan);
    if (of->meets != ECH_MEETS_LIST || step->kind != of->spread) return false;
    if (t->bucket[step->index].promise.averages) return false;
    return ech_step_gathers(step) ? step->group == ECH_GROUP_SERVED
                                  : t->bucket[step->index].now.turn == t->list->turns;
}

static ech_status meet(const ech_turns *t, int s, ech_bucket_state *b)
{
    if (b->met || b->now.turn != t->list->turns || t->list->step.at[s].turn != 0)
        return ECH_REJECT(t, s, "is not once after the last turn");
    b->met = true;
    return ECH_OK;
}

ech_status ech_turns_take(ech_turns *t, int s)
{
    const ech_step *step = &t->list->step.at[s];
    int buckets = (int)t->plan->bucket.n;
    if (step->kind == ECH_STEP_READ_UPDATE) t->read = s;
    if (step->kind == ECH_STEP_SERVE)
        for (int b = 0; b < buckets; b++)
            if (!t->bucket[b].mean) ECH_TRY(serve(t, s, b, &t->bucket[b].now));
    if (step->kind == ECH_STEP_CLIP)
        for (int b = 0; b < buckets; b++) ECH_TRY(clip(t, s, b, &t->bucket[b]));
    if (!ech_step_has_bucket(step) || ech_step_brings_weights(step)) return ECH_OK;
    if (step->index < 0 || step->index >= buckets)
        return ECH_REJECT(t, s, "is of a bucket that this rank does not have");
    ech_bucket_state *b = &t->bucket[step->index];
    int parity = step->turn & 1;
    if (is_meeting(t, step)) return meet(t, s, b);
    if (b->left[parity] && step->turn == b->away[parity]->turn) return update_piece(t, s, b);
    if (step->turn != b->now.turn)
        return ECH_REJECT(t, s, "is of turn %d; its bucket is in turn %d", step->turn, b->now.turn);
    return advance(t, s, b, &b->now, true);
}

ech_status ech_turns_end(const ech_turns *t)
{
    bool meets = ech_protocol_promise_of(t->plan)->meets == ECH_MEETS_LIST;
    for (size_t i = 0; i < t->plan->bucket.n; i++) {
        const ech_bucket_state *b = &t->bucket[i];
        int left = (b->left[0] > 0) + (b->left[1] > 0);
        if (b->mean && b->now.turn == 1 && !left) continue;
        if (b->promise.frozen && !b->now.has) continue;
        if (b->now.turn == t->list->turns && !b->now.has && !left && b->met == meets) continue;
        return ECH_REJECT(t, (int)t->list->step.n - 1,
                          "ends a list without every update: bucket %zu had %d of %d%s", i,
                          b->now.turn - left, t->list->turns,
                          meets && !b->met ? ", and not the updates of others" : "");
    }
    return ECH_OK;
}
