/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces out of lines of JSON: each line is small, so a tree of it is, too.
 */
#include "app/trace/read.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum { VERSION = 3, LARGEST_FILE = 1 << 30, LONGEST_LINE = 4096 };
enum { HEAD_KEYS = 10, STEP_KEYS = 7, BLOCK_KEYS = 3, PEER_KEYS = 1, MOST_RANKS = 65536 };

/* Of a clock; so that differences in nanoseconds fit into 64 bits. */
static const double LATEST = 1e9;
static const int64_t LAST_STEP = INT64_C(1000000000000000);

typedef struct reader {
    const char *name;
    int64_t line;
    ech_rank_trace *out;
} reader;

/* ---- values ---- */

static ech_status take_int(const reader *r, const json_t *object, const char *key, int64_t low,
                           int64_t high, int64_t *out)
{
    if (ech_json_to_int(json_object_get(object, key), low, high, out)) return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s:%" PRId64 ": '%s' is no whole number from %" PRId64 " to %" PRId64
             "; remove the folder trace to report without it",
             r->name, r->line, key, low, high);
}

static ech_status take_small(const reader *r, const json_t *object, const char *key, int high,
                             int *out)
{
    int64_t value;
    ECH_TRY(take_int(r, object, key, 0, high, &value));
    *out = (int)value;
    return ECH_OK;
}

/* JSON has neither NaN nor infinity, and its reader refuses what would overflow. */
static ech_status take_time(const reader *r, const json_t *object, const char *key, double low,
                            double *out)
{
    const json_t *number = json_object_get(object, key);
    double value = json_number_value(number);
    if (json_is_number(number) && value >= low && value <= LATEST) {
        *out = value;
        return ECH_OK;
    }
    ECH_FAIL(ECH_EINPUT,
             "%s:%" PRId64 ": '%s' is no number of seconds from %g to %g; remove the folder trace "
             "to report without it",
             r->name, r->line, key, low, LATEST);
}

static ech_status take_text(const reader *r, const json_t *object, const char *key,
                            const char **out)
{
    *out = json_string_value(json_object_get(object, key));
    if (*out) return ECH_OK;
    ECH_FAIL(ECH_EINPUT, "%s:%" PRId64 ": '%s' is no text", r->name, r->line, key);
}

static ech_status check_keys(const reader *r, const json_t *object, size_t keys)
{
    if (json_object_size(object) == keys) return ECH_OK;
    ECH_FAIL(ECH_EINPUT, "%s:%" PRId64 ": %zu keys where version %d has %zu", r->name, r->line,
             json_object_size(object), VERSION, keys);
}

static ech_status take_lane(const reader *r, const json_t *object, ech_lane *out)
{
    const char *text;
    ECH_TRY(take_text(r, object, "lane", &text));
    for (int lane = 0; lane < ECH_LANES; lane++)
        if (strcmp(text, ech_lane_name((ech_lane)lane)) == 0) {
            *out = (ech_lane)lane;
            return ECH_OK;
        }
    ECH_FAIL(ECH_EINPUT, "%s:%" PRId64 ": no lane is called '%.40s'", r->name, r->line, text);
}

static ech_status take_kind(const reader *r, const json_t *object, ech_step_kind *out)
{
    const char *text;
    ECH_TRY(take_text(r, object, "kind", &text));
    for (int kind = 0; kind < ECH_STEPS; kind++)
        if (strcmp(text, ech_step_name((ech_step_kind)kind)) == 0) {
            *out = (ech_step_kind)kind;
            return ECH_OK;
        }
    ECH_FAIL(ECH_EINPUT, "%s:%" PRId64 ": no step is of the kind '%.40s'", r->name, r->line, text);
}

/* ---- lines ---- */

static ech_status take_head(const reader *r, const json_t *object)
{
    ech_rank_trace *out = r->out;
    int version = 0;
    ECH_TRY(take_small(r, object, "version", INT_MAX, &version));
    if (version != VERSION)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: version %d, this program reads version %d; report with the program that "
                 "trained, or remove the folder trace",
                 r->name, version, VERSION);
    int64_t world = 0;
    ECH_TRY(take_int(r, object, "world", 1, MOST_RANKS, &world));
    ECH_TRY(take_small(r, object, "rank", (int)world - 1, &out->rank));
    ECH_TRY(take_small(r, object, "stage", (int)world - 1, &out->stage));
    ECH_TRY(take_small(r, object, "data", (int)world - 1, &out->data));
    ECH_TRY(take_small(r, object, "context", (int)world - 1, &out->context));
    ECH_TRY(take_small(r, object, "tensor", (int)world - 1, &out->tensor));
    ECH_TRY(take_int(r, object, "first_step", 0, LAST_STEP, &out->first_step));
    ECH_TRY(take_time(r, object, "clock_offset", -LATEST, &out->clock_offset));
    ECH_TRY(take_time(r, object, "clock_error", 0, &out->clock_error));
    out->world = (int)world;
    return check_keys(r, object, HEAD_KEYS);
}

static ech_status take_place(const reader *r, const json_t *object, ech_traced_step *step)
{
    size_t keys = STEP_KEYS;
    step->chunk = step->micro = step->block = step->peer = -1;
    if (json_object_get(object, "block")) {
        ECH_TRY(take_small(r, object, "chunk", INT_MAX, &step->chunk));
        ECH_TRY(take_small(r, object, "micro", INT_MAX, &step->micro));
        ECH_TRY(take_small(r, object, "block", INT_MAX, &step->block));
        keys += BLOCK_KEYS;
    }
    if (json_object_get(object, "peer")) {
        ECH_TRY(take_small(r, object, "peer", r->out->world - 1, &step->peer));
        keys += PEER_KEYS;
    }
    return check_keys(r, object, keys);
}

/* The list that a step belongs to: the last one, or the next. */
static ech_status join_list(const reader *r, int64_t list)
{
    ech_rank_trace *out = r->out;
    int64_t last = out->list.n ? out->list.at[out->list.n - 1].step : out->first_step;
    if (list < last)
        ECH_FAIL(ECH_EINPUT,
                 "%s:%" PRId64 ": 'list' is %" PRId64 ", below the %" PRId64 " of before", r->name,
                 r->line, list, last);
    if (out->list.n == 0 || list > last)
        ECH_PUSH(out->list, (ech_traced_list){.step = list, .first = out->step.n});
    out->list.at[out->list.n - 1].n++;
    return ECH_OK;
}

static ech_status take_step(const reader *r, const json_t *object)
{
    ech_traced_step step = {0};
    int64_t list = 0;
    const char *name = NULL;
    ECH_TRY(take_int(r, object, "list", 0, LAST_STEP, &list));
    ECH_TRY(take_int(r, object, "step", list, LAST_STEP, &step.step));
    ECH_TRY(take_lane(r, object, &step.lane));
    ECH_TRY(take_kind(r, object, &step.kind));
    ECH_TRY(take_text(r, object, "name", &name));
    ECH_TRY(take_time(r, object, "begin", 0, &step.begin));
    ECH_TRY(take_time(r, object, "end", step.begin, &step.end));
    ECH_TRY(take_place(r, object, &step));
    ECH_TRY(join_list(r, list));
    step.begin += r->out->clock_offset;
    step.end += r->out->clock_offset;
    step.name = r->out->names.n;
    ech_text_append_bytes(&r->out->names, name, strlen(name) + 1);
    ECH_PUSH(r->out->step, step);
    return ECH_OK;
}

static ech_status take_line(const reader *r, const char *line, size_t n)
{
    json_error_t error;
    if (n > LONGEST_LINE)
        ECH_FAIL(ECH_EINPUT, "%s:%" PRId64 ": longer than the %d bytes a line may have", r->name,
                 r->line, LONGEST_LINE);
    json_t *object = json_loadb(line, n, JSON_REJECT_DUPLICATES, &error);
    if (!object)
        ECH_FAIL(ECH_EINPUT,
                 "%s:%" PRId64 ":%d: bad JSON: %s; remove the folder trace to report without it",
                 r->name, r->line, error.column, error.text);
    ech_status status = r->line == 1 ? take_head(r, object) : take_step(r, object);
    json_decref(object);
    return status;
}

/* ---- files ---- */

void ech_rank_trace_free(ech_rank_trace *trace)
{
    free(trace->step.at);
    free(trace->list.at);
    ech_text_free(&trace->names);
    *trace = (ech_rank_trace){0};
}

ech_status ech_rank_trace_parse(const char *text, size_t n, const char *name, ech_rank_trace *out)
{
    ech_rank_trace trace = {0};
    reader r = {.name = name, .out = &trace};
    ech_status status = ECH_OK;
    const char *end;
    if (n > LARGEST_FILE)
        ECH_FAIL(ECH_EINPUT, "%s: %zu bytes; a trace has at most %d", name, n, LARGEST_FILE);
    for (const char *at = text, *last = text + n;
         status == ECH_OK && at < last && (end = memchr(at, '\n', (size_t)(last - at)));
         at = end + 1) {
        r.line++;
        status = take_line(&r, at, (size_t)(end - at));
    }
    if (status == ECH_OK)
        *out = trace;
    else
        ech_rank_trace_free(&trace);
    return status;
}

ech_status ech_rank_trace_read(const char *path, ech_rank_trace *out)
{
    char *text;
    size_t n;
    ECH_TRY(ech_file_read(path, LARGEST_FILE, &text, &n));
    ech_status status = ech_rank_trace_parse(text, n, path, out);
    free(text);
    return status;
}

const char *ech_rank_trace_name(const ech_rank_trace *trace, const ech_traced_step *step)
{
    return trace->names.at + step->name;
}
