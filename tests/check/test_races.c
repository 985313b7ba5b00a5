/* SPDX-License-Identifier: Apache-2.0
 *
 * Lanes that run at the same time never race on memory. The proof does not use lifetimes: the
 * waits alone say which steps are complete when a step begins. If two steps touch the same bytes,
 * one of them must be known to be complete when the other begins.
 */

#include "schedule/fixture.h"
#include "schedule/knowledge.h"
#include "unit.h"

typedef struct touching {
    int step, tick, value;
    bool write;
} touching;
typedef ECH_LIST(touching) touchings;

static void find_touchings(const ech_plan *plan, const ech_list *list, touchings *out)
{
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        for (int i = 0; i < step->accesses; i++) {
            const ech_access *access = &list->access.at[step->first_access + i];
            int value = access->value - (int)plan->persistent.n;
            if (value >= 0) ECH_PUSH(*out, (touching){s, access->tick, value, access->write});
        }
    }
}

static bool is_before(const knowledge *k, const touching *a, const touching *b)
{
    return a->step == b->step ? a->tick < b->tick
                              : knowledge_has(k, (size_t)b->step, (size_t)a->step);
}

static bool overlap(const ech_list *list, int a, int b)
{
    const ech_value *x = &list->value.at[a], *y = &list->value.at[b];
    return ech_memory_space(x->kind) == ech_memory_space(y->kind) &&
           x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes;
}

/* One call reads a value and writes its successor over it. */
static bool hands_over(const ech_list *list, const touching *a, const touching *b)
{
    const ech_value *x = &list->value.at[a->value], *y = &list->value.at[b->value];
    return a->tick == b->tick && (x->successor == b->value || y->successor == a->value);
}

/* Two steps of which neither is known to come first and whose bytes meet; or two values at one
 * place that take turns there. False: none. */
static bool find_race(const ech_plan *plan, const ech_list *list, int race[2])
{
    touchings all = {0};
    knowledge k = knowledge_find(list);
    find_touchings(plan, list, &all);
    size_t values = list->value.n;
    signed char *order = ech_calloc(values * values, 1); /* who of two values comes first */
    bool found = false;
    for (size_t i = 0; i < all.n && !found; i++)
        for (size_t j = i + 1; j < all.n && !found; j++) {
            const touching *a = &all.at[i], *b = &all.at[j];
            if (!overlap(list, a->value, b->value) || hands_over(list, a, b)) continue;
            bool same = a->value == b->value, low = a->value < b->value;
            if (same && (a->step == b->step || !(a->write || b->write))) continue;
            bool first = is_before(&k, a, b);
            found = !first && !is_before(&k, b, a);
            if (!same) { /* all touches of one value come before all of the other's */
                size_t x = (size_t)a->value, y = (size_t)b->value;
                signed char *before = &order[low ? x * values + y : y * values + x];
                signed char now = first == low ? 1 : -1;
                found |= *before && *before != now;
                *before = now;
            }
            race[0] = a->step;
            race[1] = b->step;
        }
    free(order);
    free(all.at);
    free(k.known);
    return found;
}

static void check(fixture_shape shape)
{
    fixture f = fixture_pipeline(shape);
    for (int rank = 0; rank < f.ranks; rank++)
        for (int kind = 0; kind < ECH_LIST_KINDS; kind++) {
            int race[2] = {-1, -1};
            if (find_race(f.plan[rank], &f.plan[rank]->list[kind], race))
                fail_msg("%s, list %d of rank %d: steps %d and %d", shape.schedule, kind, rank,
                         race[0], race[1]);
        }
    fixture_free(&f);
}

TEST(test_synchronous)
{
    static const char *const names[] = {"naive",       "gpipe",       "1f1b",
                                        "zero-bubble", "interleaved", "zero-bubble-v"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int p = 1; p <= 3; p++)
            for (int data = 1; data <= 2; data++)
                check((fixture_shape){.schedule = names[i],
                                      .architecture = p % 2 ? "llama" : "gpt2",
                                      .stages = p,
                                      .chunks = i >= 4 ? 2 : 1,
                                      .data = data,
                                      .micro_batches = 6});
}

TEST(test_asynchronous)
{
    check((fixture_shape){.schedule = "pipedream", .stages = 3, .micro_batches = 1, .turns = 6});
    check((fixture_shape){
        .schedule = "pipedream", .stages = 2, .data = 2, .micro_batches = 2, .turns = 3});
    check(
        (fixture_shape){.schedule = "pipedream-2bw", .stages = 3, .micro_batches = 3, .turns = 3});
    check((fixture_shape){
        .schedule = "pipedream", .stages = 2, .replicas = "[2,1]", .micro_batches = 4, .turns = 3});
    check((fixture_shape){.schedule = "1f1b",
                          .stages = 2,
                          .data = 2,
                          .micro_batches = 3,
                          .turns = 3,
                          .more = "memory.offload_optimizer=disk memory.offload_delayed_from=3 "
                                  "parallel.zero=1 memory.prefetch=2"});
}

TEST(test_replicas)
{
    check(
        (fixture_shape){.schedule = "1f1b", .stages = 2, .replicas = "[3,1]", .micro_batches = 7});
    check((fixture_shape){
        .schedule = "gpipe", .stages = 3, .replicas = "[1,2,1]", .micro_batches = 5});
    check((fixture_shape){
        .schedule = "1f1b", .stages = 3, .replicas = "[2,1,3]", .micro_batches = 8});
}

/* Values that leave and come back, at any distance. */
static const char *const away[] = {
    "memory.offload_activations=host", "memory.offload_activations=disk",
    "memory.offload_activations=disk memory.prefetch=0 memory.recompute=full",
    "memory.offload_activations=host memory.prefetch=3 memory.sequence_chunks=2"};

TEST(test_offload)
{
    static const char *const names[] = {"gpipe", "1f1b", "zero-bubble", "interleaved",
                                        "zero-bubble-v"};
    for (int i = 0; i < 5; i++)
        for (int w = 0; w < 4; w++)
            check((fixture_shape){.schedule = names[i],
                                  .stages = 2,
                                  .chunks = i >= 3 ? 2 : 1,
                                  .micro_batches = 4,
                                  .layers = 5,
                                  .more = away[w]});
    check((fixture_shape){.schedule = "pipedream",
                          .stages = 2,
                          .micro_batches = 2,
                          .turns = 3,
                          .layers = 5,
                          .more = away[1]});
    check((fixture_shape){.schedule = "1f1b",
                          .stages = 4,
                          .micro_batches = 8,
                          .layers = 6,
                          .more = "memory.offload_activations=peer"});
}

/* Counts the waits of other lanes for FETCH (1) and OFFLOAD (0), and those whose removal alone
 * makes steps race. The checker must refuse each list that races. */
typedef struct waited {
    int waits[2], found[2];
    int heirs; /* of found[0]: a FETCH's */
} waited;

static waited leave_out_waits(int micro_batches, int layers, const char *more)
{
    fixture f = fixture_pipeline((fixture_shape){.schedule = "gpipe",
                                                 .stages = 1,
                                                 .micro_batches = micro_batches,
                                                 .layers = layers,
                                                 .more = more});
    ech_list *list = &f.plan[0]->list[ECH_LIST_TRAIN];
    waited w = {0};
    int race[2];
    for (size_t s = 0; s < list->step.n; s++)
        for (int i = 0; i < list->step.at[s].afters; i++) {
            int *after = &list->after.at[list->step.at[s].first_after + i], was = *after;
            bool fetched = list->step.at[was].kind == ECH_STEP_FETCH;
            if (!fetched && list->step.at[was].kind != ECH_STEP_OFFLOAD) continue;
            if (list->step.at[was].lane == list->step.at[s].lane) continue; /* it keeps its order */
            *after = 0;
            bool races = find_race(f.plan[0], list, race);
            if (races && ech_check_list(f.plan[0], list) == ECH_OK)
                fail_msg("the checker lets step %d not wait for step %d", (int)s, was);
            *after = was;
            w.waits[fetched]++;
            w.found[fetched] += races;
            w.heirs += races && !fetched && list->step.at[s].kind == ECH_STEP_FETCH;
        }
    fixture_free(&f);
    return w;
}

/* A step that reads a fetched value waits for the fetch, and a step that reuses the memory of an
 * offloaded value waits for the offload. A carried value is fetched to memory that other carried
 * values have left. */
TEST(test_offload_faults)
{
    waited kept = leave_out_waits(3, 4, away[1]);
    waited carried = leave_out_waits(
        1, 2, "memory.offload_activations=host memory.prefetch=0 memory.sequence_chunks=2");
    assert_int_equal(kept.found[true], kept.waits[true]);
    assert_true(kept.waits[true] >= 3 * 4 && kept.found[false] >= kept.waits[true]);
    assert_true(carried.found[true] > 0 && carried.heirs >= 2);
}

/* The proof notices a receive that nobody waits for, and a value on another's place. */
TEST(test_faults)
{
    fixture f =
        fixture_pipeline((fixture_shape){.schedule = "1f1b", .stages = 3, .micro_batches = 6});
    ech_list *list = &f.plan[1]->list[ECH_LIST_TRAIN];
    int race[2], waits = 0, moved = 0;
    for (size_t i = 0; i < list->after.n; i++) {
        int was = list->after.at[i];
        if (!ech_step_receives(&list->step.at[was]) || was == 0) continue;
        list->after.at[i] = 0;
        assert_true(find_race(f.plan[1], list, race));
        assert_true(race[0] == was || race[1] == was);
        list->after.at[i] = was;
        waits++;
    }
    assert_int_equal(waits, 2 * 6 - 1);
    for (size_t v = 1; v < list->value.n; v++) {
        ech_value *a = &list->value.at[v], *b = &list->value.at[v - 1];
        int64_t offset = a->offset;
        if (a->dies <= b->born || b->dies <= a->born) continue;
        a->offset = b->offset;
        moved += find_race(f.plan[1], list, race);
        a->offset = offset;
    }
    assert_true(moved > 20);
    assert_false(find_race(f.plan[1], list, race));
    fixture_free(&f);
}
