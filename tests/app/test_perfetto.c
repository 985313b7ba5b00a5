/* SPDX-License-Identifier: Apache-2.0
 *
 * Trace events: what is in them, where they begin, and threads for messages that overlap.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "app/trace/perfetto.h"
#include "app/trace_events.h"

static void add(ech_text *text, const char *lane, const char *kind, const char *name, double begin,
                double end)
{
    ech_text_append(text,
                    "{\"list\":2,\"step\":3,\"lane\":\"%s\",\"kind\":\"%s\",\"name\":\"%s\","
                    "\"begin\":%.9f,\"end\":%.9f}\n",
                    lane, kind, name, begin, end);
}

static ech_text head_of(int rank)
{
    ech_text text = {0};
    ech_text_append(&text,
                    "{\"version\":3,\"rank\":%d,\"world\":2,\"stage\":%d,\"data\":0,"
                    "\"context\":0,\"tensor\":0,"
                    "\"first_step\":0,\"clock_offset\":%g,\"clock_error\":0}\n",
                    rank, rank, rank * 100.0); /* rank 1 is behind */
    return text;
}

static void parse(ech_text *text, ech_rank_trace *out)
{
    assert_int_equal(ech_rank_trace_parse(text->at, text->n, "test", out), ECH_OK);
    ech_text_free(text);
}

static const json_t *find(const trace_events *events, const char *name)
{
    const json_t *list = json_object_get(events->root, "traceEvents");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *event = json_array_get(list, i);
        if (strcmp(json_string_value(json_object_get(event, "name")), name) == 0) return event;
    }
    fail_msg("no event %s", name);
    return NULL;
}

static int64_t int_of(const json_t *event, const char *key)
{
    assert_true(json_is_integer(json_object_get(event, key)));
    return json_integer_value(json_object_get(event, key));
}

static void assert_span(const trace_events *events, const char *name, double begin, double length)
{
    const json_t *event = find(events, name);
    assert_true(fabs(json_number_value(json_object_get(event, "ts")) - begin) < 1e-6);
    assert_true(fabs(json_number_value(json_object_get(event, "dur")) - length) < 1e-6);
}

static trace_events load(const ech_rank_trace *traces, int n)
{
    ech_text text = {0};
    trace_events events;
    ech_perfetto_print(traces, n, &text);
    const char *fault = trace_events_fault(text.at, text.n, &events);
    if (fault) fail_msg("%s", fault);
    ech_text_free(&text);
    return events;
}

static void two_ranks(void **state)
{
    (void)state;
    ech_text text[2] = {head_of(0), head_of(1)};
    ech_rank_trace traces[2];
    add(&text[0], "compute", "load", "a", 5000.25, 5000.5);
    add(&text[0], "receive", "recv_act", "b \\\"quoted\\\" \\\\", 5000.250001, 5000.25000725);
    add(&text[1], "compute", "read", "c", 4900.125, 4900.125);
    for (int rank = 0; rank < 2; rank++) parse(&text[rank], &traces[rank]);
    trace_events events = load(traces, 2);
    assert_int_equal(events.steps, 3);
    assert_span(&events, "a", 125000, 250000);
    assert_span(&events, "b \"quoted\" \\", 125001, 6.25);
    assert_span(&events, "c", 0, 0);
    const json_t *a = find(&events, "a"), *c = find(&events, "c");
    assert_int_equal(int_of(a, "pid"), 0);
    assert_int_equal(int_of(c, "pid"), 1);
    assert_string_equal(json_string_value(json_object_get(a, "cat")), "load");
    assert_int_equal(int_of(json_object_get(a, "args"), "list"), 2);
    assert_int_equal(int_of(json_object_get(a, "args"), "step"), 3);
    assert_string_equal(trace_events_name(&events, 0, -1), "rank 0 (stage 0)");
    assert_string_equal(trace_events_name(&events, 1, -1), "rank 1 (stage 1)");
    assert_string_equal(trace_events_name(&events, 0, (int)int_of(a, "tid")), "compute");
    assert_string_equal(
        trace_events_name(&events, 0, (int)int_of(find(&events, "b \"quoted\" \\"), "tid")),
        "receive");
    json_decref(events.root);
    for (int rank = 0; rank < 2; rank++) ech_rank_trace_free(&traces[rank]);
}

/* Axes along which there is one rank are not named. */
static void places(void **state)
{
    (void)state;
    ech_rank_trace traces[] = {
        {.rank = 0, .world = 4},
        {.rank = 1, .world = 4, .tensor = 1},
        {.rank = 2, .world = 4, .data = 1},
        {.rank = 3, .world = 4, .data = 1, .tensor = 1},
    };
    trace_events events = load(traces, 4);
    assert_string_equal(trace_events_name(&events, 0, -1), "rank 0 (stage 0, replica 0, tensor 0)");
    assert_string_equal(trace_events_name(&events, 3, -1), "rank 3 (stage 0, replica 1, tensor 1)");
    json_decref(events.root);
    traces[2].context = 1;
    events = load(traces + 2, 1);
    assert_string_equal(trace_events_name(&events, 2, -1),
                        "rank 2 (stage 0, replica 1, context 1)");
    json_decref(events.root);
}

/* What is exchanged inside of blocks is a thread of its own. */
static void collectives(void **state)
{
    (void)state;
    ech_text text = head_of(0);
    ech_rank_trace trace;
    add(&text, "compute", "F", "F0.0/1[0-7]", 1, 2);
    add(&text, "collective", "C", "C F0.0/1[8] all_reduce over tensor", 2, 3);
    parse(&text, &trace);
    trace_events events = load(&trace, 1);
    const json_t *event = find(&events, "C F0.0/1[8] all_reduce over tensor");
    assert_string_equal(trace_events_name(&events, 0, (int)int_of(event, "tid")), "collective");
    assert_string_equal(json_string_value(json_object_get(event, "cat")), "C");
    json_decref(events.root);
    ech_rank_trace_free(&trace);
}

/* Three messages, of which at most two are under way at once, need two threads. */
static void messages_overlap(void **state)
{
    (void)state;
    ech_text text = head_of(0);
    ech_rank_trace trace;
    add(&text, "send", "send_act", "a", 1, 4);
    add(&text, "send", "send_act", "b", 2, 3);
    add(&text, "send", "send_act", "c", 3, 5);
    parse(&text, &trace);
    trace_events events = load(&trace, 1);
    int64_t a = int_of(find(&events, "a"), "tid"), b = int_of(find(&events, "b"), "tid");
    assert_int_not_equal(a, b);
    assert_int_equal(int_of(find(&events, "c"), "tid"), b);
    assert_string_equal(trace_events_name(&events, 0, (int)a), "send");
    assert_string_equal(trace_events_name(&events, 0, (int)b), "send 2");
    json_decref(events.root);
    ech_rank_trace_free(&trace);
}

static void add_message(ech_text *text, const char *kind, int block, int peer, double begin,
                        double end)
{
    ech_text_append(
        text,
        "{\"list\":0,\"step\":0,\"lane\":\"%s\",\"kind\":\"%s\",\"name\":\"m\","
        "\"chunk\":0,\"micro\":0,\"block\":%d,\"peer\":%d,\"begin\":%.9f,\"end\":%.9f}\n",
        kind[0] == 's' ? "send" : "receive", kind, block, peer, begin, end);
}

/* The i-th end of an arrow: of sends, or of receives. */
static const json_t *arrow_of(const trace_events *events, const char *phase, int i)
{
    const json_t *list = json_object_get(events->root, "traceEvents");
    for (size_t e = 0; e < json_array_size(list); e++) {
        const json_t *event = json_array_get(list, e);
        if (strcmp(json_string_value(json_object_get(event, "ph")), phase) == 0 && i-- == 0)
            return event;
    }
    fail_msg("no more arrows");
    return NULL;
}

/* Two boundaries between the same ranks, whose messages are received in another order than sent. */
static void arrows(void **state)
{
    (void)state;
    ech_text text[2] = {head_of(0), head_of(1)};
    ech_rank_trace traces[2];
    add_message(&text[0], "send_act", 1, 1, 5000, 5001);
    add_message(&text[0], "send_act", 3, 1, 5001, 5002);
    add_message(&text[0], "send_act", 1, 1, 5002, 5003);
    add_message(&text[0], "recv_grad", 1, 1, 5004, 5006);
    add_message(&text[1], "recv_act", 4, 0, 4900, 4902);
    add_message(&text[1], "recv_act", 2, 0, 4902, 4902);
    add_message(&text[1], "recv_act", 2, 0, 4902, 4903);
    add_message(&text[1], "send_grad", 2, 0, 4905, 4906);
    for (int rank = 0; rank < 2; rank++) parse(&text[rank], &traces[rank]);
    trace_events events = load(traces, 2);
    const int sent[] = {0, 1, 2, 3}, received[] = {2, 1, 3, 0}; /* in the order of the file */
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            bool same = int_of(arrow_of(&events, "s", sent[i]), "id") ==
                        int_of(arrow_of(&events, "f", received[j]), "id");
            assert_int_equal(same, i == j);
        }
    const json_t *first = arrow_of(&events, "f", 1);
    assert_int_equal(int_of(first, "pid"), 1);
    assert_true(fabs(json_number_value(json_object_get(first, "ts")) - (2e6 - 1e-3)) < 1e-6);
    json_decref(events.root);
    for (int rank = 0; rank < 2; rank++) ech_rank_trace_free(&traces[rank]);
}

static void nothing(void **state)
{
    (void)state;
    ech_rank_trace trace = {.world = 1};
    trace_events events = load(&trace, 1);
    assert_int_equal(events.steps, 0);
    json_decref(events.root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_ranks),        cmocka_unit_test(places), cmocka_unit_test(collectives),
        cmocka_unit_test(messages_overlap), cmocka_unit_test(arrows), cmocka_unit_test(nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
