/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.evaluators: each checkpoint is evaluated once, for any strategy and grid, and the loss
 * is that of training's own validation at that step. Training leaves the same bits, and sends the
 * same bytes, as without evaluators. Checkpoints that were removed or not evaluated before a stop
 * are reported, and a damaged one ends the run. An evaluator uses the planned memory.
 */

#include "app/plan/report.h"
#include "app/runs.h"
#include "app/train/evaluations.h"
#include "app/train/validation.h"
#include "checkpoint/folder.h"
#include "comm/ranks.h"
#include "schedule/peaks.h"
#include "unit.h"

#define CALENDAR                                                                                   \
    "training.steps=6 training.validate_every=2 checkpoint.every=2 precision.compute=fp64 "
#define EVALUATED CALENDAR "parallel.evaluators=1 "

/* ---- metrics ---- */

/* Finds the number of a key in the lines of that step, as it is written. Returns how many lines
 * have it. */
static int find(const char *text, int step, const char *key, char out[40])
{
    char head[40], name[60];
    int n = 0;
    snprintf(head, sizeof head, "{\"step\":%d,", step);
    snprintf(name, sizeof name, "\"%s\":", key);
    for (const char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        const char *at = strstr(line, name);
        if (strncmp(line, head, strlen(head)) != 0 || !at || at > end) continue;
        at += strlen(name);
        snprintf(out, 40, "%.*s", (int)strcspn(at, ",}"), at);
        n++;
    }
    return n;
}

static double relative(const char *a, const char *b)
{
    return fabs(strtod(a, NULL) / strtod(b, NULL) - 1);
}

/* ---- what is evaluated ---- */

static const struct {
    const char *family, *words;
    int ranks; /* evaluators among them */
    double tolerance;
} runs[] = {
    {"gpt2", "parallel.evaluators=1", 2, 0}, /* the same layout */
    {"llama", "parallel.evaluators=2 precision.compute=bf16 training.micro_batch_size=4", 3, 0},
    {"gpt2", "parallel.evaluators=3 parallel.data=2 training.validate_samples=17", 5, 1e-12},
    {"llama", "parallel.evaluators=1 parallel.pipeline=2 parallel.data=2 parallel.zero=1", 5,
     1e-12},
    {"qwen3",
     "parallel.evaluators=1 parallel.tensor=2 parallel.sequence=true model.head_dim=4 "
     "data.sequence_length=8",
     3, 1e-12},
    {"llama",
     "parallel.evaluators=1 parallel.context=3 data.document_mask=true data.sequence_length=12", 4,
     1e-12},
    {"gpt2",
     "parallel.evaluators=1 parallel.pipeline=3 parallel.schedule=pipedream "
     "parallel.flush_every=2 training.micro_batch_size=2",
     4, 1e-12},
    {"gpt2", "parallel.evaluators=1 parallel.data=2 parallel.strategy=parameter_server", 4, 1e-12},
    {"llama", "parallel.evaluators=1 parallel.data=2 parallel.strategy=asp", 4, 1e-12},
    {"gpt2",
     "parallel.evaluators=1 parallel.data=2 parallel.strategy=diloco "
     "parallel.sync_every=2 optimizer.name=sgd",
     3, 1e-12},
    {"gpt2", "parallel.evaluators=1 memory.offload_optimizer=disk memory.offload_parameters=disk",
     2, 0},
    {"mixtral",
     "parallel.evaluators=1 parallel.data=2 parallel.expert=2 model.num_local_experts=4 "
     "model.num_experts_per_tok=2 model.intermediate_size=16",
     3, 1e-12},
};
enum { RUNS = sizeof runs / sizeof *runs };

TEST(each_checkpoint_is_evaluated)
{
    for (int i = 0; i < RUNS; i++) {
        char words[400], loss[40], own[40], tokens[40], counted[40], bits[40], own_bits[40];
        snprintf(words, sizeof words, CALENDAR "%s", runs[i].words);
        runs_train(runs[i].family, "run", runs[i].ranks, words);
        char *text = runs_metrics("run");
        for (int step = 0; step <= 7; step++) {
            int n = find(text, step, "evaluation_loss", loss);
            assert_int_equal(n, step == 2 || step == 4 || step == 6);
            if (n == 0) continue;
            assert_int_equal(find(text, step, "valid_loss", own), 1);
            assert_int_equal(find(text, step, "evaluation_bits_per_byte", bits), 1);
            assert_int_equal(find(text, step, "valid_bits_per_byte", own_bits), 1);
            assert_true(relative(bits, own_bits) <= 1e-11 && atof(bits) > 1);
            find(text, step, "evaluation_tokens", tokens);
            find(text, step, "valid_tokens", counted);
            assert_string_equal(tokens, counted);
            if (runs[i].tolerance > 0 ? !(relative(loss, own) <= runs[i].tolerance)
                                      : strcmp(loss, own) != 0)
                fail_msg("%s: step %d: %s, training has %s", words, step, loss, own);
        }
        free(text);
        runs_remove("run");
    }
}

/* ---- training does not notice ---- */

TEST(training_has_the_same_bits)
{
    static const char *const of[] = {"parallel.data=2 parallel.zero=2", "parallel.pipeline=2"};
    static const char *const keys[] = {"loss", "grad_norm", "bytes_sent", "valid_loss"};
    for (int i = 0; i < 2; i++) {
        char words[400], a[40], b[40];
        snprintf(words, sizeof words, CALENDAR "%s", of[i]);
        runs_train("gpt2", "without", 2, words);
        strcat(words, " parallel.evaluators=2");
        runs_train("gpt2", "with", 4, words);
        char *without = runs_metrics("without"), *with = runs_metrics("with");
        for (int step = 2; step <= 6; step += 2) assert_true(runs_same("without", "with", step));
        for (int step = 1; step <= 6; step++)
            for (int k = 0; k < 4; k++) {
                int n = find(without, step, keys[k], a);
                assert_int_equal(n, k < 3 || step % 2 == 0);
                assert_int_equal(find(with, step, keys[k], b), n);
                if (n) assert_string_equal(a, b);
            }
        free(without);
        free(with);
        runs_remove("without");
        runs_remove("with");
    }
}

enum { MOST_RANKS = 4 };
static int64_t sent[MOST_RANKS];

/* All lists of a training, while evaluators have left. */
static ech_status train_without(ech_comm *comm, const ech_design *design, void *context)
{
    (void)context;
    static const ech_list_kind lists[] = {ECH_LIST_INIT, ECH_LIST_TRAIN, ECH_LIST_VALIDATE,
                                          ECH_LIST_CHECK};
    const ech_split splits[] = {ECH_SPLIT_TRAIN, ECH_SPLIT_VALID};
    int rank = ech_comm_rank(comm);
    if (ech_layout_evaluates(design->layout, rank)) return ECH_OK;
    ech_session session = {0};
    ech_corpus *corpus[2] = {0};
    ech_loader *loader[2] = {0};
    ECH_TRY(ech_session_create(design, comm, false, &session));
    for (int i = 0; i < 2; i++) {
        ech_purpose purpose = i ? ECH_EVALUATE : ECH_TRAIN;
        ECH_TRY(ech_design_open_data(design, splits[i], &corpus[i]));
        ECH_TRY(ech_session_read(&session, design, corpus[i], purpose, 0, INT64_MAX, &loader[i]));
    }
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        ECH_TRY(ech_exec_run(session.exec, lists[i], 0));
    sent[rank] = ech_exec_sent_bytes(session.exec);
    ECH_TRY(ech_group_barrier(ech_exec_world(session.exec)));
    for (int i = 0; i < 2; i++) ech_loader_destroy(loader[i]);
    ech_session_destroy(&session);
    for (int i = 0; i < 2; i++) ech_corpus_close(corpus[i]);
    return ECH_OK;
}

TEST(evaluators_are_in_no_collective)
{
    static const char *const of[] = {
        "parallel.data=2 parallel.pipeline=2",
        "parallel.strategy=parameter_server parallel.data=2 parallel.servers=2"};
    for (int i = 0; i < 2; i++) {
        char words[400];
        int64_t before[MOST_RANKS];
        for (int evaluators = 0; evaluators <= 2; evaluators += 2) {
            memset(sent, 0, sizeof sent);
            snprintf(words, sizeof words,
                     CALENDAR "parallel.deadline=120 parallel.evaluators=%d %s", evaluators, of[i]);
            assert_true(fixture_runs("gpt2", words, 4 + evaluators, train_without, NULL));
            if (evaluators == 0) memcpy(before, sent, sizeof sent);
        }
        assert_true(sent[0] > 1000 && sent[3] > 1000);
        assert_memory_equal(before, sent, sizeof sent);
    }
}

/* ---- checkpoints that are not as they should be ---- */

/* What is given to an evaluator by hand: steps of the run "run". */
typedef struct given {
    int steps[4], n;
    bool aloud, silent; /* what its evaluators are */
    bool late;          /* they still see what rank 0 has removed */
} given;

static ech_status give(ech_comm *comm, const ech_design *design, given *g)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s/given", fixture_folder);
    const ech_progress_setup setup = {.directory = folder, .steps = 6, .every = 1, .ranks = 2};
    ech_progress *progress = NULL;
    ech_evaluations *all = NULL;
    ech_config config = *design->config;
    if (g->late) config.checkpoint.directory = folder; /* without checkpoints */
    ECH_TRY(ech_progress_create(&setup, &progress));
    ech_status status = ech_evaluations_create(comm, design->layout, &config, progress, &all);
    for (int i = 0; i < g->n; i++) ech_evaluations_add(all, g->steps[i]);
    for (int left = 1; left > 0 && status == ECH_OK;) status = ech_evaluations_await(all, &left);
    if (status == ECH_OK) status = ech_evaluations_end(all);
    ech_evaluations_destroy(all);
    ech_progress_destroy(progress);
    return status;
}

/* An evaluator whose own deadline is so short that it gives a sign of life after each batch. */
static ech_status evaluate_aloud(ech_comm *comm, const ech_design *design)
{
    ech_config *config = ech_config_copy(design->config);
    ech_design own = *design;
    config->parallel.deadline = 1e-6;
    own.config = config;
    ech_status status = ech_evaluator_run(comm, &own);
    ech_config_destroy(config);
    return status;
}

/* One that is as good as stopped. */
static ech_status keep_silent(const ech_comm *comm)
{
    while (ech_comm_check(comm) == ECH_OK) usleep(1000);
    return ECH_EABORTED;
}

static ech_status give_rank(ech_comm *comm, const ech_design *design, void *context)
{
    const given *g = context;
    if (!ech_layout_evaluates(design->layout, ech_comm_rank(comm)))
        return give(comm, design, context);
    if (g->silent) return keep_silent(comm);
    return g->aloud ? evaluate_aloud(comm, design) : ech_evaluator_run(comm, design);
}

static ech_status give_steps(const char *words, int ranks, given *g)
{
    ech_config *config = runs_config("gpt2", "run", words);
    ech_status status = fixture_run(config, ranks, give_rank, g);
    ech_config_destroy(config);
    return status;
}

/* 2 is unfinished, 4 removed. */
TEST(removed_ones_are_said)
{
    char from[512], to[520], loss[40], own[40];
    runs_train("gpt2", "run", 1, CALENDAR);
    runs_path(from, sizeof from, "run", 2, "");
    snprintf(to, sizeof to, "%s.tmp", from);
    assert_int_equal(rename(from, to), 0);
    runs_remove_checkpoint("run", 4);
    for (int evaluators = 1; evaluators <= 2; evaluators++) {
        char words[400];
        given g = {.steps = {2, 4, 6}, .n = 3, .aloud = evaluators == 1};
        snprintf(words, sizeof words, CALENDAR "parallel.evaluators=%d", evaluators);
        assert_int_equal(give_steps(words, 1 + evaluators, &g), ECH_OK);
        char *text = runs_metrics("given"), *trained = runs_metrics("run");
        for (int step = 2; step <= 4; step += 2) {
            assert_int_equal(find(text, step, "evaluation_loss", loss), 1);
            assert_string_equal(loss, "null");
            assert_int_equal(find(text, step, "removed", loss), 1);
        }
        assert_int_equal(find(text, 6, "evaluation_loss", loss), 1);
        assert_int_equal(find(text, 6, "removed", own), 0);
        assert_int_equal(find(trained, 6, "valid_loss", own), 1);
        assert_string_equal(loss, own);
        free(text);
        free(trained);
        runs_remove("given");
    }
    runs_remove("run");
}

TEST(a_damaged_one_ends_the_run)
{
    char path[512];
    runs_train("gpt2", "run", 1, CALENDAR);
    runs_path(path, sizeof path, "run", 4, runs_model);
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(give_steps(EVALUATED, 2, &(given){.steps = {4, 6}, .n = 2}), ECH_EINPUT);
    runs_remove("given");
    runs_remove("run");
}

/* As on a network file system. */
TEST(rank_0_knows_what_is_removed)
{
    char path[512], removed[40];
    runs_train("gpt2", "run", 1, CALENDAR);
    runs_path(path, sizeof path, "run", 4, runs_model);
    assert_int_equal(truncate(path, 1000), 0);
    given g = {.steps = {4, 6}, .n = 2, .late = true};
    assert_int_equal(give_steps(EVALUATED, 2, &g), ECH_OK);
    char *text = runs_metrics("given");
    assert_int_equal(find(text, 4, "removed", removed), 1);
    assert_int_equal(find(text, 6, "removed", removed), 0);
    free(text);
    runs_remove("given");
    runs_remove("run");
}

TEST(a_silent_one_is_named)
{
    given g = {.steps = {2}, .n = 1, .silent = true};
    assert_int_equal(give_steps(EVALUATED "parallel.deadline=0.3", 2, &g), ECH_ECOMM);
    runs_remove("given");
}

/* ---- starts and ends ---- */

static int count_evaluations(const char *name)
{
    char *text = runs_metrics(name);
    int n = 0;
    for (const char *at = text; (at = strstr(at, "\"evaluation\":")); at++) n++;
    free(text);
    return n;
}

/* As a crash leaves the metrics before the evaluations of steps from `step` on. */
static void forget_evaluations(const char *name, int step)
{
    char path[512], *text = runs_metrics(name);
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", fixture_folder, name);
    FILE *file = fopen(path, "w");
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (!strstr(line, "\"evaluation\":") || atoi(line + strlen("{\"step\":")) < step)
            fprintf(file, "%s\n", line);
    fclose(file);
    free(text);
}

/* The checkpoint that a start goes on from is evaluated unless it has been, and so are those after
 * the first evaluation. */
TEST(what_was_left_is_made_good)
{
    char loss[40], own[40];
    runs_train("gpt2", "run", 1, CALENDAR);
    for (int i = 0; i < 2; i++) {
        runs_train("gpt2", "run", 2, EVALUATED);
        assert_int_equal(count_evaluations("run"), 1);
    }
    char *text = runs_metrics("run");
    assert_int_equal(find(text, 6, "evaluation_loss", loss), 1);
    assert_int_equal(find(text, 6, "valid_loss", own), 1);
    assert_string_equal(loss, own);
    free(text);
    runs_remove("run");

    runs_train("gpt2", "run", 2, EVALUATED "training.time_limit=1e-9"); /* a step, and no more */
    assert_true(runs_has_checkpoint("run", 1));
    assert_int_equal(count_evaluations("run"), 0);
    runs_train("gpt2", "run", 2, EVALUATED);
    text = runs_metrics("run");
    for (int step = 1; step <= 6; step++)
        assert_int_equal(find(text, step, "evaluation_loss", loss), step == 1 || step % 2 == 0);
    free(text);

    forget_evaluations("run", 2);
    runs_remove_checkpoint("run", 4);
    runs_train("gpt2", "run", 2, EVALUATED);
    text = runs_metrics("run");
    for (int step = 2; step <= 6; step += 2) {
        assert_int_equal(find(text, step, "evaluation_loss", loss), 1);
        assert_int_equal(find(text, step, "removed", own), step == 4);
    }
    free(text);
    runs_remove("run");
}

TEST(evaluators_end_with_training)
{
    assert_int_equal(runs_try("gpt2", "run", 3,
                              EVALUATED "precision.compute=fp32 optimizer.learning_rate=1e6 "
                                        "optimizer.clip_norm=0"),
                     ECH_ENUMERIC);
    runs_remove("run");
}

TEST(impossible_ones_are_errors)
{
    static const runs_refusal refused[] = {
        {"parallel.evaluators=3", "3 evaluators of 3 ranks leave none to train; start more ranks"},
        {"parallel.evaluators=1 parallel.data=3", "use --ranks 4"},
        {"parallel.evaluators=1 parallel.strategy=parameter_server parallel.data=3",
         "1 of them a server, 1 of them an evaluator"},
    };
    RUNS_REFUSE(3, CALENDAR, refused);
}

/* ---- memory ---- */

static ech_status look(ech_comm *comm, const ech_design *design, void *planned)
{
    if (!ech_layout_evaluates(design->layout, ech_comm_rank(comm))) return ECH_OK;
    ech_config *config = ech_config_copy(design->config);
    ech_design alone = {0};
    ech_session session = {0};
    ech_comm *own = NULL;
    ech_corpus *corpus = NULL;
    ech_loader *loader = NULL;
    ech_validation found;
    ECH_TRY(ech_design_create_evaluator(design, design->world, config, &alone));
    ECH_TRY(ech_comm_open(ech_comm_find("local"), 1, 60, &own));
    ECH_TRY(ech_session_create_on(&alone, own, 0, true, &session));
    ECH_TRY(ech_design_open_data(&alone, ECH_SPLIT_VALID, &corpus));
    ECH_TRY(ech_session_read(&session, &alone, corpus, ECH_EVALUATE, 0, 12, &loader));
    ECH_TRY(ech_exec_run(session.exec, ECH_LIST_INIT, 0));
    ECH_TRY(ech_validation_run(session.exec, ECH_SAMPLES_OF_tokens, 12, 12, loader, NULL, NULL,
                               &found));
    assert_true(found.tokens > 0 && found.loss > 0);
    assert_true(fixture_peaks_are_planned(&session, 1u << ECH_LIST_INIT | 1u << ECH_LIST_VALIDATE));
    assert_memory_equal(session.plan->arena_bytes, planned, sizeof session.plan->arena_bytes);
    assert_int_equal(session.plan->list[ECH_LIST_TRAIN].step.n, 0);
    ech_loader_destroy(loader);
    ech_session_destroy(&session);
    ech_corpus_close(corpus);
    ech_design_destroy(&alone);
    ech_comm_close(own);
    ech_config_destroy(config);
    return ECH_OK;
}

TEST(memory_is_as_planned)
{
    ech_config *config = fixture_config(
        "llama", EVALUATED "parallel.data=2 parallel.pipeline=2 memory.recompute=full");
    ech_config *copy = ech_config_copy(config);
    ech_design design;
    ech_plan_report report;
    ech_text text = {0};
    assert_int_equal(ech_design_create(copy, fixture_tokenizer, 5, 5, &design), ECH_OK);
    assert_int_equal(ech_plan_report_create(&design, &(ech_plan_options){0}, &report), ECH_OK);
    const ech_plan *plan = report.evaluator.plan;
    int64_t weights = ech_model_params(design.model) * (int64_t)sizeof(double);
    int64_t peak[ECH_MEMORY_KINDS];
    ech_plan_peaks(plan, peak);
    assert_true(peak[ECH_MEMORY_PARAMETERS] >= weights); /* the whole model, and no more of it */
    assert_true(!peak[ECH_MEMORY_GRADIENTS] && !peak[ECH_MEMORY_OPTIMIZER]);
    assert_true(!peak[ECH_MEMORY_KV_CACHE]);
    ech_plan_report_text(&report, &text);
    assert_non_null(strstr(text.at, "  an evaluator of checkpoints\n"));
    assert_non_null(strstr(text.at, "rank 0 is the chief: "));
    assert_non_null(strstr(text.at, "evaluator   memory of rank 4: "));
    assert_int_equal(fixture_run(config, 5, look, (void *)plan->arena_bytes), ECH_OK);
    ech_text_free(&text);
    ech_plan_report_destroy(&report);
    ech_design_destroy(&design);
    ech_config_destroy(copy);
    ech_config_destroy(config);
}

/* ---- a job that was suspended ---- */

/* Rank 0 stands still for longer than the deadline, in which nothing could come. */
static ech_status look_late(ech_comm *comm, void *end)
{
    const ech_layout layout = {.world = 1, .evaluators = 1};
    const ech_config config = {.parallel.deadline = 0.2};
    ech_evaluations *all = NULL;
    ech_status status = ECH_OK;
    if (ech_comm_rank(comm) == 0) {
        status = ech_evaluations_create(comm, &layout, &config, NULL, &all);
        ech_evaluations_add(all, 5);
        if (status == ECH_OK) status = ech_evaluations_follow(all);
        nanosleep(&(struct timespec){.tv_nsec = 500000000}, NULL);
        if (status == ECH_OK) status = ech_evaluations_follow(all);
        ech_evaluations_destroy(all);
    }
    pthread_barrier_wait(end);
    return status;
}

TEST(its_rest_is_no_silence)
{
    pthread_barrier_t end;
    ech_status results[2];
    pthread_barrier_init(&end, NULL, 2);
    ranks_run(2, 0.2, look_late, &end, results);
    pthread_barrier_destroy(&end);
    assert_int_equal(results[0], ECH_OK);
}

ALL_TESTS(fixture_setup, fixture_teardown)
