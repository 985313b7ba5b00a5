/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: whether a text is what Perfetto and Chrome load.
 */
#ifndef ECH_TESTS_APP_TRACE_EVENTS_H
#define ECH_TESTS_APP_TRACE_EVENTS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct trace_events {
    json_t *root;
    size_t steps; /* events that take time */
} trace_events;

typedef struct trace_span {
    int64_t pid, tid;
    double begin, end;
} trace_span;

static inline int trace_by_thread(const void *a, const void *b)
{
    const trace_span *x = a, *y = b;
    if (x->pid != y->pid) return x->pid < y->pid ? -1 : 1;
    if (x->tid != y->tid) return x->tid < y->tid ? -1 : 1;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* The name given to a process (tid -1) or thread; NULL: none. */
static inline const char *trace_events_name(const trace_events *events, int pid, int tid)
{
    const json_t *list = json_object_get(events->root, "traceEvents");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *event = json_array_get(list, i);
        const char *what = json_string_value(json_object_get(event, "name"));
        if (strcmp(what, tid < 0 ? "process_name" : "thread_name") != 0) continue;
        if (json_integer_value(json_object_get(event, "pid")) != pid) continue;
        if (tid >= 0 && json_integer_value(json_object_get(event, "tid")) != tid) continue;
        return json_string_value(json_object_get(json_object_get(event, "args"), "name"));
    }
    return NULL;
}

/* What is wrong with it; NULL: nothing. Keys of every event, times, names of all threads, and no
 * two events of a thread at one time. The root is to be released. */
static inline const char *trace_events_fault(const char *text, size_t n, trace_events *out)
{
    const char *fault = NULL;
    trace_events events = {.root = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL)};
    const json_t *list = json_object_get(events.root, "traceEvents");
    *out = events;
    if (!json_is_array(list)) return "no array traceEvents";
    trace_span *span = calloc(json_array_size(list) + 1, sizeof *span);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *event = json_array_get(list, i);
        const char *phase = json_string_value(json_object_get(event, "ph"));
        const json_t *pid = json_object_get(event, "pid"), *tid = json_object_get(event, "tid");
        const json_t *ts = json_object_get(event, "ts"), *dur = json_object_get(event, "dur");
        if (!json_is_string(json_object_get(event, "name"))) fault = "no name";
        if (!json_is_integer(pid)) fault = "no pid";
        if (!phase || !phase[0] || phase[1] || !strchr("XMsf", *phase)) fault = "no phase";
        if (!fault && strchr("sf", *phase)) {
            if (!json_is_integer(json_object_get(event, "id"))) fault = "no id";
            if (!json_is_number(ts) || !json_is_integer(tid)) fault = "no ts or tid";
            continue;
        }
        if (!json_is_object(json_object_get(event, "args"))) fault = "no args";
        if (fault || strcmp(phase, "X") != 0) continue;
        if (!json_is_string(json_object_get(event, "cat"))) fault = "no cat";
        if (!json_is_number(ts) || !json_is_number(dur) || !json_is_integer(tid))
            fault = "no ts, dur or tid";
        double begin = json_number_value(ts), length = json_number_value(dur);
        if (begin < 0 || length < 0) fault = "time below 0";
        span[events.steps++] =
            (trace_span){json_integer_value(pid), json_integer_value(tid), begin, begin + length};
        int64_t process = json_integer_value(pid);
        if (!trace_events_name(&events, (int)process, -1)) fault = "a process without a name";
        if (!trace_events_name(&events, (int)process, (int)json_integer_value(tid)))
            fault = "a thread without a name";
    }
    qsort(span, events.steps, sizeof *span, trace_by_thread);
    for (size_t i = 1; i < events.steps; i++)
        if (span[i].pid == span[i - 1].pid && span[i].tid == span[i - 1].tid &&
            span[i].begin < span[i - 1].end - 1e-4)
            fault = "two events of a thread at one time";
    free(span);
    *out = events;
    return fault;
}

static inline int trace_by_number(const void *a, const void *b)
{
    const json_int_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Arrows, of which both ends are there, once each; -1: some end is alone, or two arrows are one. */
static inline int trace_events_arrows(const trace_events *events)
{
    const json_t *list = json_object_get(events->root, "traceEvents");
    json_int_t *id[2];
    size_t n[2] = {0}, room = json_array_size(list) + 1;
    for (int end = 0; end < 2; end++) id[end] = calloc(room, sizeof *id[end]);
    for (size_t i = 0; i < room - 1; i++) {
        const json_t *event = json_array_get(list, i);
        const char *phase = json_string_value(json_object_get(event, "ph"));
        int end = *phase == 's' ? 0 : *phase == 'f' ? 1 : -1;
        if (end >= 0) id[end][n[end]++] = json_integer_value(json_object_get(event, "id"));
    }
    int arrows = n[0] == n[1] ? (int)n[0] : -1;
    for (int end = 0; end < 2; end++) qsort(id[end], n[end], sizeof *id[end], trace_by_number);
    for (int i = 0; i < arrows; i++)
        if (id[0][i] != id[1][i] || (i > 0 && id[0][i] == id[0][i - 1])) arrows = -1;
    for (int end = 0; end < 2; end++) free(id[end]);
    return arrows;
}

#endif
