/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.strategy = hogwild_ring: each gradient is that of the weights which its rank had read.
 * The weights after the token's last round follow from the clusters' sums by a formula that the
 * test has of its own. One cluster is hogwild. There is one token, which moves from neighbour to
 * neighbour as often as planned. Several clusters reach the loss of one rank.
 */
#include <math.h>

#include "app/grid_run.h"
#include "app/runs.h"
#include "schedule/print.h"
#include "schedule/traffic.h"
#include "share.h"
#include "unit.h"

#define SGD  "optimizer.name=sgd optimizer.weight_decay=0 "
#define RING SGD "parallel.strategy=hogwild_ring training.micro_batch_size=1 "

/* ---- verify ---- */

/* carried: the token also moves within a span. */
static const struct {
    const char *family, *words;
    bool carried;
} grids[] = {
    {"gpt2", RING "parallel.data=2 parallel.flush_every=2", false},
    {"llama",
     RING "parallel.data=4 parallel.cluster_ranks=2 parallel.flush_every=2 "
          "parallel.token_tolerance=1e-4 optimizer.clip_norm=0.5 "
          "model.tie_word_embeddings=false",
     false},
    {"qwen3",
     RING "parallel.data=3 training.global_batch_size=6 parallel.flush_every=4 "
          "training.steps=4 model.head_dim=4 parallel.token_rate=0.3",
     false},
    {"gpt2", RING "parallel.data=4 parallel.flush_every=1 parallel.device=walled", false},
    {"gpt2",
     RING "parallel.data=4 parallel.cluster_ranks=2 parallel.flush_every=4 "
          "training.steps=4 parallel.token_updates=3",
     true},
    {"llama",
     RING "parallel.data=2 parallel.flush_every=2 parallel.token_updates=1 "
          "memory.recompute=full model.tie_word_embeddings=false",
     true},
    {"gpt2", RING "parallel.data=2 parallel.cluster_ranks=2", false},
    {"gpt2", RING "parallel.data=1", false},
};

TEST(each_gradient_and_the_last_round_are_right)
{
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        if (!share_takes_of(i, sizeof grids / sizeof *grids)) continue;
        ech_verification v = grid_verify(grids[i].family, grids[i].words, 4);
        assert_true(v.carried == grids[i].carried);
    }
}

/* ---- plans ---- */

/* Of one cluster the steps are those of hogwild. */
TEST(one_cluster_is_hogwild)
{
#define ALIKE SGD "parallel.data=3 training.micro_batch_size=1 training.global_batch_size=6 "
    grid_plans ring = grid_plan("gpt2", ALIKE "parallel.strategy=hogwild_ring "
                                              "parallel.cluster_ranks=3 parallel.token_updates=1");
    grid_plans all = grid_plan("gpt2", ALIKE "parallel.strategy=hogwild");
    for (int r = 0; r < 3; r++) {
        ech_plan *x = ring.plan[r], *y = all.plan[r];
        ECH_FREED_TEXT of_ring = {0}, of_all = {0};
        ech_list_print(&x->list[ECH_LIST_TRAIN], &of_ring);
        ech_list_print(&y->list[ECH_LIST_TRAIN], &of_all);
        assert_string_equal(of_ring.at, of_all.at);
        assert_int_equal(x->arena_bytes[ECH_SPACE_SHARED], y->arena_bytes[ECH_SPACE_SHARED]);
    }
    grid_plans_free(&ring);
    grid_plans_free(&all);
}

/* The token is sent in one turn and received in a later one. */
TEST(a_token_crosses_turns)
{
    grid_plans ring = grid_plan("gpt2", RING "parallel.data=4 parallel.flush_every=4 "
                                             "parallel.token_updates=2 training.steps=4");
    assert_int_equal(ech_check_plans((const ech_plan *const *)ring.plan, 4, ECH_LIST_TRAIN),
                     ECH_OK);
    grid_plans_free(&ring);
}

/* ---- what is sent ---- */

enum { CLUSTERS = 3, EACH = 2, RANKS = CLUSTERS * EACH, TURNS = 7, HELD = 2 };
enum { VISITS = TURNS / HELD + CLUSTERS };
static struct {
    int sent, received, relays;
    int64_t shared, common, relayed;
} seen[RANKS];

static ech_status look(void *context, int rank, ech_compared_run *run)
{
    (void)context;
    ech_exec *exec = run->session.exec;
    const ech_plan *plan = run->session.plan;
    const ech_list *train = &plan->list[ECH_LIST_TRAIN];
    int64_t peak[ECH_MEMORY_KINDS];
    memset(&seen[rank], 0, sizeof seen[rank]);
    ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, 0));
    ech_comm_count counted = ech_exec_counted(exec)->messages[ECH_MESSAGE_RING_TOKEN];
    ech_flow planned = ech_plan_traffic_along(plan, ECH_TRAFFIC_RING_TOKEN);
    assert_int_equal(counted.messages, planned.messages);
    assert_int_equal(counted.bytes, planned.bytes);
    assert_int_equal(ech_exec_sent_bytes(exec) - ech_exec_reduce_count(exec).bytes >= counted.bytes,
                     1);
    assert_int_equal(ech_plan_traffic_along(plan, ECH_TRAFFIC_DATA).bytes, 0);
    assert_true(fixture_peaks_are_planned(&run->session, FIXTURE_TRAINED));
    ech_exec_peaks(exec, peak);
    seen[rank].shared = plan->arena_bytes[ECH_SPACE_SHARED];
    seen[rank].common = peak[ECH_MEMORY_COMMON];
    seen[rank].relayed = peak[ECH_MEMORY_RELAYED];
    for (size_t s = 0; s < train->step.n; s++) {
        const ech_step *step = &train->step.at[s];
        bool sends = step->kind == ECH_STEP_SEND_RING_TOKEN,
             takes = step->kind == ECH_STEP_RECV_RING_TOKEN;
        int away = sends ? EACH : RANKS - EACH;
        if (sends || takes) assert_int_equal(step->peer, (rank + away) % RANKS);
        seen[rank].sent += sends;
        seen[rank].received += takes;
        seen[rank].relays += step->kind == ECH_STEP_RELAY;
        if (step->kind == ECH_STEP_RELAY) assert_int_equal(step->count % CLUSTERS, rank / EACH);
    }
    assert_int_equal(counted.messages, seen[rank].sent);
    assert_int_equal(seen[rank].relays % (int)plan->bucket.n, 0);
    seen[rank].relays /= (int)plan->bucket.n;
    return ECH_OK;
}

TEST(one_token_goes_from_neighbour_to_neighbour)
{
    int sent = 0, relays = 0;
    grid_run("llama",
             RING "parallel.data=6 training.global_batch_size=6 parallel.cluster_ranks=2 "
                  "training.steps=7 parallel.flush_every=7 parallel.token_updates=3",
             look, NULL);
    for (int r = 0; r < RANKS; r++) {
        bool leads = r % EACH == 0;
        int visits = 0;
        for (int v = 0; v < VISITS; v++) visits += v % CLUSTERS == r / EACH;
        assert_int_equal(seen[r].relays, leads ? visits : 0);
        assert_int_equal(seen[r].received, leads ? visits - (r == 0) : 0);
        assert_int_equal(seen[r].relayed, leads ? seen[r].common / CLUSTERS : 0);
        assert_int_equal(seen[r].common, seen[r].shared);
        sent += seen[r].sent;
        relays += seen[r].relays;
    }
    assert_int_equal(relays, VISITS);
    assert_int_equal(sent, VISITS - 1); /* the token ends where it is */
}

/* ---- runs ---- */

TEST(clusters_reach_the_loss_of_one_rank)
{
#define LONG                                                                                       \
    SGD "training.steps=40 training.validate_every=40 training.global_batch_size=12 "              \
        "training.micro_batch_size=1 optimizer.learning_rate=0.3 optimizer.warmup_steps=0 "        \
        "model.resid_pdrop=0 model.attn_pdrop=0 "
    double first = runs_loss("gpt2", "first", 1, LONG "training.steps=1 training.validate_every=1");
    double serial = runs_loss("gpt2", "serial", 1, LONG);
    static const char *const words[] = {
        "parallel.token_updates=4 parallel.cluster_ranks=2 parallel.flush_every=20",
        "parallel.token_updates=1 parallel.flush_every=40"};
    assert_true(serial < 0.97 * first);
    for (int i = 0; i < 2; i++) {
        ECH_FREED_TEXT all = {0};
        ech_text_append(&all, LONG "parallel.strategy=hogwild_ring %s", words[i]);
        double loss = runs_loss("gpt2", "ring", 4, all.at);
        if (!(fabs(loss - serial) <= 0.05 * serial))
            fail_msg("%s: %g, serial %g", words[i], loss, serial);
    }
}

/* A checkpoint knows no clusters. */
TEST(runs_go_on_on_other_ranks)
{
#define SPANS                                                                                      \
    SGD "parallel.flush_every=2 checkpoint.every=4 training.global_batch_size=12 "                 \
        "training.micro_batch_size=1 "
    runs_train("gpt2", "run", 3, "training.steps=4 parallel.strategy=hogwild_ring " SPANS);
    runs_train("gpt2", "run", 2, "training.steps=8 parallel.strategy=hogwild_ring " SPANS);
    runs_train("gpt2", "run", 2, "training.steps=12 parallel.strategy=hogwild " SPANS);
    assert_true(runs_has_checkpoint("run", 8) && runs_has_checkpoint("run", 12));
    runs_remove("run");
}

/* ---- what the checker finds ---- */

/* Of the first cluster, which has the token when the list begins, and of the second. */
TEST(faults_are_found)
{
    grid_plans g = grid_plan("gpt2", RING "parallel.data=3 training.global_batch_size=6 "
                                          "parallel.flush_every=6 training.steps=6 "
                                          "parallel.token_updates=1");
    ech_plan *first = g.plan[0], *second = g.plan[1];
    ech_list *list = &first->list[ECH_LIST_TRAIN], *other = &second->list[ECH_LIST_TRAIN];

    ech_step *sent = grid_step(list, ECH_STEP_SEND_RING_TOKEN, 0);
    sent->kind = ECH_STEP_RECV_RING_TOKEN;
    sent->peer = 2;
    grid_refuse(first, "makes two tokens");
    sent->kind = ECH_STEP_SEND_RING_TOKEN;
    grid_refuse(first, "has peer 2, not the neighbour, 1");
    sent->peer = 1;
    int afters = sent->afters;
    sent->afters = 0;
    grid_refuse(first, "does not wait for what is relayed");
    sent->afters = afters;

    ech_step *came = grid_step(other, ECH_STEP_RECV_RING_TOKEN, 0);
    came->kind = ECH_STEP_MEET;
    came->lane = ECH_LANE_REDUCE;
    assert_int_equal(ech_check_list(second, other), ECH_EINTERNAL);
    came->kind = ECH_STEP_RECV_RING_TOKEN;
    came->lane = ECH_LANE_RECEIVE;

    ech_step *relay = grid_step(other, ECH_STEP_RELAY, 0);
    afters = relay->afters;
    relay->afters = 0;
    grid_refuse(second, "does not have the token");
    relay->afters = afters;
    relay->count++;
    grid_refuse(second, "is not of bucket 0 and visit 1");
    relay->count--;

    ech_step *last = grid_step(other, ECH_STEP_RELAY, 2 * (int)second->bucket.n);
    afters = last->afters;
    last->kind = ECH_STEP_HASH;
    grid_refuse(second, "is not of bucket 0");
    last->kind = ECH_STEP_RELAY;
    assert_int_equal(ech_check_list(first, list), ECH_OK);
    assert_int_equal(ech_check_list(second, other), ECH_OK);
    grid_plans_free(&g);
}

ALL_TESTS(grid_setup, fixture_teardown)
