/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's trace: one JSON object a line. The first says what the file is; then one for each step of
 * each recorded list, in the list's order, with seconds on one clock of the machine.
 */
#include "app/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/metrics.h"
#include "base/file.h"

enum { VERSION = 2 };

struct ech_trace {
    const ech_plan *plan;
    char *path;
    FILE *file;
    int64_t first_step, steps;
};

static ech_status write_line(ech_trace *trace, ech_text *line)
{
    ech_text_append(line, "}\n");
    if (fwrite(line->at, 1, line->n, trace->file) == line->n) return ECH_OK;
    ECH_FAIL(ECH_EIO, "%s: %s; make room, or set log.trace to false", trace->path, strerror(errno));
}

static ech_status write_head(ech_trace *trace)
{
    const ech_layout *layout = trace->plan->layout;
    const ech_place *place = &layout->place[trace->plan->rank];
    ech_text line = {0};
    ech_metrics_int(&line, "version", VERSION);
    ech_metrics_int(&line, "rank", trace->plan->rank);
    ech_metrics_int(&line, "world", layout->world);
    ech_metrics_int(&line, "stage", place->stage);
    ech_metrics_int(&line, "data", place->data);
    ech_metrics_int(&line, "context", place->context);
    ech_metrics_int(&line, "tensor", place->tensor);
    ech_metrics_int(&line, "first_step", trace->first_step);
    ech_status status = write_line(trace, &line);
    ech_text_free(&line);
    return status;
}

ech_status ech_trace_open(const ech_config *config, const ech_plan *plan, int64_t first_step,
                          ech_trace **out)
{
    char name[32];
    char *folder = ech_file_join(config->log.directory, "trace");
    snprintf(name, sizeof name, "rank-%05d.jsonl", plan->rank);
    ech_trace *trace = ech_calloc(1, sizeof *trace);
    trace->plan = plan;
    trace->first_step = first_step;
    trace->steps = config->log.trace_steps;
    trace->path = ech_file_join(folder, name);
    ech_status status = ech_file_make_folder(folder);
    if (status == ECH_OK && !(trace->file = fopen(trace->path, "w")))
        status = ech_fail_at(__FILE__, __LINE__, ECH_EIO, "%s: cannot be written: %s", trace->path,
                             strerror(errno));
    if (status == ECH_OK) status = write_head(trace);
    free(folder);
    if (status == ECH_OK)
        *out = trace;
    else
        ech_trace_close(trace);
    return status;
}

void ech_trace_close(ech_trace *trace)
{
    if (!trace) return;
    if (trace->file) fclose(trace->file);
    free(trace->path);
    free(trace);
}

bool ech_trace_wants(const ech_trace *trace, int64_t step)
{
    return trace && step < trace->first_step + trace->steps;
}

static ech_status write_step(ech_trace *trace, const ech_exec *exec, int64_t step, size_t s)
{
    const ech_step *of = &trace->plan->list[ECH_LIST_TRAIN].step.at[s];
    ech_text line = {0}, name = {0};
    ech_step_print(of, &name);
    ech_metrics_int(&line, "list", step);
    ech_metrics_int(&line, "step", step + of->turn);
    ech_metrics_text(&line, "lane", ech_lane_name(of->lane));
    ech_metrics_text(&line, "kind", ech_step_name(of->kind));
    ech_metrics_text(&line, "name", name.at);
    if (of->block >= 0) {
        ech_metrics_int(&line, "chunk", of->chunk);
        ech_metrics_int(&line, "micro", of->micro);
        ech_metrics_int(&line, "block", of->block);
    }
    ech_text_append(&line, ",\"begin\":%.9f,\"end\":%.9f", ech_exec_begins(exec)[s],
                    ech_exec_ends(exec)[s]);
    ech_status status = write_line(trace, &line);
    ech_text_free(&line);
    ech_text_free(&name);
    return status;
}

ech_status ech_trace_take(ech_trace *trace, const ech_exec *exec, int64_t step)
{
    if (!ech_trace_wants(trace, step)) return ECH_OK;
    for (size_t s = 0; s < trace->plan->list[ECH_LIST_TRAIN].step.n; s++)
        ECH_TRY(write_step(trace, exec, step, s));
    if (fflush(trace->file) == 0) return ECH_OK;
    ECH_FAIL(ECH_EIO, "%s: %s; make room, or set log.trace to false", trace->path, strerror(errno));
}
