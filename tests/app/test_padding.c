/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients and shards that begin at a device's alignment in their bucket: losses and so updates
 * are bit for bit those of gradients with nothing between. Norms, which are summed by shards, agree
 * but for their last bits, so nothing is clipped. That what lies between is zero is
 * probes/padding.c.
 */
#include <math.h>
#include <string.h>

#include "app/fixture.h"
#include "check/check.h"
#include "unit.h"

enum { RANKS = 2, STEPS = 4, PACKED = 2, APART = 256 };

typedef struct trial {
    int64_t part;
    double loss[STEPS], norm[STEPS]; /* rank 0's */
    int64_t padding;                 /* elements between its parameters */
} trial;

static ech_status run_lists(ech_session *s, trial *t, int rank)
{
    ECH_TRY(ech_exec_run(s->exec, ECH_LIST_INIT, 0));
    if (rank == 0)
        for (size_t p = 0; p < s->plan->model->param.n; p++)
            t->padding += s->plan->param[p].padding;
    for (int step = 0; step < STEPS; step++) {
        ECH_TRY(ech_exec_run(s->exec, ECH_LIST_TRAIN, step * s->plan->list[ECH_LIST_TRAIN].turns));
        if (rank > 0) continue;
        t->loss[step] = ech_exec_readings(s->exec)->loss;
        t->norm[step] = ech_exec_readings(s->exec)->grad_norm;
    }
    return ECH_OK;
}

static ech_status run_rank(ech_comm *comm, const ech_design *design, void *context)
{
    trial *t = context;
    ech_session s = {0};
    ech_corpus *corpus = NULL;
    ech_loader *loader = NULL;
    ech_plan_request request = {.config = design->config,
                                .model = design->model,
                                .layout = design->layout,
                                .schedule = design->schedule,
                                .kernels = design->kernels,
                                .alignment = {APART, t->part},
                                .rank = ech_comm_rank(comm),
                                .threads = 1};
    ECH_TRY(ech_checked_plan_create(&request, &s.plan));
    ech_exec_setup setup = {
        .config = design->config, .plan = s.plan, .device = ech_device_find("cpu"), .comm = comm};
    ech_status status = ech_exec_create(&setup, &s.exec);
    if (status == ECH_OK) status = ech_design_open_data(design, ECH_SPLIT_TRAIN, &corpus);
    if (status == ECH_OK)
        status = ech_session_read(&s, design, corpus, ECH_TRAIN, 0, INT64_MAX, &loader);
    if (status == ECH_OK) status = run_lists(&s, t, request.rank);
    ech_session_destroy(&s);
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
    return status;
}

static void run(const char *words, trial *t)
{
    ech_config *config = fixture_config("gpt2", words);
    config->optimizer.clip_norm = 0;
    ech_status status = fixture_run(config, RANKS, run_rank, t);
    ech_config_destroy(config);
    if (status != ECH_OK) fail_msg("%s: %s", words, ech_last_error());
}

TEST(test_padding)
{
    static const char *const cases[] = {
        "parallel.data=2 model.vocab_size=257",
        "parallel.data=2 training.micro_batch_size=1 parallel.bucket_bytes=1GiB "
        "memory.recompute=full",
        "parallel.data=2 precision.compute=bf16 precision.gradients=compute",
        "parallel.pipeline=2 training.micro_batch_size=1 parallel.schedule=zero-bubble",
        "parallel.data=2 optimizer.weight_decay=0.1 optimizer.name=adamw8 optimizer.block=32 "
        "precision.compute=bf16",
        "parallel.data=2 optimizer.weight_decay=0.1 optimizer.name=adafactor "
        "optimizer.momentum=0.9",
        "parallel.pipeline=2 parallel.schedule=pipedream model.tie_word_embeddings=false "
        "parallel.flush_every=2 "
        "training.check_every=0 training.micro_batch_size=1 optimizer.weight_decay=0.1",
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        trial packed = {.part = PACKED}, apart = {.part = APART};
        run(cases[c], &packed);
        run(cases[c], &apart);
        assert_true(apart.padding > packed.padding);
        assert_true(packed.loss[0] != packed.loss[STEPS - 1]);
        assert_memory_equal(packed.loss, apart.loss, sizeof packed.loss);
        for (int step = 0; step < STEPS; step++)
            assert_true(fabs(packed.norm[step] - apart.norm[step]) < 1e-13 * packed.norm[step]);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
