/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.strategy = parameter_server: workers and servers train the same weights, bit for bit, as
 * ranks that sum their gradients themselves. Workers keep no optimizer states. A worker sends its
 * gradients once a step, and a server its shard of the weights to each worker, as planned.
 * probes/moves.c tests that a run resumes with other servers, or without servers.
 */

#include "app/grid_run.h"
#include "app/runs.h"
#include "schedule/states.h"
#include "schedule/traffic.h"
#include "share.h"
#include "unit.h"

#define SERVED "parallel.strategy=parameter_server "

/* ---- runs ---- */

/* Also in 16 bits. The norm adds up other shards, so it must not clip. */
TEST(weights_have_the_bits_of_a_sum)
{
    static const char *const more[] = {"optimizer.name=sgd optimizer.momentum=0.9 ",
                                       "model.tie_word_embeddings=true parallel.bucket_bytes=1 ",
                                       "precision.compute=bf16 precision.reduce=bf16 "};
    for (int i = 0; i < 3; i++) {
        char words[400];
        snprintf(words, sizeof words,
                 "%straining.steps=4 optimizer.clip_norm=0 parallel.data=3 "
                 "training.global_batch_size=12",
                 more[i]);
        runs_train("llama", "sum", 3, words);
        strcat(words, " parallel.servers=2 " SERVED);
        runs_train("llama", "served", 5, words);
        assert_true(runs_same("sum", "served", 4));
        runs_remove("sum");
        runs_remove("served");
    }
}

/* ---- what is kept, and sent ---- */

enum { RANKS = 5, WORKERS = 3, SERVERS = 2, STEPS = 3 };
static struct {
    int64_t weights, states, gradients; /* bytes, of numbers without padding */
    int64_t sent, planned;              /* of gradients or weights, in all steps */
    int64_t padded;                     /* all elements of buckets */
    int blocks, updates;                /* steps of the train list */
} seen[RANKS];

static ech_status look(void *context, int rank, ech_compared_run *run)
{
    (void)context;
    ech_exec *exec = run->session.exec;
    const ech_plan *plan = run->session.plan;
    const ech_list *train = &plan->list[ECH_LIST_TRAIN];
    memset(&seen[rank], 0, sizeof seen[rank]);
    seen[rank].weights = ech_plan_number_bytes(plan, ECH_MEMORY_PARAMETERS);
    seen[rank].states = ech_plan_number_bytes(plan, ECH_MEMORY_OPTIMIZER);
    seen[rank].gradients = ech_plan_number_bytes(plan, ECH_MEMORY_GRADIENTS);
    seen[rank].planned = STEPS * ech_plan_traffic_along(plan, ECH_TRAFFIC_DATA).bytes;
    for (size_t b = 0; b < plan->bucket.n; b++) seen[rank].padded += plan->bucket.at[b].elements;
    seen[rank].updates = grid_steps(train, ECH_STEP_UPDATE);
    for (size_t s = 0; s < train->step.n; s++)
        seen[rank].blocks += ech_step_kind_phase(train->step.at[s].kind) >= 0;
    int64_t before = ech_exec_reduce_count(exec).bytes;
    for (int step = 0; step < STEPS; step++) ECH_TRY(ech_exec_run(exec, ECH_LIST_TRAIN, step));
    seen[rank].sent = ech_exec_reduce_count(exec).bytes - before;
    return ECH_OK;
}

TEST(roles_keep_and_send_what_is_theirs)
{
    grid_run("llama",
             SERVED "parallel.data=3 parallel.servers=2 training.micro_batch_size=1 "
                    "training.global_batch_size=6",
             look, NULL);
    int64_t all = seen[0].weights, item = (int64_t)sizeof(double), states = 0, weights = 0;
    int64_t S = seen[0].padded * item;
    for (int r = 0; r < RANKS; r++) {
        bool serves = r >= WORKERS;
        assert_int_equal(seen[r].sent, seen[r].planned);
        assert_int_equal(seen[r].padded, seen[0].padded);
        assert_true((seen[r].blocks > 0) == !serves && (seen[r].updates > 0) == serves);
        /* Each byte that one sends another receives: a worker sends S and receives S, a server W S
         * / n of each. */
        assert_int_equal(seen[r].sent, serves ? STEPS * WORKERS * S / SERVERS : STEPS * S);
        if (!serves) {
            assert_true(seen[r].weights == all && seen[r].gradients == all && !seen[r].states);
            continue;
        }
        weights += seen[r].weights;
        states += seen[r].states;
        assert_true(seen[r].gradients == seen[r].weights && seen[r].weights > 0);
    }
    assert_true(all > 100000 && weights == all && states == 2 * all); /* two moments of AdamW */
    assert_true(2 * seen[RANKS - 1].weights > all * 9 / 10);          /* and they are even */
}

/* ---- what is refused ---- */

TEST(impossible_servers_are_errors)
{
    static const runs_refusal refused[] = {
        {"parallel.servers=4", "leave no worker; start more ranks, or use fewer"},
        {"training.global_batch_size=4",
         "no grid works on 4 ranks, but on 3, 1 of them a server: pipeline 1 x data 2 x context 1 "
         "x tensor 1"},
        {"parallel.servers=3 parallel.data=2", "use --ranks 5"},
        {"parallel.zero=1", "use parallel.zero = 0"},
        {"parallel.reduction=ring", "use parallel.reduction = direct"},
        {"parallel.servers=2 parallel.data=1",
         "grids that work on 4 ranks, 2 of them servers: pipeline 1 x data 2 x context 1 x tensor "
         "1"},
    };
    RUNS_REFUSE(4, SERVED "training.global_batch_size=12", refused);
    assert_null(strstr(ech_last_error(), " tensor 2")); /* a worker has the whole model */
    assert_int_equal(runs_try("gpt2", "refused", 1, SERVED "parallel.servers=1"), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "1 server of 1 rank leaves no worker; start more"));
    assert_int_equal(runs_try("gpt2", "refused", 2,
                              SERVED "parallel.evaluators=1 training.steps=2 checkpoint.every=1"),
                     ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "1 server of 1 rank beside 1 evaluator leaves no"));
}

ALL_TESTS(grid_setup, fixture_teardown)
