/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks weights that are fetched or gathered for the blocks that use them, by the values that
 * steps access. check/races.c proves that these steps wait for each other.
 */
#include "check/checker.h"
#include "schedule/operands.h"

typedef struct gathers {
    const ech_plan *plan;
    const ech_list *list;
    bool *brought; /* [values of the list]: written by a step that brings weights */
    bool *taken;   /* [values of the list]: a FETCH has read this copy on the host */
    int *found;    /* [buckets]: the last step that reads an instance of it, + 1 */
} gathers;

/* A step that brings weights writes a new instance; a gather may read fetched shards. */
static ech_status check_bring(gathers *g, int s, const ech_access *access, const ech_value *value)
{
    const ech_step *step = &g->list->step.at[s];
    bool *brought = &g->brought[access->value - (int)g->plan->persistent.n];
    bool is_its = value->index == step->index && value->block == step->block;
    if (!is_its || access->write == *brought)
        return ECH_REJECT(g, s, "accesses weights that are not an instance of its own");
    *brought = true;
    return ECH_OK;
}

/* Each copy on the host is fetched there for one FETCH to the device. */
static ech_status check_on_host(gathers *g, int s, const ech_access *access)
{
    const ech_step *step = &g->list->step.at[s];
    int own = access->value - (int)g->plan->persistent.n;
    if (step->kind != ECH_STEP_FETCH || access->write) return ECH_OK;
    if (g->taken[own])
        return ECH_REJECT(g, s, "reads a copy of weights on the host that another step has read");
    g->taken[own] = true;
    return ECH_OK;
}

static ech_status check_access(gathers *g, int s, const ech_access *access)
{
    const ech_step *step = &g->list->step.at[s];
    const ech_value *value = ech_plan_value(g->plan, g->list, access->value);
    int own = access->value - (int)g->plan->persistent.n;
    if (own >= 0 && value->kind == ECH_MEMORY_PARAMETERS_ON_HOST)
        return check_on_host(g, s, access);
    if (own < 0 || value->kind != ECH_MEMORY_PARAMETERS) return ECH_OK;
    const ech_bucket *bucket = &g->plan->bucket.at[value->index];
    int64_t whole = bucket->elements * (int64_t)ech_dtype_bytes(bucket->weight_dtype);
    if (ech_step_brings_weights(step) || ech_step_has_bucket(step))
        return check_bring(g, s, access, value);
    if (ech_step_kind_phase(step->kind) < 0 || access->write || value->block != step->block ||
        value->bytes != whole)
        return ECH_REJECT(g, s, "accesses weights that are brought to block %d", value->block);
    g->found[value->index] = s + 1;
    return ECH_OK;
}

static ech_status read_by_model(const gathers *g, int s)
{
    const ech_step *step = &g->list->step.at[s];
    int phase = ech_step_kind_phase(step->kind);
    if (phase < 0) return ECH_OK;
    const ech_block *block = g->plan->model->block.at[step->block];
    for (int c = step->first_call; c < step->first_call + step->calls; c++) {
        const ech_block_call *call = &block->program[phase].at[c];
        for (const ech_operand *o = NULL; (o = ech_call_next(block, call, g->list->purpose, o));) {
            int bucket = o->port == ECH_PORT_PARAM ? g->plan->param[o->value].bucket : -1;
            if (bucket < 0 || !ech_bucket_is_brought(&g->plan->bucket.at[bucket])) continue;
            if (g->found[bucket] != s + 1)
                return ECH_REJECT(g, s, "does not access the weights of bucket %d that it reads",
                                  bucket);
        }
    }
    return ECH_OK;
}

static ech_status check_step(gathers *g, int s)
{
    const ech_step *step = &g->list->step.at[s];
    for (int i = 0; i < step->accesses; i++)
        ECH_TRY(check_access(g, s, &g->list->access.at[step->first_access + i]));
    return read_by_model(g, s);
}

/* A sweep over ticks with the resources of live values. */
ech_status ech_check_together(const ech_plan *plan, const ech_list *list, size_t resources,
                              int (*resource)(const ech_plan *plan, const ech_list *list,
                                              const ech_value *value),
                              const char *what)
{
    size_t ticks = (size_t)list->ticks + 1;
    /* number of live values of each */
    ECH_FREED int *live = ech_calloc(resources + 1, sizeof *live);
    ECH_FREED int *first = ech_calloc(2 * ticks + 1, sizeof *first);
    ECH_FREED int *next = ech_calloc(2 * list->value.n + 1, sizeof *next);
    int together = 0;
    for (int i = 0; i < (int)list->value.n; i++) { /* within a tick, deaths come before births */
        const ech_value *v = &list->value.at[i];
        if (resource(plan, list, v) < 0) continue;
        int *born = &first[2 * v->born + 1], *dead = &first[2 * (v->dies + 1)];
        next[2 * i] = *born;
        *born = 2 * i + 1;
        next[2 * i + 1] = *dead;
        *dead = 2 * i + 2;
    }
    for (size_t t = 0; t < 2 * ticks; t++)
        for (int i = first[t]; i; i = next[i - 1]) {
            const ech_value *v = &list->value.at[(i - 1) / 2];
            bool born = i % 2;
            int *of = &live[resource(plan, list, v)];
            together += born ? (*of)++ == 0 : -(--*of == 0);
            if (together > 1 + plan->prefetch)
                ECH_FAIL(ECH_EINTERNAL,
                         "schedule check of list %s, rank %d: %s of %d blocks are there at "
                         "tick %zu",
                         ech_list_name(list->kind), plan->rank, what, together, t / 2);
        }
    return ECH_OK;
}

static int block_of_weights(const ech_plan *plan, const ech_list *list, const ech_value *value)
{
    (void)plan;
    (void)list;
    return value->kind == ECH_MEMORY_PARAMETERS ? value->block : -1;
}

ech_status ech_check_resident(const ech_plan *plan, const ech_list *list)
{
    if (!plan->persistent.n || !list->access.n) return ECH_OK; /* an outline */
    ECH_FREED bool *brought = ech_calloc(list->value.n + 1, sizeof *brought);
    ECH_FREED bool *taken = ech_calloc(list->value.n + 1, sizeof *taken);
    ECH_FREED int *found = ech_calloc(plan->bucket.n + 1, sizeof *found);
    gathers g = {plan, list, brought, taken, found};
    for (int s = 0; s < (int)list->step.n; s++) ECH_TRY(check_step(&g, s));
    if (plan->keeps) return ECH_OK;
    return ech_check_together(plan, list, plan->model->block.n, block_of_weights, "weights");
}
