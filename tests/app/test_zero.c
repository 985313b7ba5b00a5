/* SPDX-License-Identifier: Apache-2.0
 *
 * ZeRO: what ranks share out changes no bit, whichever ranks add to a gradient: losses, norms and weights, with clipping at
 * work. Optimizer states take an N-th of the memory, as planned, and sums and weights together send as much as a reduction.
 * Where each micro-batch's gradients are summed by themselves, too (stage 2): the same bits with one micro-batch, numbers that
 * differ by roundings with several, m + 1 times the elements sent, and no more of gradients than shards and what is under way.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "app/fixture.h"
#include "app/verify/verify.h"
#include "check/check.h"
#include "schedule/traffic.h"
#include "share.h"

enum { MOST = 8, STEPS = 3 };

typedef struct trial {
    uint64_t bits[MOST]; /* of each rank's weights after the last step */
    double loss[STEPS], norm[STEPS], clip[STEPS];
    int64_t sent[MOST], planned[MOST]; /* bytes of gradients and weights in a list */
    int64_t elements[MOST];
    int64_t halves
        [MOST]; /* bytes of buckets' (N - 1) / N, twice a turn, or of stage 2 once more than there are
                           * micro-batches */
    int64_t gradients[MOST]; /* the most bytes of them */
    int64_t under_way
        [MOST]; /* bytes: shards, what is summed once, and the three largest blocks' of the rest */
    int micro_batches; /* of rank 0 in a step */
    int64_t states[MOST],
        of_states[MOST];     /* bytes: of the plan; of all elements if none is shared out */
    int64_t optimizer[MOST]; /* bytes of all states */
    bool peaks[MOST];        /* the ledger's are the plan's */
} trial;

/* What of gradients may live at once: those being written, those of the block before, which are being scattered, and until
 * the block begins those of the one before that. Of a tied table more do: the head begins a micro-batch's while the one
 * before's are scattered. */
static int64_t most_under_way(const ech_plan *plan)
{
    int64_t kept = 0, largest[3] = {0};
    for (int block = 0; block < (int)plan->model->block.n; block++) {
        int64_t each = 0;
        for (size_t b = 0; b < plan->bucket.n; b++) {
            const ech_bucket *bucket = &plan->bucket.at[b];
            int64_t item = (int64_t)ech_dtype_bytes(bucket->dtype);
            if (bucket->block != block) continue;
            if (bucket->each) each += ech_align(bucket->elements * item, 64);
            kept += ech_align((bucket->each ? bucket->shard : bucket->elements) * item, 64);
        }
        for (int i = 0; i < 3; i++) {
            int64_t was = largest[i];
            if (each <= was) continue;
            largest[i] = each;
            each = was;
        }
    }
    return kept + largest[0] + largest[1] + largest[2];
}

static void count_plan(const ech_plan *plan, int rank, trial *t)
{
    int micro_batches = plan->list[ECH_LIST_TRAIN].numbering.micro_batches;
    if (rank == 0) t->micro_batches = micro_batches;
    t->gradients[rank] = plan->list[ECH_LIST_TRAIN].peak[ECH_MEMORY_GRADIENTS];
    t->under_way[rank] = most_under_way(plan);
    t->planned[rank] = ech_plan_traffic_along(plan, ECH_TRAFFIC_DATA).bytes;
    for (size_t i = 0; i < plan->persistent.n; i++)
        if (plan->persistent.at[i].kind == ECH_MEMORY_OPTIMIZER)
            t->optimizer[rank] += plan->persistent.at[i].bytes;
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        int64_t item = (int64_t)ech_dtype_bytes(bucket->wire);
        int N = ech_layout_group_size(plan->layout, plan->model, rank, bucket->group);
        t->elements[rank] += bucket->elements;
        int64_t times = bucket->each ? micro_batches + 1 : 2 * plan->list[ECH_LIST_TRAIN].turns;
        t->halves[rank] += times * bucket->elements / N * (N - 1) * item;
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

/* In sums of gradients, gathers of weights, and folds of statistics over ranks that share them out. */
static int64_t sent_by(const ech_exec *exec)
{
    int64_t bytes = ech_exec_reduce_count(exec).bytes;
    for (ech_layout_group g = 0; g < ECH_GROUPS; g++)
        if (g != ECH_GROUP_TENSOR)
            bytes += ech_exec_channel_count(exec, g, ECH_LANE_REDUCE, ECH_COMM_COLLECTIVES).bytes;
    return bytes;
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
    int turns = design->schedule->turns;
    for (int step = 0; step < STEPS && status == ECH_OK; step += turns) {
        int64_t before = sent_by(exec);
        status = ech_exec_run(exec, ECH_LIST_TRAIN, step);
        t->sent[rank] = sent_by(exec) - before;
        for (int turn = 0; turn < turns && rank == 0; turn++) {
            t->loss[step + turn] = ech_exec_readings(exec)[turn].loss;
            t->norm[step + turn] = ech_exec_readings(exec)[turn].grad_norm;
            t->clip[step + turn] = ech_exec_readings(exec)[turn].clip;
        }
    }
    count_plan(plan, rank, t);
    for (int p = 0; p < (int)plan->model->param.n; p++) {
        if (plan->param[p].bucket < 0) continue;
        ech_tensor x = ech_exec_param(exec, p);
        t->bits[rank] = hash(t->bits[rank], x.data, ech_tensor_bytes(&x));
    }
    t->peaks[rank] = fixture_peaks_are_planned(&run.session, FIXTURE_TRAINED);
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
    assert_true(fixture_runs(family, more, ranks, run_rank, t));
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
    /* Blocks of 8 bits: some of a row, a row whose last one is shorter, and of shards of rows. */
    {"gpt2", 3,
     "parallel.data=3 training.global_batch_size=6 optimizer.name=adamw8 optimizer.block=4"},
    {"gpt2", 2,
     "parallel.data=2 optimizer.name=adamw8 optimizer.block=10 precision.compute=bf16 "
     "model.tie_word_embeddings=true"},
    {"llama", 8,
     "parallel.data=2 parallel.tensor=4 model.num_key_value_heads=2 optimizer.name=adamw8 "
     "optimizer.block=2 parallel.bucket_bytes=1 parallel.reduction=ring"},
    {"gpt2", 2, "parallel.data=2 model.tie_word_embeddings=false parallel.schedule=pipedream"},
    {"gpt2", 2,
     "parallel.data=2 model.tie_word_embeddings=false parallel.schedule=pipedream-2bw "
     "optimizer.name=adamw8 optimizer.block=4"},
    {"llama", 4,
     "parallel.pipeline=2 parallel.data=2 model.tie_word_embeddings=false "
     "parallel.schedule=pipedream-2bw"},
    {"gpt2", 4,
     "parallel.pipeline=2 parallel.data=2 model.tie_word_embeddings=false "
     "parallel.schedule=pipedream-2bw precision.compute=bf16 "
     "parallel.bucket_bytes=1"},
    {"gpt2", 6,
     "parallel.pipeline=3 parallel.context=2 model.tie_word_embeddings=false "
     "parallel.schedule=pipedream precision.compute=bf16 "
     "precision.gradients=compute training.global_batch_size=1"},
    {"llama", 8,
     "parallel.pipeline=4 parallel.data=2 model.tie_word_embeddings=false "
     "parallel.schedule=pipedream parallel.vertical_sync=true "
     "training.global_batch_size=2 model.num_hidden_layers=4 parallel.reduction=ring"},
    {"gpt2", 5,
     "parallel.stage_replicas=[2,3] model.tie_word_embeddings=false parallel.schedule=pipedream "
     "parallel.weight_stashing=false "
     "training.global_batch_size=6"},
};

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        if (!share_takes_of(c, sizeof cases / sizeof *cases)) continue;
        trial whole, shared;
        run(cases[c].family, cases[c].ranks, cases[c].words, 0, &whole);
        run(cases[c].family, cases[c].ranks, cases[c].words, 1, &shared);
        assert_memory_equal(whole.loss, shared.loss, sizeof whole.loss);
        assert_memory_equal(whole.norm, shared.norm, sizeof whole.norm);
        assert_memory_equal(whole.bits, shared.bits, sizeof whole.bits);
        assert_true(whole.loss[0] != whole.loss[STEPS - 1]);
        for (int s = 0; s < STEPS; s++) assert_true(whole.clip[s] < 1);
        for (int rank = 0; rank < cases[c].ranks; rank++) {
            assert_true(whole.peaks[rank] && shared.peaks[rank]);
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

/* One micro-batch, and several. */
static const struct {
    const char *family;
    int ranks;
    const char *words;
    bool
        saves; /* blocks enough, and a block is done with a micro-batch before it begins the next */
} scattered[] = {
    {"gpt2", 2, "parallel.data=2 training.global_batch_size=2 model.num_hidden_layers=5", true},
    {"llama", 3,
     "parallel.data=3 training.global_batch_size=3 precision.compute=bf16 parallel.bucket_bytes=1",
     true},
    {"llama", 8,
     "parallel.data=2 parallel.tensor=4 model.num_key_value_heads=2 precision.compute=bf16 "
     "precision.gradients=compute training.global_batch_size=2",
     false},
    {"gpt2", 3,
     "parallel.data=3 training.global_batch_size=9 parallel.reduction=ring "
     "parallel.bucket_bytes=1 model.num_hidden_layers=6",
     true},
    {"gpt2", 2,
     "parallel.data=2 training.global_batch_size=8 precision.compute=bf16 "
     "precision.gradients=compute model.num_hidden_layers=8",
     true},
    {"gpt2", 4,
     "parallel.data=2 parallel.tensor=2 parallel.sequence=true training.global_batch_size=6 "
     "optimizer.name=sgd optimizer.momentum=0.9 model.num_hidden_layers=6 "
     "model.tie_word_embeddings=false",
     true},
    {"gpt2", 2, "parallel.data=2 training.global_batch_size=2 precision.reduce=bf16", false},
    {"gpt2", 2,
     "parallel.data=2 training.global_batch_size=6 precision.compute=fp64 precision.reduce=bf16",
     false},
    {"gpt2", 2, "parallel.data=2 training.global_batch_size=6 model.tie_word_embeddings=true",
     false},
    {"llama", 2,
     "parallel.data=2 training.global_batch_size=6 memory.sequence_chunks=2 "
     "memory.recompute=full",
     false},
    {"llama", 2,
     "parallel.data=2 training.global_batch_size=6 model.reversible=true memory.invert=true",
     false},
    {"gpt2", 4,
     "parallel.pipeline=2 parallel.data=2 training.global_batch_size=8 "
     "model.tie_word_embeddings=true",
     false},
    {"gpt2", 4,
     "parallel.pipeline=2 parallel.data=2 training.global_batch_size=8 "
     "parallel.schedule=zero-bubble parallel.bucket_bytes=1",
     false},
    {"llama", 4,
     "parallel.pipeline=2 parallel.context=2 training.global_batch_size=4 "
     "parallel.schedule=interleaved parallel.virtual_stages=2 model.num_hidden_layers=4",
     false},
    {"gpt2", 6,
     "parallel.stage_replicas=[2,1] parallel.context=2 model.tie_word_embeddings=true "
     "training.global_batch_size=4",
     false},
};

static void test_each_micro_batch(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof scattered / sizeof *scattered; c++) {
        if (!share_takes_of(c, sizeof scattered / sizeof *scattered)) continue;
        trial one, two;
        const char *words = scattered[c].words;
        bool half = strstr(words, "bf16") != NULL;
        run(scattered[c].family, scattered[c].ranks, words, 1, &one);
        run(scattered[c].family, scattered[c].ranks, words, 2, &two);
        assert_memory_equal(one.loss, two.loss, sizeof *one.loss);
        if (two.micro_batches == 1) {
            assert_memory_equal(one.loss, two.loss, sizeof one.loss);
            assert_memory_equal(one.norm, two.norm, sizeof one.norm);
            assert_memory_equal(one.bits, two.bits, sizeof one.bits);
        }
        for (int s = 0; s < STEPS; s++) {
            double tolerance = half ? 2e-2 : 1e-4;
            assert_true(fabs(one.loss[s] - two.loss[s]) <= tolerance * one.loss[s]);
            assert_true(fabs(one.norm[s] - two.norm[s]) <= tolerance * one.norm[s]);
        }
        for (int rank = 0; rank < scattered[c].ranks; rank++) {
            assert_true(two.peaks[rank]);
            assert_int_equal(two.states[rank], two.of_states[rank]);
            assert_int_equal(two.sent[rank], two.planned[rank]);
            if (!half) assert_int_equal(two.sent[rank], two.halves[rank]);
            if (!scattered[c].saves) continue;
            assert_true(two.gradients[rank] <= two.under_way[rank]);
            assert_true(two.gradients[rank] < one.gradients[rank]);
        }
    }
}

/* ---- optimizers that look at rows and columns, or whole matrices ---- */

/* Sums are in another order. Of a matrix' states ranks have those of their own rows, and of its columns. Of Muon's
 * matrices one member makes the direction for all. */
static void test_factored(void **state)
{
    (void)state;
    static const struct {
        const char *family;
        int ranks;
        const char *words;
    } runs[] = {
        {"gpt2", 3,
         "parallel.data=3 training.global_batch_size=6 optimizer.name=adafactor "
         "optimizer.momentum=0.9 model.vocab_size=257"},
        {"llama", 8,
         "parallel.data=2 parallel.tensor=4 model.num_key_value_heads=2 "
         "optimizer.name=adafactor parallel.reduction=ring"},
        {"gpt2", 8,
         "parallel.pipeline=2 parallel.data=2 parallel.tensor=2 parallel.sequence=true "
         "model.tie_word_embeddings=true optimizer.name=adafactor optimizer.momentum=0.9"},
        {"llama", 4,
         "parallel.data=2 parallel.tensor=2 optimizer.name=sm3 optimizer.momentum=0.9 "
         "parallel.bucket_bytes=1"},
        {"gpt2", 4, "parallel.data=2 parallel.context=2 optimizer.name=sm3"},
        {"gpt2", 3,
         "parallel.data=3 training.global_batch_size=6 optimizer.name=muon "
         "optimizer.momentum=0.95 optimizer.nesterov=true"},
        {"llama", 8,
         "parallel.data=2 parallel.tensor=4 model.num_key_value_heads=2 parallel.bucket_bytes=1 "
         "optimizer.name=muon optimizer.momentum=0.9"},
    };
    for (size_t c = 0; c < sizeof runs / sizeof *runs; c++) {
        if (!share_takes_of(c, sizeof runs / sizeof *runs)) continue;
        char words[400];
        trial of[3];
        snprintf(words, sizeof words, "precision.compute=fp64 %s", runs[c].words);
        for (int zero = 0; zero < 3; zero++)
            run(runs[c].family, runs[c].ranks, words, zero, &of[zero]);
        for (int zero = 1; zero < 3; zero++) {
            assert_true(of[zero].peaks[0]);
            for (int s = 0; s < STEPS; s++) {
                assert_true(fabs(of[zero].loss[s] - of[0].loss[s]) <= 1e-11 * of[0].loss[s]);
                assert_true(fabs(of[zero].norm[s] - of[0].norm[s]) <= 1e-11 * of[0].norm[s]);
            }
            for (int rank = 0; rank < runs[c].ranks; rank++) {
                assert_int_equal(of[zero].sent[rank], of[zero].planned[rank]);
                assert_true(of[zero].optimizer[rank] < of[0].optimizer[rank]);
            }
        }
    }
}

/* ---- the checker ---- */

static ech_step *scatter_of(ech_plan *plan, int micro)
{
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].kind == ECH_STEP_SCATTER_GRADS && list->step.at[s].micro == micro)
            return &list->step.at[s];
    fail_msg("no scatter of micro-batch %d", micro);
    return NULL;
}

static void expect_refused(const ech_plan *plan, const char *why)
{
    ech_status status = ech_check_list(plan, &plan->list[ECH_LIST_TRAIN]);
    assert_int_equal(status, ECH_EINTERNAL);
    assert_non_null(strstr(ech_last_error(), why));
}

/* Each fault that is put into a sound plan is found. */
static ech_status seed_faults(ech_comm *comm, const ech_design *design, void *context)
{
    (void)context;
    ech_compared_run run = {.design = design};
    ECH_TRY(ech_compared_run_open(&run, comm));
    ech_plan *plan = (ech_plan *)run.session.plan; /* each fault is taken back */
    ech_step *scatter = scatter_of(plan, 1), was = *scatter;
    if (ech_comm_rank(comm) == 0) {
        assert_int_equal(ech_check_list(plan, &plan->list[ECH_LIST_TRAIN]), ECH_OK);
        scatter->adds = false;
        expect_refused(plan, "does not add to what 1 others have left");
        *scatter = was;
        scatter->afters = 0;
        expect_refused(plan, "does not wait for the gradients");
        *scatter = was;
        scatter->micro = 0;
        expect_refused(plan, "accesses gradients of another micro-batch");
        scatter->micro = 2;
        expect_refused(plan, "accesses gradients of another micro-batch");
        *scatter = was;
        scatter->kind = ECH_STEP_READ;
        expect_refused(plan, "comes where its bucket's scatter of each micro-batch is next");
        *scatter = was;
    }
    ech_compared_run_close(&run);
    return ECH_OK;
}

static void run_rank_of(const char *words,
                        ech_status (*main)(ech_comm *, const ech_design *, void *))
{
    char more[400];
    snprintf(more, sizeof more, "%s training.micro_batch_size=1 data.sequence_length=8", words);
    ech_config *config = fixture_config("gpt2", more);
    ech_status status = fixture_run(config, 2, main, NULL);
    ech_config_destroy(config);
    assert_int_equal(status, ECH_OK);
}

static void test_seeded_faults(void **state)
{
    (void)state;
    run_rank_of("parallel.data=2 parallel.zero=2 training.global_batch_size=6 training.steps=1",
                seed_faults);
}

/* Steps that wait for weights that are gathered in the same list; each wait that is left out is missed. */
static ech_status leave_out_waits(ech_comm *comm, const ech_design *design, void *context)
{
    (void)context;
    ech_compared_run run = {.design = design};
    ECH_TRY(ech_compared_run_open(&run, comm));
    ech_list *list = &((ech_plan *)run.session.plan)->list[ECH_LIST_TRAIN];
    int waits = 0;
    for (size_t i = 0; i < list->after.n && ech_comm_rank(comm) == 0; i++) {
        int was = list->after.at[i];
        if (list->step.at[was].kind != ECH_STEP_GATHER_WEIGHTS) continue;
        list->after.at[i] = 0;
        expect_refused(run.session.plan, "which gathers bucket");
        list->after.at[i] = was;
        waits++;
    }
    assert_true(waits >= list->turns - 2 || ech_comm_rank(comm) > 0);
    ech_compared_run_close(&run);
    return ECH_OK;
}

static void test_waits_for_weights(void **state)
{
    (void)state;
    const char *words = "parallel.data=2 parallel.zero=1 model.tie_word_embeddings=false "
                        "training.steps=4 parallel.flush_every=4 parallel.schedule=";
    char more[200];
    static const char *const schedules[] = {"pipedream", "pipedream-2bw"};
    for (int i = 0; i < 2; i++) {
        snprintf(more, sizeof more, "%s%s", words, schedules[i]);
        run_rank_of(more, leave_out_waits);
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
    run("gpt2", 1, "precision.compute=bf16", 2, &shared);
    assert_memory_equal(whole.bits, shared.bits, sizeof whole.bits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),         cmocka_unit_test(test_each_micro_batch),
        cmocka_unit_test(test_factored),          cmocka_unit_test(test_seeded_faults),
        cmocka_unit_test(test_waits_for_weights), cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
