/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders from files: of items, written by hand, and of pushes, as a run has logged them.
 */
#include "app/setup/orders.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "config/about.h"

/* Whether the bound lists of the two spans are the same. */
static bool is_same_order(const ech_serve *a, const ech_serve *b, int pushes)
{
    for (int i = 0; i < pushes; i++)
        if (a[i].worker != b[i].worker) return false;
    return true;
}

/* The train lists bound to each span of the log of serves. */
static ech_status check_spans(const ech_design *design, ech_plan **plans)
{
    const ech_serve_log *log = design->serves;
    const ech_serve *before = NULL;
    for (int64_t step = log->first; step < log->end; step += log->turns) {
        const ech_serve *span = ech_serve_log_span(log, step);
        if (before && is_same_order(before, span, log->pushes)) continue;
        for (int rank = 0; rank < design->world; rank++) ech_plan_bind(plans[rank], span);
        ECH_TRY(ech_design_check_plans(design, (const ech_plan *const *)plans, design->world,
                                       ECH_LIST_TRAIN));
        before = span;
    }
    return ECH_OK;
}

/* The orders of a generator fit together. Orders from a file are checked, all ranks together. */
static ech_status check_read(const ech_design *design)
{
    ECH_FREED ech_plan **plans = ech_calloc((size_t)design->world, sizeof *plans);
    ech_status status = ECH_OK;
    for (int rank = 0; rank < design->world && status == ECH_OK; rank++)
        status = ech_design_outline(design, rank, false, &plans[rank]);
    if (status == ECH_OK)
        status = design->serves ? check_spans(design, plans)
                                : ech_design_check_plans(design, (const ech_plan *const *)plans,
                                                         design->world, ECH_LIST_TRAIN);
    for (int rank = 0; rank < design->world; rank++) ech_plan_destroy(plans[rank]);
    return status;
}

static ech_status read_serves(ech_design *design)
{
    const ech_config *c = design->config;
    if (!c->parallel.serve_log[0]) return ECH_OK;
    if (!ech_file_exists(c->parallel.serve_log))
        return ech_config_complain(c, "parallel.serve_log",
                                   "no such file; a run of asp or ssp writes one, serves.jsonl in "
                                   "its log.directory");
    ECH_CONFIG_TRY_ABOUT(c, "parallel.serve_log",
                         ech_serve_log_read(c->parallel.serve_log, c, design->layout,
                                            design->schedule, &design->serves));
    return ECH_OK;
}

ech_status ech_design_check_serves(const ech_design *design, int64_t step, int64_t end)
{
    const ech_serve_log *log = design->serves;
    if (!log || (log->first <= step && end <= log->end)) return ECH_OK;
    return ech_config_complain(design->config, "parallel.serve_log",
                               "has the pushes of steps %lld to %lld, but the run has steps %lld "
                               "to %lld; train the same steps as the log's run",
                               (long long)log->first + 1, (long long)log->end, (long long)step + 1,
                               (long long)end);
}

/* A log that this run writes itself is truncated before it is repeated. */
ech_status ech_design_check_repeat(const ech_design *design, int64_t step)
{
    const ech_config *c = design->config;
    if (!design->serves) return ECH_OK;
    ECH_FREED char *written = ech_file_join(c->log.directory, ECH_SERVE_LOG_NAME);
    ECH_FREED char *own = realpath(written, NULL), *given = realpath(c->parallel.serve_log, NULL);
    if (own && given && strcmp(own, given) == 0)
        return ech_config_complain(c, "parallel.serve_log",
                                   "this run would overwrite the file; use another log.directory, "
                                   "or a copy of the file");
    return ech_design_check_serves(design, step, c->training.steps);
}

ech_status ech_design_read_orders(ech_design *design)
{
    ECH_TRY(read_serves(design));
    return design->schedule->written || design->serves ? check_read(design) : ECH_OK;
}
