/* SPDX-License-Identifier: Apache-2.0
 *
 * Serial programs: they are complete, compare all that their protocols train, and refuse orders of
 * pushes that workers cannot have had. That they are what their protocols do is the lattice's.
 */

#include "app/fixture.h"
#include "app/verify/verifier.h"
#include "unit.h"

static ech_design design_of(int ranks, const char *more, ech_config **config)
{
    ech_design design;
    *config = fixture_config("llama", more);
    ech_status status = ech_design_create(*config, fixture_tokenizer, ranks, ranks, &design);
    if (status != ECH_OK) fail_msg("%s: %s", more, ech_last_error());
    return design;
}

static const struct {
    const char *words;
    ech_strategy_protocol_kind protocol;
    int ranks;
    int compared; /* in models: gradients, weights, states of two training steps */
} runs[] = {
    {"", ECH_PROTOCOL_SYNCHRONOUS, 2, 2 * 4},
    {"parallel.strategy=central_storage", ECH_PROTOCOL_CENTRAL, 2, 2 * 4},
    {"parallel.strategy=parameter_server", ECH_PROTOCOL_SERVERS, 3, 2 * 4},
    /* Each step gradients, weights, three states; each meeting all but gradients. */
    {"parallel.strategy=local_sgd parallel.sync_every=2", ECH_PROTOCOL_APART, 2, 2 * (2 * 5 + 4)},
    {"parallel.strategy=gossip parallel.sync_every=2", ECH_PROTOCOL_APART, 2, 2 * (2 * 5 + 2 * 4)},
    /* One step, a meeting, the way back, another step, a meeting. */
    {"parallel.strategy=easgd", ECH_PROTOCOL_ELASTIC, 2, 2 * (2 * 5 + 3 * 4)},
    /* After each span. */
    {"parallel.strategy=asp parallel.flush_every=2", ECH_PROTOCOL_PUSHES, 3, 3},
    {"parallel.strategy=parameter_server parallel.backup_workers=1 parallel.flush_every=2",
     ECH_PROTOCOL_BACKUPS, 3, 3},
    /* Each rank's gradients; weights after each span. */
    {"parallel.strategy=hogwild parallel.flush_every=2 optimizer.name=sgd "
     "optimizer.weight_decay=0",
     ECH_PROTOCOL_LOCK_FREE, 2, 2 * 2 + 1},
};

static void note_operations(const ech_serial_step *at, bool *does)
{
    for (int loops = 1; at && loops > 0; at++) {
        assert_in_range(at->op, 0, ECH_DOES - 1);
        does[at->op] = true;
        loops += ech_serial_loops(at->op) - (at->op == ECH_DO_END);
    }
}

/* Every protocol has a run here, and every operation is in a program. */
TEST(all_is_compared)
{
    bool seen[ECH_PROTOCOLS] = {false}, does[ECH_DOES] = {false};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        ech_config *config;
        char words[300];
        snprintf(words, sizeof words, "model.num_hidden_layers=1 training.steps=2 %s",
                 runs[i].words);
        ech_design design = design_of(runs[i].ranks, words, &config);
        const ech_serial *serial = &ech_protocol_of(design.layout)->serial;
        const ech_serial_step *programs[] = {serial->begin, serial->train, serial->gossip,
                                             serial->sync, serial->returns};
        for (int k = 0; k < 5; k++) note_operations(programs[k], does);
        assert_int_equal(design.layout->protocol, runs[i].protocol);
        seen[runs[i].protocol] = true;
        int64_t all = ech_model_params(design.model);
        ech_design_destroy(&design);
        ech_verification v = {.steps = 2, .tolerance = ECH_TOLERANCE};
        assert_int_equal(fixture_run(config, runs[i].ranks, ech_verify_rank, &v), ECH_OK);
        if (!v.passed) fail_msg("%s: %g at %s", runs[i].words, v.worst, v.first_bad);
        if (v.compared != runs[i].compared * all)
            fail_msg("%s: %g models are compared, not %d", runs[i].words,
                     (double)v.compared / (double)all, runs[i].compared);
        ech_config_destroy(config);
    }
    for (int p = 0; p < ECH_PROTOCOLS; p++) assert_true(seen[p]);
    for (int op = 0; op < ECH_DOES; op++) assert_true(does[op]);
}

/* ---- orders of pushes ---- */

typedef struct push_order {
    const char *is; /* worker, clock and d for dropped of each push */
    bool right;
} push_order;

static void check_orders(const char *words, ech_status (*check)(ech_verifier *v),
                         const push_order *order, size_t n)
{
    ech_config *config;
    ech_design design = design_of(3, words, &config);
    for (size_t i = 0; i < n; i++) {
        ech_serve serves[4];
        int64_t pushed[2] = {0};
        ech_verifier v = {.workers = 2, .turns = 2, .serves = serves, .pushed = pushed};
        v.layout.design = &design;
        for (int k = 0; k < 4; k++) {
            const char *at = order[i].is + 4 * k;
            serves[k] = (ech_serve){
                .worker = at[0] - '0', .clock = at[1] - '0', .dropped = at[2] == 'd', .read = k};
        }
        ech_status status = check(&v);
        if ((status == ECH_OK) != order[i].right) fail_msg("order %s", order[i].is);
        if (status != ECH_OK) assert_non_null(strstr(ech_last_error(), "servers recorded"));
    }
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

TEST(a_worker_pushes_its_steps_in_order)
{
    static const push_order orders[] = {{"00  10  01  11  ", true},
                                        {"00  01  02  10  ", true}, /* workers share pushes out */
                                        {"01  00  10  11  ", false},
                                        {"00  00  10  11  ", false},
                                        {"00  20  01  11  ", false}};
    check_orders("parallel.strategy=asp parallel.flush_every=2", ech_verifier_check_order, orders,
                 sizeof orders / sizeof *orders);
}

TEST(the_first_pushes_of_a_step_are_summed)
{
    static const push_order orders[] = {{"00  01  10d 11d ", true},
                                        {"10  00d 01  11d ", true},
                                        {"00  10  01  11d ", false},  /* two of a step */
                                        {"00d 10  01  11d ", false},  /* a step is not over */
                                        {"01  00  10d 11d ", false}}; /* ahead of the sum */
    check_orders("parallel.strategy=parameter_server parallel.backup_workers=1 "
                 "parallel.flush_every=2",
                 ech_verifier_check_sum_order, orders, sizeof orders / sizeof *orders);
}

ALL_TESTS(fixture_setup, fixture_teardown)
