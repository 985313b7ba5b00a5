/* SPDX-License-Identifier: Apache-2.0
 *
 * What a rank keeps of each parameter and of its states. Shared by save.c and whole.c; private to
 * src/exec.
 */
#ifndef ECH_EXEC_HOLDING_H
#define ECH_EXEC_HOLDING_H

#include "exec/state.h"

/* Weights, a state, the previous weights, or the gradient of a parameter. */
typedef struct ech_holding {
    const char *name; /* suffix to the parameter's; NULL: the weights */
    ech_shape shape;
    ech_dtype dtype;
    /* Where training has it; -1: this rank does not hold the parameter. A gradient, which is in no
     * value between lists, has its bucket's index here. */
    int value;
    size_t at, bytes; /* from that value's beginning; their number */
    int snapshot;     /* its copy; -1: none */
    int state;        /* index; 0 for weights */
    ech_held_kind kind;
    ech_held held; /* this rank's boxes */
} ech_holding;

enum { ECH_MOST_HOLDINGS = 2 + ECH_MAX_STATES };

/* The full-precision weights come first, the previous weights last. Returns their number, the same
 * on all ranks. */
int ech_exec_list_kept(const ech_exec *exec, int param, ech_holding out[ECH_MOST_HOLDINGS]);
/* The same number, without looking for what this rank holds. */
int ech_exec_count_kept(const ech_exec *exec, int param);
/* Names of the previous weights, which a run with buffered weights needs to resume, and of the
 * full-precision weights, if model/ has narrower ones. */
extern const char ech_holding_previous[], ech_holding_master[];
/* Name of the last step's gradient, where it is kept (ech_exec_keep_gradients). */
extern const char ech_holding_gradient[];
static inline bool ech_exec_trains(const ech_exec *exec)
{
    return exec->plan->partials >= 0;
}
bool ech_exec_keeps_previous(const ech_exec *exec);
/* A version of the parameter's weights, named `name`. */
ech_holding ech_exec_weights_kept(const ech_exec *exec, int param, const char *name, int version);
/* 1 if the parameter's gradients are kept, else 0; the same on all ranks. */
int ech_exec_count_gradients(const ech_exec *exec, int param);
ech_holding ech_exec_gradient_kept(const ech_exec *exec, int param);
/* Copies this rank's part to `to`, without the loss scale. */
void ech_exec_copy_gradient(const ech_exec *exec, int param, const ech_holding *of, void *to);
/* Where training has it; not of gradients. step NULL: between lists. */
char *ech_exec_kept_data(const ech_exec *exec, const ech_step *step, const ech_holding *of);
/* Removes the boxes that other ranks write. */
void ech_holding_leave_to_others(ech_held *held);
/* True if this rank has the parameter. */
bool ech_exec_has_param(const ech_exec *exec, int param);
/* True if weights of the parameter are rounded as they are loaded: weights that are on disk, or
 * whose masters are, and whole weights of whose masters this rank has a shard. */
bool ech_exec_loads_rounded(const ech_exec *exec, int param);
/* NULL if the host can access all memory. */
const ech_saved_copier *ech_exec_copier(const ech_exec *exec, int thread);

#endif
