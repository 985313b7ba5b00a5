/* SPDX-License-Identifier: Apache-2.0
 *
 * Trace events, one a line.
 */
#include "app/trace/perfetto.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "app/trace/perfetto_arrows.h"
#include "base/file.h"
#include "base/json.h"

/* Threads of a lane; what finds none free shares the last one. */
enum { THREADS = 32 };

typedef struct printer {
    const ech_rank_trace *trace;
    ech_rank_trace most;              /* the last place along each axis */
    double start;                     /* seconds: time 0 */
    int64_t free[ECH_LANES][THREADS]; /* nanosecond from which on the thread is free */
    int used[ECH_LANES];              /* threads */
    ech_text *out;
} printer;

static double earliest(const ech_rank_trace *traces, int n)
{
    double start = INFINITY;
    for (int r = 0; r < n; r++)
        for (size_t s = 0; s < traces[r].step.n; s++)
            start = fmin(start, traces[r].step.at[s].begin);
    return start;
}

static ech_rank_trace last_places(const ech_rank_trace *traces, int n)
{
    ech_rank_trace most = {0};
    for (int r = 0; r < n; r++) {
        if (traces[r].data > most.data) most.data = traces[r].data;
        if (traces[r].context > most.context) most.context = traces[r].context;
        if (traces[r].tensor > most.tensor) most.tensor = traces[r].tensor;
    }
    return most;
}

static int64_t nanoseconds(const printer *p, double time)
{
    return llround((time - p->start) * 1e9);
}

static void append_microseconds(const char *key, int64_t nanoseconds, ech_text *out)
{
    ech_text_append(out, ",\"%s\":%" PRId64 ".%03" PRId64, key, nanoseconds / 1000,
                    nanoseconds % 1000);
}

static void begin_event(ech_text *out)
{
    ech_text_append(out, out->at[out->n - 1] == '[' ? "\n" : ",\n");
}

static int thread_id(int lane, int thread)
{
    return lane * THREADS + thread;
}

static int find_thread(printer *p, ech_lane lane, int64_t begin, int64_t end)
{
    int thread = 0;
    while (thread < THREADS - 1 && p->free[lane][thread] > begin) thread++;
    if (p->free[lane][thread] < end) p->free[lane][thread] = end;
    if (p->used[lane] <= thread) p->used[lane] = thread + 1;
    return thread;
}

/* One end of the arrow from a send to its receive. It must lie within the slice that it is tied to. */
static void print_arrow(const printer *p, const ech_traced_step *step, int64_t number, int thread)
{
    bool sends = ech_perfetto_is_send(step);
    int64_t begin = nanoseconds(p, step->begin), end = nanoseconds(p, step->end);
    begin_event(p->out);
    ech_text_append(p->out,
                    "{\"name\":\"message\",\"cat\":\"message\",\"ph\":\"%s\",\"id\":%" PRId64
                    ",\"pid\":%d,\"tid\":%d",
                    sends ? "s" : "f\",\"bp\":\"e", number, p->trace->rank, thread);
    append_microseconds("ts", sends || end == begin ? begin : end - 1, p->out);
    ech_text_append(p->out, "}");
}

static void print_step(printer *p, int64_t list, const ech_traced_step *step, int64_t number)
{
    int64_t begin = nanoseconds(p, step->begin), end = nanoseconds(p, step->end);
    int thread = find_thread(p, step->lane, begin, end);
    begin_event(p->out);
    ech_text_append(p->out, "{\"name\":");
    ech_json_append_string(p->out, ech_rank_trace_name(p->trace, step));
    ech_text_append(p->out, ",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":%d,\"tid\":%d",
                    ech_step_name(step->kind), p->trace->rank, thread_id((int)step->lane, thread));
    append_microseconds("ts", begin, p->out);
    append_microseconds("dur", end - begin, p->out);
    ech_text_append(p->out, ",\"args\":{\"list\":%" PRId64 ",\"step\":%" PRId64 "}}", list,
                    step->step);
    if (number) print_arrow(p, step, number, thread_id((int)step->lane, thread));
}

/* thread -1: of the process. */
static void print_name(const printer *p, int thread, const char *name)
{
    const char *what = thread < 0 ? "process" : "thread";
    const char *const kinds[] = {"name", "sort_index"};
    for (int i = 0; i < 2; i++) {
        begin_event(p->out);
        ech_text_append(p->out, "{\"name\":\"%s_%s\",\"ph\":\"M\",\"pid\":%d", what, kinds[i],
                        p->trace->rank);
        if (thread >= 0) ech_text_append(p->out, ",\"tid\":%d", thread);
        ech_text_append(p->out, ",\"args\":{\"%s\":", kinds[i]);
        if (i == 0)
            ech_json_append_string(p->out, name);
        else
            ech_text_append(p->out, "%d", thread < 0 ? p->trace->rank : thread);
        ech_text_append(p->out, "}}");
    }
}

/* "rank 3 (stage 0, replica 1, tensor 1)": axes along which no rank is the second are left out. */
static void print_place(const printer *p, ech_text *out)
{
    const ech_rank_trace *trace = p->trace, *most = &p->most;
    ech_text_append(out, "rank %d (stage %d", trace->rank, trace->stage);
    if (most->data) ech_text_append(out, ", replica %d", trace->data);
    if (most->context) ech_text_append(out, ", context %d", trace->context);
    if (most->tensor) ech_text_append(out, ", tensor %d", trace->tensor);
    ech_text_append(out, ")");
}

static void print_names(const printer *p)
{
    ech_text name = {0};
    print_place(p, &name);
    print_name(p, -1, name.at);
    for (int lane = 0; lane < ECH_LANES; lane++)
        for (int thread = 0; thread < p->used[lane]; thread++) {
            name.n = 0;
            ech_text_append(&name, "%s", ech_lane_name((ech_lane)lane));
            if (thread) ech_text_append(&name, " %d", thread + 1);
            print_name(p, thread_id(lane, thread), name.at);
        }
    ech_text_free(&name);
}

void ech_perfetto_print(const ech_rank_trace *traces, int n, ech_text *out)
{
    double start = earliest(traces, n);
    ech_rank_trace most = last_places(traces, n);
    ech_text_append(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[");
    for (int r = 0; r < n; r++) {
        printer p = {.trace = &traces[r], .most = most, .start = start, .out = out};
        int64_t *number = ech_perfetto_arrows(&traces[r]);
        for (size_t l = 0; l < traces[r].list.n; l++) {
            const ech_traced_list *list = &traces[r].list.at[l];
            for (size_t s = list->first; s < list->first + list->n; s++)
                print_step(&p, list->step, &traces[r].step.at[s], number[s]);
        }
        free(number);
        print_names(&p);
    }
    ech_text_append(out, "\n]}\n");
}

ech_status ech_perfetto_write(const ech_rank_trace *traces, int n, const char *path)
{
    ech_text json = {0};
    ech_perfetto_print(traces, n, &json);
    ech_status status = ech_file_write(path, json.at, json.n);
    ech_text_free(&json);
    return status;
}
