/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole training runs on the local backend: what is predicted is what happens, a resumed run is the
 * same run, and numbers that are not finite are found.
 */

#include <math.h>

#include "app/fixture.h"
#include "app/runs.h"
#include "app/train/train.h"
#include "checkpoint/whole.h"
#include "base/log.h"
#include "schedule/traffic.h"
#include "unit.h"

static ech_status train(ech_config *config, int ranks)
{
    ech_training training = {0};
    ech_status status = fixture_run(config, ranks, ech_train_rank, &training);
    ech_config_destroy(config);
    return status;
}

static void remove_run(const char *name)
{
    char *path = ech_file_join(fixture_folder, name);
    assert_int_equal(ech_file_remove_all(path), ECH_OK);
    free(path);
}

/* Every tensor of two checkpoints, bit for bit. */
static void assert_same(const char *a, const char *b, const char *step, const char *file)
{
    char paths[2][512];
    char *bytes[2];
    size_t n[2];
    const char *const runs[] = {a, b};
    for (int i = 0; i < 2; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s/checkpoints/%s/%s", fixture_folder, runs[i],
                 step, file);
        assert_int_equal(ech_file_read(paths[i], 1 << 26, &bytes[i], &n[i]), ECH_OK);
    }
    assert_int_equal(n[0], n[1]);
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    free(bytes[0]);
    free(bytes[1]);
}

static void assert_same_run(const char *a, const char *b)
{
    assert_same(a, b, "step-00000020", "model/model.safetensors");
    assert_same(a, b, "step-00000020", "state/state.safetensors");
}

static ech_config *run_config(const char *architecture, const char *name, const char *more)
{
    char words[1024];
    snprintf(words, sizeof words,
             "log.directory=%s/%s training.steps=20 training.global_batch_size=12 "
             "training.micro_batch_size=3 model.resid_pdrop=0.1 model.attn_pdrop=0.1 %s",
             fixture_folder, name, more);
    return fixture_config(architecture, words);
}

/* What metrics.jsonl says of all training steps that it has, but for times. */
static char *metrics_of(const char *name)
{
    char path[512], *bytes, *rest = NULL;
    size_t n;
    ech_text out = {0};
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", fixture_folder, name);
    assert_int_equal(ech_file_read(path, 1 << 20, &bytes, &n), ECH_OK);
    for (char *line = strtok_r(bytes, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        const char *times = strstr(line, ",\"step_seconds\"");
        if (times) ech_text_append(&out, "%.*s\n", (int)(times - line), line);
    }
    free(bytes);
    return out.at;
}

/* Of 12 samples a step, of 9 tokens each. */
static void check_counts(const char *a, const char *b)
{
    char *metrics[2] = {metrics_of(a), metrics_of(b)}, *path;
    ech_checkpoint *checkpoint;
    assert_string_equal(metrics[0], metrics[1]);
    assert_non_null(strstr(metrics[0], "{\"step\":10,"));
    assert_non_null(strstr(metrics[0], "\"tokens\":2160,\"samples\":240"));
    for (int i = 0; i < 2; i++) free(metrics[i]);
    path = ech_file_join(fixture_folder, "halves/checkpoints/step-00000020");
    assert_int_equal(ech_checkpoint_open(path, true, &checkpoint), ECH_OK);
    assert_int_equal(ech_checkpoint_get_info(checkpoint)->samples, 20 * 12);
    assert_int_equal(ech_checkpoint_get_info(checkpoint)->optimizer_count, 20);
    ech_checkpoint_close(checkpoint);
    free(path);
}

/* A run that begins with another one's last checkpoint has nothing left to do, but saves one of its
 * own. */
static void check_begins_with(const char *architecture, int ranks, const char *more)
{
    char words[800];
    snprintf(words, sizeof words, "%s checkpoint.resume=%s/whole", more, fixture_folder);
    assert_int_equal(train(run_config(architecture, "other", words), ranks), ECH_OK);
    assert_same_run("whole", "other");
    remove_run("other");
}

/* 20 steps = 10 steps, stop, 10 steps. The calendar saves at 10; what came after is removed. */
static void check_resume(const char *architecture, int ranks, const char *more)
{
    char words[256], *tail;
    snprintf(words, sizeof words, "checkpoint.every=10 %s", more);
    assert_int_equal(train(run_config(architecture, "whole", words), ranks), ECH_OK);
    assert_int_equal(train(run_config(architecture, "halves", words), ranks), ECH_OK);
    tail = ech_file_join(fixture_folder, "halves/checkpoints/step-00000020");
    assert_int_equal(ech_file_remove_all(tail), ECH_OK);
    assert_int_equal(train(run_config(architecture, "halves", words), ranks), ECH_OK);
    assert_same_run("whole", "halves");
    check_counts("whole", "halves");
    check_begins_with(architecture, ranks, words);
    free(tail);
    remove_run("whole");
    remove_run("halves");
}

TEST(test_resume)
{
    check_resume("gpt2", 1, "");
    check_resume("llama", 2, "parallel.reduction=ring");
    check_resume("llama", 2, "optimizer.name=sgd optimizer.momentum=0.9");
}

/* Saved by 2, gone on with by 1 and by 4: the same samples, the same model within rounding. */
TEST(test_resume_elsewhere)
{
    const int others[] = {1, 4};
    assert_int_equal(
        train(run_config("llama", "two", "checkpoint.every=10 precision.compute=fp64"), 2), ECH_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            train(run_config("llama", "moved", "checkpoint.every=10 precision.compute=fp64"), 2),
            ECH_OK);
        char *tail = ech_file_join(fixture_folder, "moved/checkpoints/step-00000020");
        assert_int_equal(ech_file_remove_all(tail), ECH_OK);
        free(tail);
        assert_int_equal(train(run_config("llama", "moved", "precision.compute=fp64"), others[i]),
                         ECH_OK);
        ech_safetensors *file[2];
        const char *const names[] = {"two", "moved"};
        for (int f = 0; f < 2; f++) {
            char path[512];
            snprintf(path, sizeof path, "%s/%s/checkpoints/step-00000020/model/model.safetensors",
                     fixture_folder, names[f]);
            assert_int_equal(ech_safetensors_open(path, &file[f]), ECH_OK);
        }
        for (int t = 0; t < ech_safetensors_count(file[0]); t++) {
            ech_saved_tensor x = ech_safetensors_get(file[0], t);
            int64_t n = 1;
            for (int d = 0; d < x.dims; d++) n *= x.shape[d];
            double *a = ech_calloc((size_t)n, 8), *b = ech_calloc((size_t)n, 8);
            saved_whole(&x, a);
            assert_int_equal(ech_safetensors_read(file[0], t, &x), ECH_OK);
            saved_whole(&x, b);
            int other = ech_safetensors_find(file[1], x.name);
            assert_int_equal(ech_safetensors_read(file[1], other, &x), ECH_OK);
            for (int64_t j = 0; j < n; j++) assert_true(fabs(a[j] - b[j]) < 1e-9);
            free(a);
            free(b);
        }
        ech_safetensors_close(file[0]);
        ech_safetensors_close(file[1]);
        remove_run("moved");
    }
    remove_run("two");
}

TEST(test_keys_that_may_not_change)
{
    assert_int_equal(train(run_config("gpt2", "fixed", ""), 1), ECH_OK);
    ech_config *config = run_config("gpt2", "fixed", "training.seed=9");
    assert_int_equal(train(config, 1), ECH_EUSAGE);
    config = run_config("gpt2", "fixed", "checkpoint.resume=never");
    assert_int_equal(train(config, 1), ECH_EUSAGE);
    remove_run("fixed");
}

/* ---- predicted = measured ---- */

typedef struct measured {
    ech_config *config;
    int64_t planned[ECH_MEMORY_KINDS], peak[ECH_MEMORY_KINDS];
    int64_t planned_bytes[8], sent_bytes[8];
    double loss[3], norm;
    bool hash_differs;
} measured;

static ech_status measure(ech_comm *comm, const ech_design *design, void *context)
{
    measured *m = context;
    ech_session session;
    ech_corpus *data;
    ech_loader *loader;
    int rank = ech_comm_rank(comm);
    ECH_TRY(ech_session_create(design, comm, false, &session));
    ECH_TRY(ech_design_open_data(design, ECH_SPLIT_TRAIN, &data));
    ech_loader_options options = ech_design_reads(design, ech_comm_rank(comm), true, INT64_MAX);
    ECH_TRY(ech_loader_create(data, &options, 0, &loader));
    ech_exec_set_loader(session.exec, ECH_TRAIN, loader);
    ECH_TRY(ech_exec_run(session.exec, ECH_LIST_INIT, 0));
    for (int step = 0; step < 3; step++) {
        ECH_TRY(ech_exec_run(session.exec, ECH_LIST_TRAIN, step));
        if (rank == 0) m->loss[step] = ech_exec_readings(session.exec)->loss;
    }
    ECH_TRY(ech_exec_run(session.exec, ECH_LIST_CHECK, 0));
    m->planned_bytes[rank] = ech_plan_traffic_along(session.plan, ECH_TRAFFIC_DATA).bytes;
    m->sent_bytes[rank] = ech_exec_reduce_count(session.exec).bytes;
    if (rank == 0) {
        /* The peaks of the lists that have run. */
        for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++) {
            m->planned[kind] = session.plan->list[ECH_LIST_TRAIN].peak[kind];
            for (size_t i = 0; i < session.plan->persistent.n; i++)
                if ((int)session.plan->persistent.at[i].kind == kind)
                    m->planned[kind] += ech_align(session.plan->persistent.at[i].bytes, 64);
        }
        ech_exec_peaks(session.exec, m->peak);
        m->norm = ech_exec_readings(session.exec)->grad_norm;
        m->hash_differs = ech_exec_readings(session.exec)->hash_differs;
        /* One rank's parameter changes in one bit: the check must see it. */
        ((uint32_t *)ech_exec_param(session.exec, 0).data)[3] ^= 1;
    }
    ECH_TRY(ech_exec_run(session.exec, ECH_LIST_CHECK, 0));
    if (ech_exec_readings(session.exec)->hash_differs != (ech_comm_size(comm) > 1))
        ECH_FAIL(ECH_EINTERNAL, "the check saw %d", ech_exec_readings(session.exec)->hash_differs);
    ech_loader_destroy(loader);
    ech_corpus_close(data);
    ech_session_destroy(&session);
    return ECH_OK;
}

static measured run_measured(const char *architecture, int ranks, const char *more)
{
    measured m = {.config = fixture_config(architecture, more)};
    assert_int_equal(fixture_run(m.config, ranks, measure, &m), ECH_OK);
    ech_config_destroy(m.config);
    return m;
}

TEST(test_predicted_is_measured)
{
    const char *const reductions[] = {"direct", "ring", "naive"};
    for (int i = 0; i < 3; i++) {
        for (int ranks = 1; ranks <= 4; ranks++) {
            char more[128];
            snprintf(more, sizeof more, "training.micro_batch_size=1 parallel.reduction=%s",
                     reductions[i]);
            measured m = run_measured(ranks % 2 ? "gpt2" : "llama", ranks, more);
            for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
                assert_int_equal(m.peak[kind], m.planned[kind]);
            int64_t planned = 0, sent = 0;
            for (int r = 0; r < ranks; r++) {
                assert_int_equal(m.sent_bytes[r], 3 * m.planned_bytes[r]);
                planned += m.planned_bytes[r];
                sent += m.sent_bytes[r];
            }
            assert_true(ranks == 1 || (planned > 0 && sent == 3 * planned));
            assert_false(m.hash_differs);
            assert_true(isfinite(m.loss[2]) && m.norm > 0);
        }
    }
}

/* DESIGN level a: the same layout gives the same bits; and one micro-batch or many nearly the same. */
TEST(test_repeats)
{
    measured a = run_measured("gpt2", 2, ""), b = run_measured("gpt2", 2, "");
    assert_memory_equal(a.loss, b.loss, sizeof a.loss);
    measured c = run_measured("gpt2", 2, "training.micro_batch_size=1");
    for (int i = 0; i < 3; i++) assert_true(fabs(a.loss[i] - c.loss[i]) < 1e-4);
}

/* ---- NaN (more in test_nonfinite.c) ---- */

typedef struct poisoned {
    ech_config *config;
    ech_finding finding;
    bool passes; /* the second time nothing is wrong */
    bool withheld;
    int64_t updates;
    float before, after;
} poisoned;

/* A step with an infinity in one weight of one rank, then the search for it. */
static ech_status run_poisoned(ech_comm *comm, const ech_design *design, void *context)
{
    poisoned *p = context;
    ech_session session;
    ech_corpus *corpus;
    ech_loader *loader;
    ECH_TRY(ech_session_create(design, comm, false, &session));
    ECH_TRY(ech_design_open_data(design, ECH_SPLIT_TRAIN, &corpus));
    ech_loader_options options = ech_design_reads(design, ech_comm_rank(comm), true, INT64_MAX);
    ECH_TRY(ech_loader_create(corpus, &options, 0, &loader));
    ech_exec_set_loader(session.exec, ECH_TRAIN, loader);
    ECH_TRY(ech_exec_run(session.exec, ECH_LIST_INIT, 0));
    int weight = 0;
    while (!strstr(design->model->param.at[weight].name, "h.1.mlp.c_fc.weight")) weight++;
    float *data = ech_exec_param(session.exec, weight).data;
    float healthy, bad = INFINITY, large = 3e38f, *other = ech_exec_param(session.exec, 1).data;
    ech_exec_copy(session.exec, &healthy, data + 5, sizeof healthy);
    if (ech_comm_rank(comm) == 1) ech_exec_copy(session.exec, data + 5, &bad, sizeof bad);
    if (ech_comm_rank(comm) == 0) ech_exec_copy(session.exec, &p->before, other, sizeof p->before);
    ECH_TRY(ech_exec_run(session.exec, ECH_LIST_TRAIN, 0));
    if (ech_comm_rank(comm) == 1) { /* the parameter itself is not the finding */
        ech_exec_copy(session.exec, data + 5, &healthy, sizeof healthy);
        if (!p->passes) ech_exec_copy(session.exec, data + 6, &large, sizeof large);
    }
    ech_finding finding;
    bool withheld = ech_exec_readings(session.exec)->withheld;
    ECH_TRY(ech_exec_find_nonfinite(session.exec, 0, &finding));
    if (ech_comm_rank(comm) == 0) {
        p->finding = finding;
        p->withheld = withheld;
        p->updates = ech_exec_updates(session.exec);
        ech_exec_copy(session.exec, &p->after, other, sizeof p->after);
    }
    ech_loader_destroy(loader);
    ech_corpus_close(corpus);
    ech_session_destroy(&session);
    return ECH_OK;
}

TEST(test_finding_names_the_place)
{
    static const char *const words[] = {"training.micro_batch_size=3",
                                        "training.micro_batch_size=3 parallel.device=walled"};
    static const char *const made_by[] = {"linear", "gelu"}; /* on walled the call makes both */
    for (int i = 0; i < 2; i++) {
        poisoned p = {.config = fixture_config("gpt2", words[i])};
        assert_int_equal(fixture_run(p.config, 2, run_poisoned, &p), ECH_OK);
        ech_config_destroy(p.config);
        assert_true(p.withheld);
        assert_int_equal(p.updates, 0); /* a withheld step advances nothing */
        assert_true(p.before == p.after);
        assert_int_equal(p.finding.rank, 1);
        assert_int_equal(p.finding.block, 2);
        assert_int_equal(p.finding.micro, 0);
        assert_non_null(strstr(p.finding.what, made_by[i]));
    }
}

/* The search finds nothing, and the step stays withheld. */
TEST(test_passing_fault_updates_nothing)
{
    poisoned p = {.config = fixture_config("gpt2", "training.micro_batch_size=3"), .passes = true};
    assert_int_equal(fixture_run(p.config, 2, run_poisoned, &p), ECH_OK);
    ech_config_destroy(p.config);
    assert_true(p.withheld);
    assert_int_equal(p.finding.rank, -1);
    assert_int_equal(p.updates, 0);
    assert_true(p.before == p.after);
}

/* Saves and validates once; started again, every rank agrees that nothing is left to do. */
TEST(test_no_steps)
{
    for (int i = 0; i < 2; i++)
        assert_int_equal(train(run_config("llama", "none", "training.steps=0"), 2), ECH_OK);
    remove_run("none");
}

TEST(test_validation_has_no_dropout_and_counts_padding_out)
{
    char *bytes;
    size_t n;
    for (int tensor = 1; tensor <= 2; tensor++) {
        const char *more = tensor > 1 ? "training.steps=0 parallel.tensor=2" : "";
        assert_int_equal(train(run_config("llama", "valid", more), 2), ECH_OK);
        char *path = ech_file_join(fixture_folder, "valid/metrics.jsonl");
        assert_int_equal(ech_file_read(path, 1 << 20, &bytes, &n), ECH_OK);
        /* Of 1,000 tokens every one but the first is a target once. */
        assert_non_null(strstr(bytes, "\"valid_loss\""));
        assert_non_null(strstr(bytes, "\"valid_tokens\":999"));
        free(bytes);
        free(path);
        remove_run("valid");
    }
}

/* The loss is the mean over all tokens, however many samples are taken at a time. */
TEST(test_validation_does_not_depend_on_batches)
{
    static const char *const more[] = {"training.steps=0",
                                       "training.steps=0 training.global_batch_size=6"};
    double loss[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(train(run_config("llama", "batches", more[i]), 2), ECH_OK);
        loss[i] = runs_validation_loss("batches");
        remove_run("batches");
    }
    assert_true(loss[0] > 1 && fabs(loss[0] - loss[1]) < 1e-4);
}

/* One id out of range in the middle of the file: the rank that meets it fails in LOAD, while the others
 * wait for it in a reduction. All end, long before the deadline. */
TEST(test_a_rank_that_fails_ends_all)
{
    char prefix[300];
    ech_token_writer *writer;
    snprintf(prefix, sizeof prefix, "%s/bad", fixture_folder);
    assert_int_equal(ech_token_writer_create(prefix, 400, &writer), ECH_OK);
    for (int32_t i = 0; i < 1000; i++) {
        int32_t id = i == 500 ? 300 : i % 50;
        assert_int_equal(ech_token_writer_add(writer, &id, 1), ECH_OK);
    }
    assert_int_equal(ech_token_writer_end_document(writer), ECH_OK);
    assert_int_equal(ech_token_writer_finish(writer), ECH_OK);
    char more[400];
    snprintf(more, sizeof more, "data.train=%s training.steps=10", prefix);
    assert_int_equal(train(fixture_config("gpt2", more), 3), ECH_EINPUT);
    remove_run("run");
}

ALL_TESTS(fixture_setup, fixture_teardown)
