/* SPDX-License-Identifier: Apache-2.0
 *
 * `echelon verify`: compares training under a layout with training on one rank. The error of a
 * tensor a against the reference b is max|a - b| / max|b|.
 */
#ifndef ECH_APP_VERIFY_VERIFY_H
#define ECH_APP_VERIFY_VERIFY_H

#include "app/setup/setup.h"

/* A training run to compare with another: its session and training data. */
typedef struct ech_compared_run {
    const ech_design *design; /* borrowed */
    ech_session session;
    ech_corpus *data;
    ech_loader *loader;
} ech_compared_run;

/* Makes session, data and loader, and initializes the parameters. run->design must be set. Release
 * with ech_compared_run_close, also after an error. Collective over `comm`. */
ech_status ech_compared_run_open(ech_compared_run *run, ech_comm *comm);
/* *loss: of the first global batch of validation data with the newest weights. *validates: there is
 * such data; else *loss is not set. Collective. */
ech_status ech_compared_run_validate(ech_compared_run *run, bool *validates, double *loss);
void ech_compared_run_close(ech_compared_run *run);

/* A comparison and its result. */
typedef struct ech_verification {
    /* input */
    /* Training steps to compare; rounded up to full spans, or to a synchronization of replicas. */
    int64_t steps;
    double tolerance;   /* the largest error that passes; 0: numbers must be equal */
    bool widened;       /* tolerance becomes ten units, if that is more */
    bool own_precision; /* in the run's own precision instead of fp64 */
    /* output, on rank 0 */
    bool passed;
    /* Within the tolerance, but not passed, since it proves nothing: the layout is not exact, and
     * the unit is above ECH_MOST_UNIT (in the run's own precision: infinite); or all updates were
     * withheld. */
    bool ill;
    int ranks;
    int64_t done;          /* training steps that were compared */
    const char *comm;      /* "local" */
    double unit;           /* the change of results caused by a random last bit of each weight */
    char layout[256];      /* "3 stages x 2 replicas x 2 tensor, 1f1b" */
    const char *precision; /* "fp64" */
    int merged;            /* micro-batches, of as many replicas, that are one there; 1: none */
    bool replayed; /* the schedule is asynchronous: compared with its serial replay (replay.h) */
    /* the order in which ranks add is not fixed: the weights that each had read are taken from the
     * layout */
    bool open;
    bool carried;        /* so are weights after a span in which a token visited the clusters */
    bool exact;          /* the layout must give the same bits as one rank */
    bool validated;      /* validation losses were compared, too */
    double worst;        /* the largest error */
    char worst_at[256];  /* where the largest error was: "step 2, gradient of model.layers.1...." */
    char first_bad[256]; /* the first tensor out of tolerance, "" if there is none */
    double worst_loss, worst_gradient, worst_weight, worst_state, worst_validation; /* errors */
    double worst_report; /* for reports of layers: `reports` numbers per step */
    int64_t reports;
    int64_t compared; /* number of elements of gradients, weights and states */
    /* The single rank's updates: one for each training step, and for each worker and asynchronous
     * stage if these update separately. Withheld: by gradients that are not finite. If the layout
     * withholds such an update, too, its gradients are not compared. */
    int64_t updates, withheld;
    /* number of losses and reports that are not finite on both sides, and so are not compared */
    int64_t not_finite;
} ech_verification;

/* True if all updates were withheld, so that no gradient was compared. */
static inline bool ech_verification_is_void(const ech_verification *v)
{
    return v->updates > 0 && v->withheld == v->updates;
}

/* In fp64, results that rounding changes by more than this prove nothing. */
#define ECH_MOST_UNIT 1e-9
/* Default tolerances. The fp64 tolerance is about ten times the largest error of 1,400 random run
 * files (1.2e-12), drawn as in tests/app/test_verify_random.c. */
#define ECH_TOLERANCE      1e-11
#define ECH_TOLERANCE_FP32 1e-5

/* Trains the design's layout and, on rank 0 in addition, a single rank on the same micro-batches.
 * After each training step it compares the loss and every gradient (reduced, before gradient
 * clipping) and copies the layout's gradients to the single rank. Then it compares the weights and
 * optimizer states that both compute from these gradients, and copies them, too, so that rounding
 * errors do not accumulate over training steps. An asynchronous schedule is compared with its
 * serial replay in the same way. Last, it compares the loss of a validation batch. A failed
 * comparison is not an error: see `passed`. An ech_design_main whose context is an
 * ech_verification. Collective. */
ech_status ech_verify_rank(ech_comm *comm, const ech_design *design, void *verification);

/* Two comparisons: `main` in fp64, then `own` in the run's own precision. The second is made with
 * tolerance 0 if the layout is exact; otherwise if own_precision requests it and the run's
 * precision is not fp64. Its tolerance is then own.tolerance, which is for fp32, scaled to the
 * precision (2^13 times in fp16, 2^16 times in bf16), or ten units of that precision. Codes of
 * 8-bit states may then differ by one, and fp16 runs have their loss scale (for auto 4096); all
 * other comparisons have a loss scale of 1. */
typedef struct ech_verifications {
    ech_verification main, own; /* in: main's inputs, own.tolerance; out: results */
    bool own_precision;         /* in: make the second comparison for any layout */
    bool own_compared;          /* out, on rank 0: it was made */
} ech_verifications;
/* An ech_design_main whose context is an ech_verifications. Collective. */
ech_status ech_verify_twice_rank(ech_comm *comm, const ech_design *design, void *verifications);

/* Appends what `echelon verify` prints; for rank 0. */
void ech_verify_print(const ech_verifications *verifications, ech_text *out);

#endif
