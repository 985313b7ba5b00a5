/* SPDX-License-Identifier: Apache-2.0
 *
 * Gates of mixtures of experts: the computations of the rows gate_forward and gate_backward of
 * kernel.def. Each gate is a row of gates.def and a file of kernel/gate/. Letters: S rows of a
 * view; E experts; k experts that a row chooses; L logits of a row: E, and for `hierarchical` the
 * groups' logits in front.
 *
 * A BALANCE GROUP is `samples` consecutive samples of the global batch. Capacity, the order in
 * which rows are dropped and the auxiliary losses apply to it. It is within one micro-batch; the
 * ranks of a mesh of context x tensor each have an equal number of its rows (MEMBERS, the context
 * coordinate first). A gate that needs whole groups gets the logits of all members' rows in the
 * members' order, and each member computes all group results in the order of samples and positions.
 * So every member, and a single rank with all rows, gets the same bits.
 */
#ifndef ECH_KERNEL_GATE_H
#define ECH_KERNEL_GATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/inline.h"
#include "base/random.h"

typedef enum ech_gate_kind {
#define X(name, meaning) ECH_GATE_##name,
#include "kernel/gates.def"
    ECH_GATES
} ech_gate_kind;

const char *ech_gate_name(ech_gate_kind kind);
const char *ech_gate_names(void); /* blank-separated, in the order of the kinds */

typedef struct ech_gate {
    ech_gate_kind kind;
    int64_t experts, chosen; /* E, k */
    /* hierarchical: experts form `groups` equal groups; a row chooses `groups_chosen` of them, and
     * k / groups_chosen experts in each. bias: a row's k experts are from `groups_chosen` groups.
     * Others: 0. */
    int64_t groups, groups_chosen;
    bool normalized; /* topk, bias: gates sum to 1, or to `scale` */
    double scale;    /* bias: factor of the gates */
    bool ports;      /* gshard: as in its common ports, not as in the paper */
    /* An expert accepts at most this times k / E times the group's rows (with padding), rounded
     * down. All first choices precede all second ones. 0: no limit. */
    double capacity_factor;
    int64_t samples;                    /* of a balance group */
    double auxiliary, importance, load; /* coefficients of the gate's losses; 0: none */
    bool draws; /* a training step of a gate that draws random numbers; validation draws none */
    /* of the random numbers, which depend on the row's index in the whole batch */
    ech_random_key key;
    const int64_t *step; /* on the device, read when a row runs: replaces key.step; NULL: none */
    /* How the rows of all members are distributed. context 1 and tensor 1: the view has all rows of
     * its samples. */
    int64_t context,
        tensor;     /* ranks over which each sample's tokens, and then their rows, are sharded */
    bool zigzag;    /* as in ech_rows_context */
    int64_t member; /* this rank's index among context x tensor */
} ech_gate;

#define ECH_GATE_REPORT "gate" /* the kind of reports with these numbers: */
/* Numbers that gate_forward accumulates over the rows of a view, in fp64: for each expert the rows
 * that chose it; for each expert the rows that its capacity dropped; then ECH_GATE_SUMS numbers.
 * Only member 0 adds the numbers about groups. */
enum {
    ECH_GATE_ENTROPY,   /* of rows' probabilities, in nats */
    ECH_GATE_ROWS,      /* without padding */
    ECH_GATE_UNSENT,    /* choices that were randomly not sent */
    ECH_GATE_GROUPS,    /* balance groups */
    ECH_GATE_AUXILIARY, /* the groups' losses, times their coefficients */
    ECH_GATE_IMPORTANCE,
    ECH_GATE_LOAD,
    ECH_GATE_SPARE, /* 0 */
    ECH_GATE_SUMS
};

static inline int64_t ech_gate_partial(int64_t experts)
{
    return 2 * experts + ECH_GATE_SUMS;
}

/* L, the columns of logits. */
ECH_EVERYWHERE int64_t ech_gate_logits(const ech_gate *gate)
{
    return gate->experts + (gate->kind == ECH_GATE_hierarchical ? gate->groups : 0);
}

/* Columns of a group's statistics: derivatives of its losses by the sums of experts' shares, and of
 * loads. */
ECH_EVERYWHERE int64_t ech_gate_statistics(const ech_gate *gate)
{
    return gate->experts + ech_gate_logits(gate);
}

/* True if it needs the rows of whole balance groups. */
ECH_EVERYWHERE bool ech_gate_looks_at_groups(const ech_gate *gate)
{
    return gate->capacity_factor > 0 || gate->auxiliary != 0 || gate->importance != 0 ||
           gate->load != 0;
}

/* Rows of a group that an expert accepts, for samples of T tokens; all rows if capacity_factor is
 * 0. */
ECH_EVERYWHERE int64_t ech_gate_capacity(const ech_gate *gate, int64_t T)
{
    double rows = (double)(gate->samples * T);
    if (!(gate->capacity_factor > 0)) return gate->samples * T;
    double most = gate->capacity_factor * (double)gate->chosen * rows / (double)gate->experts;
    return most < rows ? (int64_t)most : gate->samples * T;
}

enum { ECH_GATE_ROOM_L = 14, ECH_GATE_ROOM_K = 3 };

/* Doubles of scratch for one row. */
ECH_EVERYWHERE int64_t ech_gate_room(int64_t L, int64_t K)
{
    return ECH_GATE_ROOM_L * L + ECH_GATE_ROOM_K * K;
}

#endif
