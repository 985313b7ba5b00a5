/* SPDX-License-Identifier: Apache-2.0
 *
 * Thousands of pipelines with random orders and random faults: the checker of all ranks' lists must
 * accept and refuse what a slow interpreter accepts and refuses, and the simulator must find its
 * times.
 */
#include <string.h>

#include "check/check.h"
#include "base/log.h"
#include "draw/draw.h"
#include "schedule/naive.h"
#include "unit.h"

enum { CASES = 10000, MOST_STAGES = 4 };

/* ---- orders ---- */

/* Any order in which F, B and W of each chunk ascend and each micro-batch's F, B, W follow each
 * other. `ahead`: how much likelier forwards are. */
static void random_order(uint64_t *state, int chunks, int micro_batches, ech_order *order)
{
    int done[2][3] = {{0}}, ahead = draw(state, 4), left = 3 * chunks * micro_batches;
    while (left > 0) {
        int chunk = draw(state, chunks), action = draw(state, 3 + ahead) % 3;
        int *d = done[chunk];
        if (d[action] >= (action == 0 ? micro_batches : d[action - 1])) continue;
        ECH_PUSH(*order, (ech_order_item){
                             .action = (ech_action)action, .chunk = chunk, .micro = d[action]++});
        left--;
    }
}

static lists random_lists(uint64_t *state)
{
    static const char *const schedules[] = {"naive", "gpipe", "1f1b", "zero-bubble",
                                            "zero-bubble-v"};
    static const int replicas[][MOST_STAGES] = {{1, 1, 1, 1}, {2, 2, 2, 2}, {1, 2, 1, 3}};
    int stages = 1 + draw(state, MOST_STAGES), each = draw(state, 3);
    lists_spec spec = {.stages = stages,
                       .chunks = 1,
                       .micro_batches = 6,
                       .replicas = replicas[each],
                       .schedule = schedules[draw(state, each < 2 ? 5 : 4)],
                       .late = draw(state, 4) == 0,
                       .bare = draw(state, 3) == 0,
                       .eager = draw(state, 2),
                       .blocking = draw(state, 4) == 0};
    ech_order orders[MOST_STAGES] = {{0}};
    if (strcmp(spec.schedule, "zero-bubble-v") == 0) spec.chunks = 2;
    if (each < 2 && draw(state, 2)) {
        spec.schedule = NULL;
        spec.order = orders;
        spec.chunks = 1 + (stages > 1 ? draw(state, 2) : 0);
        for (int s = 0; s < stages; s++)
            random_order(state, spec.chunks, 6 / replicas[each][s], &orders[s]);
    }
    lists all = lists_build(spec);
    for (int s = 0; s < stages; s++) free(orders[s].at);
    return all;
}

/* ---- faults ---- */

/* A random step of the rank that `lane` has; -1: it has none. */
static int draw_step(uint64_t *state, const ech_list *list, ech_lane lane)
{
    int n = 0, chosen = -1;
    for (int s = 0; s < (int)list->step.n; s++)
        if (list->step.at[s].lane == lane && draw(state, ++n) == 0) chosen = s;
    return chosen;
}

/* Two steps of a lane change places, each waiting for what the other waited for. */
static void swap(uint64_t *state, ech_list *list, ech_lane lane)
{
    int a = draw_step(state, list, lane), b = draw_step(state, list, lane);
    if (a < 0) return;
    ech_step x = list->step.at[a], y = list->step.at[b];
    list->step.at[a] = y;
    list->step.at[b] = x;
    list->step.at[a].first_after = x.first_after;
    list->step.at[a].afters = x.afters;
    list->step.at[b].first_after = y.first_after;
    list->step.at[b].afters = y.afters;
}

static void damage(uint64_t *state, const lists *all)
{
    ech_list *list = lists_of(all, draw(state, all->ranks));
    ech_lane lane = (ech_lane)draw(state, ECH_LANE_REDUCE + 1);
    int s = draw_step(state, list, lane);
    if (s < 0) return;
    ech_step *step = &list->step.at[s];
    switch (draw(state, 7)) {
    case 0:
    case 1:
        swap(state, list, lane);
        break;
    case 2:
        if (lane != ECH_LANE_COMPUTE) lists_drop(list, s);
        break;
    case 3:
        if (lane == ECH_LANE_SEND || lane == ECH_LANE_RECEIVE) step->bytes += draw(state, 2);
        break;
    case 4:
        if (lane == ECH_LANE_SEND || lane == ECH_LANE_RECEIVE) step->peer = draw(state, all->ranks);
        break;
    case 5:
        if (s > 0) lists_move(list, s, draw(state, s));
        break;
    default:
        if (s > 0) lists_edit(list, -1, s, draw(state, s));
        break;
    }
}

/* ---- the comparison ---- */

static void compare_times(const lists *all, const naive *n)
{
    ech_costs unit = {.seconds = false};
    ech_simulation s;
    assert_int_equal(ech_simulate(lists_plans(all), all->ranks, ECH_LIST_TRAIN, &unit, &s), ECH_OK);
    for (int rank = 0; rank < all->ranks; rank++)
        for (size_t i = 0; i < lists_of(all, rank)->step.n; i++) {
            assert_true(s.begin[rank][i] >= n->begun[rank][i] &&
                        s.begin[rank][i] <= n->begun[rank][i]);
            assert_true(s.finish[rank][i] >= n->ended[rank][i] &&
                        s.finish[rank][i] <= n->ended[rank][i]);
        }
    ech_simulation_free(&s);
}

static bool run_case(uint64_t seed)
{
    uint64_t state = seed;
    lists all = random_lists(&state);
    for (int faults = draw(&state, 3); faults > 0; faults--) damage(&state, &all);
    naive n;
    bool sound = naive_run(&all, &n);
    ech_status status = ech_check_plans(lists_plans(&all), all.ranks, ECH_LIST_TRAIN);
    if ((status == ECH_OK) != sound)
        fail_msg("case %llu: the interpreter says %s, the checker %s", (unsigned long long)seed,
                 sound ? "sound" : "broken", status == ECH_OK ? "sound" : ech_last_error());
    if (sound) compare_times(&all, &n);
    naive_free(&n);
    lists_free(&all);
    return sound;
}

TEST(test_against_interpreter)
{
    int sound = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) sound += run_case(seed);
    assert_true(sound > CASES / 5 && sound < CASES * 4 / 5); /* else the cases are too dull */
}
