/* SPDX-License-Identifier: Apache-2.0
 *
 * ZeRO: what ranks share out changes no bit, whichever ranks add to a gradient: losses, norms and weights, with clipping at
 * work. Optimizer states take an N-th of the memory, as planned, and sums and weights together send as much as a reduction.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "schedule/traffic.h"

enum { MOST = 8, STEPS = 3 };

typedef struct trial {
    uint64_t bits[MOST]; /* of each rank's weights after the last step */
    double loss[STEPS], norm[STEPS], clip[STEPS];
    int64_t sent[MOST], planned[MOST];    /* bytes of gradients and weights in a step */
    int64_t elements[MOST], halves[MOST]; /* of buckets; of these (N - 1) / N, twice */
    int64_t states[MOST],
        of_states[MOST]; /* bytes: of the plan; of all elements if none is shared out */
    bool peaks;          /* the ledger's are the plan's */
} trial;

static void count_plan(const ech_plan *plan, int rank, trial *t)
{
    t->planned[rank] = ech_plan_traffic_along(plan, ECH_TRAFFIC_DATA).bytes;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        int64_t item = (int64_t)ech_dtype_bytes(bucket->wire);
        int N = ech_layout_group_size(plan->layout, plan->model, rank, bucket->group);
        t->elements[rank] += bucket->elements;
        t->halves[rank] += 2 * bucket->elements / N * (N - 1) * item;
        for (int s = 0; s < bucket->states; s++) {
            int64_t bytes = (int64_t)ech_dtype_bytes(bucket->state[s].dtype);
            t->states[rank] += plan->persistent.at[bucket->state[s].value].bytes;
            t->of_states[rank] += bucket->elements * bytes / (plan->zero ? N : 1);
        }
    }
}

/* FNV-1a. */
static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) h = (h ^ at[i]) * 0x100000001b3u;
    return h;
}

static bool peaks_are_planned(const ech_exec *exec, const ech_plan *plan)
{
    int64_t peak[ECH_MEMORY_KINDS], planned[ECH_MEMORY_KINDS];
    ech_exec_peaks(exec, peak);
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        planned[kind] = plan->list[ECH_LIST_TRAIN].peak[kind];
    for (size_t i = 0; i < plan->persistent.n; i++)
        planned[plan->persistent.at[i].kind] += ech_align(plan->persistent.at[i].bytes, 64);
    return memcmp(peak, planned, sizeof peak) == 0;
}

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    trial *t = context;
    int rank = ech_comm_rank(comm);
    ech_compared_run run = {.design = design};
    ECH_TRY(ech_compared_run_open(&run, comm));
    ech_exec *exec = run.session.exec;
    const ech_plan *plan = run.session.plan;
    ech_status status = ECH_OK;
    for (int step = 0; step < STEPS && status == ECH_OK; step++) {
        int64_t before = ech_exec_reduce_count(exec).bytes;
        status = ech_exec_run(exec, ECH_LIST_TRAIN, step);
        t->sent[rank] = ech_exec_reduce_count(exec).bytes - before;
        if (rank > 0) continue;
        t->loss[step] = ech_exec_readings(exec)->loss;
        t->norm[step] = ech_exec_readings(exec)->grad_norm;
        t->clip[step] = ech_exec_readings(exec)->clip;
    }
    count_plan(plan, rank, t);
    for (int p = 0; p < (int)plan->model->param.n; p++) {
        if (plan->param[p].bucket < 0) continue;
        ech_tensor x = ech_exec_param(exec, p);
        t->bits[rank] = hash(t->bits[rank], x.data, ech_tensor_bytes(&x));
    }
    if (rank == 0) t->peaks = peaks_are_planned(exec, plan);
    ech_compared_run_close(&run);
    return status;
}

static void run(const char *family, int ranks, const char *words, int zero, trial *t)
{
    char more[700];
    *t = (trial){.loss = {0}};
    snprintf(
        more, sizeof more,
        "%s parallel.zero=%d training.steps=%d training.micro_batch_size=1 data.sequence_length=8 "
        "training.check_every=0 checkpoint.background=false optimizer.clip_norm=0.1",
        words, zero, STEPS);
    ech_config *config = fixture_config(family, more);
    ech_status status = fixture_run(config, ranks, run_rank, t);
    ech_config_destroy(config);
    if (status != ECH_OK) fail_msg("%s: %s", more, ech_last_error());
}

static const struct {
    const char *family;
    int ranks;
    const char *words;
} cases[] = {
    {"gpt2", 2, "parallel.data=2 model.vocab_size=257"},
    {"gpt2", 3, "parallel.data=3 training.global_batch_size=6 parallel.reduction=ring"},
    {"llama", 3,
     "parallel.data=3 training.global_batch_size=6 precision.compute=bf16 parallel.bucket_bytes=1"},
    {"gpt2", 4,
     "parallel.data=2 parallel.tensor=2 parallel.sequence=true optimizer.name=sgd "
     "optimizer.momentum=0.9"},
    {"llama", 8,
     "parallel.data=2 parallel.tensor=4 model.num_key_value_heads=2 precision.compute=bf16 "
     "precision.gradients=compute"},
    {"gpt2", 6,
     "parallel.stage_replicas=[2,1] parallel.context=2 model.tie_word_embeddings=true "
     "training.global_batch_size=4 precision.compute=bf16 precision.reduce=bf16"},
    {"gpt2", 4,
     "parallel.pipeline=2 parallel.data=2 parallel.schedule=zero-bubble "
     "model.tie_word_embeddings=true"},
};

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        trial whole, shared;
        run(cases[c].family, cases[c].ranks, cases[c].words, 0, &whole);
        run(cases[c].family, cases[c].ranks, cases[c].words, 1, &shared);
        assert_memory_equal(whole.loss, shared.loss, sizeof whole.loss);
        assert_memory_equal(whole.norm, shared.norm, sizeof whole.norm);
        assert_memory_equal(whole.bits, shared.bits, sizeof whole.bits);
        assert_true(whole.loss[0] != whole.loss[STEPS - 1]);
        for (int s = 0; s < STEPS; s++) assert_true(whole.clip[s] < 1);
        assert_true(whole.peaks && shared.peaks);
        for (int rank = 0; rank < cases[c].ranks; rank++) {
            assert_int_equal(whole.states[rank], whole.of_states[rank]);
            assert_int_equal(shared.states[rank], shared.of_states[rank]);
            assert_true(shared.states[rank] < whole.states[rank]);
            assert_int_equal(whole.sent[rank], whole.planned[rank]);
            assert_int_equal(shared.sent[rank], shared.planned[rank]);
            /* Where weights and gradients are of one type. */
            if (strstr(cases[c].words, "bf16")) continue;
            assert_int_equal(shared.sent[rank], shared.halves[rank]);
        }
    }
}

/* With one rank nothing is shared out, and nothing is sent. */
static void test_alone(void **state)
{
    (void)state;
    trial whole, shared;
    run("gpt2", 1, "precision.compute=bf16", 0, &whole);
    run("gpt2", 1, "precision.compute=bf16", 1, &shared);
    assert_memory_equal(whole.bits, shared.bits, sizeof whole.bits);
    assert_int_equal(shared.states[0], whole.states[0]);
    assert_int_equal(shared.sent[0], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
