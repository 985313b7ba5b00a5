/* SPDX-License-Identifier: Apache-2.0
 *
 * Probes watch every run of the lattice for one property each. A probe is a file in probes/ and a
 * row in probes.def. It has up to three functions: `applies` tells whether a design should have the
 * property, `observe` looks at each rank of the run, and `judge` concludes from all ranks' states.
 * The linker puts functions of watch.h in front of those of src/ (-Wl,--wrap), so runs are watched
 * without a change to them.
 */
#ifndef ECH_TESTS_APP_PROBE_H
#define ECH_TESTS_APP_PROBE_H

#include "app/verify/verify.h"

enum { PROBE_MOST_RANKS = 16, PROBE_MOST_LISTS = 64 };

typedef enum probe_moment {
    PROBE_OPENED, /* the session is there, and has run no list */
    PROBE_BEFORE, /* a list begins: run->list, run->number */
    PROBE_STEP,   /* a step of the compute lane has run: run->step */
    PROBE_AFTER,  /* the list has ended without an error */
    PROBE_CLOSED  /* the session is about to be destroyed; all of its lists have ended well */
} probe_moment;

/* Training lists that the driver adds when a run has been verified, with a barrier before and
 * after. */
typedef enum probe_extra {
    PROBE_OF_RUN,   /* none: the list is the run's own */
    PROBE_QUIET,    /* only the list runs, and nobody observes it */
    PROBE_TIMED,    /* the times of steps are recorded */
    PROBE_POISONED, /* the last of all: a probe has made weights infinite before it */
} probe_extra;

/* One rank's run. */
typedef struct probe_run {
    const ech_design *design; /* whose config is the one that is computed by, for verify in fp64 */
    const ech_session *session;
    int rank;
    ech_list_kind list;
    int64_t number; /* the list's first training step */
    probe_extra extra;
    const ech_step *step;
    unsigned lists; /* a bit for each kind of list that has run */
} probe_run;

/* A list that the verified run has run; all ranks run the same. */
typedef struct probe_ran {
    ech_list_kind list;
    int64_t number;
} probe_ran;

/* The case that a child process has been given. */
typedef struct probe_case {
    const ech_config *config; /* as asked for */
    int ranks;
    ech_tokenizer *tokenizer;
    const ech_config *computed; /* by which the verified run has computed */
    probe_ran ran[PROBE_MOST_LISTS];
    int lists;
} probe_case;

typedef struct probe {
    const char *name;
    size_t state; /* bytes of what a rank sees, zero when its run is opened */
    bool (*applies)(const ech_design *design);
    /* Calls probe_fail where something is wrong. On the rank's own thread. Optional. */
    void (*observe)(void *state, const probe_run *run, probe_moment moment);
    /* When verify has passed, with all ranks' states. Optional. */
    void (*judge)(void *const *states, const probe_case *c);
    void (*release)(void *state); /* frees what the state owns. Optional: it owns nothing */
    bool steps;                   /* `observe` is called after steps */
    probe_extra lists; /* which lists it observes: the run's own, or those that are added for it */
    bool plain;        /* only in builds without sanitizers, and without poison */
} probe;

/* Notes that the property does not hold, and why; of several reasons the first is kept. From
 * `observe` and `judge`. */
__attribute__((format(printf, 1, 2))) void probe_fail(const char *format, ...);
/* Nobody watches the runs that `judge` begins after this call. */
void probe_look_away(void);

static inline bool probe_has_run(const probe_run *run, ech_list_kind list)
{
    return run->lists >> list & 1;
}

/* True if replicas take training steps of their own. */
static inline bool probe_diverges(const ech_layout *layout)
{
    return layout->protocol == ECH_PROTOCOL_APART || layout->protocol == ECH_PROTOCOL_ELASTIC;
}

/* The list that runs. */
static inline const ech_list *probe_list(const probe_run *run)
{
    return &run->session->plan->list[run->list];
}

#define X(noun) extern const probe probe_##noun;
#include "app/probes/probes.def"
#undef X

#endif
