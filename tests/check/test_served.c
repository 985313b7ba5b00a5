/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists of pushes that are bound to an order. Any order that the schedule allows gives lists that
 * pass the checker and run in this order. They take as long as when the order arises by itself.
 * Each seeded fault in the order or in a list is found and named.
 */
#include <string.h>

#include "base/random.h"
#include "check/check.h"
#include "schedule/fixture.h"
#include "schedule/refused.h"
#include "schedule/protocol/serving.h"
#include "simulate/rehearsal.h"
#include "unit.h"

enum { WORKERS = 3, SERVERS = 2, RANKS = WORKERS + SERVERS, TURNS = 4, PUSHES = WORKERS * TURNS };
enum { STALENESS = 2, SPAN = 3 /* of the run: it begins with this many spans done */ };

static const char ssp[] = "parallel.strategy=ssp parallel.staleness=2";
static const char asp[] = "parallel.strategy=asp";

static fixture open_fixture(const char *strategy)
{
    fixture f;
    ech_config *config = sample_config("gpt2");
    sample_set(config, strategy);
    sample_set(config, "parallel.server_sync=false parallel.servers=2 parallel.data=3 "
                       "parallel.pipeline=1 training.steps=8 parallel.flush_every=4 "
                       "training.check_every=0 model.tie_word_embeddings=false "
                       "parallel.schedule=gpipe");
    assert_int_equal(fixture_try(config, RANKS, &f), ECH_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        ech_plan_request request = fixture_request(&f, rank);
        request.outline = true;
        assert_int_equal(ech_checked_plan_create(&request, &f.plan[rank]), ECH_OK);
    }
    return f;
}

static ech_list *list_of(const fixture *f, int rank)
{
    return &f->plan[rank]->list[ECH_LIST_TRAIN];
}

static void bind_all(const fixture *f, const ech_serve *order)
{
    for (int rank = 0; rank < RANKS; rank++) ech_plan_bind(f->plan[rank], order);
}

/* ---- orders ---- */

/* The pushes of a span whose workers these are. */
static void fill(const int *workers, ech_serve *order)
{
    int clock[WORKERS] = {0}, left[WORKERS] = {0};
    for (int i = 0; i < PUSHES; i++) {
        int w = workers[i];
        order[i] = (ech_serve){.worker = w, .clock = SPAN * TURNS + clock[w]++, .read = left[w]};
        left[w] = i + 1;
    }
}

static void fill_by_turns(ech_serve *order)
{
    int workers[PUSHES];
    for (int i = 0; i < PUSHES; i++) workers[i] = i % WORKERS;
    fill(workers, order);
}

/* Any that can come about, counted here anew: by pushes that workers have begun; with `even` each
 * has as many, and none gets more than STALENESS ahead. */
static void draw(uint64_t number, bool even, ech_serve *order)
{
    int workers[PUSHES], done[WORKERS] = {0}, begun = WORKERS;
    bool has[WORKERS] = {true, true, true};
    ech_random_key key = {.seed = 5};
    for (int i = 0; i < PUSHES;) {
        int w = (int)(ech_random_word(key, number++) % WORKERS), least = PUSHES;
        for (int other = 0; other < WORKERS; other++)
            if (done[other] < least && other != w) least = done[other];
        bool ahead = even && done[w] + 1 > least + STALENESS;
        if (!has[w] || ahead) continue;
        workers[i++] = w;
        done[w]++;
        has[w] = begun < PUSHES && !(even && done[w] == TURNS);
        begun += has[w];
    }
    fill(workers, order);
}

static void expect_fine(const fixture *f)
{
    assert_int_equal(ech_check_plans(fixture_plans(f), RANKS, ECH_LIST_TRAIN), ECH_OK);
    assert_int_equal(ech_check_queues(fixture_plans(f), RANKS, ECH_LIST_TRAIN), ECH_OK);
}

TEST(bound_lists_pass_and_run_as_they_say)
{
    int others = 0, most = 0;
    for (uint64_t i = 0; i < 80; i++) {
        bool even = i % 2;
        fixture f = open_fixture(even ? ssp : asp);
        ech_serve order[PUSHES], by_turns[PUSHES];
        ech_costs unit = {.seconds = false};
        ech_rehearsal r;
        draw(i * 1000, even, order);
        fill_by_turns(by_turns);
        bind_all(&f, order);
        expect_fine(&f);
        ech_rehearse(fixture_plans(&f), RANKS, ECH_LIST_TRAIN, &unit, 0, &r);
        assert_int_equal(r.missing, 0);
        for (int turn = 0; turn < PUSHES; turn++) {
            assert_int_equal(r.served[WORKERS][turn], order[turn].worker);
            assert_int_equal(r.served[WORKERS + 1][turn], order[turn].worker);
            others += order[turn].worker != by_turns[turn].worker;
            int number = ech_serve_number(order, turn);
            if (number > most) most = number;
            assert_int_equal(order[turn].clock, SPAN * TURNS + number);
        }
        ech_rehearsal_free(&r);
        fixture_free(&f);
    }
    assert_true(others > 200 && most > TURNS);
}

/* The order in which pushes come by themselves takes, bound, the same time, step by step. */
TEST(an_order_that_comes_about_takes_its_time)
{
    fixture f = open_fixture(asp);
    ech_costs unit = {.seconds = false};
    ech_rehearsal open, bound;
    int workers[PUSHES];
    ech_serve order[PUSHES];
    ech_rehearse(fixture_plans(&f), RANKS, ECH_LIST_TRAIN, &unit, 0, &open);
    memcpy(workers, open.served[WORKERS], sizeof workers);
    fill(workers, order);
    bind_all(&f, order);
    expect_fine(&f);
    ech_rehearse(fixture_plans(&f), RANKS, ECH_LIST_TRAIN, &unit, 0, &bound);
    assert_true(open.end > 0 && open.missing == 0 && bound.missing == 0);
    for (int rank = 0; rank < RANKS; rank++)
        for (size_t s = 0; s < list_of(&f, rank)->step.n; s++)
            assert_true(open.finish[rank][s] == bound.finish[rank][s]);
    ech_rehearsal_free(&open);
    ech_rehearsal_free(&bound);
    fixture_free(&f);
}

/* ---- faults of the order ---- */

static void expect_fault(const fixture *f, const char *who, const char *why)
{
    ech_clear_error();
    expect_message(ech_check_plans(fixture_plans(f), RANKS, ECH_LIST_TRAIN), who, why);
}

TEST(orders_that_cannot_be_are_refused)
{
    static const struct {
        int turn;
        ech_serve push; /* in its place */
        const char *who, *why;
    } faults[] = {
        {3,
         {.worker = 0, .clock = 12, .read = 1},
         "rank 3: serve of rank 0",
         "the push of rank 0 in step 13, which is served in turn 0 already"},
        {3,
         {.worker = 0, .clock = 14, .read = 1},
         "rank 3: serve of rank 0",
         "the push of rank 0 in step 15, whose push in step 14 is not served before it"},
        {3,
         {.worker = 0, .clock = 11, .read = 1},
         "rank 3: serve of rank 0",
         "the push of rank 0 in step 12, and the first one of the span is in step 13"},
        {3,
         {.worker = 1, .clock = 13, .read = 2},
         "rank 3: serve of rank 1",
         "the push of rank 1 in step 14, which is served in turn 3 already"},
        {4,
         {.worker = 7, .clock = 13, .read = 2},
         "rank 3: serve of rank 7",
         "rank 7, which is no worker"},
        {4, {.worker = -1, .clock = 13, .read = 2}, "rank 3: serve", "which is no worker"},
        {4,
         {.worker = 1, .clock = -3, .read = 2},
         "rank 3: serve of rank 1",
         "is of no training step"},
        {4,
         {.worker = 1, .clock = 13, .read = 5},
         "rank 3: serve of rank 1",
         "has read version 5; the newest is 4"},
        {4,
         {.worker = 1, .clock = 13, .read = 1},
         "rank 3: serve of rank 1",
         "has read version 1; its rank's push before has left version 2"},
        {1,
         {.worker = 1, .clock = 12, .read = 1},
         "rank 3: serve of rank 1",
         "has read version 1; its rank's push before has left version 0"},
        {11,
         {.worker = 0, .clock = 16, .read = 10},
         "rank 3: serve of rank 0",
         "another push of rank 0, which has had its last of the span"},
    };
    fixture f = open_fixture(ssp);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        ech_serve order[PUSHES];
        fill_by_turns(order);
        bind_all(&f, order);
        expect_fine(&f);
        order[faults[i].turn] = faults[i].push;
        expect_fault(&f, faults[i].who, faults[i].why);
    }
    fixture_free(&f);
}

TEST(who_is_too_far_ahead_is_refused)
{
    static const int workers[PUSHES] = {1, 1, 0, 2, 1, 1, 0, 2, 0, 2, 0, 2};
    fixture f = open_fixture(ssp);
    ech_serve order[PUSHES];
    fill(workers, order);
    bind_all(&f, order);
    expect_fault(&f, "rank 3: serve of rank 1",
                 "takes rank 1 3 steps ahead of the slowest; it may be 2");
    f.schedule->staleness = 3;
    expect_fine(&f);
    fixture_free(&f);
}

/* A worker may have all pushes of a span but those that others have begun. */
TEST(who_takes_what_others_have_begun_is_refused)
{
    int workers[PUSHES] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 1, 0};
    fixture f = open_fixture(asp);
    ech_serve order[PUSHES];
    fill(workers, order);
    bind_all(&f, order);
    expect_fine(&f);
    workers[PUSHES - 2] = 2;
    fill(workers, order);
    expect_fault(&f, "rank 3: serve of rank 2",
                 "another push of rank 2, which has had its last of the span");
    fixture_free(&f);
}

TEST(servers_have_one_order)
{
    static const int workers[PUSHES] = {1, 0, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2};
    fixture f = open_fixture(ssp);
    ech_serve order[PUSHES], other[PUSHES];
    fill_by_turns(order);
    fill(workers, other);
    bind_all(&f, order);
    ech_plan_bind(f.plan[WORKERS + 1], other);
    expect_fault(&f, "rank 4: serve of rank 1", "is of another push than in the list of rank 3");
    ech_plan_bind(f.plan[WORKERS + 1], NULL);
    expect_fault(&f, "rank 4", "is in a list that is not bound");
    ech_plan_bind(f.plan[WORKERS], NULL);
    expect_fine(&f);
    fixture_free(&f);
}

/* ---- faults of lists ---- */

/* The step of that kind in a turn, and of that bucket (-1: whichever). */
static int find(const ech_list *list, ech_step_kind kind, int turn, int bucket)
{
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->kind == kind && step->turn == turn && (bucket < 0 || step->index == bucket))
            return s;
    }
    fail();
    return -1;
}

typedef struct bound {
    fixture f;
    ech_serve order[PUSHES];
} bound;

static void open_bound(bound *b)
{
    b->f = open_fixture(ssp);
    fill_by_turns(b->order);
    bind_all(&b->f, b->order);
    expect_fine(&b->f);
}

TEST(a_push_without_a_serve)
{
    bound b;
    open_bound(&b);
    ech_list *list = list_of(&b.f, WORKERS + 1);
    lists_drop(list, find(list, ECH_STEP_SERVE, 5, -1)); /* of rank 2's second push */
    expect_fault(&b.f, "rank 2: announce", "is a push that rank 4 does not serve in turn 5");
    fixture_free(&b.f);
}

TEST(a_serve_of_a_push_not_made)
{
    bound b;
    open_bound(&b);
    ech_list *list = list_of(&b.f, 1);
    lists_drop(list, find(list, ECH_STEP_ANNOUNCE, 2, -1));
    expect_fault(&b.f, "rank 3: serve of rank 1", "push 2 of rank 1, which makes no such push");
    fixture_free(&b.f);
}

TEST(a_push_served_or_made_twice)
{
    bound b;
    open_bound(&b);
    ech_list *list = list_of(&b.f, WORKERS);
    ech_step *serve = &list->step.at[find(list, ECH_STEP_SERVE, 7, -1)];
    serve->turn = 6;
    expect_fault(&b.f, "rank 3: serve of rank 0", "is another one of turn 6, of 12");
    serve->turn = 7;
    list = list_of(&b.f, 2);
    ech_step *announce = &list->step.at[find(list, ECH_STEP_ANNOUNCE, 3, -1)];
    announce->turn = 2;
    expect_fault(&b.f, "rank 2: announce", "is another one of turn 2, of 4");
    announce->turn = TURNS;
    expect_fault(&b.f, "rank 2: announce", "is another one of turn 4, of 4");
    fixture_free(&b.f);
}

/* What is in a bound turn is what its worker has in its own. */
TEST(a_turn_that_is_not_its_workers)
{
    bound b;
    open_bound(&b);
    ech_list *list = list_of(&b.f, 1);
    int pull = find(list, ECH_STEP_GATHER_WEIGHTS, 1, 0);
    assert_int_equal(list->step.at[pull].group, ECH_GROUP_PUSHED);
    lists_drop(list, pull);
    expect_fault(&b.f, "gather_weights bucket", ", on rank 1");
    fixture_free(&b.f);

    open_bound(&b);
    list = list_of(&b.f, 0);
    ech_step *push = &list->step.at[find(list, ECH_STEP_SCATTER_GRADS, 3, 0)];
    assert_true(b.f.plan[0]->bucket.n > 1);
    push->index = 1;
    expect_fault(&b.f, "scatter_grads bucket 0 over pushed of rank 0",
                 "meets another collective, scatter_grads bucket 1 over pushed, on rank 0");
    fixture_free(&b.f);
}

/* A server sends the weights of a push before it has made them. */
TEST(a_pull_of_a_version_not_yet_made)
{
    bound b;
    open_bound(&b);
    ech_list *list = list_of(&b.f, WORKERS);
    int pull = find(list, ECH_STEP_GATHER_WEIGHTS, 4, 0), made = find(list, ECH_STEP_UPDATE, 4, 0);
    assert_true(pull > made);
    list->step.at[pull].afters = 0;
    assert_true(lists_move(list, pull, made));
    ech_clear_error();
    expect_message(ech_check_list(b.f.plan[WORKERS], list), "(gather_weights bucket 0 over pushed)",
                   "comes where its bucket's update is next");
    fixture_free(&b.f);
}

/* A worker that says it pushes once it has been served: the server waits for that, and it for the
 * server. */
TEST(a_circle_of_worker_and_server)
{
    bound b;
    open_bound(&b);
    ech_list *list = list_of(&b.f, 0);
    int announce = find(list, ECH_STEP_ANNOUNCE, 0, -1);
    int pull = find(list, ECH_STEP_GATHER_WEIGHTS, 0, 0);
    assert_true(pull > announce);
    for (int s = announce + 1; s <= pull; s++) /* nobody waits for it */
        for (int i = 0; i < list->step.at[s].afters; i++) {
            int *after = &list->after.at[list->step.at[s].first_after + i];
            if (*after == announce) *after = announce - 1;
        }
    while (announce < pull) {
        assert_true(lists_move(list, announce + 1, announce));
        announce++;
    }
    lists_edit(list, -1, announce, announce - 1);
    for (int unbound = 0; unbound < 2; unbound++) {
        if (unbound) bind_all(&b.f, NULL);
        expect_fault(&b.f, unbound ? "serve" : "serve of rank 0", "a circle");
        assert_non_null(strstr(ech_last_error(), "waits for rank 0's announce"));
        assert_non_null(strstr(ech_last_error(), "over pushed"));
    }
    fixture_free(&b.f);
}
