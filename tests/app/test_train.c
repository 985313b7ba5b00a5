/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole training runs on the local backend: what is predicted is what happens, a resumed run is the
 * same run, and numbers that are not finite are found.
 */

#include <math.h>

#include "app/fixture.h"
#include "app/runs.h"
#include "app/verify/verify.h"
#include "base/log.h"
#include "schedule/traffic.h"
#include "unit.h"

#define RUN "training.steps=20 training.micro_batch_size=3 "

/* What metrics.jsonl says of all training steps that it has, but for times. */
static char *metrics_of(const char *name)
{
    char *bytes = runs_metrics(name), *rest = NULL;
    ech_text out = {0};
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
    char *metrics[2] = {metrics_of(a), metrics_of(b)};
    ech_checkpoint_info info = runs_info("halves", 20);
    assert_string_equal(metrics[0], metrics[1]);
    assert_non_null(strstr(metrics[0], "{\"step\":10,"));
    assert_non_null(strstr(metrics[0], "\"tokens\":2160,\"samples\":240"));
    for (int i = 0; i < 2; i++) free(metrics[i]);
    assert_int_equal(info.samples, 20 * 12);
    assert_int_equal(info.optimizer_count, 20);
}

/* 20 steps = 10 steps, stop, 10 steps. The calendar saves at 10; what came after is removed. A run
 * that begins with the last checkpoint of another has nothing left to do, but saves one of its own.
 */
static void check_resume(const char *architecture, int ranks, const char *more)
{
    char words[600];
    snprintf(words, sizeof words, RUN "checkpoint.every=10 %s", more);
    runs_train(architecture, "whole", ranks, words);
    runs_train(architecture, "halves", ranks, words);
    runs_remove_checkpoint("halves", 20);
    runs_train(architecture, "halves", ranks, words);
    assert_true(runs_same("whole", "halves", 20));
    check_counts("whole", "halves");
    snprintf(words, sizeof words, RUN "%s checkpoint.resume=%s/whole", more, fixture_folder);
    runs_train(architecture, "other", ranks, words);
    assert_true(runs_same("whole", "other", 20));
    runs_remove("other");
    runs_remove("halves");
    runs_remove("whole");
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
    static const char words[] = RUN "checkpoint.every=10 precision.compute=fp64";
    const int others[] = {1, 4};
    runs_train("llama", "two", 2, words);
    for (int i = 0; i < 2; i++) {
        runs_train("llama", "moved", 2, words);
        runs_remove_checkpoint("moved", 20);
        runs_train("llama", "moved", others[i], words);
        assert_true(runs_apart("moved", "two", 20, runs_model) < 1e-9);
        runs_remove("moved");
    }
    runs_remove("two");
}

TEST(test_keys_that_may_not_change)
{
    runs_train("gpt2", "fixed", 1, RUN);
    assert_int_equal(runs_try("gpt2", "fixed", 1, RUN "training.seed=9"), ECH_EUSAGE);
    assert_int_equal(runs_try("gpt2", "fixed", 1, RUN "checkpoint.resume=never"), ECH_EUSAGE);
    runs_remove("fixed");
}

/* ---- predicted = measured ---- */

static ech_status measure(ech_comm *comm, const ech_design *design, void *context)
{
    ech_compared_run run = {.design = design};
    (void)context;
    ECH_TRY(ech_compared_run_open(&run, comm));
    int64_t planned = ech_plan_traffic_along(run.session.plan, ECH_TRAFFIC_DATA).bytes;
    for (int step = 0; step < 3; step++)
        ECH_TRY(ech_exec_run(run.session.exec, ECH_LIST_TRAIN, step));
    assert_true(planned > 0);
    assert_int_equal(ech_exec_reduce_count(run.session.exec).bytes, 3 * planned);
    assert_true(fixture_peaks_are_planned(&run.session, FIXTURE_TRAINED));
    ech_compared_run_close(&run);
    return ECH_OK;
}

/* Other reductions are the probes' (probes/counters.c, probes/peaks.c). */
TEST(test_naive_reductions_are_as_planned)
{
    for (int ranks = 2; ranks <= 4; ranks++)
        assert_true(fixture_runs(ranks % 2 ? "gpt2" : "llama",
                                 "training.micro_batch_size=1 parallel.reduction=naive", ranks,
                                 measure, NULL));
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
    for (int i = 0; i < 2; i++) runs_train("llama", "none", 2, "training.steps=0");
    runs_remove("none");
}

/* Of 1,000 tokens every one but the first is a target once. */
TEST(test_validation_counts_padding_out)
{
    for (int tensor = 1; tensor <= 2; tensor++) {
        runs_train("llama", "valid", 2, tensor > 1 ? "training.steps=0 parallel.tensor=2"
                                                   : "training.steps=0");
        assert_true(runs_first("valid", "valid_loss") > 1);
        assert_true(runs_first("valid", "valid_tokens") == 999);
        runs_remove("valid");
    }
}

/* The tokenizer has a byte for each id below 256, and none for the end of text, id 256. */
TEST(test_bits_per_byte)
{
    const double ln2 = log(2);
    ech_token_writer *writer;
    char prefix[300], words[700];
    runs_train("llama", "valid", 2, "training.steps=0");
    double loss = runs_first("valid", "valid_loss"),
           bits = runs_first("valid", "valid_bits_per_byte");
    assert_true(fabs(bits - loss / ln2) < 1e-12 * bits);
    runs_remove("valid");
    for (int32_t last = 256; last < 258; last++) {
        const int32_t ids[] = {65, 66, 67, 256, 68, last};
        snprintf(prefix, sizeof prefix, "%s/few-%d", fixture_folder, (int)last);
        assert_int_equal(ech_token_writer_create(prefix, 300, &writer), ECH_OK);
        assert_int_equal(ech_token_writer_add(writer, ids, 6), ECH_OK);
        assert_int_equal(ech_token_writer_end_document(writer), ECH_OK);
        assert_int_equal(ech_token_writer_finish(writer), ECH_OK);
        snprintf(words, sizeof words, "training.steps=0 model.vocab_size=300 data.valid=%s",
                 prefix);
        runs_train("llama", "valid", 2, words);
        loss = runs_first("valid", "valid_loss");
        bits = runs_first("valid", "valid_bits_per_byte");
        /* 5 targets have 3 bytes; an id of another tokenizer leaves their number unknown. */
        if (last == 256)
            assert_true(fabs(bits - 5 * loss / ln2 / 3) < 1e-12 * bits);
        else
            assert_true(isnan(bits) || bits <= 0);
        runs_remove("valid");
    }
}

/* The loss is the mean over all tokens, however many samples are taken at a time. */
TEST(test_validation_does_not_depend_on_batches)
{
    static const char *const more[] = {"training.steps=0",
                                       "training.steps=0 training.global_batch_size=6"};
    double loss[2];
    for (int i = 0; i < 2; i++) loss[i] = runs_loss("llama", "batches", 2, more[i]);
    assert_true(loss[0] > 1 && fabs(loss[0] - loss[1]) < 1e-4);
}

/* One id out of range in the middle of the file: the rank that meets it fails in LOAD, while the
 * others wait for it in a reduction. All end, long before the deadline. */
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
    assert_int_equal(runs_try("gpt2", "run", 3, more), ECH_EINPUT);
    runs_remove("run");
}

ALL_TESTS(fixture_setup, fixture_teardown)
