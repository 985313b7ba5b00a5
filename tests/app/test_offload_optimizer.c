/* SPDX-License-Identifier: Apache-2.0
 *
 * Optimizer states on the host (ZeRO-Offload): losses, norms, weights and states have the bits of those on the device, with
 * clipping at work and in steps that are withheld, on every device of the processor, under every stage of ZeRO and
 * asynchronous schedules; each byte goes out once and comes back once a step; of what an update has on the host beside the
 * states no more lives at once than that of 1 + memory.prefetch buckets; and a model trains in a device limit in which it
 * does not without.
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
#include "base/log.h"
#include "check/check.h"

enum { MOST = 8, STEPS = 4 };

typedef struct trial {
    uint64_t bits[MOST]; /* of each rank's weights and states after the last step */
    double loss[STEPS], norm[STEPS], clip[STEPS];
    int withheld; /* steps */
    bool peaks;   /* the ledger's are the plan's */
    int64_t states[MOST];
    ech_space space; /* of these */
} trial;

/* FNV-1a. */
static uint64_t hash(uint64_t h, ech_exec *exec, const ech_tensor *x)
{
    int64_t n = ech_tensor_count(x);
    ECH_FREED double *numbers = ech_calloc((size_t)n + 1, sizeof *numbers);
    ech_exec_read(exec, x, numbers);
    for (size_t i = 0; i < (size_t)n * sizeof *numbers; i++)
        h = (h ^ ((const unsigned char *)numbers)[i]) * 0x100000001b3u;
    return h;
}

static bool peaks_are_planned(const ech_exec *exec, const ech_plan *plan)
{
    int64_t peak[ECH_MEMORY_KINDS], planned[ECH_MEMORY_KINDS];
    ech_exec_peaks(exec, peak);
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        planned[kind] = plan->list[ECH_LIST_TRAIN].peak[kind];
    for (size_t i = 0; i < plan->persistent.n; i++) {
        const ech_value *v = &plan->persistent.at[i];
        planned[v->kind] += ech_plan_align(plan, v->kind, v->bytes);
    }
    return memcmp(peak, planned, sizeof peak) == 0;
}

/* Of a list's steps, of which each makes one of these accesses. */
static int64_t planned_bytes(const ech_plan *plan, ech_step_kind kind)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    int64_t bytes = 0;
    for (size_t s = 0; s < list->step.n; s++)
        for (int i = 0; list->step.at[s].kind == kind && i < list->step.at[s].accesses; i += 2)
            for (int k = 0; k < 2; k++) {
                int value = list->access.at[list->step.at[s].first_access + i + k].value;
                const ech_value *v = ech_plan_value(plan, list, value);
                if (v->kind == ECH_MEMORY_OPTIMIZER_ON_HOST) bytes += v->bytes;
            }
    return bytes;
}

/* Gradients once out, and weights once in; without masters also out. */
static void check_copies(const ech_exec *exec, const ech_plan *plan, int64_t lists)
{
    int64_t out = 0, in = 0;
    for (size_t b = 0; b < plan->bucket.n && plan->states != ECH_SPACE_DEVICE; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        int64_t n =
            (bucket->sharded ? bucket->shard : bucket->elements) * plan->list[ECH_LIST_TRAIN].turns;
        int64_t weights = n * (int64_t)ech_dtype_bytes(bucket->weight_dtype);
        out += n * (int64_t)ech_dtype_bytes(bucket->dtype);
        if (!ech_plan_has_masters(plan, bucket)) out += weights;
        in += weights;
    }
    assert_int_equal(planned_bytes(plan, ECH_STEP_OFFLOAD_GRADS), out);
    assert_int_equal(planned_bytes(plan, ECH_STEP_FETCH_WEIGHTS), in);
    assert_int_equal(ech_exec_copied(exec, ECH_SPACE_DEVICE, ECH_SPACE_HOST), lists * out);
    assert_int_equal(ech_exec_copied(exec, ECH_SPACE_HOST, ECH_SPACE_DEVICE), lists * in);
}

static void hash_all(ech_exec *exec, const ech_plan *plan, uint64_t *bits)
{
    for (int p = 0; p < (int)plan->model->param.n; p++) {
        if (plan->param[p].bucket < 0) continue;
        ech_tensor x = ech_exec_param(exec, p);
        *bits = hash(*bits, exec, &x);
        for (int s = 0; s < plan->param[p].states; s++) {
            x = ech_exec_state(exec, p, s);
            *bits = hash(*bits, exec, &x);
        }
    }
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
    int turns = plan->list[ECH_LIST_TRAIN].turns;
    for (int step = 0; step < STEPS && status == ECH_OK; step += turns) {
        status = ech_exec_run(exec, ECH_LIST_TRAIN, step);
        for (int turn = 0; turn < turns && rank == 0; turn++) {
            const ech_readings *r = &ech_exec_readings(exec)[turn];
            t->loss[step + turn] = r->loss;
            t->norm[step + turn] = r->grad_norm;
            t->clip[step + turn] = r->clip;
            t->withheld += r->withheld;
        }
    }
    if (status == ECH_OK) status = ech_exec_run(exec, ECH_LIST_CHECK, STEPS);
    assert_false(ech_exec_readings(exec)->hash_differs);
    hash_all(exec, plan, &t->bits[rank]);
    check_copies(exec, plan, STEPS / turns);
    for (size_t b = 0; b < plan->bucket.n; b++)
        for (int s = 0; s < plan->bucket.at[b].states; s++) {
            const ech_value *v = &plan->persistent.at[plan->bucket.at[b].state[s].value];
            if (rank == 0) t->space = ech_memory_space(v->kind);
            t->states[rank] += v->bytes;
        }
    if (rank == 0) t->peaks = peaks_are_planned(exec, plan);
    ech_compared_run_close(&run);
    return status;
}

static void run(const char *family, int ranks, const char *words, const char *more, trial *t)
{
    char all[800];
    *t = (trial){.loss = {0}};
    snprintf(all, sizeof all,
             "training.steps=%d training.micro_batch_size=1 data.sequence_length=8 "
             "training.check_every=0 checkpoint.background=false optimizer.clip_norm=0.1 %s %s",
             STEPS, words, more);
    ech_config *config = fixture_config(family, all);
    ech_status status = fixture_run(config, ranks, run_rank, t);
    ech_config_destroy(config);
    if (status != ECH_OK) fail_msg("%s: %s", all, ech_last_error());
}

static const struct {
    const char *family;
    int ranks;
    const char *words;
} cases[] = {
    {"gpt2", 1, "model.vocab_size=257 parallel.bucket_bytes=1"},
    {"gpt2", 1, "optimizer.name=sgd parallel.device=walled"},
    {"llama", 1, "precision.compute=bf16 memory.prefetch=0 memory.offload_threads=2"},
    {"llama", 1,
     "precision.compute=fp16 precision.gradients=compute parallel.device=queued "
     "memory.prefetch=3"},
    {"gpt2", 3,
     "parallel.data=3 training.global_batch_size=6 parallel.reduction=ring parallel.zero=1"},
    {"llama", 2,
     "parallel.data=2 precision.compute=bf16 precision.gradients=compute parallel.zero=2 "
     "parallel.device=walled"},
    {"gpt2", 4,
     "parallel.data=2 parallel.tensor=2 parallel.sequence=true optimizer.name=sgd "
     "optimizer.momentum=0.9 parallel.zero=2 parallel.device=queued"},
    {"gpt2", 6,
     "parallel.stage_replicas=[2,1] parallel.context=2 model.tie_word_embeddings=true "
     "training.global_batch_size=4 precision.compute=bf16 precision.reduce=bf16 parallel.zero=1"},
    {"gpt2", 4,
     "parallel.pipeline=2 parallel.data=2 parallel.schedule=zero-bubble "
     "model.tie_word_embeddings=true"},
    {"gpt2", 2,
     "parallel.pipeline=2 parallel.schedule=pipedream parallel.flush_every=2 "
     "model.tie_word_embeddings=false"},
    {"llama", 4,
     "parallel.pipeline=2 parallel.data=2 parallel.schedule=pipedream-2bw parallel.flush_every=4 "
     "parallel.zero=1 precision.compute=bf16 parallel.device=queued"},
};

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        trial none, host;
        run(cases[c].family, cases[c].ranks, cases[c].words, "", &none);
        run(cases[c].family, cases[c].ranks, cases[c].words, "memory.offload_optimizer=host",
            &host);
        assert_memory_equal(none.loss, host.loss, sizeof none.loss);
        assert_memory_equal(none.norm, host.norm, sizeof none.norm);
        assert_memory_equal(none.clip, host.clip, sizeof none.clip);
        assert_memory_equal(none.bits, host.bits, sizeof none.bits);
        assert_memory_equal(none.states, host.states, sizeof none.states);
        assert_int_equal(none.withheld, host.withheld);
        assert_true(none.loss[0] != none.loss[STEPS - 1] && none.clip[STEPS - 1] < 1);
        assert_true(none.peaks && host.peaks);
        assert_int_equal(none.space, ECH_SPACE_DEVICE);
        if (host.states[0]) assert_int_equal(host.space, ECH_SPACE_HOST);
    }
}

/* An overflow of the gradients withholds the update: the weights that come back are those that went. */
static void test_withheld(void **state)
{
    (void)state;
    static const char words[] = "precision.compute=fp16 precision.gradients=compute "
                                "optimizer.learning_rate=100 training.on_nonfinite=skip";
    trial none, host;
    run("gpt2", 1, words, "", &none);
    run("gpt2", 1, words, "memory.offload_optimizer=host", &host);
    assert_true(none.withheld > 0);
    assert_int_equal(none.withheld, host.withheld);
    assert_memory_equal(none.bits, host.bits, sizeof none.bits);
}

/* ---- memory ---- */

/* What passes through the host in a step, and the largest of it that is one bucket's; of the device its arena. */
typedef struct sizes {
    int64_t passes, largest, device;
} sizes;

static sizes plan_sizes(const char *words)
{
    ech_config *config = fixture_config("llama", words);
    ech_design design = {0};
    ech_plan *plan;
    assert_int_equal(ech_design_create(config, fixture_tokenizer, 1, 1, &design), ECH_OK);
    assert_int_equal(ech_design_plan(&design, 0, false, &plan), ECH_OK);
    sizes of = {.passes = plan->list[ECH_LIST_TRAIN].peak[ECH_MEMORY_OPTIMIZER_ON_HOST],
                .device = plan->arena_bytes[ECH_SPACE_DEVICE]};
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        int64_t item =
            (int64_t)(ech_dtype_bytes(bucket->dtype) + ech_dtype_bytes(bucket->weight_dtype));
        if (bucket->elements * item > of.largest) of.largest = bucket->elements * item;
    }
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return of;
}

static void test_passes_through_two_buffers(void **state)
{
    (void)state;
    sizes of[2][3]; /* prefetch, layers */
    for (int prefetch = 0; prefetch < 2; prefetch++)
        for (int i = 0; i < 3; i++) {
            char words[300];
            snprintf(words, sizeof words,
                     "memory.offload_optimizer=host memory.prefetch=%d model.num_hidden_layers=%d "
                     "precision.compute=bf16 precision.gradients=compute",
                     prefetch, 4 << i);
            of[prefetch][i] = plan_sizes(words);
            assert_int_equal(of[prefetch][i].passes, of[prefetch][0].passes);
            assert_true(of[prefetch][i].passes <= (prefetch + 1) * of[prefetch][i].largest);
            if (i) assert_true(of[prefetch][i].device > of[prefetch][i - 1].device);
        }
    assert_true(of[0][0].passes < of[1][0].passes);
}

/* Below what states on the device need. */
static void test_limit(void **state)
{
    (void)state;
    static const char words[] = "model.num_hidden_layers=6 precision.compute=bf16 "
                                "checkpoint.background=false memory.device_limit=";
    char limited[200], with[300];
    trial t;
    sizes host = plan_sizes("model.num_hidden_layers=6 precision.compute=bf16 "
                            "checkpoint.background=false memory.offload_optimizer=host "
                            "training.micro_batch_size=1 data.sequence_length=8");
    snprintf(limited, sizeof limited, "%s%lld", words, (long long)host.device);
    snprintf(with, sizeof with, "%s memory.offload_optimizer=host", limited);
    ech_design design = {0};
    ech_plan *plan;
    ech_config *config = fixture_config("llama", limited);
    assert_int_equal(ech_design_create(config, fixture_tokenizer, 1, 1, &design), ECH_OK);
    bool quiet = ech_log_set_quiet(true);
    assert_int_not_equal(ech_design_plan(&design, 0, false, &plan), ECH_OK);
    ech_log_set_quiet(quiet);
    assert_non_null(strstr(ech_last_error(), "memory.device_limit"));
    assert_non_null(strstr(ech_last_error(), "(memory.offload_optimizer=host)"));
    ech_design_destroy(&design);
    ech_config_destroy(config);
    run("llama", 1, with, "", &t);
}

/* ---- the checker ---- */

static ech_step *step_of(ech_plan *plan, ech_step_kind kind, int bucket)
{
    ech_list *list = &plan->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++)
        if (list->step.at[s].kind == kind && list->step.at[s].index == bucket)
            return &list->step.at[s];
    fail_msg("no %s of bucket %d", ech_step_name(kind), bucket);
    return NULL;
}

static void expect_refused(const ech_plan *plan, const char *why)
{
    bool quiet = ech_log_set_quiet(true);
    assert_int_equal(ech_check_list(plan, &plan->list[ECH_LIST_TRAIN]), ECH_EINTERNAL);
    ech_log_set_quiet(quiet);
    if (!strstr(ech_last_error(), why)) fail_msg("%s, not %s", ech_last_error(), why);
}

static void test_seeded_faults(void **state)
{
    (void)state;
    static const struct {
        ech_step_kind kind;
        const char *why;
    } faults[] = {{ECH_STEP_UPDATE_ON_HOST, "does not wait for the offload of gradients"},
                  {ECH_STEP_FETCH_WEIGHTS, "does not wait for the update on the host"},
                  {ECH_STEP_ROOM, "does not wait for the fetch of weights"}};
    ech_config *config = fixture_config("gpt2", "memory.offload_optimizer=host");
    ech_design design = {0};
    ech_plan *plan;
    assert_int_equal(ech_design_create(config, fixture_tokenizer, 1, 1, &design), ECH_OK);
    assert_int_equal(ech_design_plan(&design, 0, false, &plan), ECH_OK);
    assert_int_equal(ech_check_list(plan, &plan->list[ECH_LIST_TRAIN]), ECH_OK);
    int first = plan->list[ECH_LIST_TRAIN].step.n ? -1 : 0;
    for (size_t s = 0; first < 0; s++)
        if (plan->list[ECH_LIST_TRAIN].step.at[s].kind == ECH_STEP_UPDATE_ON_HOST)
            first = plan->list[ECH_LIST_TRAIN].step.at[s].index;
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        ech_step *step = step_of(plan, faults[i].kind, first), was = *step;
        step->afters = 0;
        expect_refused(plan, faults[i].why);
        *step = was;
    }
    ech_step *read = step_of(plan, ECH_STEP_READ_UPDATE, -1), was = *read;
    read->lane = ECH_LANE_DISK;
    expect_refused(plan, "does not wait for the turn's scalars");
    *read = was;
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_withheld),
        cmocka_unit_test(test_passes_through_two_buffers),
        cmocka_unit_test(test_limit),
        cmocka_unit_test(test_seeded_faults),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
