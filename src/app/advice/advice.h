/* SPDX-License-Identifier: Apache-2.0
 *
 * Advice on a planned layout: its form as arguments of another system, and its goodput in a long
 * training in which ranks fail. Nothing is collective.
 */
#ifndef ECH_APP_ADVICE_ADVICE_H
#define ECH_APP_ADVICE_ADVICE_H

#include "app/advice/emit.h"
#include "simulate/goodput.h"

typedef struct ech_advice_options {
    const char *emit_for;   /* name of a system (app/advice/systems.def); NULL: none */
    double mtbf_hours;      /* mean time between failures of one rank; 0: failures do not matter */
    double restart_seconds; /* from a failure until the job trains again, on a spare machine */
    double repair_hours;    /* of a machine */
    int spares;             /* machines */
} ech_advice_options;

/* An interval between checkpoints, and what it is good for. */
typedef struct ech_advice_interval {
    int64_t steps;
    ech_goodput goodput;
} ech_advice_interval;

typedef struct ech_advice_failures {
    ech_failures of;         /* of the whole job */
    double checkpoint_bytes; /* of one checkpoint, all files */
    double step;             /* seconds */
    int ranks, rarely;       /* spares with which one failure in a thousand waits for repair */
    ech_advice_interval best, young, daly; /* by simulation */
} ech_advice_failures;

typedef struct ech_advice {
    ech_advice_options options;
    ech_emitted emitted;          /* if options.emit_for */
    ech_advice_failures failures; /* if options.mtbf_hours > 0 */
} ech_advice;

/* Refuses options that cannot be met on this cluster, NULL: on this machine. path: its file's. */
ech_status ech_advice_check(const ech_advice_options *options, const ech_cluster *cluster,
                            const char *path);
/* step: seconds of a training step. *out is to be released with ech_advice_free also after a
 * failure. Errors: as of ech_emit. */
ech_status ech_advice_create(const ech_design *design, const ech_advice_options *options,
                             double step, ech_advice *out);
void ech_advice_free(ech_advice *advice);

/* Appends it for people. days: days of the training without failures. */
void ech_advice_text(const ech_advice *advice, double days, ech_text *out);
/* Adds "emitted" and "failures" to a JSON object, as docs/formats.md has them. */
void ech_advice_json(const ech_advice *advice, double days, struct json_t *out);
/* Appends goodput against ranks as SVG: from an eighth to eight times the run's, with the run's
 * step, checkpoint and repairs. Errors: failures were not simulated. */
ech_status ech_advice_svg(const ech_advice *advice, ech_text *out);

#endif
