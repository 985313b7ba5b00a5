/* SPDX-License-Identifier: Apache-2.0
 *
 * The collective lane: collectives of tensor and context ranks inside of blocks. COLLECTIVE.
 */
#include <string.h>

#include "exec/state.h"

typedef struct exchange {
    ech_exec *exec;
    const ech_step *step;
    const ech_block *block;
    ech_group *group;
    void *scratch;
    ech_tensor from, to;
} exchange;

/* `like`: whose geometry the value has. */
static ech_tensor tensor_of(const exchange *x, int local, int like)
{
    void *data = ech_exec_address(
        x->exec, x->step, ech_list_value_of(x->exec->list, x->block, local, x->step->micro));
    ech_tensor tensor;
    ech_exec_view(x->exec, x->block, like, data, &tensor);
    return tensor;
}

static ech_tensor flat(const ech_tensor *x)
{
    return ech_tensor_1d(x->data, x->dtype, ech_tensor_count(x));
}

/* ---- all to all ---- */

/* Heads [first, first + heads) of tokens [token, token + tokens) of x (B,T,H,D), to or from contiguous
 * memory. */
static void move_part(const ech_tensor *x, int64_t token, int64_t tokens, int64_t first,
                      int64_t heads, char *memory, bool pack)
{
    size_t item = ech_dtype_bytes(x->dtype);
    size_t bytes = (size_t)(heads * x->shape[3]) * item;
    for (int64_t b = 0; b < x->shape[0]; b++)
        for (int64_t t = token; t < token + tokens; t++, memory += bytes) {
            int64_t at = b * x->stride[0] + t * x->stride[1] + first * x->stride[2];
            char *row = (char *)x->data + (size_t)at * item;
            memcpy(pack ? memory : row, pack ? row : memory, bytes);
        }
}

/* Piece i of a tensor is the tokens or the heads of context rank i. */
static void move_shards(const ech_tensor *x, int64_t shards, bool by_heads, char *memory, bool pack)
{
    int64_t tokens = by_heads ? x->shape[1] : x->shape[1] / shards;
    int64_t heads = by_heads ? x->shape[2] / shards : x->shape[2];
    size_t bytes = (size_t)(ech_tensor_count(x) / shards) * ech_dtype_bytes(x->dtype);
    for (int64_t i = 0; i < shards; i++)
        move_part(x, by_heads ? 0 : i * tokens, tokens, by_heads ? i * heads : 0, heads,
                  memory + (size_t)i * bytes, pack);
}

/* From some tokens of all heads to all tokens of some heads, or (`back`) the other way. */
static ech_status all_to_all(const exchange *x, bool back)
{
    int64_t shards = ech_group_size(x->group);
    size_t bytes = ech_tensor_bytes(&x->from);
    char *going = x->scratch, *coming = going + bytes;
    move_shards(&x->from, shards, !back, going, true);
    ECH_TRY(ech_group_all_to_all(x->group, going, coming, bytes / (size_t)shards));
    move_shards(&x->to, shards, back, coming, false);
    return ECH_OK;
}

/* ---- the step ---- */

static ech_status run(const exchange *x, const ech_exchange *does)
{
    ech_tensor from = flat(&x->from), to = flat(&x->to);
    switch (does->kind) {
    case ECH_COLLECTIVE_ALL_REDUCE:
        ECH_ASSERT(from.data == to.data);
        return ech_group_all_reduce(x->group, &to, x->scratch);
    case ECH_COLLECTIVE_ALL_GATHER:
        return ech_group_all_gather(x->group, to.data, from.data, ech_dtype_bytes(to.dtype),
                                    ech_tensor_count(&to));
    case ECH_COLLECTIVE_REDUCE_SCATTER:
        return ech_group_reduce_scatter(x->group, &from, to.data, x->scratch);
    case ECH_COLLECTIVE_ALL_TO_ALL:
        return all_to_all(x, does->distance < 0);
    case ECH_COLLECTIVE_SHIFT:
        return ech_group_shift(x->group, does->distance, from.data, to.data,
                               ech_tensor_bytes(&from));
    case ECH_COLLECTIVE_NONE:
    case ECH_COLLECTIVES:
        break;
    }
    ECH_FAIL(ECH_EINTERNAL, "a collective step without a collective");
}

/* Gathers what came from another stage in message shards, one a tensor rank. */
static ech_status make_whole(exchange *x)
{
    const int *ports;
    size_t n = ech_step_ports(x->step, x->block, &ports);
    for (size_t i = 0; i < n; i++) {
        if (ports[i] < 0) continue;
        int64_t first;
        ech_tensor whole = tensor_of(x, ports[i], ports[i]);
        size_t item = ech_dtype_bytes(whole.dtype);
        ech_plan_message_shard(x->exec->plan, x->exec->list, x->block, ports[i], &first);
        ECH_TRY(ech_group_all_gather(x->group, whole.data,
                                     (char *)whole.data + (size_t)first * item, item,
                                     ech_tensor_count(&whole)));
    }
    return ECH_OK;
}

ech_status ech_handle_COLLECTIVE(ech_exec *exec, const ech_step *step)
{
    exchange x = {.exec = exec,
                  .step = step,
                  .block = exec->plan->model->block.at[step->block],
                  .group = exec->channel[step->group][step->lane],
                  .scratch =
                      step->scratch < 0 ? NULL : ech_exec_address(exec, step, step->scratch)};
    if (!step->calls) return make_whole(&x);
    const ech_block_call *call = &x.block->program[step->phase].at[step->first_call];
    for (const ech_operand *o = NULL; (o = ech_call_next(x.block, call, exec->list->purpose, o));)
        *(o->mode == ECH_READ ? &x.from : &x.to) = tensor_of(&x, o->value, o->like);
    return run(&x, ech_call_exchange(x.block, call, step->phase, exec->list->purpose));
}
