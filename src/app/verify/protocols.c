/* SPDX-License-Identifier: Apache-2.0
 *
 * The serial program of each protocol, with the paper's equation. w: weights; g: the mean of the
 * samples' gradients with weights; U: the optimizer's update; v: the learning rate.
 */
#include "app/verify/verifier.h"

#define OP(op)         {ECH_DO_##op, ECH_COPY_NEWEST}
#define WITH(op, copy) {ECH_DO_##op, ECH_COPY_##copy}

/* w(t + 1) = U(w(t), g(w(t))). Asynchronous pipelines and delayed updates compute g with past
 * versions of w (replay.h). */
static const ech_serial_step synchronous[] = {
    OP(CHECK), OP(EACH_STEP), OP(GATHER), OP(CHANGE), WITH(RUN, VERSIONS), OP(GRADIENTS),
    OP(LOSS), OP(REPORTS), OP(COMPARE), OP(END), OP(END)};

/* Each replica r: w_r = U(w_r, g_r(w_r)), with the states that it has (Stich 2019). */
static const ech_serial_step apart[] = {
    OP(EACH_STEP), OP(EACH_WORKER), WITH(LOAD, OWN), OP(GATHER), OP(CHANGE), WITH(RUN, NEWEST),
    OP(GRADIENTS), OP(COMPARE), WITH(STORE, OWN), OP(END), OP(LOSS), OP(END), OP(END)};

#define STORE_EACH   OP(EACH_WORKER), WITH(STORE, OWN), OP(END)
#define CHANGE_EACH  OP(EACH_WORKER), WITH(LOAD, OWN), OP(CHANGE), WITH(STORE, OWN), OP(END)
#define COMPARE_EACH OP(EACH_WORKER), WITH(LOAD, OWN), OP(COMPARE), WITH(STORE, OWN), OP(END)

static const ech_serial_step begin_apart[] = {STORE_EACH, OP(END)};
/* d = mean over replicas of (a - w_r); m = b m + d; a = a - o (d + b m); each w_r = a, with the
 * outer learning rate o and momentum b (Douillard et al. 2023; Stich 2019: o = 1, b = 0). */
static const ech_serial_step meet[] = {OP(CHECK), CHANGE_EACH, OP(MEET), COMPARE_EACH, OP(END)};
/* w_r = (w_(r-1) + w_r + w_(r+1)) / 3, around a ring (Lian et al. 2017). */
static const ech_serial_step mix[] = {CHANGE_EACH, OP(MIX), COMPARE_EACH, OP(END)};

/* The push of worker k: w = U(w, g_k(w_k)), and w_k = w then: the worker goes on from what its
 * push leaves (Dean et al. 2012; Ho et al. 2013). */
static const ech_serial_step pushes[] = {
    OP(CHECK), OP(SERVES), OP(ORDER), OP(CHANGE), STORE_EACH,
    OP(EACH_STEP), OP(EACH_PUSH), WITH(RUN, OWN), WITH(STORE, OWN), OP(END), OP(LOSS), OP(END),
    OP(COMPARE), OP(END)};

/* w(t + 1) = U(w(t), mean over the first workers' tokens of g_k(w(t))) (Chen et al. 2016). */
static const ech_serial_step backups[] = {
    OP(CHECK), OP(SERVES), OP(SUM_ORDER), OP(CHANGE),
    OP(EACH_STEP), WITH(STORE, BEGUN), OP(CLEAR),
    OP(EACH_SUMMAND), WITH(RUN, NEWEST), OP(ADD), WITH(LOAD, BEGUN), OP(END),
    OP(LOSS), OP(MEAN), WITH(RUN, NEWEST), OP(END),
    OP(COMPARE), OP(END)};

/* Each rank k adds -v g_k(w_k) / n to the weights of its cluster, w_k what it had read (Niu et al.
 * 2011). Which order they add in is open, so w_k is the layout's; that nothing is lost is not:
 * behind the span w is what it was and all differences, or what the ring's token makes of them. */
static const ech_serial_step lock_free[] = {
    OP(CHECK), OP(CHANGE), WITH(STORE, BEGUN), OP(CLEAR),
    OP(EACH_STEP), OP(EACH_WORKER), OP(GATHER), OP(READ), WITH(LOAD, READ), OP(CHANGE),
    WITH(RUN, NEWEST), OP(GRADIENTS), OP(MOVE), OP(END), OP(LOSS), OP(END),
    OP(TOKEN), WITH(COMPARE, SUM), OP(END)};

static const ech_serial serials[ECH_PROTOCOLS] = {
    [ECH_PROTOCOL_SYNCHRONOUS] = {.equal = ECH_EQUAL_ALONE, .train = synchronous},
    [ECH_PROTOCOL_CENTRAL] = {.keeper = ECH_KEPT_BY_ALL,
                              .equal = ECH_EQUAL_ALONE,
                              .train = synchronous},
    [ECH_PROTOCOL_APART] = {.divided = true,
                            .keeper = ECH_KEPT_BY_REPLICAS,
                            .begin = begin_apart,
                            .train = apart,
                            .gossip = mix,
                            .sync = meet},
    [ECH_PROTOCOL_SERVERS] = {.keeper = ECH_KEPT_BY_SERVERS,
                              .equal = ECH_EQUAL_ALONE,
                              .train = synchronous},
    [ECH_PROTOCOL_PUSHES] = {.divided = true,
                             .each = true,
                             .keeper = ECH_KEPT_BY_SERVERS,
                             .equal = ECH_EQUAL_ALWAYS,
                             .train = pushes},
    [ECH_PROTOCOL_BACKUPS] = {.divided = true, .keeper = ECH_KEPT_BY_SERVERS, .train = backups},
    [ECH_PROTOCOL_LOCK_FREE] = {.divided = true,
                                .open = true,
                                .keeper = ECH_KEPT_BY_REPLICAS,
                                .train = lock_free},
};

const ech_serial *ech_serial_find(const ech_design *design)
{
    return &serials[design->layout->protocol];
}
