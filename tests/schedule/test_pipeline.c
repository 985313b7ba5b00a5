/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of pipelines: that every schedule's lists of all ranks fit together, and how many messages
 * and bytes they exchange.
 */

#include "check/check.h"
#include "schedule/fixture.h"
#include "schedule/traffic.h"
#include "unit.h"

/* What a schedule is made for, written down apart from generator->accepts. */
static bool is_possible(const fixture_shape *shape)
{
    const char *name = shape->schedule;
    bool chunks = strcmp(name, "naive") == 0 || strcmp(name, "gpipe") == 0 ||
                  strcmp(name, "interleaved") == 0;
    if (strcmp(name, "zero-bubble-v") == 0) return shape->chunks == 2;
    if (shape->chunks > 1 && !chunks) return false;
    if (strcmp(name, "interleaved") == 0) return shape->micro_batches % shape->stages == 0;
    if (strcmp(name, "pipedream-2bw") == 0) return shape->micro_batches >= shape->stages;
    return true;
}

/* ---- messages ---- */

static int count_messages(const ech_list *list, bool sends, int64_t *bytes)
{
    int n = 0;
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (sends ? !ech_step_sends(step) : !ech_step_receives(step)) continue;
        n++;
        *bytes += step->bytes;
    }
    return n;
}

static bool is_vee(const fixture_shape *shape)
{
    return strcmp(shape->schedule, "zero-bubble-v") == 0;
}

/* Returns how many messages a rank sends in a list of m micro-batches. It sends an activation after
 * each of its chunks but the model's last, and a gradient before each but the model's first. In a V
 * the first chunk sends to the next stage, and the second to the stage before. */
static int messages_of(const fixture_shape *shape, int stage, int m, bool trains)
{
    bool first = stage == 0, last = stage == shape->stages - 1;
    if (shape->stages == 1) return 0;
    if (is_vee(shape)) return m * (!first + !last) * (trains ? 2 : 1);
    return m * (shape->chunks - last + (trains ? shape->chunks - first : 0));
}

static void check_messages(const fixture *f, const fixture_shape *shape)
{
    int p = shape->stages, v = shape->chunks, m = shape->micro_batches, turns = f->schedule->turns;
    int all[2] = {0}, validated[2] = {0};
    int64_t bytes = 0, unused = 0;
    for (int rank = 0; rank < f->ranks; rank++) {
        const ech_list *list = fixture_list(f, rank);
        int64_t sent = 0;
        int n = count_messages(list, true, &sent), stage = rank / shape->data;
        assert_int_equal(n, messages_of(shape, stage, m * turns, true));
        assert_int_equal(sent, n * fixture_boundary_bytes(f));
        ech_flow planned = ech_plan_traffic_along(f->plan[rank], ECH_TRAFFIC_PIPELINE);
        assert_int_equal(planned.bytes, sent);
        assert_int_equal(planned.calls, n);
        bytes += sent;
        all[0] += n;
        all[1] += count_messages(list, false, &unused);

        list = &f->plan[rank]->list[ECH_LIST_VALIDATE];
        n = count_messages(list, true, &unused);
        assert_int_equal(n, messages_of(shape, stage, m, false));
        validated[0] += n;
        validated[1] += count_messages(list, false, &unused);
    }
    /* A pipeline sends in a step v times the messages of one chunk. Every chunk but one adds 2 m
     * from the last stage around to the first, except in a V, which turns around on a stage. */
    int each = p == 1 ? 0 : v * 2 * m * (p - 1) + (is_vee(shape) ? 0 : (v - 1) * 2 * m);
    assert_int_equal(all[0], shape->data * turns * each);
    assert_int_equal(all[1], all[0]);
    assert_int_equal(bytes, all[0] * fixture_boundary_bytes(f));
    assert_int_equal(validated[0], shape->data * each / 2);
    assert_int_equal(validated[1], validated[0]);
}

/* Counts the forwards that begin after step `from`, up to step `to`: one per chunk and
 * micro-batch. */
static int forwards_between(const ech_list *list, int from, int to)
{
    const ech_step *before = &list->step.at[from];
    int n = 0;
    for (int s = from + 1; s <= to; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind != ECH_STEP_FORWARD) continue;
        n += step->chunk != before->chunk || step->micro != before->micro;
        before = step;
    }
    return n;
}

/* In evaluation a send is under way at least while the next forward computes, or what was sent has
 * come around. */
static void check_overlap(const fixture *f)
{
    for (int rank = 0; rank < f->ranks; rank++) {
        const ech_list *list = &f->plan[rank]->list[ECH_LIST_VALIDATE];
        for (int s = 0; s < (int)list->step.n; s++) {
            const ech_step *step = &list->step.at[s];
            for (int i = 0; i < step->afters; i++) {
                int waited = list->after.at[step->first_after + i];
                const ech_step *sent = &list->step.at[waited];
                bool around = step->micro == sent->micro && step->chunk == sent->chunk + 1;
                if (ech_step_sends(sent) && !around)
                    assert_true(forwards_between(list, waited, s) >= 2);
            }
        }
    }
}

/* ---- all shapes ---- */

static void check_shape(fixture_shape shape)
{
    if (!is_possible(&shape)) {
        fixture f;
        assert_int_equal(fixture_try(fixture_shape_config(&shape), fixture_world(&shape), &f),
                         ECH_EUSAGE);
        fixture_free(&f);
        return;
    }
    fixture f = fixture_pipeline(shape);
    for (int kind = 0; kind < ECH_LIST_KINDS; kind++) fixture_check(&f, (ech_list_kind)kind);
    check_messages(&f, &shape);
    check_overlap(&f);
    fixture_free(&f);
}

/* The state: the schedule's name. */
static void check_schedule(const char *schedule)
{
    fixture_shape shape = {.schedule = schedule};
    for (shape.data = 1; shape.data <= 3; shape.data++)
        for (shape.stages = 1; shape.stages <= 4; shape.stages++)
            for (shape.chunks = 1; shape.chunks <= 3; shape.chunks++)
                for (int m = 1; m <= 8; m++) {
                    shape.micro_batches = m;
                    shape.architecture = (m + shape.stages) % 2 ? "gpt2" : "llama";
                    shape.turns = fixture_is_asynchronous(shape.schedule) ? 1 + m % 3 : 0;
                    check_shape(shape);
                }
}

TEST(test_schedules)
{
    for (int i = 0; i < FIXTURE_SCHEDULES; i++) check_schedule(fixture_schedules[i]);
}
