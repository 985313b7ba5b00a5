/* SPDX-License-Identifier: Apache-2.0
 *
 * Trace events: what is in them, threads for messages that overlap, arrows between ranks, files put
 * together.
 */

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "app/trace/trace.h"
#include "app/trace_events.h"
#include "base/file.h"
#include "base/log.h"
#include "schedule/schedule.h"
#include "unit.h"

enum { RANKS = 4, BLOCKS = 8, STEPS = 8 };

/* A grid and lists of steps by hand. */
typedef struct ranks {
    ech_coordinates coordinates[RANKS];
    ech_layout layout;
    ech_model model;
    ech_plan plan[RANKS];
    double begin[RANKS][STEPS], end[RANKS][STEPS];
    ech_comm_clock_offset clock[RANKS];
} ranks;

static void ranks_create(ranks *all, int world)
{
    *all = (ranks){
        .layout = {.world = world, .context = 1, .tensor = 1, .coordinates = all->coordinates}};
    all->model.block.n = BLOCKS;
    for (int r = 0; r < world; r++) {
        all->plan[r].rank = r;
        all->plan[r].layout = &all->layout;
        all->plan[r].model = &all->model;
    }
}

static const ech_lane lanes[] = {
#define X(name, text, lane, ...) [ECH_STEP_##name] = ECH_LANE_##lane,
#include "schedule/steps.def"
#undef X
};

static ech_step *add(ranks *all, int rank, ech_step_kind kind, double begin, double end)
{
    ech_list *list = &all->plan[rank].list[ECH_LIST_TRAIN];
    size_t s = list->step.n;
    assert_true(s < STEPS);
    all->begin[rank][s] = begin;
    all->end[rank][s] = end;
    ECH_PUSH(list->step, ((ech_step){.kind = kind,
                                     .lane = lanes[kind],
                                     .chunk = -1,
                                     .micro = -1,
                                     .block = -1,
                                     .peer = -1,
                                     .index = -1,
                                     .scratch = -1}));
    return &list->step.at[s];
}

static void add_message(ranks *all, int rank, ech_step_kind kind, int block, double begin,
                        double end)
{
    ech_step *step = add(all, rank, kind, begin, end);
    step->chunk = step->micro = 0;
    step->block = block;
    step->peer = 1 - rank;
}

/* Loads events from files, as a run writes them, with the lists so many times, once in ten seconds.
 * Frees the lists. */
static trace_events load(ranks *all, int lists)
{
    char folder[] = "/tmp/echelon-events-XXXXXX", path[64], *text;
    trace_events events;
    size_t n;
    assert_non_null(mkdtemp(folder));
    for (int r = 0; r < all->layout.world; r++) {
        ech_trace_events *of = ech_trace_events_create(&all->plan[r], all->clock[r]);
        ech_list *list = &all->plan[r].list[ECH_LIST_TRAIN];
        ech_text written = {0};
        ech_trace_events_head(of, 2, &written);
        for (int l = 0; l < lists; l++) {
            ech_trace_events_list(of, 2 + l, all->begin[r], all->end[r], &written);
            for (int s = 0; s < STEPS; s++) {
                all->begin[r][s] += 10;
                all->end[r][s] += 10;
            }
        }
        char *file = ech_trace_path(folder, r);
        ech_text_append(&written, ",{\"torn"); /* not a whole line: left out */
        assert_int_equal(ech_file_write(file, written.at, written.n), ECH_OK);
        free(file);
        free(list->step.at);
        ech_text_free(&written);
        ech_trace_events_destroy(of);
    }
    snprintf(path, sizeof path, "%s/trace.json", folder);
    assert_int_equal(ech_trace_merge(folder, all->layout.world, path), ECH_OK);
    assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_OK);
    const char *fault = trace_events_fault(text, n, &events);
    if (fault) fail_msg("%s", fault);
    free(text);
    assert_int_equal(ech_file_remove_all(folder), ECH_OK);
    return events;
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

TEST(two_ranks)
{
    ranks all;
    ranks_create(&all, 2);
    all.coordinates[1].stage = 1;
    all.clock[1] = (ech_comm_clock_offset){.seconds = 100, .error = 25e-6};
    add(&all, 0, ECH_STEP_COUNT, 50.25, 50.5)->turn = 1;
    add_message(&all, 0, ECH_STEP_RECV_GRAD, 3, 50.250001, 50.25000725);
    add(&all, 1, ECH_STEP_READ, 1.125, 1.125);
    trace_events events = load(&all, 1);
    assert_int_equal(events.steps, 3);
    assert_span(&events, "count", 50250000, 250000);
    assert_span(&events, "recv_grad 0.0/3 from rank 1", 50250001, 6.25);
    assert_span(&events, "read", 101125000, 0);
    const json_t *count = find(&events, "count"), *read = find(&events, "read");
    assert_int_equal(int_of(count, "pid"), 0);
    assert_int_equal(int_of(read, "pid"), 1);
    assert_string_equal(json_string_value(json_object_get(count, "cat")), "count");
    assert_int_equal(int_of(json_object_get(count, "args"), "list"), 2);
    assert_int_equal(int_of(json_object_get(count, "args"), "step"), 3);
    assert_string_equal(trace_events_name(&events, 0, -1), "rank 0 (stage 0)");
    assert_string_equal(trace_events_name(&events, 1, -1), "rank 1 (stage 1)");
    assert_string_equal(trace_events_name(&events, 0, (int)int_of(count, "tid")), "compute");
    int receives = (int)int_of(find(&events, "recv_grad 0.0/3 from rank 1"), "tid");
    assert_string_equal(trace_events_name(&events, 0, receives), "receive");
    const json_t *labels = find(&events, "process_labels");
    assert_int_equal(int_of(labels, "pid"), 1);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(labels, "args"), "labels")),
        "clock within 25.0 us of rank 0's");
    json_decref(events.root);
}

/* Axes along which there is one rank are not named. */
TEST(places)
{
    ranks all;
    ranks_create(&all, 4);
    all.layout.tensor = 2;
    all.coordinates[1].tensor = all.coordinates[3].tensor = all.coordinates[2].data =
        all.coordinates[3].data = 1;
    trace_events events = load(&all, 1);
    assert_int_equal(events.steps, 0);
    assert_string_equal(trace_events_name(&events, 0, -1), "rank 0 (stage 0, replica 0, tensor 0)");
    assert_string_equal(trace_events_name(&events, 3, -1), "rank 3 (stage 0, replica 1, tensor 1)");
    json_decref(events.root);
    ranks_create(&all, 3);
    all.layout.context = 2;
    all.coordinates[2].context = 1;
    events = load(&all, 1);
    assert_string_equal(trace_events_name(&events, 2, -1), "rank 2 (stage 0, context 1)");
    json_decref(events.root);
}

/* Three messages, of which at most two are under way at once, need two threads. */
TEST(messages_overlap)
{
    ranks all;
    ranks_create(&all, 2);
    add_message(&all, 0, ECH_STEP_SEND_ACT, 1, 1, 4);
    add_message(&all, 0, ECH_STEP_SEND_ACT, 2, 2, 3);
    add_message(&all, 0, ECH_STEP_SEND_ACT, 3, 3, 5);
    trace_events events = load(&all, 1);
    int64_t a = int_of(find(&events, "send_act 0.0/1 to rank 1"), "tid");
    int64_t b = int_of(find(&events, "send_act 0.0/2 to rank 1"), "tid");
    assert_int_not_equal(a, b);
    assert_int_equal(int_of(find(&events, "send_act 0.0/3 to rank 1"), "tid"), b);
    assert_string_equal(trace_events_name(&events, 0, (int)a), "send");
    assert_string_equal(trace_events_name(&events, 0, (int)b), "send 2");
    json_decref(events.root);
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
TEST(arrows)
{
    ranks all;
    ranks_create(&all, 2);
    add_message(&all, 0, ECH_STEP_SEND_ACT, 1, 50, 51);
    add_message(&all, 0, ECH_STEP_SEND_ACT, 3, 51, 52);
    add_message(&all, 0, ECH_STEP_SEND_ACT, 1, 52, 53);
    add_message(&all, 0, ECH_STEP_RECV_GRAD, 1, 54, 56);
    add_message(&all, 1, ECH_STEP_RECV_ACT, 4, 50, 52);
    add_message(&all, 1, ECH_STEP_RECV_ACT, 2, 52, 52);
    add_message(&all, 1, ECH_STEP_RECV_ACT, 2, 52, 53);
    add_message(&all, 1, ECH_STEP_SEND_GRAD, 2, 55, 56);
    trace_events events = load(&all, 2);
    assert_int_equal(trace_events_arrows(&events), 8);
    const int sent[] = {0, 1, 2, 6}, received[] = {3, 2, 4, 0}; /* in the order of the file */
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            bool same = int_of(arrow_of(&events, "s", sent[i]), "id") ==
                        int_of(arrow_of(&events, "f", received[j]), "id");
            assert_int_equal(same, i == j);
        }
    const json_t *first = arrow_of(&events, "f", 2);
    assert_int_equal(int_of(first, "pid"), 1);
    assert_true(fabs(json_number_value(json_object_get(first, "ts")) - (52e6 - 1e-3)) < 1e-6);
    json_decref(events.root);
}

TEST(nothing_to_merge)
{
    char folder[] = "/tmp/echelon-events-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/trace.json", folder);
    assert_int_equal(ech_trace_merge(folder, 1, path), ECH_EIO);
    char *file = ech_trace_path(folder, 0);
    assert_int_equal(ech_file_write(file, "[{\"name\"", 8), ECH_OK);
    assert_int_equal(ech_trace_merge(folder, 1, path), ECH_EINPUT);
    assert_false(ech_file_exists(path));
    free(file);
    assert_int_equal(ech_file_remove_all(folder), ECH_OK);
}
