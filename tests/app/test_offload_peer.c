/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.offload_activations = peer: runs leave the bits that they leave without; every byte goes once and comes back once, as
 * counters and plans say; what lives is what is planned; and where nobody would hold anything the run is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "app/kept_run.h"
#include "base/log.h"
#include "schedule/traffic.h"

enum { MOST_RANKS = 8, RUNS = 2 };

typedef struct trial {
    uint64_t digest[MOST_RANKS];
    int64_t sent[2]; /* by all ranks: to who holds it, and back */
    int64_t most;    /* the fullest rank's planned working memory */
} trial;

static void count_sent(const ech_session *s, trial *t)
{
    for (int back = 0; back < 2; back++) {
        ech_flow planned =
            ech_plan_traffic_along(s->plan, back ? ECH_TRAFFIC_BACK : ECH_TRAFFIC_KEPT);
        ech_comm_count counted = ech_exec_messages_of(s->exec, back ? ECH_MESSAGE_BACK : ECH_MESSAGE_KEPT);
        assert_int_equal(counted.bytes, RUNS * planned.bytes);
        assert_int_equal(counted.calls, RUNS * planned.calls);
        assert_int_equal(counted.messages, RUNS * planned.messages);
        __atomic_fetch_add(&t->sent[back], counted.bytes, __ATOMIC_RELAXED);
    }
    ech_flow pipeline = ech_plan_traffic_along(s->plan, ECH_TRAFFIC_PIPELINE);
    assert_int_equal(ech_exec_message_count(s->exec).bytes, RUNS * pipeline.bytes);
}

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    trial *t = context;
    int rank = ech_comm_rank(comm);
    ech_compared_run run = {.design = design};
    ech_status status = kept_run_train(&run, comm, RUNS);
    if (status == ECH_OK) {
        t->digest[rank] = kept_run_digest(&run.session, design->config);
        assert_true(fixture_peaks_are_planned(&run.session, FIXTURE_TRAINED));
        count_sent(&run.session, t);
        int64_t working = run.session.plan->list[ECH_LIST_TRAIN].working;
        for (int64_t most = t->most; working > most;)
            if (__atomic_compare_exchange_n(&t->most, &most, working, false, __ATOMIC_SEQ_CST,
                                            __ATOMIC_SEQ_CST))
                break;
    }
    ech_compared_run_close(&run);
    return status;
}

static trial run(const char *words, int ranks)
{
    trial t = {.digest = {0}};
    assert_true(fixture_runs("gpt2", words, ranks, run_rank, &t));
    return t;
}

/* Of 12 samples a step. */
static const struct {
    const char *words;
    int ranks;
} cases[] = {
    {"parallel.pipeline=4 model.num_hidden_layers=6", 4},
    {"parallel.pipeline=4 parallel.virtual_stages=2 parallel.schedule=interleaved "
     "precision.compute=bf16 model.num_hidden_layers=14",
     4},
    {"parallel.pipeline=4 parallel.tensor=2 parallel.sequence=true memory.recompute=full "
     "memory.recompute_blocks=2 model.num_hidden_layers=10 model.vocab_size=264 "
     "data.sequence_length=8",
     8},
    {"parallel.pipeline=4 parallel.data=2 parallel.zero=3 memory.recompute=selective "
     "model.num_hidden_layers=6",
     8},
    {"parallel.pipeline=5 memory.sequence_chunks=3 precision.compute=fp64 "
     "model.num_hidden_layers=8",
     5},
    {"parallel.pipeline=4 parallel.schedule=pipedream training.steps=4 parallel.flush_every=2 "
     "model.tie_word_embeddings=false model.num_hidden_layers=6",
     4},
    {"parallel.pipeline=4 model.reversible=true model.num_hidden_layers=6", 4}};

static const char *const ways[] = {"", " parallel.device=queued", " parallel.device=walled",
                                   " memory.prefetch=0", " memory.prefetch=2"};
enum { WAYS = sizeof ways / sizeof *ways };

static void bits_are_those_without(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char words[500];
        snprintf(words, sizeof words, "training.micro_batch_size=1 %s", cases[c].words);
        trial plain = run(words, cases[c].ranks);
        assert_true(plain.digest[0] != 0 && plain.sent[0] == 0);
        for (size_t w = 0; w < WAYS; w++) {
            if (c > 0 && (c + w) % 3 != 0) continue;
            snprintf(words, sizeof words,
                     "training.micro_batch_size=1 %s memory.offload_activations=peer%s",
                     cases[c].words, ways[w]);
            trial t = run(words, cases[c].ranks);
            assert_memory_equal(t.digest, plain.digest, sizeof t.digest);
            if (t.sent[0] == 0) fail_msg("%s: nothing is sent", words);
            assert_int_equal(t.sent[0], t.sent[1]);
        }
    }
}

/* Of four stages the first is the fullest where all have as many layers and the others no embedding. */
static void the_fullest_rank_has_less(void **state)
{
    (void)state;
    static const char model[] = "parallel.pipeline=4 training.micro_batch_size=1 "
                                "model.num_hidden_layers=10 parallel.partition=[4,2,2,2] "
                                "data.sequence_length=48";
    char words[400];
    int64_t most[2];
    for (int peer = 0; peer < 2; peer++) {
        snprintf(words, sizeof words, "%s memory.offload_activations=%s", model,
                 peer ? "peer" : "none");
        most[peer] = run(words, 4).most;
    }
    if (most[1] > most[0] * 5 / 6)
        fail_msg("%lld bytes, without %lld", (long long)most[1], (long long)most[0]);
}

static void where_nothing_is_held_it_is_refused(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "parallel.pipeline=1", "parallel.pipeline=2", "parallel.pipeline=3",
        "parallel.pipeline=4 training.micro_batch_size=4", "parallel.pipeline=4 memory.prefetch=9"};
    static const int ranks[] = {1, 2, 3, 4, 4};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char words[300];
        trial t = {.digest = {0}};
        snprintf(words, sizeof words,
                 "training.micro_batch_size=1 memory.offload_activations=peer "
                 "model.num_hidden_layers=6 %s",
                 refused[i]);
        ech_config *config = fixture_config("gpt2", words);
        bool quiet = ech_log_set_quiet(true);
        assert_int_equal(fixture_run(config, ranks[i], run_rank, &t), ECH_EUSAGE);
        ech_log_set_quiet(quiet);
        assert_non_null(strstr(ech_last_error(), "no rank would hold anything for another"));
        ech_config_destroy(config);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(bits_are_those_without),
                                       cmocka_unit_test(the_fullest_rank_has_less),
                                       cmocka_unit_test(where_nothing_is_held_it_is_refused)};
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
