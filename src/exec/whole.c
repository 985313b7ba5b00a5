/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole tensors under any layout: all ranks get the parts that ranks keep of a parameter, a state
 * or a gradient, and each takes its own part of a tensor that is written.
 */
#include <stdlib.h>
#include <string.h>

#include "exec/holding.h"
#include "schedule/states.h"

/* A whole tensor: number `part` of what is kept of a parameter. */
typedef struct whole {
    int param, part;
    ech_holding of; /* on this rank */
} whole;

/* Gradients come after all states. */
static bool find_gradient(const ech_exec *exec, int index, whole *out)
{
    for (int param = 0; param < (int)exec->plan->model->param.n; param++) {
        if (!ech_exec_count_gradients(exec, param) || index-- > 0) continue;
        *out = (whole){param, 0, ech_exec_gradient_kept(exec, param)};
        return true;
    }
    return false;
}

/* Parameters come first, then their states. False: there are fewer. */
static bool find(const ech_exec *exec, int index, whole *out)
{
    int params = (int)exec->plan->model->param.n;
    ech_holding of[ECH_MOST_HOLDINGS];
    *out = (whole){.param = index};
    for (int param = 0; param < params && index >= params; param++) {
        int others = ech_exec_count_kept(exec, param) - 1;
        *out = (whole){param, index - params + 1, {0}};
        if (index - params < others) break;
        index -= others;
    }
    if (ech_exec_list_kept(exec, out->param, of) <= out->part)
        return find_gradient(exec, index - params, out);
    out->of = of[out->part];
    return true;
}

int ech_exec_whole_count(const ech_exec *exec)
{
    int n = 0;
    for (int param = 0; param < (int)exec->plan->model->param.n; param++)
        n += ech_exec_count_kept(exec, param) + ech_exec_count_gradients(exec, param);
    return n;
}

static int64_t count(const ech_holding *of)
{
    int64_t n = 1;
    for (int d = 0; d < of->shape.dims; d++) n *= of->shape.size[d];
    return n;
}

bool ech_exec_whole_at(const ech_exec *exec, int index, ech_exec_whole *out)
{
    whole at;
    if (index < 0 || !find(exec, index, &at)) return false;
    *out = (ech_exec_whole){.name = exec->plan->model->param.at[at.param].name,
                            .state = at.of.name,
                            .is_gradient = at.of.kind == ECH_HELD_GRADIENT,
                            .dtype = at.of.dtype,
                            .dims = at.of.shape.dims,
                            .bytes = count(&at.of) * (int64_t)ech_dtype_bytes(at.of.dtype)};
    memcpy(out->shape, at.of.shape.size, sizeof out->shape);
    return true;
}

/* ---- a rank's memory ---- */

/* A part of a tensor beside what the plan states: a machine may have no room for it. */
static ech_status make_room(size_t bytes, char **out)
{
    *out = calloc(bytes + 1, 1);
    if (*out) return ECH_OK;
    ECH_FAIL(ECH_ENOMEM,
             "no host memory for %zu bytes, this rank's part of a whole tensor; save a checkpoint, "
             "and read the tensor from its files",
             bytes);
}

static ech_status copy(const ech_exec *exec, void *to, const void *from, size_t bytes)
{
    const ech_saved_copier *copier = ech_exec_copier(exec, 0);
    if (copier) return copier->copy(copier->context, to, from, bytes);
    memcpy(to, from, bytes);
    return ECH_OK;
}

/* Copies boxes between the whole tensor and a rank's part of it. */
static void copy_boxes(const ech_holding *of, const ech_held *held, char *all, char *part, bool out)
{
    size_t item = ech_dtype_bytes(of->dtype);
    for (int b = 0; b < held->boxes; b++) {
        ech_box_runs runs = ech_box_split(of->shape.dims, of->shape.size, &held->box[b]);
        for (int64_t i = 0; i < runs.count; i++) {
            ech_box_offset at = ech_box_run_at(&runs, i);
            char *here = all + (size_t)at.in_whole * item;
            char *there = part + (size_t)at.in_memory * item;
            memcpy(out ? here : there, out ? there : here, (size_t)runs.length * item);
        }
    }
}

/* ---- reading: each box from the rank that would write it into a checkpoint ---- */

/* A part that a rank sends to all others. A rank that does not hold the parameter does not know
 * what the others have of it. */
typedef struct sent {
    size_t bytes;  /* of its memory; 0: nothing */
    ech_held held; /* its boxes */
} sent;

static sent own_part(const ech_holding *of)
{
    sent part = {.held = of->held};
    if (of->value < 0 || !of->held.writes) return part;
    ech_holding_leave_to_others(&part.held);
    if (part.held.boxes) part.bytes = of->bytes;
    return part;
}

static ech_status copy_own(const ech_exec *exec, const whole *what, char *to, size_t bytes)
{
    const ech_holding *of = &what->of;
    if (of->kind != ECH_HELD_GRADIENT)
        return copy(exec, to, ech_exec_kept_data(exec, NULL, of), bytes);
    ech_exec_copy_gradient(exec, what->param, of, to);
    return ECH_OK;
}

static ech_status spread(ech_exec *exec, const whole *of, int rank, const sent *what, char *out)
{
    ECH_FREED char *part = NULL;
    ECH_TRY(make_room(what->bytes, &part));
    if (rank == exec->plan->rank) ECH_TRY(copy_own(exec, of, part, what->bytes));
    ECH_TRY(ech_group_broadcast(ech_exec_world(exec), rank, part, what->bytes));
    if (out) copy_boxes(&of->of, &what->held, out, part, true);
    return ECH_OK;
}

ech_status ech_exec_read_whole(ech_exec *exec, int index, void *out)
{
    whole of;
    ECH_ASSERT(find(exec, index, &of));
    ECH_ASSERT(of.of.kind != ECH_HELD_GRADIENT || ech_exec_has_gradients(exec));
    ech_group *world = ech_exec_world(exec);
    size_t ranks = (size_t)ech_group_size(world);
    ECH_FREED sent *parts = ech_calloc(ranks, sizeof *parts);
    sent mine = own_part(&of.of);
    ECH_TRY(ech_group_gather(world, parts, &mine, sizeof mine));
    ECH_TRY(ech_group_broadcast(world, 0, parts, ranks * sizeof *parts));
    for (int rank = 0; rank < (int)ranks; rank++)
        if (parts[rank].bytes) ECH_TRY(spread(exec, &of, rank, &parts[rank], out));
    return ECH_OK;
}

/* ---- writing ---- */

/* Writes the boxes that this rank has; padding between them stays. */
static ech_status put(ech_exec *exec, const ech_holding *of, const char *from)
{
    char *data = ech_exec_kept_data(exec, NULL, of);
    ECH_FREED char *part = NULL;
    ECH_TRY(make_room(of->bytes, &part));
    ECH_TRY(copy(exec, part, data, of->bytes));
    copy_boxes(of, &of->held, (char *)(uintptr_t)from, part, false);
    return copy(exec, data, part, of->bytes);
}

/* The weights themselves, where training rounds them from masters. */
static ech_status put_rounded(ech_exec *exec, int param, const ech_holding *masters,
                              const char *from)
{
    ech_holding weights = ech_exec_weights_kept(exec, param, NULL, 0);
    int64_t n = count(masters);
    ECH_FREED char *rounded = NULL;
    ECH_TRY(make_room((size_t)n * ech_dtype_bytes(weights.dtype), &rounded));
    ech_convert(from, masters->dtype, rounded, weights.dtype, n);
    return put(exec, &weights, rounded);
}

ech_status ech_exec_write_whole(ech_exec *exec, int index, const void *from)
{
    whole of;
    ECH_ASSERT(find(exec, index, &of) && of.of.kind != ECH_HELD_GRADIENT);
    if (ech_exec_has_param(exec, of.param)) {
        ECH_TRY(put(exec, &of.of, from));
        if (of.part == 0 && ech_exec_loads_rounded(exec, of.param))
            ECH_TRY(put_rounded(exec, of.param, &of.of, from));
        if (of.part == 0) ech_exec_round_weights(exec, of.param, 0);
    }
    return ech_exec_meet_in_shared(exec);
}
