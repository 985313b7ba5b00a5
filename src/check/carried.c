/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks values that are carried between sequence chunks (KV cache, and its gradients), on the
 * device all the time or offloaded in between. For each value it tracks the number of chunks whose
 * work it contains: a compute step has a required number, and a copy has its source's.
 * check/races.c proves that steps wait for each other.
 */
#include "check/checker.h"
#include "schedule/operands.h"

typedef struct carried_check {
    const ech_plan *plan;
    const ech_list *list;
    int *chunks; /* [values of the list] number of chunks whose work it contains */
} carried_check;

static bool is_carried(ech_memory_kind kind)
{
    return kind == ECH_MEMORY_KV_CACHE || kind == ECH_MEMORY_KV_CACHE_ON_HOST ||
           kind == ECH_MEMORY_KV_CACHE_ON_DISK;
}

static bool is_gradient(const carried_check *c, const ech_value *value)
{
    return c->plan->model->block.at[value->block]->value.at[value->local].role == ECH_ROLE_GRADIENT;
}

/* Forwards run from the first chunk to the last, backwards from the last to the first. */
static ech_status check_access(carried_check *c, int s, const ech_access *access)
{
    const ech_step *step = &c->list->step.at[s];
    const ech_value *value = ech_plan_value(c->plan, c->list, access->value);
    int own = access->value - (int)c->plan->persistent.n;
    if (own < 0 || !is_carried(value->kind)) return ECH_OK;
    int n = c->list->numbering.sequence_chunks, *has = &c->chunks[own];
    int chunk = ech_micro_at(c->list->numbering, step->micro).sequence_chunk;
    if (value->kind != ECH_MEMORY_KV_CACHE || value->block != step->block ||
        value->micro != step->micro - chunk)
        return ECH_REJECT(c, s, "accesses what another block carries");
    int wanted = access->write ? chunk : n;
    ech_phase phase = is_gradient(c, value) ? ECH_BACKWARD_INPUT : ECH_FORWARD;
    if (phase == ECH_BACKWARD_INPUT) wanted = n - 1 - chunk;
    if (access->write && step->phase != phase) return ECH_REJECT(c, s, "changes what is carried");
    if (*has != wanted)
        return ECH_REJECT(c, s, "finds carried what %s made, not %d", ECH_COUNT(*has, "chunk"),
                          wanted);
    *has += access->write;
    return ECH_OK;
}

static bool is_same(const ech_value *a, const ech_value *b)
{
    return a->block == b->block && a->local == b->local && a->micro == b->micro &&
           a->bytes == b->bytes;
}

static ech_status check_copy(carried_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    int persistent = (int)c->plan->persistent.n;
    for (int i = 0; i + 1 < step->accesses; i += 2) {
        const ech_access *access = &c->list->access.at[step->first_access + i];
        int from = access[0].value - persistent, to = access[1].value - persistent;
        if (from < 0 || to < 0 || !is_carried(c->list->value.at[from].kind) ||
            !is_same(&c->list->value.at[from], &c->list->value.at[to]) ||
            is_gradient(c, &c->list->value.at[from]) !=
                (step->resource == ECH_RESOURCE_CARRIED_GRADIENTS))
            return ECH_REJECT(c, s, "copies what is not carried to there");
        c->chunks[to] = c->chunks[from];
    }
    return ECH_OK;
}

/* The step accesses a value for each carried operand of its calls. */
static ech_status check_operands(const carried_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    int phase = ech_step_kind_phase(step->kind);
    if (phase < 0) return ECH_OK;
    const ech_block *block = c->plan->model->block.at[step->block];
    for (int i = step->first_call; i < step->first_call + step->calls; i++) {
        const ech_block_call *call = &block->program[phase].at[i];
        for (const ech_operand *o = NULL; (o = ech_call_next(block, call, c->list->purpose, o));)
            if (ech_operand_is_value(o) && ech_list_operand(c->plan, c->list, step, o->value) < 0)
                return ECH_REJECT(c, s, "does not access what it carries on");
    }
    return ECH_OK;
}

static ech_status check_step(carried_check *c, int s)
{
    const ech_step *step = &c->list->step.at[s];
    bool copies = step->kind == ECH_STEP_FETCH || step->kind == ECH_STEP_OFFLOAD;
    if (copies && (step->resource == ECH_RESOURCE_CARRIED ||
                   step->resource == ECH_RESOURCE_CARRIED_GRADIENTS))
        return check_copy(c, s);
    for (int i = 0; i < step->accesses; i++)
        ECH_TRY(check_access(c, s, &c->list->access.at[step->first_access + i]));
    return check_operands(c, s);
}

static int resource_of(const ech_plan *plan, const ech_list *list, const ech_value *value,
                       ech_block_value_role role)
{
    if (value->kind != ECH_MEMORY_KV_CACHE) return -1;
    if (plan->model->block.at[value->block]->value.at[value->local].role != role) return -1;
    return value->block * list->micro_batches + value->micro;
}

static int of_keys(const ech_plan *plan, const ech_list *list, const ech_value *value)
{
    return resource_of(plan, list, value, ECH_ROLE_ACTIVATION);
}

static int of_gradients(const ech_plan *plan, const ech_list *list, const ech_value *value)
{
    return resource_of(plan, list, value, ECH_ROLE_GRADIENT);
}

ech_status ech_check_carried(const ech_plan *plan, const ech_list *list)
{
    if (list->numbering.sequence_chunks < 2 || !list->access.n) return ECH_OK;
    ECH_FREED int *chunks = ech_calloc(list->value.n + 1, sizeof *chunks);
    carried_check c = {plan, list, chunks};
    for (int s = 0; s < (int)list->step.n; s++) ECH_TRY(check_step(&c, s));
    size_t resources = plan->model->block.n * (size_t)list->micro_batches;
    if (plan->kept == ECH_SPACE_DEVICE) return ECH_OK;
    ECH_TRY(ech_check_together(plan, list, resources, of_keys, "keys and values"));
    return ech_check_together(plan, list, resources, of_gradients, "gradients of keys and values");
}
