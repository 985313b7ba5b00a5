/* SPDX-License-Identifier: Apache-2.0
 *
 * Thousands of sound lists get one fault each: a wait is left out, or a step is moved, is missing,
 * names another bucket, version or micro-batch, or touches another value. A slow interpreter says
 * which lists are broken, and the checker must refuse those. The interpreter executes all steps on
 * numbers that stand for contents, and compares the inputs of each step with those in the sound
 * list. It also finds steps that touch the same memory and may run at the same time. It knows only
 * two facts about kinds of steps: which half of a bucket of weights they touch, and that gradients
 * add up.
 */
#include <string.h>

#include "check/check.h"
#include "schedule/fixture.h"
#include "schedule/knowledge.h"
#include "schedule/lists.h"
#include "draw/draw.h"
#include "schedule/operands.h"
#include "unit.h"

enum { PLANS = 700, SERVED_PLANS = 60, CARRIED_PLANS = 60, MUTANTS = 12, PARTS = 2 };

/* ---- contents ---- */

/* A value; of a bucket's weights the rank's own shard and the others'; and where the bucket is
 * updated piece by piece each piece. */
typedef struct cell {
    uint64_t content;
    int turn; /* gradients: of what adds up here */
} cell;

typedef struct touch {
    int step;
    bool write;
} touch;
typedef ECH_LIST(touch) touches;

typedef struct interpreter {
    const ech_plan *plan;
    const ech_list *list;
    size_t *first;    /* [values + 1] where a value's cells begin: PARTS times its pieces */
    cell *cell;       /* [first[values]] */
    touches *touched; /* likewise */
    uint64_t sum;     /* of what the steps have met */
    uint64_t copied;  /* what the step has read last */
} interpreter;

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t z = (a ^ (b * 0x9e3779b97f4a7c15u)) + 0x7f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t identity(const ech_step *step)
{
    const int fields[] = {(int)step->kind,  (int)step->lane, (int)step->group, (int)step->phase,
                          step->adds,       step->chunk,     step->micro,      step->block,
                          step->turn,       step->version,   step->index,      step->count,
                          step->first_call, step->calls,     step->peer,       (int)step->resource,
                          (int)step->from,  (int)step->to,   (int)step->collective};
    uint64_t hash = 1;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        hash = mix(hash, (uint64_t)(int64_t)fields[i]);
    return hash;
}

/* Whether the step touches that half of the value: 0 the rank's shard, 1 the others'. */
static bool has_part(const interpreter *x, const ech_step *step, const ech_value *value, bool write,
                     int part)
{
    bool sharded = value->kind == ECH_MEMORY_PARAMETERS && value->index >= 0 &&
                   ech_bucket_is_sharded(&x->plan->bucket.at[value->index]);
    if (!sharded) return part == 0;
    if (step->kind == ECH_STEP_GATHER_WEIGHTS) return part == write;
    if (step->kind == ECH_STEP_OFFLOAD_WEIGHTS && x->plan->weights != ECH_SPACE_DEVICE) return true;
    return part == 0 || !ech_step_has_bucket(step);
}

/* Block steps add to the gradients of their turn or micro-batch, which the first of them begins;
 * sums of micro-batches add to the shard as they say. */
static bool adds_up(const ech_step *step, const ech_value *value)
{
    return value->kind == ECH_MEMORY_GRADIENTS &&
           (ech_step_kind_phase(step->kind) > ECH_FORWARD ||
            (step->kind == ECH_STEP_SCATTER_GRADS && step->micro >= 0 && value->micro < 0));
}

/* What is kept, or carried, is the same in every space: so it may come back from any copy. */
static bool copies_activations(const ech_step *step)
{
    return (step->kind == ECH_STEP_FETCH || step->kind == ECH_STEP_OFFLOAD) &&
           step->resource != ECH_RESOURCE_WEIGHTS;
}

static bool is_scratch(const ech_value *value)
{
    return value->kind == ECH_MEMORY_SCRATCH || value->kind == ECH_MEMORY_SCRATCH_ON_HOST;
}

static size_t find_cells(interpreter *x)
{
    size_t values = x->plan->persistent.n + x->list->value.n, cells = 0;
    for (size_t v = 0; v < values; v++) x->first[v] = PARTS;
    for (size_t b = 0; b < x->plan->bucket.n; b++) {
        const ech_bucket *bucket = &x->plan->bucket.at[b];
        size_t each = PARTS * (size_t)bucket->pieces;
        for (int v = 0; v < x->plan->versions; v++) x->first[bucket->weights + v] = each;
        for (int i = 0; i < bucket->state_values; i++)
            x->first[x->plan->state_value.at[bucket->first_state_value + i]] =
                i < bucket->states ? each : PARTS;
    }
    for (size_t v = 0; v <= values; v++) {
        size_t here = x->first[v];
        x->first[v] = cells;
        cells += here;
    }
    return cells;
}

static void meet_piece(interpreter *x, const ech_step *step, const ech_access *access, size_t at,
                       uint64_t *met)
{
    const ech_value *value = ech_plan_value(x->plan, x->list, access->value);
    cell *c = &x->cell[at];
    if (is_scratch(value)) return; /* a step's own */
    ECH_PUSH(x->touched[at], (touch){(int)(step - x->list->step.at), access->write});
    if (access->write && adds_up(step, value)) {
        bool begins = step->kind == ECH_STEP_SCATTER_GRADS ? !step->adds : c->turn != step->turn;
        *c = (cell){(begins ? 0 : c->content) + mix(*met, 3), step->turn};
        return;
    }
    if (access->write && copies_activations(step)) {
        c->content = x->copied;
        return;
    }
    x->copied = c->content;
    *met = mix(*met, c->content);
    if (access->write) *c = (cell){mix(*met, 5), step->turn};
}

/* A step of a piece meets that, of what has more. */
static void meet(interpreter *x, const ech_step *step, const ech_access *access, int part,
                 uint64_t *met)
{
    size_t pieces = (x->first[access->value + 1] - x->first[access->value]) / PARTS;
    size_t first = x->first[access->value] + (size_t)part * pieces;
    size_t piece = pieces > 1 ? (size_t)ech_step_piece(step) : 0;
    for (size_t k = 0; k < pieces; k++)
        if (!piece || k == (piece - 1) % pieces) meet_piece(x, step, access, first + k, met);
}

static void interpret(interpreter *x)
{
    for (size_t s = 0; s < x->list->step.n; s++) {
        const ech_step *step = &x->list->step.at[s];
        uint64_t met = identity(step);
        for (int i = 0; i < step->accesses; i++) {
            const ech_access *access = &x->list->access.at[step->first_access + i];
            const ech_value *value = ech_plan_value(x->plan, x->list, access->value);
            /* A gather reads the rank's shard, and writes the others'. */
            bool gathers = step->kind == ECH_STEP_GATHER_WEIGHTS && access->write;
            ech_access read = {.value = access->value, .tick = access->tick};
            if (gathers && has_part(x, step, value, false, 0)) meet(x, step, &read, 0, &met);
            for (int part = 0; part < PARTS; part++)
                if (has_part(x, step, value, access->write, part))
                    meet(x, step, access, part, &met);
        }
        x->sum += mix(met, 7);
    }
    for (size_t i = 0; i < x->first[x->plan->persistent.n]; i++)
        x->sum += mix(x->cell[i].content, i);
}

/* Lanes end their steps in order, but for messages. */
static bool is_before(const interpreter *x, const knowledge *k, const touch *a, const touch *b)
{
    const ech_step *before = &x->list->step.at[a->step], *step = &x->list->step.at[b->step];
    bool in_order = !ech_step_sends(before) && !ech_step_receives(before);
    return (in_order && before->lane == step->lane) ||
           knowledge_has(k, (size_t)b->step, (size_t)a->step);
}

/* Whether two steps, of which one writes, touch a cell of which neither is known to come first. */
static bool races(const interpreter *x, size_t cells)
{
    knowledge k = knowledge_find(x->list);
    bool found = false;
    for (size_t c = 0; c < cells && !found; c++)
        for (size_t j = 0; j < x->touched[c].n && !found; j++)
            for (size_t i = 0; i < j && !found; i++) {
                const touch *a = &x->touched[c].at[i], *b = &x->touched[c].at[j];
                found = a->step != b->step && (a->write || b->write) && !is_before(x, &k, a, b);
            }
    free(k.known);
    return found;
}

/* *sum: the same for lists that do the same. */
static bool is_free_of_races(const ech_plan *plan, const ech_list *list, uint64_t *sum)
{
    size_t values = plan->persistent.n + list->value.n;
    interpreter x = {
        .plan = plan, .list = list, .first = ech_calloc(values + 1, sizeof *x.first)};
    size_t cells = find_cells(&x);
    x.cell = ech_calloc(cells, sizeof *x.cell);
    x.touched = ech_calloc(cells, sizeof *x.touched);
    for (size_t v = 0; v < values; v++)
        for (size_t i = x.first[v]; i < x.first[v + 1]; i++) x.cell[i] = (cell){mix(11, v), -1};
    interpret(&x);
    bool is_free = !races(&x, cells);
    *sum = x.sum;
    for (size_t i = 0; i < cells; i++) free(x.touched[i].at);
    free(x.touched);
    free(x.cell);
    free(x.first);
    return is_free;
}

/* ---- plans ---- */

static const char *const shapes[] = {
    "parallel.zero=0",
    "parallel.zero=1",
    "parallel.zero=1 parallel.bucket_bytes=1",
    "parallel.zero=2",
    "parallel.zero=2 parallel.bucket_bytes=1",
    "parallel.zero=2 memory.recompute=full",
    "parallel.zero=2 parallel.tensor=2",
    "parallel.zero=1 memory.sequence_chunks=2",
    "memory.offload_activations=host",
    "memory.offload_activations=host parallel.zero=2 memory.recompute=full",
    "memory.offload_activations=disk",
    "memory.offload_activations=peer",
    "memory.offload_activations=peer memory.sequence_chunks=2 parallel.zero=1",
    "memory.offload_activations=peer memory.recompute=full memory.prefetch=0",
    "parallel.zero=0 memory.offload_optimizer=host",
    "parallel.zero=1 memory.offload_optimizer=host",
    "parallel.zero=2 memory.offload_optimizer=host parallel.bucket_bytes=1024",
    "parallel.zero=1 memory.offload_optimizer=host parallel.bucket_bytes=512 memory.prefetch=2",
    "parallel.zero=3 memory.offload_parameters=disk memory.offload_optimizer=disk "
    "parallel.bucket_bytes=1 model.vocab_size=600",
    "parallel.zero=1 memory.offload_optimizer=host memory.offload_delayed_from=3 "
    "training.steps=6 parallel.flush_every=3",
    "parallel.zero=0 memory.offload_optimizer=disk memory.offload_delayed_from=3 "
    "training.steps=6 parallel.flush_every=3 parallel.bucket_bytes=2048",
    "parallel.zero=0 optimizer.name=adafactor parallel.tensor=2",
    "parallel.zero=1 optimizer.name=adafactor parallel.tensor=2",
    "parallel.zero=1 optimizer.name=muon optimizer.momentum=0.95 parallel.tensor=2 "
    "parallel.bucket_bytes=1",
    "parallel.zero=0 parallel.compression=powersgd",
    "parallel.zero=2 parallel.compression=powersgd parallel.tensor=2 parallel.bucket_bytes=1",
    "parallel.zero=1 parallel.compression=topk",
    "parallel.zero=3",
    "parallel.zero=3 memory.offload_parameters=host",
    "parallel.zero=3 memory.offload_parameters=host memory.offload_optimizer=host",
    "parallel.zero=3 memory.offload_parameters=disk memory.offload_optimizer=disk",
    "parallel.zero=0 memory.offload_parameters=disk memory.offload_optimizer=host",
    "parallel.zero=1 memory.offload_parameters=host memory.offload_optimizer=host",
    "parallel.zero=2 memory.offload_parameters=disk memory.offload_optimizer=disk",
    "memory.offload_optimizer=host optimizer.name=adafactor parallel.tensor=2",
    "parallel.zero=1 memory.offload_optimizer=disk optimizer.name=sm3",
    "parallel.zero=3 parallel.bucket_bytes=1",
    "parallel.zero=3 memory.recompute=full",
};
static const char *const served_shapes[] = {
    "parallel.strategy=parameter_server parallel.servers=2",
    "parallel.strategy=parameter_server parallel.servers=2 parallel.bucket_bytes=1",
    "parallel.strategy=parameter_server parallel.servers=2 memory.recompute=full",
    "parallel.strategy=asp parallel.data=2 parallel.servers=2 parallel.bucket_bytes=1",
    "parallel.strategy=parameter_server parallel.backup_workers=1 parallel.data=2 "
    "parallel.servers=2 parallel.bucket_bytes=1"};
enum { SERVED_SHAPES = sizeof served_shapes / sizeof *served_shapes };
static const char *const carried_shapes[] = {
    "memory.sequence_chunks=4",
    "memory.offload_activations=host memory.sequence_chunks=4",
    "memory.offload_activations=host memory.sequence_chunks=4 memory.prefetch=0",
    "memory.offload_activations=disk memory.sequence_chunks=4 memory.recompute=full",
    "memory.offload_activations=disk memory.sequence_chunks=2 memory.prefetch=0 "
    "memory.recompute=selective"};
enum { CARRIED_SHAPES = sizeof carried_shapes / sizeof *carried_shapes };
static const char *const schedules[] = {"gpipe",         "1f1b",      "interleaved",  "zero-bubble",
                                        "zero-bubble-v", "pipedream", "pipedream-2bw"};
enum { SHAPES = sizeof shapes / sizeof *shapes, SCHEDULES = sizeof schedules / sizeof *schedules };

typedef enum group { ANY, SERVED, CARRIED } group;

/* False: the run file is refused. */
static bool random_fixture(uint64_t *state, group of, fixture *f)
{
    static const char *const *const all[] = {shapes, served_shapes, carried_shapes};
    static const int n[] = {SHAPES, SERVED_SHAPES, CARRIED_SHAPES};
    bool served = of == SERVED;
    const char *schedule = schedules[draw(state, served ? 2 : SCHEDULES)];
    const char *more = all[of][draw(state, n[of])];
    bool asynchronous = fixture_is_asynchronous(schedule), held = strstr(more, "peer") != NULL;
    fixture_shape shape = {.schedule = schedule,
                           .architecture = draw(state, 2) ? "gpt2" : "llama",
                           .stages = held     ? 4
                                     : served ? 1
                                              : 1 + draw(state, 2),
                           .chunks = fixture_chunks(schedule),
                           .data = 2,
                           .micro_batches = held ? 4 : 2,
                           .turns = asynchronous ? 3 : 0,
                           .more = more};
    if (of == CARRIED) shape.layers = 3 * shape.stages * shape.chunks; /* or all may stay */
    int ranks = fixture_world(&shape) * (strstr(more, "tensor=2") ? 2 : 1) + (served ? 2 : 0);
    ech_status status = fixture_try(fixture_shape_config(&shape), ranks, f);
    if (status != ECH_OK) fixture_free(f);
    return status == ECH_OK;
}

/* ---- mutants ---- */

/* What a mutation changes of a list. */
typedef struct saved {
    ech_step *step;
    int *after;
    ech_access *access;
    ech_value *value;
    size_t steps, afters;
} saved;

static void *copy_of(const void *from, size_t bytes)
{
    void *to = ech_calloc(1, bytes + 1);
    memcpy(to, from, bytes);
    return to;
}

/* Ticks of accesses are counted from their steps' then. */
static saved take(const ech_list *list)
{
    saved was =
        (saved){.step = copy_of(list->step.at, list->step.n * sizeof *list->step.at),
                .after = copy_of(list->after.at, list->after.n * sizeof *list->after.at),
                .access = copy_of(list->access.at, list->access.n * sizeof *list->access.at),
                .value = copy_of(list->value.at, list->value.n * sizeof *list->value.at),
                .steps = list->step.n,
                .afters = list->after.n};
    for (size_t s = 0; s < list->step.n; s++)
        for (int i = 0; i < list->step.at[s].accesses; i++)
            list->access.at[list->step.at[s].first_access + i].tick -= list->step.at[s].tick;
    return was;
}

static void restore(ech_list *list, saved *s)
{
    free(list->step.at);
    free(list->after.at);
    list->step.at = s->step;
    list->after.at = s->after;
    list->step.n = list->step.capacity = s->steps;
    list->after.n = list->after.capacity = s->afters;
    memcpy(list->access.at, s->access, list->access.n * sizeof *s->access);
    memcpy(list->value.at, s->value, list->value.n * sizeof *s->value);
    free(s->access);
    free(s->value);
}

/* The list is given ticks, lives and places as if its steps had always been these. */
static void plan_memory(ech_plan *plan, ech_list *list)
{
    int tick = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        ech_step *step = &list->step.at[s];
        for (int i = 0; i < step->accesses; i++)
            list->access.at[step->first_access + i].tick += tick;
        step->tick = tick;
        tick += ech_step_ticks(step);
    }
    list->ticks = tick;
    for (size_t v = 0; v < list->value.n; v++) {
        list->value.at[v].successor = -1;
        list->value.at[v].brought = false;
    }
    ech_pass_lifetime(plan, list);
    for (size_t v = 0; v < list->value.n;
         v++) { /* of what is missing some is touched at the end alone, or not at all */
        ech_value *value = &list->value.at[v];
        if (value->dies < 0) value->dies = 0;
        if (value->born > value->dies) value->born = value->dies;
    }
    ech_pass_inherit(plan, list);
    for (int space = 0; space < ECH_SPACES; space++) {
        ech_pass_offsets(plan, list, (ech_space)space);
        plan->arena_bytes[space] = plan->persistent_bytes[space] + list->bytes[space];
    }
}

static bool is_copy(const ech_step *step)
{
    bool message = ech_step_sends(step) || ech_step_receives(step);
    return step->lane == ECH_LANE_COPY_IN || step->lane == ECH_LANE_COPY_OUT ||
           (message && ech_step_kind_is_held(step->kind));
}

/* Nobody checks what is done with scalars alone. */
static bool is_of_scalars(const ech_step *step)
{
    return step->block < 0 && step->kind != ECH_STEP_LOAD && !ech_step_has_bucket(step) &&
           !is_copy(step);
}

/* Steps on buckets and copies more often than others. */
static int draw_step(uint64_t *state, const ech_list *list)
{
    int n = 0, chosen = 0;
    bool any = draw(state, 4) == 0;
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool fits = any || ech_step_has_bucket(step) || is_copy(step);
        if (fits && !is_of_scalars(step) && draw(state, ++n) == 0) chosen = s;
    }
    return chosen;
}

/* Leaves out one of the waits of any step for steps of the lane. */
static void forget(uint64_t *state, ech_list *list, ech_lane lane)
{
    int n = 0, step = -1, wait = 0;
    for (int s = 0; s < (int)list->step.n; s++)
        for (int i = 0; i < list->step.at[s].afters; i++) {
            int after = list->after.at[list->step.at[s].first_after + i];
            if (list->step.at[after].lane != lane || draw(state, ++n) > 0) continue;
            step = s;
            wait = i;
        }
    if (step < 0) return;
    ech_step *of = &list->step.at[step];
    int *after = &list->after.at[of->first_after];
    after[wait] = after[--of->afters];
}

/* The step goes up to 20 places up or down, as far as no wait turns round. */
static void move(uint64_t *state, ech_list *list, int s)
{
    int places = 1 + draw(state, 20);
    bool up = draw(state, 2);
    for (; places > 0; places--) {
        int low = up ? s - 1 : s;
        if (low < 0 || low + 1 >= (int)list->step.n || !lists_move(list, low + 1, low)) return;
        s += up ? -1 : 1;
    }
}

/* The block's step is of another micro-batch, block, phase or part of a program. */
/* Passes over the list look at the calls, before the checker does: those of the block's program. */
static void keep_calls(const ech_plan *plan, ech_step *step)
{
    int phase = ech_step_kind_phase(step->kind);
    if (phase < 0 || step->block < 0) return;
    int most = (int)plan->model->block.at[step->block]->program[phase].n;
    if (step->first_call < 0) step->first_call = 0;
    if (step->first_call > most) step->first_call = most;
    if (step->calls > most - step->first_call) step->calls = most - step->first_call;
}

static void rename_work(uint64_t *state, const ech_plan *plan, const ech_list *list, ech_step *step)
{
    static const ech_step_kind kinds[] = {ECH_STEP_FORWARD, ECH_STEP_BACKWARD_INPUT,
                                          ECH_STEP_BACKWARD_WEIGHT};
    switch (draw(state, 5)) {
    case 0:
        step->micro = draw(state, list->micro_batches);
        break;
    case 1:
        step->block = draw(state, (int)plan->model->block.n);
        break;
    case 2:
        if (ech_step_kind_phase(step->kind) >= 0) step->kind = kinds[draw(state, 3)];
        break;
    case 3:
        step->first_call += draw(state, 2) ? 1 : -1;
        break;
    default:
        step->calls += draw(state, 2) ? 1 : -1;
        break;
    }
    keep_calls(plan, step);
}

/* The step is of something else of the kind. */
static void rename_step(uint64_t *state, const ech_plan *plan, ech_list *list, int s)
{
    ech_step *step = &list->step.at[s];
    int micro_batches = list->micro_batches;
    switch (draw(state, 8)) {
    case 0:
        if (ech_step_has_bucket(step)) step->index = draw(state, (int)plan->bucket.n);
        break;
    case 1:
        if (ech_step_params(step) != ECH_PARAMS_NOTHING &&
            ech_step_params(step) != ECH_PARAMS_GRADIENTS)
            step->version += draw(state, 2) ? 1 : -1;
        break;
    case 2:
        if (step->kind == ECH_STEP_SCATTER_GRADS && step->micro >= 0)
            step->micro = draw(state, micro_batches);
        break;
    case 3:
        if (step->kind == ECH_STEP_SCATTER_GRADS && step->micro >= 0) step->adds = !step->adds;
        break;
    case 4:
        if (step->calls > 0) rename_work(state, plan, list, step);
        break;
    case 5:
        if (step->kind == ECH_STEP_COLLECTIVE)
            step->collective = (ech_collective)draw(state, ECH_COLLECTIVES);
        break;
    case 6:
        if (ech_step_piece(step))
            step->count = draw(state, plan->bucket.at[step->index].pieces + 1);
        break;
    default:
        if (ech_step_has_bucket(step) && list->turns > 1) step->turn = draw(state, list->turns);
        break;
    }
}

/* One of the step's accesses is to another value, of the same kind. Scratch, and what blocks make
 * of tokens, steps find by other ways. */
static void point_elsewhere(uint64_t *state, const ech_plan *plan, ech_list *list, int s)
{
    const ech_step *step = &list->step.at[s];
    if (!step->accesses) return;
    ech_access *access = &list->access.at[step->first_access + draw(state, step->accesses)];
    int values = (int)(plan->persistent.n + list->value.n), n = 0, was = access->value;
    const ech_value *value = ech_plan_value(plan, list, was);
    bool known = ech_step_has_bucket(step) || is_copy(step) ||
                 value->kind == ECH_MEMORY_PARAMETERS || value->kind == ECH_MEMORY_GRADIENTS ||
                 value->kind == ECH_MEMORY_KV_CACHE;
    /* Of which weights and states statistics are the checker does not ask. */
    bool open = step->kind == ECH_STEP_STATISTICS && value->kind != ECH_MEMORY_STATISTICS;
    if (!known || open || is_scratch(value)) return;
    for (int v = 0; v < values; v++) {
        const ech_value *other = ech_plan_value(plan, list, v);
        if (other->kind == value->kind && other->bytes == value->bytes && v != was &&
            draw(state, ++n) == 0)
            access->value = v;
    }
}

static const char *mutate(uint64_t *state, ech_plan *plan, ech_list *list)
{
    static const ech_lane lanes[] = {ECH_LANE_COMPUTE, ECH_LANE_REDUCE,     ECH_LANE_GATHER,
                                     ECH_LANE_RECEIVE, ECH_LANE_COPY_IN,    ECH_LANE_COPY_OUT,
                                     ECH_LANE_REDUCE,  ECH_LANE_COLLECTIVE, ECH_LANE_SEND};
    int s = draw_step(state, list);
    switch (draw(state, 8)) {
    case 0:
    case 1:
    case 2:
        forget(state, list, lanes[draw(state, sizeof lanes / sizeof *lanes)]);
        return "a wait is left out";
    case 3:
    case 4:
        move(state, list, s);
        return "a step has moved";
    case 5:
        rename_step(state, plan, list, s);
        return "a step is of something else";
    case 6:
        point_elsewhere(state, plan, list, s);
        return "a step touches another value";
    default:
        lists_drop(list, s);
        return "a step is missing";
    }
}

typedef struct tally {
    int broken, sound, refused_sound;
    bool has[ECH_STEPS]; /* kinds of steps in the lists */
    bool cut;            /* an update on the host is cut into pieces */
    bool moves[ECH_RESOURCES]; /* what FETCH and OFFLOAD copy there */
} tally;

static void try_mutant(uint64_t seed, uint64_t *state, ech_plan *plan, uint64_t sound, tally *t)
{
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    saved was = take(list);
    uint64_t sum;
    const char *what = mutate(state, plan, list);
    plan_memory(plan, list);
    bool broken = !is_free_of_races(plan, list, &sum) || sum != sound;
    bool refused = ech_check_list(plan, list) != ECH_OK;
    if (broken && !refused)
        fail_msg("plan %llu: %s, and the checker accepts it", (unsigned long long)seed, what);
    t->broken += broken;
    t->sound += !broken;
    t->refused_sound += !broken && refused;
    restore(list, &was);
}

static void run_plan(uint64_t seed, group of, tally *t)
{
    uint64_t state = seed, sum;
    fixture f;
    if (!random_fixture(&state, of, &f)) return;
    ech_plan *plan = fixture_plan_rank(&f, draw(&state, f.ranks));
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        t->has[step->kind] = true;
        t->cut |= ech_step_piece(step) > 1;
        if (step->kind == ECH_STEP_OFFLOAD) t->moves[step->resource] = true;
    }
    assert_true(is_free_of_races(plan, list, &sum));
    for (int i = 0; i < MUTANTS; i++) try_mutant(seed, &state, plan, sum, t);
    ech_plan_destroy(plan);
    fixture_free(&f);
}

TEST(test_mutants)
{
    static const int plans[] = {PLANS, SERVED_PLANS, CARRIED_PLANS};
    tally t = {0};
    /* ECHELON_MUTANTS=N: other plans and mutants */
    const char *asked = getenv("ECHELON_MUTANTS");
    uint64_t seed = asked ? strtoull(asked, NULL, 10) * 1000 : 0;
    for (int of = ANY; of <= CARRIED; of++)
        for (int i = 0; i < plans[of]; i++) run_plan(seed++, (group)of, &t);
    printf("%d mutants are broken, and refused; of %d others %d are\n", t.broken, t.sound,
           t.refused_sound);
    static const ech_step_kind kinds[] = {ECH_STEP_SCATTER_GRADS,
                                          ECH_STEP_GATHER_WEIGHTS,
                                          ECH_STEP_STASH,
                                          ECH_STEP_UPDATE_ON_HOST,
                                          ECH_STEP_FETCH,
                                          ECH_STEP_OFFLOAD,
                                          ECH_STEP_SEND_KEPT,
                                          ECH_STEP_RECV_KEPT,
                                          ECH_STEP_SEND_BACK,
                                          ECH_STEP_RECV_BACK,
                                          ECH_STEP_STATISTICS,
                                          ECH_STEP_FOLD,
                                          ECH_STEP_FETCH_STATISTICS,
                                          ECH_STEP_REDUCE_RIGHT,
                                          ECH_STEP_GATHER_CHOSEN,
                                          ECH_STEP_OFFLOAD_WEIGHTS};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) assert_true(t.has[kinds[i]]);
    assert_true(t.cut && t.moves[ECH_RESOURCE_GRADIENTS] && t.moves[ECH_RESOURCE_KEPT]);
    assert_true(t.broken > PLANS * MUTANTS / 4 &&
                t.sound > PLANS); /* else the cases are too dull */
}

/* Each of these draws a mutant of a kind that the plans above do not show. */
TEST(test_rare_mutants)
{
    static const struct {
        uint64_t seed;
        group of;
    } rare[] = {
        {3714, SERVED},  /* after a span a bucket is not distributed; */
        {6738, SERVED},  /* a bucket is distributed as part of a later turn */
        {12262, ANY},    /* weights come from a copy on the host that another block has used; */
        {57008, ANY},    /* old weights leave the device while the turn before still writes them */
    };
    tally t = {0};
    for (size_t i = 0; i < sizeof rare / sizeof *rare; i++) run_plan(rare[i].seed, rare[i].of, &t);
    assert_true(t.broken > 0);
}

/* The copy on the host of the persistent value of states that this step brings there; -1: none. */
static int brought_by(const ech_list *list, const ech_step *step, int states)
{
    for (int i = 0; i + 1 < step->accesses; i += 2)
        if (list->access.at[step->first_access + i].value == states)
            return list->access.at[step->first_access + i + 1].value;
    return -1;
}

/* The step brings back what one of a turn before has brought: that is refused. False: they do not
 * match. */
static bool brings_back(ech_plan *plan, ech_list *list, ech_step out, ech_step in)
{
    if (out.kind != ECH_STEP_OFFLOAD_STATES || in.kind != ECH_STEP_FETCH_STATES) return false;
    ech_access *from = &list->access.at[out.first_access];
    int other = brought_by(list, &in, list->access.at[out.first_access + 1].value);
    if (in.turn >= out.turn || other < 0 || other == from->value) return false;
    saved was = take(list);
    from->value = other;
    plan_memory(plan, list);
    assert_int_equal(ech_check_list(plan, list), ECH_EINTERNAL);
    restore(list, &was);
    return true;
}

/* A bucket's states go back to the disk from what their own turn's update has changed, not from the
 * copy of a turn before. */
TEST(test_states_of_another_turn)
{
    fixture f;
    fixture_shape shape = {.schedule = "pipedream",
                           .architecture = "gpt2",
                           .stages = 1,
                           .chunks = 1,
                           .data = 2,
                           .micro_batches = 2,
                           .turns = 3,
                           .more = "memory.offload_optimizer=disk parallel.bucket_bytes=1"};
    assert_true(fixture_try(fixture_shape_config(&shape), 2, &f) == ECH_OK);
    ech_plan *plan = fixture_plan_rank(&f, 0);
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int refused = 0;
    for (int s = 0; s < (int)list->step.n; s++)
        for (int before = 0; before < s; before++)
            refused += brings_back(plan, list, list->step.at[s], list->step.at[before]);
    assert_true(refused > 10);
    assert_int_equal(ech_check_list(plan, list), ECH_OK);
    ech_plan_destroy(plan);
    fixture_free(&f);
}
