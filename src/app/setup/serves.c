/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of serves that a run repeats.
 */
#include "app/setup/parts.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "config/about.h"

ech_status ech_design_read_serves(ech_design *design)
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
