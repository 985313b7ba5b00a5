/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the collectives inside of sharded blocks. It knows the blocks' programs, and nothing of
 * how they were split into steps:
 *
 * - Calls that touch the same value come in the order of their programs: F, then R, then B, then
 *   W. So each reads the results of all earlier calls, and of no later ones.
 * - If two steps touch the same value and one of them writes it, the later one begins after the
 *   end of the other, on whatever lanes. So no step reads a value that a collective or a message
 *   is still writing, or overwrites one that is still being read.
 * - Messages that arrive from another stage as shards are gathered before they are read.
 */
#include <stdlib.h>
#include <string.h>

#include "check/checker.h"
#include "schedule/operands.h"
#include "schedule/segments.h"

/* ---- effects of a call on a value, and their prerequisites ---- */

typedef struct use {
    int local; /* base value */
    bool write;
    int writes; /* by earlier calls of this block's programs */
} use;

typedef struct block_uses {
    ECH_LIST(use) use;
    int *first[ECH_PHASES]; /* [calls + 1] in `use` */
    int *writes;            /* [locals] in all */
} block_uses;

typedef struct seen {
    int writes;            /* so far */
    int writer;            /* step that wrote it last, or -1 */
    int reader[ECH_LANES]; /* last steps of the lanes that have read it since, or -1 */
} seen;

/* The last step of each lane that has certainly begun when a step begins, including itself; -1:
 * none. For lanes that end in order, steps of other lanes know it only about steps that have ended;
 * the lane's next step begins after the end of the one before, so it has ended for it, too. */
typedef struct clock {
    int begun[ECH_LANES];
} clock;

typedef struct checking {
    const ech_plan *plan;
    const ech_list *list;
    block_uses *uses; /* [blocks] */
    int *first_local; /* [blocks], or -1: not here */
    seen *value;      /* [locals of all own blocks * micro_batches] */
    clock *clock;     /* [steps] */
    int (
        *waiter)[ECH_LANES]; /* [steps] the first step of each lane that waits for it, or INT_MAX */
} checking;

static void count_call(const checking *c, const ech_block *block, const ech_block_call *call,
                       block_uses *uses)
{
    for (const ech_operand *o = NULL; (o = ech_call_next(block, call, c->list->purpose, o));) {
        if (!ech_operand_is_value(o)) continue;
        const ech_block_value *v = &block->value.at[o->value];
        if (v->source == ECH_FROM_BATCH || v->cached) continue;
        use u = {o->value, o->mode != ECH_READ, uses->writes[o->value]};
        ECH_PUSH(uses->use, u);
        uses->writes[o->value] += u.write;
    }
}

static void count_block(const checking *c, int index)
{
    const ech_block *block = c->plan->model->block.at[index];
    block_uses *uses = &c->uses[index];
    uses->writes = ech_calloc(block->value.n + 1, sizeof *uses->writes);
    static const ech_phase order[ECH_PHASES] = {ECH_FORWARD, ECH_RECOMPUTE, ECH_BACKWARD_INPUT,
                                                ECH_BACKWARD_WEIGHT};
    for (int p = 0; p < ECH_PHASES; p++) {
        ech_phase phase = order[p];
        size_t n = block->program[phase].n;
        ech_calls runs = ech_plan_calls(c->plan, c->list, index, phase);
        int *first = uses->first[phase] = ech_calloc(n + 1, sizeof *first);
        for (size_t call = 0; call < n; call++) {
            first[call] = (int)uses->use.n;
            if ((int)call >= runs.first && (int)call < runs.end)
                count_call(c, block, &block->program[phase].at[call], uses);
        }
        first[n] = (int)uses->use.n;
    }
}

/* ---- owners of values ---- */

typedef struct owned {
    int block, local;
} owned;

static bool is_here(const checking *c, int block)
{
    return block >= 0 && block < (int)c->plan->model->block.n && c->first_local[block] >= 0;
}

/* The value that R reads for an input, or for an output that it inverts: the kept one, or one that
 * another R makes. */
static bool follow_again(const checking *c, int *block, int *local)
{
    const ech_block *b = c->plan->model->block.at[*block];
    bool inverts = b->options.invert;
    size_t port = 0, ports = inverts ? b->routput.n : b->rinput.n;
    const int *reads = inverts ? b->routput.at : b->rinput.at;
    while (port < ports && reads[port] != *local) port++;
    if (port == ports) return false;
    bool continues = ech_plan_continues_segment(c->plan, inverts ? *block + 1 : *block);
    if (!continues && b->sharded) return false; /* gathered by R itself */
    *local = inverts ? b->output.at[port] : b->input.at[port];
    if (!continues) return true;
    const ech_block *maker = c->plan->model->block.at[inverts ? ++*block : --*block];
    *local = inverts ? maker->rinput.at[port] : maker->routput.at[port];
    return true;
}

/* A value from a block of this rank belongs to that block. */
static owned owner_of(const checking *c, int block, int local)
{
    for (;;) {
        const ech_block *b = c->plan->model->block.at[block];
        const ech_block_value *v = &b->value.at[local];
        bool gradient = v->role == ECH_ROLE_GRADIENT;
        int other = gradient ? block + 1 : block - 1;
        if (follow_again(c, &block, &local)) continue;
        if (v->source != ECH_FROM_BLOCK || !is_here(c, other)) return (owned){block, local};
        const ech_block *neighbour = c->plan->model->block.at[other];
        const int *mine = gradient ? b->doutput.at : b->input.at;
        const int *theirs = gradient ? neighbour->dinput.at : neighbour->output.at;
        size_t port = 0;
        while (mine[port] != local) port++;
        local = ech_block_base(neighbour, theirs[port]);
        block = other;
    }
}

static seen *seen_of(const checking *c, owned at, int micro)
{
    return &c->value[(c->first_local[at.block] + at.local) * c->list->micro_batches + micro];
}

/* How often a value from outside the block has been written when it is available. Messages do not
 * count; gathers do. */
static int writes_of(const checking *c, owned at)
{
    bool received = c->plan->model->block.at[at.block]->value.at[at.local].source == ECH_FROM_BLOCK;
    if (received) return ech_plan_shards_messages(c->plan);
    return c->uses[at.block].writes[at.local];
}

/* ---- known ends ---- */

static bool ends_in_order(ech_lane lane)
{
    return lane != ECH_LANE_SEND && lane != ECH_LANE_RECEIVE;
}

static void learn(clock *c, const clock *other)
{
    for (int l = 0; l < ECH_LANES; l++)
        if (other->begun[l] > c->begun[l]) c->begun[l] = other->begun[l];
}

static void find_clocks(checking *c)
{
    int last[ECH_LANES];
    for (int l = 0; l < ECH_LANES; l++) last[l] = -1;
    for (int s = 0; s < (int)c->list->step.n; s++) {
        const ech_step *step = &c->list->step.at[s];
        clock *now = &c->clock[s];
        memset(now, 0xff, sizeof *now); /* -1 */
        if (last[step->lane] >= 0) learn(now, &c->clock[last[step->lane]]);
        for (int i = 0; i < step->afters; i++) {
            int after = c->list->after.at[step->first_after + i];
            learn(now, &c->clock[after]);
            if (s < c->waiter[after][step->lane]) c->waiter[after][step->lane] = s;
        }
        now->begun[step->lane] = last[step->lane] = s;
    }
}

/* True if `other` must have ended when step s begins. For messages, this holds if s waits for it,
 * or knows of a begun step that waits for it. */
static bool has_ended(const checking *c, int other, int s)
{
    ech_lane lane = c->list->step.at[other].lane;
    if (ends_in_order(lane)) return c->clock[s].begun[lane] >= other;
    for (int l = 0; l < ECH_LANES; l++)
        if (c->waiter[other][l] <= c->clock[s].begun[l]) return true;
    return false;
}

/* ---- steps ---- */

static ech_status reject(const checking *c, int s, owned at, const char *what, int other)
{
    const ech_block *block = c->plan->model->block.at[at.block];
    return ECH_REJECT(c, s, "%s %s: %s (step %d)", what, block->name,
                      block->value.at[at.local].name, other);
}

static ech_status enter_read(const checking *c, int s, owned at, seen *v)
{
    ech_lane lane = c->list->step.at[s].lane;
    if (v->writer >= 0 && v->writer != s && !has_ended(c, v->writer, s))
        return reject(c, s, at, "does not wait for who writes what it reads, ", v->writer);
    v->reader[lane] = s;
    return ECH_OK;
}

static ech_status enter_write(const checking *c, int s, owned at, seen *v)
{
    if (v->writer >= 0 && v->writer != s && !has_ended(c, v->writer, s))
        return reject(c, s, at, "does not wait for who writes what it writes, ", v->writer);
    for (int l = 0; l < ECH_LANES; l++) {
        if (v->reader[l] >= 0 && v->reader[l] != s && !has_ended(c, v->reader[l], s))
            return reject(c, s, at, "does not wait for who reads what it writes, ", v->reader[l]);
        v->reader[l] = -1;
    }
    v->writer = s;
    return ECH_OK;
}

static ech_status check_use(const checking *c, int s, int block, const use *u)
{
    int micro = c->list->step.at[s].micro;
    owned at = owner_of(c, block, u->local);
    seen *v = seen_of(c, at, micro);
    bool outside = at.block != block ||
                   c->plan->model->block.at[block]->value.at[u->local].source == ECH_FROM_BLOCK;
    int writes = u->writes + (outside ? writes_of(c, at) : 0);
    if (v->writes != writes)
        return reject(c, s, at, "comes out of its program's order: it touches ", v->writer);
    if (u->write) {
        v->writes++;
        return enter_write(c, s, at, v);
    }
    return enter_read(c, s, at, v);
}

static ech_status check_calls(const checking *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    const block_uses *uses = &c->uses[step->block];
    const int *first = uses->first[step->phase];
    for (int i = first[step->first_call]; i < first[step->first_call + step->calls]; i++)
        ECH_TRY(check_use(c, s, step->block, &uses->use.at[i]));
    return ECH_OK;
}

static ech_status check_message(const checking *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    const ech_block *block = c->plan->model->block.at[step->block];
    const int *ports;
    size_t n = ech_step_ports(step, block, &ports);
    for (size_t i = 0; i < n; i++) {
        if (ports[i] < 0) continue;
        owned at = owner_of(c, step->block, ech_block_base(block, ports[i]));
        seen *v = seen_of(c, at, step->micro);
        if (ech_step_receives(step)) {
            ECH_TRY(enter_write(c, s, at, v));
            continue;
        }
        if (v->writes != writes_of(c, at))
            return reject(c, s, at, "is sent before it is complete, ", v->writer);
        ECH_TRY(enter_read(c, s, at, v));
    }
    return ECH_OK;
}

/* An all-gather of received message shards. */
static ech_status check_whole(const checking *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    bool backward = step->phase == ECH_BACKWARD_INPUT;
    const ech_block *block = c->plan->model->block.at[step->block];
    if (!ech_plan_shards_messages(c->plan) || step->phase == ECH_BACKWARD_WEIGHT ||
        is_here(c, backward ? step->block + 1 : step->block - 1))
        return ECH_REJECT(c, s, "gathers what does not come in shards");
    const int *ports;
    size_t n = ech_step_ports(step, block, &ports);
    for (size_t i = 0; i < n; i++) {
        owned at = {step->block, ports[i]};
        seen *v = seen_of(c, at, step->micro);
        if (v->writer < 0 || v->writes++ > 0)
            return reject(c, s, at, "gathers shards that are not there, ", v->writer);
        ECH_TRY(enter_write(c, s, at, v));
    }
    return ECH_OK;
}

static ech_status check_collective(const checking *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    ech_exchange does = {ECH_COLLECTIVE_ALL_GATHER, ECH_MESH_TENSOR, 0};
    if (step->calls) {
        const ech_block *block = c->plan->model->block.at[step->block];
        does = *ech_call_exchange(block, &block->program[step->phase].at[step->first_call],
                                  step->phase, c->list->purpose);
    }
    ech_layout_group group = ech_layout_group_over(does.over);
    if (step->collective == does.kind && step->group == group)
        return step->calls ? check_calls(c, s) : check_whole(c, s);
    return ECH_REJECT(c, s, "should be %s over %s", ech_collective_name(does.kind),
                      ech_layout_group_name(group));
}

static ech_status check_step(const checking *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    if (step->kind == ECH_STEP_COLLECTIVE) return check_collective(c, s);
    if (ech_step_kind_phase(step->kind) >= 0) return check_calls(c, s);
    bool message =
        (ech_step_sends(step) || ech_step_receives(step)) && ech_step_kind_is_of_blocks(step->kind);
    return message ? check_message(c, s) : ECH_OK;
}

/* ---- all of them ---- */

static void begin(checking *c)
{
    size_t blocks = c->plan->model->block.n, steps = c->list->step.n, locals = 0;
    c->uses = ech_calloc(blocks + 1, sizeof *c->uses);
    c->first_local = ech_calloc(blocks + 1, sizeof *c->first_local);
    for (size_t b = 0; b < blocks; b++) {
        bool here = ech_layout_has_block(c->plan->layout, c->plan->rank, (int)b);
        c->first_local[b] = here ? (int)locals : -1;
        if (!here) continue;
        locals += c->plan->model->block.at[b]->value.n;
        count_block(c, (int)b);
    }
    size_t values = locals * (size_t)c->list->micro_batches;
    c->value = ech_calloc(values + 1, sizeof *c->value);
    for (size_t i = 0; i < values; i++) {
        c->value[i].writer = -1;
        for (int l = 0; l < ECH_LANES; l++) c->value[i].reader[l] = -1;
    }
    c->clock = ech_calloc(steps + 1, sizeof *c->clock);
    c->waiter = ech_calloc(steps + 1, sizeof *c->waiter);
    for (size_t s = 0; s < steps; s++)
        for (int l = 0; l < ECH_LANES; l++) c->waiter[s][l] = INT32_MAX;
    find_clocks(c);
}

static void end(checking *c)
{
    for (size_t b = 0; c->uses && b < c->plan->model->block.n; b++) {
        block_uses *uses = &c->uses[b];
        free(uses->use.at);
        for (int phase = 0; phase < ECH_PHASES; phase++) free(uses->first[phase]);
        free(uses->writes);
    }
    free(c->uses);
    free(c->first_local);
    free(c->value);
    free(c->clock);
    free(c->waiter);
}

ech_status ech_check_collectives(const ech_plan *plan, const ech_list *list)
{
    ECH_CLEANUP(end) checking c = {.plan = plan, .list = list};
    bool cut = plan->layout->tensor > 1 || plan->layout->context > 1 ||
               plan->layout->sharding.expert > 1 || plan->model->options.norm_replicas > 1;
    if (cut) begin(&c);
    for (int s = 0; s < (int)list->step.n; s++) {
        if (cut) ECH_TRY(check_step(&c, s));
        if (!cut && list->step.at[s].kind == ECH_STEP_COLLECTIVE)
            return ECH_REJECT(&c, s, "has no ranks to do it with");
    }
    return ECH_OK;
}
