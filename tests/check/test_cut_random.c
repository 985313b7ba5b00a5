/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers cut over ranks: thousands of random grids, schedules and orders with random faults. The
 * checker of one rank's list must accept and refuse what an interpreter of contents does
 * (dataflow.h), and that of all ranks' lists what one of messages and collectives does (naive.h).
 */

#include "check/check.h"
#include "schedule/dataflow.h"
#include "draw/draw.h"
#include "schedule/fixture.h"
#include "schedule/naive.h"
#include "unit.h"

enum { LISTS = 4000, FAULTS = 5, GRIDS = 800 };

/* ---- grids ---- */

static const char *const ways[] = {
    "parallel.tensor=2",
    "parallel.tensor=2 parallel.sequence=true",
    "parallel.tensor=2 parallel.sequence=keep",
    "parallel.context=2",
    "parallel.context=4",
    "parallel.context=2 parallel.context_method=ulysses",
    "parallel.tensor=2 parallel.context=2",
    "parallel.tensor=2 parallel.context=2 parallel.sequence=true",
    "parallel.tensor=2 memory.sequence_chunks=2",
    "parallel.tensor=2 memory.sequence_chunks=2 parallel.sequence=true",
};
static const int ranks_of[] = {2, 2, 2, 2, 4, 2, 4, 4, 2, 2};
enum { WAYS = sizeof ranks_of / sizeof *ranks_of, MICRO_BATCHES = 2 };

/* An order for one stage: each of F, B and W visits the micro-batches in ascending order, and a
 * micro-batch has F before B before W. */
static char *random_order(uint64_t *state)
{
    ech_text text = {0};
    int done[3] = {0};
    while (done[2] < MICRO_BATCHES) {
        int action = draw(state, 3);
        if (done[action] == (action ? done[action - 1] : MICRO_BATCHES)) continue;
        ech_text_append(&text, "%c0.%d ", "FBW"[action], done[action]++);
    }
    ech_text_append(&text, "\n");
    char *path = fixture_write(text.at);
    ech_text_free(&text);
    return path;
}

/* Everything but plans. */
static fixture random_fixture(uint64_t *state)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "zero-bubble", "naive"};
    int way = draw(state, WAYS), written = draw(state, 2),
        stages = written ? 1 : 1 + draw(state, 2);
    char *path = written ? random_order(state) : NULL;
    ech_text more = {0};
    ech_text_append(&more, "%s %s", ways[way],
                    draw(state, 2) ? "model.resid_pdrop=0.1 model.embd_pdrop=0.1" : "");
    fixture_shape shape = {.schedule = written ? path : schedules[draw(state, 4)],
                           .architecture = draw(state, 2) ? "gpt2" : "llama",
                           .stages = stages,
                           .micro_batches = MICRO_BATCHES,
                           .layers = 1 + draw(state, 2),
                           .more = more.at};
    fixture f;
    assert_int_equal(fixture_try(fixture_shape_config(&shape), stages * ranks_of[way], &f), ECH_OK);
    ech_text_free(&more);
    if (path) assert_int_equal(unlink(path), 0);
    free(path);
    return f;
}

static ech_plan *outline(const fixture *f, int rank)
{
    ech_plan_request request = fixture_request(f, rank);
    ech_plan *plan;
    request.outline = true;
    assert_int_equal(ech_checked_plan_create(&request, &plan), ECH_OK);
    return plan;
}

/* ---- faults ---- */

static int draw_step(uint64_t *state, const ech_list *list, bool collective)
{
    int n = 0, chosen = -1;
    for (int s = 0; s < (int)list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool fits = step->kind == ECH_STEP_COLLECTIVE ||
                    (!collective && ech_step_kind_phase(step->kind) >= 0 && step->afters > 0);
        if (fits && draw(state, ++n) == 0) chosen = s;
    }
    return chosen;
}

static void forget(uint64_t *state, ech_list *list, int s)
{
    ech_step *step = &list->step.at[s];
    if (!step->afters) return;
    int *after = &list->after.at[step->first_after];
    after[draw(state, step->afters)] = after[step->afters - 1];
    step->afters--;
}

/* Swaps a collective with the next step, unless that step waits for it; or swaps it back. */
static void move(uint64_t *state, ech_list *list, int s)
{
    if (draw(state, 2))
        for (int steps = 1 + draw(state, 3); steps && s > 0; steps--, s--)
            if (!lists_move(list, s, s - 1)) return;
    for (int steps = 1 + draw(state, 3); steps && s + 1 < (int)list->step.n; steps--, s++)
        if (!lists_move(list, s + 1, s)) return;
}

/* Two collectives of a program do each other's call, or both the same. */
static void exchange(uint64_t *state, ech_list *list, int s)
{
    ech_step *one = &list->step.at[s];
    int other = draw_step(state, list, true);
    ech_step *two = &list->step.at[other];
    if (one->block != two->block || one->phase != two->phase || !one->calls || !two->calls ||
        one->collective != two->collective)
        return;
    int first = one->first_call;
    one->first_call = two->first_call;
    if (draw(state, 2)) two->first_call = first;
}

static void damage(uint64_t *state, ech_list *list)
{
    int what = draw(state, 8), s = draw_step(state, list, what > 3);
    if (s < 0) return;
    if (what < 4) forget(state, list, s);
    if (what == 4 || what == 5) move(state, list, s);
    if (what == 6) exchange(state, list, s);
    if (what == 7 && draw(state, 2)) lists_drop(list, s);
}

/* ---- one rank ---- */

static bool run_list(uint64_t seed)
{
    uint64_t state = seed;
    fixture f = random_fixture(&state);
    int rank = draw(&state, f.ranks);
    ech_plan *plan = outline(&f, rank);
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    assert_true(dataflow_is_sound(plan, list));
    for (int faults = draw(&state, FAULTS); faults > 0; faults--) damage(&state, list);
    bool sound = dataflow_is_sound(plan, list);
    ech_status status = ech_check_list(plan, list);
    if ((status == ECH_OK) != sound)
        fail_msg("case %llu: the interpreter says %s, the checker %s", (unsigned long long)seed,
                 sound ? "sound" : "broken", status == ECH_OK ? "sound" : ech_last_error());
    ech_plan_destroy(plan);
    fixture_free(&f);
    return sound;
}

TEST(test_lists)
{
    int sound = 0;
    for (uint64_t seed = 0; seed < LISTS; seed++) sound += run_list(seed);
    printf("%d of %d lists are sound\n", sound, LISTS);
    assert_true(sound > LISTS / 5 && sound < LISTS * 4 / 5); /* else the cases are too dull */
}

/* ---- all ranks ---- */

static bool run_grid(uint64_t seed)
{
    uint64_t state = seed;
    fixture f = random_fixture(&state);
    for (int rank = 0; rank < f.ranks; rank++) f.plan[rank] = outline(&f, rank);
    lists all = {.model = f.of.model, .layout = f.of.layout, .ranks = f.ranks, .plan = f.plan};
    for (int faults = draw(&state, FAULTS); faults > 0; faults--)
        damage(&state, lists_of(&all, draw(&state, f.ranks)));
    naive n;
    bool sound = naive_run(&all, &n);
    ech_status status = ech_check_plans(lists_plans(&all), all.ranks, ECH_LIST_TRAIN);
    if ((status == ECH_OK) != sound)
        fail_msg("case %llu: the interpreter says %s, the checker %s", (unsigned long long)seed,
                 sound ? "sound" : "broken", status == ECH_OK ? "sound" : ech_last_error());
    naive_free(&n);
    fixture_free(&f);
    return sound;
}

TEST(test_grids)
{
    int sound = 0;
    for (uint64_t seed = 0; seed < GRIDS; seed++) sound += run_grid(1000000 + seed);
    printf("%d of %d grids are sound\n", sound, GRIDS);
    assert_true(sound > GRIDS / 5 && sound < GRIDS);
}
