/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading traces: each event is compared with the step of the plan that it must be.
 */
#include "app/trace/recording.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "app/block_times.h"
#include "app/trace/trace.h"
#include "base/file.h"
#include "base/json.h"
#include "schedule/print.h"
#include "simulate/simulate.h"

#define AGAIN "run again with log.trace=true"

enum { LARGEST_FILE = 1 << 30, LONGEST_LINE = 4096 };

/* Microseconds of a clock; so that differences in nanoseconds fit into 64 bits. */
static const double LATEST = 1e15;
static const int64_t LAST_STEP = INT64_C(1000000000000000);

static const ech_list *list_of(const ech_plan *plan)
{
    return &plan->list[ECH_LIST_TRAIN];
}

/* ---- a rank's file ---- */

typedef struct reader {
    const char *name;
    int64_t line;
    const ech_plan *plan;
    ech_recorded_rank *out;
    bool fits;
} reader;

static ech_status take_int(const reader *r, const json_t *object, const char *key, int64_t low,
                           int64_t *out)
{
    if (ech_json_to_int(json_object_get(object, key), low, LAST_STEP, out)) return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s:%" PRId64 ": '%s' is no whole number from %" PRId64 " to %" PRId64
             "; remove the folder trace to report without it",
             r->name, r->line, key, low, LAST_STEP);
}

/* JSON has neither NaN nor infinity, and its reader refuses numbers that overflow. */
static ech_status take_time(const reader *r, const json_t *event, const char *key, double *out)
{
    const json_t *number = json_object_get(event, key);
    *out = json_number_value(number);
    if (json_is_number(number) && *out >= 0 && *out <= LATEST) return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s:%" PRId64 ": '%s' is no number of microseconds from 0 to %g; remove the folder "
             "trace to report without it",
             r->name, r->line, key, LATEST);
}

static bool is_text(const json_t *event, const char *key, const char *text)
{
    const char *value = json_string_value(json_object_get(event, key));
    return value && strcmp(value, text) == 0;
}

static ech_status take_head(reader *r, const json_t *event)
{
    const json_t *args = json_object_get(event, "args");
    int64_t version, rank;
    ECH_TRY(take_int(r, args, "version", 0, &version));
    if (version != ECH_TRACE_VERSION)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: version %" PRId64 ", this program reads version %d; report with the program "
                 "that trained, or remove the folder trace",
                 r->name, version, ECH_TRACE_VERSION);
    ECH_TRY(take_int(r, event, "pid", 0, &rank));
    ECH_TRY(take_int(r, args, "world", 1, &r->out->world));
    ECH_TRY(take_int(r, args, "first_step", 0, &r->out->first_step));
    r->fits = rank == r->plan->rank;
    return ECH_OK;
}

/* Whether the event is the next step of the plan's lists. */
static bool is_next(const reader *r, const json_t *event, int64_t thread)
{
    const ech_list *list = list_of(r->plan);
    size_t done = r->out->begin.n;
    const ech_step *step = &list->step.at[done % list->step.n];
    int64_t first = r->out->first_step + (int64_t)(done / list->step.n) * r->plan->schedule->turns;
    const json_t *args = json_object_get(event, "args");
    ECH_FREED_TEXT name = {0};
    ech_list_print_step(list, step, &name);
    bool same = is_text(event, "name", name.at) &&
                is_text(event, "cat", ech_step_name(step->kind)) &&
                thread / ECH_TRACE_THREADS == step->lane &&
                json_integer_value(json_object_get(args, "list")) == first &&
                json_integer_value(json_object_get(args, "step")) == first + step->turn;
    return same;
}

static ech_status take_event(reader *r, const json_t *event)
{
    int64_t thread;
    double begin, length;
    if (!is_text(event, "ph", "X")) return ECH_OK; /* a name, or an arrow */
    ECH_TRY(take_int(r, event, "tid", 0, &thread));
    ECH_TRY(take_time(r, event, "ts", &begin));
    ECH_TRY(take_time(r, event, "dur", &length));
    r->fits = r->fits && is_next(r, event, thread);
    ECH_PUSH(r->out->begin, 1e-6 * begin);
    ECH_PUSH(r->out->end, 1e-6 * (begin + length));
    return ECH_OK;
}

/* A line's first byte separates it from the one before: '[' or ','. */
static ech_status take_line(reader *r, const char *line, size_t n)
{
    json_error_t error = {.text = "no event"};
    if (n > LONGEST_LINE)
        ECH_FAIL(
            ECH_EINPUT,
            "%s:%" PRId64
            ": longer than the %d bytes a line may have: damaged or written only in part; " AGAIN,
            r->name, r->line, LONGEST_LINE);
    json_t *event = NULL;
    if (n > 0 && line[0] == (r->line == 1 ? '[' : ','))
        event = json_loadb(line + 1, n - 1, JSON_REJECT_DUPLICATES, &error);
    if (!event)
        ECH_FAIL(ECH_EINPUT,
                 "%s:%" PRId64 ":%d: bad JSON: %s; remove the folder trace to report without it",
                 r->name, r->line, error.column + 1, error.text);
    ech_status status = r->line == 1 ? take_head(r, event) : take_event(r, event);
    json_decref(event);
    return status;
}

void ech_recorded_rank_free(ech_recorded_rank *rank)
{
    free(rank->begin.at);
    free(rank->end.at);
    *rank = (ech_recorded_rank){0};
}

ech_status ech_recording_parse(const char *text, size_t n, const char *name, const ech_plan *plan,
                               ech_recorded_rank *out, bool *fits)
{
    ECH_CLEANUP(ech_recorded_rank_free) ech_recorded_rank rank = {0};
    reader r = {.name = name, .plan = plan, .out = &rank, .fits = true};
    const char *end;
    for (const char *at = text, *last = text + n;
         at < last && (end = memchr(at, '\n', (size_t)(last - at))); at = end + 1) {
        r.line++;
        ECH_TRY(take_line(&r, at, (size_t)(end - at)));
    }
    *out = rank;
    *fits = r.fits;
    rank = (ech_recorded_rank){0};
    return ECH_OK;
}

/* ---- all ranks ---- */

static ech_status read_rank(const char *path, int r, ech_recording *recording, ech_text *why)
{
    const ech_recorded_rank *first = &recording->rank[0], *rank = &recording->rank[r];
    ECH_FREED char *text = NULL;
    size_t n;
    bool fits;
    if (!ech_file_exists(path)) {
        ech_text_append(why, "%s is not there; %s to record all ranks", path, AGAIN);
        return ECH_OK;
    }
    ECH_TRY(ech_file_read(path, LARGEST_FILE, &text, &n));
    ECH_TRY(ech_recording_parse(text, n, path, recording->plans[r], &recording->rank[r], &fits));
    if (rank->world == 0)
        ech_text_append(why, "%s is empty: no step was recorded yet", path);
    else if (rank->world != first->world || rank->first_step != first->first_step)
        ech_text_append(why,
                        "%s is from another run than the trace of rank 0; %s to record all "
                        "ranks",
                        path, AGAIN);
    else if (!fits || rank->world != recording->ranks)
        ech_text_append(why,
                        "the traces are not of this layout: an earlier start of the run wrote "
                        "them; %s",
                        AGAIN);
    return ECH_OK;
}

ech_status ech_recording_read(const char *folder, const ech_plan *const *plans, int n,
                              ech_recording *out, ech_text *why)
{
    ECH_CLEANUP(ech_recording_free)
    ech_recording recording = {.plans = plans,
                               .ranks = n,
                               .lists = INT32_MAX,
                               .rank = ech_calloc((size_t)n, sizeof *recording.rank)};
    *out = (ech_recording){0};
    for (int r = 0; r < n && why->n == 0; r++) {
        ECH_FREED char *path = ech_trace_path(folder, r);
        ECH_TRY(read_rank(path, r, &recording, why));
        int lists = (int)(recording.rank[r].begin.n / list_of(plans[r])->step.n);
        if (lists < recording.lists) recording.lists = lists;
    }
    if (why->n == 0 && recording.lists == 0)
        ech_text_append(why, "no step was recorded to its end on all ranks yet");
    if (why->n) return ECH_OK;
    *out = recording;
    recording = (ech_recording){0};
    return ECH_OK;
}

void ech_recording_free(ech_recording *recording)
{
    for (int r = 0; r < recording->ranks; r++) ech_recorded_rank_free(&recording->rank[r]);
    free(recording->rank);
    *recording = (ech_recording){0};
}

/* ---- clocks, timeline and costs ---- */

bool ech_recording_has_one_clock(const ech_recording *recording)
{
    for (int l = 0; l < recording->lists; l++) {
        double begin = -INFINITY, end = INFINITY;
        for (int r = 0; r < recording->ranks; r++) {
            const ech_recorded_rank *rank = &recording->rank[r];
            size_t steps = list_of(recording->plans[r])->step.n, first = (size_t)l * steps;
            double own_begin = INFINITY, own_end = -INFINITY;
            for (size_t s = first; s < first + steps; s++) {
                own_begin = fmin(own_begin, rank->begin.at[s]);
                own_end = fmax(own_end, rank->end.at[s]);
            }
            begin = fmax(begin, own_begin);
            end = fmin(end, own_end);
        }
        if (begin > end) return false;
    }
    return true;
}

/* Index of the first step of the last complete list in rank r's times. */
static size_t last_list(const ech_recording *recording, int r)
{
    return (size_t)(recording->lists - 1) * list_of(recording->plans[r])->step.n;
}

static double first_compute(const ech_recording *recording)
{
    double begin = INFINITY;
    for (int r = 0; r < recording->ranks; r++) {
        const ech_list *list = list_of(recording->plans[r]);
        const double *begins = recording->rank[r].begin.at + last_list(recording, r);
        for (size_t s = 0; s < list->step.n; s++)
            if (list->step.at[s].lane == ECH_LANE_COMPUTE) begin = fmin(begin, begins[s]);
    }
    return begin;
}

void ech_recording_timeline(const ech_recording *recording, ech_timeline *out)
{
    const ech_list *first = list_of(recording->plans[0]);
    const ech_layout *layout = recording->plans[0]->layout;
    double start = first_compute(recording);
    *out = (ech_timeline){.ranks = recording->ranks,
                          .layout = layout,
                          .chunks = layout->chunks,
                          .sequence_chunks = first->numbering.sequence_chunks,
                          .seconds = true};
    for (int r = 0; r < recording->ranks; r++) {
        const ech_list *list = list_of(recording->plans[r]);
        const ech_recorded_rank *rank = &recording->rank[r];
        size_t at = last_list(recording, r);
        ECH_FREED double *begin = ech_calloc(list->step.n, sizeof *begin);
        ECH_FREED double *end = ech_calloc(list->step.n, sizeof *end);
        for (size_t s = 0; s < list->step.n; s++) {
            begin[s] = rank->begin.at[at + s] - start;
            end[s] = rank->end.at[at + s] - start;
        }
        ech_timeline_add_list(out, r, list, begin, end);
    }
    ech_timeline_finish(out);
}

ech_profile *ech_recording_profile(const ech_recording *recording)
{
    ech_measured_times times;
    ech_measured_times_create(recording->plans[0]->model, &times);
    for (int r = 0; r < recording->ranks; r++)
        for (int l = 0; l < recording->lists; l++) {
            size_t first = (size_t)l * list_of(recording->plans[r])->step.n;
            ech_measured_times_add(&times, recording->plans[r], recording->rank[r].begin.at + first,
                                   recording->rank[r].end.at + first);
        }
    ech_profile *profile = ech_measured_times_profile(&times, ech_plan_ways(recording->plans[0]));
    ech_measured_times_free(&times);
    return profile;
}

void ech_recording_number(const ech_layout *layout, ech_timeline *timeline)
{
    int chunks = timeline->sequence_chunks > 1 ? timeline->sequence_chunks : 1;
    ech_numbering all = {(int)layout->micro_batches, chunks};
    if (layout->uniform) return;
    for (size_t i = 0; i < timeline->bar.n; i++) {
        ech_timeline_bar *bar = &timeline->bar.at[i];
        if (bar->micro < 0) continue;
        ech_numbering own = {ech_layout_micro_batches(layout, bar->rank), chunks};
        ech_micro at = ech_micro_at(own, bar->micro);
        at.micro_batch = (int)ech_layout_global_micro(layout, bar->rank, at.micro_batch);
        bar->micro = ech_micro_number(all, at);
    }
}
