/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of real tiny runs: both timelines, charts, nothing from elsewhere; measured bars are the steps
 * that ran; what is missing is said, what is damaged is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "app/recorded.h"
#include "app/report/report.h"
#include "app/trace_events.h"
#include "app/train/train.h"
#include "base/log.h"
#include "schedule/markup.h"

#define PIPELINE "parallel.pipeline=2 training.micro_batch_size=3"
#define TRACED   "log.trace=true log.trace_steps=3 training.validate_every=2"

static char run_folder[300];

static void train(const char *keys, int ranks)
{
    char words[1024];
    ech_training training = {0};
    snprintf(run_folder, sizeof run_folder, "%s/run", fixture_folder);
    assert_int_equal(ech_file_remove_all(run_folder), ECH_OK);
    snprintf(words, sizeof words, "%s checkpoint.keep=1", keys);
    ech_config *config = fixture_config("gpt2", words);
    training.config = config;
    training.tokenizer = fixture_tokenizer;
    bool quiet = ech_log_set_quiet(true);
    assert_int_equal(ech_run_ranks("local", ranks, 60, ech_train_rank, &training), ECH_OK);
    ech_log_set_quiet(quiet);
    ech_config_destroy(config);
}

static char *path_of(const char *name)
{
    return ech_file_join(run_folder, name);
}

/* Released with free(). */
static void read_run_file(const char *name, char **out)
{
    char *path = path_of(name);
    size_t n;
    assert_int_equal(ech_file_read(path, 1 << 26, out, &n), ECH_OK);
    free(path);
}

static void write_run_file(const char *name, const char *text)
{
    char *path = path_of(name);
    assert_int_equal(ech_file_write(path, text, strlen(text)), ECH_OK);
    free(path);
}

static void remove_run_file(const char *name)
{
    char *path = path_of(name);
    assert_int_equal(ech_file_remove_all(path), ECH_OK);
    free(path);
}

static bool has_run_file(const char *name)
{
    char *path = path_of(name);
    bool there = ech_file_exists(path);
    free(path);
    return there;
}

/* `to` instead of the first `from`. */
static void change_run_file(const char *name, const char *from, const char *to)
{
    char *text = NULL;
    ech_text changed = {0};
    read_run_file(name, &text);
    assert_non_null(strstr(text, from));
    size_t before = (size_t)(strstr(text, from) - text);
    ech_text_append_bytes(&changed, text, before);
    ech_text_append(&changed, "%s%s", to, text + before + strlen(from));
    write_run_file(name, changed.at);
    ech_text_free(&changed);
    free(text);
}

/* ---- pages ---- */

typedef struct made {
    char *html;
    ech_text words;
} made;

static made report(void)
{
    made out = {0};
    remove_run_file("report.html");
    remove_run_file("trace.json");
    assert_int_equal(ech_report_run(run_folder, NULL, &out.words), ECH_OK);
    read_run_file("report.html", &out.html);
    const char *fault = markup_fault(out.html);
    if (fault) fail_msg("not well formed at: %.80s", fault);
    static const char *const foreign[] = {"<script", "href", "src=", "url(", "@import"};
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++)
        assert_null(strstr(out.html, foreign[i]));
    assert_int_equal(markup_count(out.html, "http"), markup_count(out.html, "<svg "));
    return out;
}

static void release(made *page)
{
    free(page->html);
    ech_text_free(&page->words);
}

static void assert_says(const char *text, const char *words)
{
    if (!strstr(text, words)) fail_msg("no \"%s\" in: %.600s", words, text);
}

static void assert_timelines(const made *page, int predicted, int measured)
{
    assert_int_equal(markup_count(page->html, ">Predicted</text>"), predicted);
    assert_int_equal(markup_count(page->html, ">Measured</text>"), measured);
    assert_int_equal(has_run_file("trace.json"), measured);
}

static void assert_charts(const made *page, bool there)
{
    static const char *const titles[] = {"loss", "gradient norm", "tokens per second",
                                         "learning rate"};
    for (int i = 0; i < 4; i++) {
        char title[60];
        snprintf(title, sizeof title, ">%s</text>", titles[i]);
        assert_int_equal(markup_count(page->html, title), there);
    }
}

static double number_behind(const char *text, const char *words)
{
    assert_says(text, words);
    return strtod(strstr(text, words) + strlen(words), NULL);
}

/* ---- what ran ---- */

typedef struct opened {
    ech_config *config;
    ech_design design;
    ech_plan **plan;
    ech_recording recording;
    ech_timeline timeline;
} opened;

static opened open_run(int ranks)
{
    opened run = {0};
    char *file = path_of("run.yaml"), *folder = path_of("trace");
    ech_text why = {0};
    assert_int_equal(ech_setup_config(file, NULL, 0, &run.config), ECH_OK);
    assert_int_equal(ech_setup_resolve(run.config, fixture_tokenizer, ranks, ranks), ECH_OK);
    assert_int_equal(ech_design_create(run.config, fixture_tokenizer, ranks, &run.design), ECH_OK);
    run.plan = ech_calloc((size_t)ranks, sizeof(ech_plan *));
    for (int rank = 0; rank < ranks; rank++)
        assert_int_equal(ech_design_outline(&run.design, rank, &run.plan[rank]), ECH_OK);
    const ech_plan *const *plans = (const ech_plan *const *)run.plan;
    assert_int_equal(ech_recording_read(folder, &run.recording, &why), ECH_OK);
    assert_true(ech_recording_fits(&run.recording, plans, ranks, &why));
    assert_true(ech_recording_has_one_clock(&run.recording, plans));
    ech_recording_timeline(&run.recording, plans, &run.timeline);
    free(file);
    free(folder);
    return run;
}

static void close_run(opened *run)
{
    ech_timeline_free(&run->timeline);
    ech_recording_free(&run->recording);
    for (int rank = 0; rank < run->design.world; rank++) ech_plan_destroy(run->plan[rank]);
    free(run->plan);
    ech_design_destroy(&run->design);
    ech_config_destroy(run->config);
}

static bool is_work(ech_step_kind kind)
{
    return kind == ECH_STEP_FORWARD || kind == ECH_STEP_BACKWARD_INPUT ||
           kind == ECH_STEP_BACKWARD_WEIGHT;
}

/* The bar of a micro-batch's forwards, or its backwards. */
static const ech_bar *find_bar(const ech_timeline *timeline, int rank, bool forward, int micro)
{
    const ech_bar *found = NULL;
    for (size_t i = 0; i < timeline->bar.n; i++) {
        const ech_bar *bar = &timeline->bar.at[i];
        if (bar->rank != rank || bar->micro != micro || bar->kind == ECH_BAR_COLLECTIVE) continue;
        if ((bar->kind == ECH_BAR_FORWARD) != forward) continue;
        if (found) fail_msg("rank %d: two bars of micro-batch %d", rank, micro);
        found = bar;
    }
    if (!found) fail_msg("rank %d: no bar of micro-batch %d", rank, micro);
    return found;
}

/* One chunk a rank: every micro-batch has one bar of forwards and one of backwards, from the begin of its
 * first step to the end of its last, and there are no others. */
static void assert_bars_are_steps(const opened *run, int list)
{
    double start = INFINITY;
    size_t work = 0, wanted = 0;
    for (int rank = 0; rank < run->design.world; rank++) {
        const ech_rank_trace *trace = &run->recording.trace[rank];
        const ech_traced_list *traced = &trace->list.at[list];
        for (size_t s = traced->first; s < traced->first + traced->n; s++)
            if (trace->step.at[s].lane == ECH_LANE_COMPUTE)
                start = fmin(start, trace->step.at[s].begin);
    }
    for (int rank = 0; rank < run->design.world; rank++) {
        const ech_rank_trace *trace = &run->recording.trace[rank];
        const ech_traced_list *traced = &trace->list.at[list];
        int micro_batches = run->plan[rank]->list[ECH_LIST_TRAIN].micro_batches;
        for (int m = 0; m < 2 * micro_batches; m++) {
            double begin = INFINITY, end = 0;
            bool forward = m % 2 == 0;
            for (size_t s = traced->first; s < traced->first + traced->n; s++) {
                const ech_traced_step *step = &trace->step.at[s];
                if (!is_work(step->kind) || step->micro != m / 2) continue;
                if ((step->kind == ECH_STEP_FORWARD) != forward) continue;
                begin = fmin(begin, step->begin - start);
                end = fmax(end, step->end - start);
            }
            const ech_bar *bar = find_bar(&run->timeline, rank, forward, m / 2);
            assert_true(fabs(bar->begin - begin) < 1e-9);
            assert_true(fabs(bar->end - end) < 1e-9);
        }
        wanted += 2 * (size_t)micro_batches;
    }
    for (size_t i = 0; i < run->timeline.bar.n; i++)
        work += run->timeline.bar.at[i].kind <= ECH_BAR_WEIGHT;
    assert_int_equal(work, wanted);
    assert_true(run->timeline.bubble > 0 && run->timeline.bubble < 1);
}

static int count_messages(const opened *run)
{
    int messages = 0;
    for (int rank = 0; rank < run->recording.ranks; rank++)
        for (size_t s = 0; s < run->recording.trace[rank].step.n; s++)
            messages += run->recording.trace[rank].step.at[s].lane == ECH_LANE_SEND;
    return messages;
}

static void assert_events(const opened *run)
{
    size_t steps = 0;
    char *text = NULL;
    trace_events events;
    read_run_file("trace.json", &text);
    const char *fault = trace_events_fault(text, strlen(text), &events);
    if (fault) fail_msg("trace.json: %s", fault);
    for (int rank = 0; rank < run->recording.ranks; rank++) {
        char name[60];
        snprintf(name, sizeof name, "rank %d (stage %d", rank,
                 run->design.layout->place[rank].stage);
        assert_memory_equal(trace_events_name(&events, rank, -1), name, strlen(name));
        steps += run->recording.trace[rank].step.n;
    }
    assert_int_equal(events.steps, steps);
    assert_int_equal(trace_events_arrows(&events), count_messages(run));
    json_decref(events.root);
    free(text);
}

/* ---- whole runs ---- */

static void test_pipeline(void **state)
{
    (void)state;
    char *own, *reported;
    train(PIPELINE " " TRACED, 2);
    read_run_file("trace.json", &own);
    made page = report();
    read_run_file("trace.json", &reported);
    assert_string_equal(own, reported); /* the run wrote it itself */
    free(own);
    free(reported);
    opened run = open_run(2);
    assert_int_equal(run.recording.trace[0].list.n, 3);
    assert_bars_are_steps(&run, 2);
    assert_events(&run);
    assert_timelines(&page, 1, 1);
    assert_charts(&page, true);
    static const char *const facts[] = {
        "<h1>gpt2 on 2 ranks: 2 stages, 1f1b</h1>",
        "<dt>model</dt><dd>gpt2, 2 layers, width 16</dd>",
        "<dt>parameters</dt>",
        "<dt>layout</dt><dd>2 stages</dd>",
        "<dt>schedule</dt><dd>1f1b</dd>",
        "<dt>ranks</dt><dd>2 of 1 thread</dd>",
        "<dt>compute type</dt><dd>fp32</dd>",
        "<dt>comm</dt><dd>local</dd>",
        "<dt>batch</dt><dd>4 x 3 samples</dd>",
        "<dt>steps done</dt><dd>4 of 4</dd>",
        "<dt>last loss</dt>",
        "<dt>last validation loss</dt>",
        "<dt>tokens per second (median)</dt>",
        "<dt>step time (median)</dt>",
        "<dt>predicted from</dt><dd>the run&#39;s own block times</dd>",
        "<dt>measured timeline</dt><dd>step 3</dd>",
        "<dt>peak memory</dt>",
        ">Memory of each rank</text>",
    };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) assert_says(page.html, facts[i]);
    double predicted = number_behind(page.html, "<dt>bubble predicted</dt><dd>");
    double measured = number_behind(page.html, "<dt>bubble measured</dt><dd>");
    assert_true(fabs(measured - 100 * run.timeline.bubble) < 0.051);
    assert_true(predicted > 0 && predicted < 100);
    char line[200];
    snprintf(line, sizeof line, "bubble: predicted %.1f %%, measured %.1f %%\n", predicted,
             measured);
    assert_says(page.words.at, line);
    assert_says(page.words.at, "step: predicted ");
    assert_says(page.words.at, "/run/report.html\n");
    assert_says(page.words.at, "/run/trace.json");
    assert_null(strstr(page.words.at, "no measured"));
    /* The same folder makes the same page. */
    made again = report();
    assert_string_equal(page.html, again.html);
    release(&again);
    release(&page);
    close_run(&run);
}

static void test_replicas(void **state)
{
    (void)state;
    train("parallel.pipeline=2 parallel.stage_replicas=[2,1] training.micro_batch_size=2 " TRACED,
          3);
    made page = report();
    opened run = open_run(3);
    assert_bars_are_steps(&run, 2);
    assert_events(&run);
    assert_timelines(&page, 1, 1);
    assert_says(page.html, "<h1>gpt2 on 3 ranks: 2 stages of 2 and 1 replicas, 1f1b</h1>");
    close_run(&run);
    release(&page);
}

/* Blocks in parts, with collectives between them. */
static void test_tensor(void **state)
{
    (void)state;
    train("parallel.tensor=2 parallel.pipeline=2 parallel.sequence=true "
          "data.sequence_length=8 training.micro_batch_size=3 " TRACED,
          4);
    made page = report();
    opened run = open_run(4);
    assert_bars_are_steps(&run, 2);
    assert_events(&run);
    assert_timelines(&page, 1, 1);
    assert_says(page.html,
                "<h1>gpt2 on 4 ranks: 2 stages x 2 tensor, sequence parallel, 1f1b</h1>");
    assert_says(page.html, "<dt>layout</dt><dd>2 stages x 2 tensor, sequence parallel</dd>");
    assert_says(page.html, "<dt>collectives measured</dt>");
    assert_null(strstr(page.html, "collectives predicted")); /* they are free there */
    assert_says(page.html, "the run&#39;s own block times; collectives free</dd>");
    assert_says(page.html, ">waits for a collective</text>");
    assert_says(page.words.at, "collectives: measured ");
    assert_true(run.timeline.waits > 0 && run.timeline.waits < run.timeline.bubble);
    assert_true(run.timeline.collective > 0);
    close_run(&run);
    release(&page);
}

/* Traces as if every block had taken what it costs and messages nothing: what is measured is what is
 * predicted. With unequal replicas both pictures have the numbers over all ranks. */
static void test_as_predicted(void **state)
{
    (void)state;
    static const char keys[] = "parallel.pipeline=2 parallel.stage_replicas=[2,1] "
                               "training.micro_batch_size=2";
    train(keys, 3);
    recorded run = recorded_create(keys, 3);
    char *folder = path_of("trace"), line[100];
    recorded_write_all(&run, 0, 2);
    assert_int_equal(rename(run.folder, folder), 0);
    made page = report();
    assert_timelines(&page, 1, 1);
    double bubble = 100 * run.timeline.bubble;
    snprintf(line, sizeof line, "bubble: predicted %.1f %%, measured %.1f %%\n", bubble, bubble);
    assert_says(page.words.at, line);
    double predicted = number_behind(page.words.at, "step: predicted ");
    assert_true(fabs(predicted - 1e3 * run.timeline.end) < 5e-4 * predicted); /* four digits */
    assert_true(fabs(number_behind(strstr(page.words.at, "\nstep: "), "measured ") - predicted) <
                1e-9);
    for (int q = 0; q < 6; q++) { /* on one rank of each stage, twice */
        snprintf(line, sizeof line, "<title>forward, micro-batch %d: ", q);
        assert_int_equal(markup_count(page.html, line), 4);
    }
    free(folder);
    release(&page);
    recorded_destroy(&run);
}

static void test_spans(void **state)
{
    (void)state;
    train("parallel.pipeline=2 parallel.schedule=pipedream model.tie_word_embeddings=false "
          "training.micro_batch_size=12 parallel.flush_every=2 training.check_every=0 " TRACED,
          2);
    made page = report();
    opened run = open_run(2);
    assert_int_equal(run.recording.trace[0].list.n, 2); /* trace_steps 3: spans at 0 and 2 */
    assert_bars_are_steps(&run, 1);
    assert_events(&run);
    assert_timelines(&page, 1, 1);
    assert_says(page.html, "<dd>pipedream, drained every 2 steps</dd>");
    assert_says(page.html, "<dt>measured timeline</dt><dd>steps 3 to 4</dd>");
    close_run(&run);
    release(&page);
}

static void test_alone(void **state)
{
    (void)state;
    train("training.micro_batch_size=6", 1);
    made page = report();
    assert_timelines(&page, 1, 0);
    assert_charts(&page, true);
    assert_says(page.html, "<h1>gpt2 on 1 rank</h1>");
    assert_says(page.html, "<dt>bubble predicted</dt><dd>0.0 %</dd>");
    assert_says(page.words.at, "no measured timeline: no steps were recorded; train with "
                               "log.trace=true\n");
    assert_says(page.words.at, "predicted from blocks that cost the same");
    release(&page);
}

/* ---- what is missing ---- */

static void test_missing_parts(void **state)
{
    (void)state;
    train(PIPELINE " " TRACED, 2);
    remove_run_file("metrics.jsonl");
    made page = report();
    assert_timelines(&page, 1, 1);
    assert_charts(&page, false);
    assert_null(strstr(page.html, "last loss"));
    assert_says(page.words.at, "no charts: ");
    release(&page);
    remove_run_file("trace/rank-00001.jsonl");
    page = report();
    assert_timelines(&page, 1, 0);
    assert_says(page.words.at, "rank-00001.jsonl is not there; run again with log.trace=true");
    release(&page);
    write_run_file("trace/rank-00001.jsonl", "{\"version\":3,");
    page = report();
    assert_timelines(&page, 1, 0);
    assert_says(page.words.at, "rank-00001.jsonl is empty");
    release(&page);
}

static void test_metrics_with_rubbish(void **state)
{
    (void)state;
    train(PIPELINE, 2);
    change_run_file("metrics.jsonl", "{\"step\":2",
                    "rubbish\n{\"step\":1,\"loss\":7}\n{\"step\":2");
    made page = report();
    assert_charts(&page, true);
    assert_says(page.words.at, "metrics.jsonl: 2 lines left out that cannot be read");
    release(&page);
}

static void test_traces_of_another_layout(void **state)
{
    (void)state;
    train(PIPELINE " " TRACED, 2);
    change_run_file("run.yaml", "schedule: 1f1b", "schedule: gpipe");
    made page = report();
    assert_timelines(&page, 1, 0);
    assert_says(page.words.at, "not of this layout");
    release(&page);
}

/* Rank 1's seconds become those of a machine that was switched on a thousand days before. */
static void test_other_clocks(void **state)
{
    (void)state;
    train(PIPELINE " " TRACED, 2);
    char *text = NULL;
    ech_text changed = {0};
    read_run_file("trace/rank-00001.jsonl", &text);
    static const char *const keys[] = {"\"begin\":", "\"end\":"};
    const char *at = text;
    for (int k = 0;; k = !k) {
        const char *next = strstr(at, keys[k]);
        if (!next) break;
        ech_text_append_bytes(&changed, at, (size_t)(next - at) + strlen(keys[k]));
        char *end;
        double seconds = strtod(next + strlen(keys[k]), &end);
        ech_text_append(&changed, "%.9f", seconds + 1000 * 86400);
        at = end;
    }
    ech_text_append(&changed, "%s", at);
    write_run_file("trace/rank-00001.jsonl", changed.at);
    made page = report();
    assert_timelines(&page, 1, 0);
    assert_says(page.words.at, "the ranks' clocks differ");
    assert_says(page.words.at, "predicted from the run's own block times");
    release(&page);
    ech_text_free(&changed);
    free(text);
}

/* ---- a profile ---- */

static void test_profile(void **state)
{
    (void)state;
    train(PIPELINE " " TRACED, 2);
    opened run = open_run(2);
    ech_profile *profile = ech_recording_profile(&run.recording, (const ech_plan *const *)run.plan);
    ech_text model = {0};
    char *path = path_of("profile.json"), line[400];
    /* A second for each forward, and nothing for backwards: 4 forwards one behind the other on each of
     * two stages take 5 times two blocks, of which each rank idles one in five. */
    for (int b = 0; b < profile->blocks; b++) {
        profile->block[b].seconds[ECH_FORWARD] = 1;
        profile->block[b].seconds[ECH_BACKWARD_INPUT] = 0;
        profile->block[b].seconds[ECH_BACKWARD_WEIGHT] = 0;
    }
    profile->update_seconds = 0;
    ech_profile_describe(run.config, &model);
    profile->model = ech_strdup(model.at);
    assert_int_equal(ech_profile_write(profile, path), ECH_OK);
    snprintf(line, sizeof line, "profile: %s", path);
    change_run_file("run.yaml", "profile: \"\"", line);
    change_run_file("run.yaml", "schedule: 1f1b", "schedule: gpipe"); /* see above */
    made page = report();
    assert_says(page.words.at, "bubble: predicted 20.0 %\n");
    assert_says(page.words.at, "step: predicted 10 s\n");
    assert_says(page.html, "profile.json</dd>");
    release(&page);
    change_run_file("run.yaml", "schedule: gpipe", "schedule: 1f1b");
    remove_run_file("profile.json");
    page = report();
    assert_timelines(&page, 1, 1);
    assert_says(page.words.at, "profile.json is not there");
    assert_says(page.words.at, "predicted from the run's own block times");
    release(&page);
    free(path);
    ech_text_free(&model);
    ech_profile_destroy(profile);
    close_run(&run);
}

/* ---- errors ---- */

static void assert_fails(const char *directory, const char *out, ech_status wanted,
                         const char *words)
{
    ech_text said = {0};
    ech_clear_error();
    bool quiet = ech_log_set_quiet(true);
    assert_int_equal(ech_report_run(directory, out, &said), wanted);
    ech_log_set_quiet(quiet);
    assert_says(ech_last_error(), words);
    assert_int_equal(said.n, 0);
}

static void test_errors(void **state)
{
    (void)state;
    train(PIPELINE " " TRACED, 2);
    assert_fails("/nowhere", NULL, ECH_EUSAGE, "/nowhere/run.yaml: not there");
    assert_fails(run_folder, "/nowhere/page.html", ECH_EIO, "/nowhere/page.html");
    change_run_file("trace/rank-00001.jsonl", "\"lane\":\"compute\"", "\"lane\":\"slow\"");
    assert_fails(run_folder, NULL, ECH_EINPUT, "rank-00001.jsonl:");
    assert_false(has_run_file("report.html"));
    change_run_file("trace/rank-00001.jsonl", "\"lane\":\"slow\"", "\"lane\":\"compute\"");
    change_run_file("run.yaml", "num_hidden_layers: 2", "num_hidden_layers: two");
    assert_fails(run_folder, NULL, ECH_EUSAGE, "run.yaml:");
}

static void test_elsewhere(void **state)
{
    (void)state;
    train(PIPELINE, 2);
    char path[400];
    ech_text words = {0};
    snprintf(path, sizeof path, "%s/page.html", fixture_folder);
    assert_int_equal(ech_report_run(run_folder, path, &words), ECH_OK);
    assert_true(ech_file_exists(path));
    assert_false(has_run_file("report.html"));
    assert_says(words.at, path);
    ech_text_free(&words);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_replicas),
        cmocka_unit_test(test_tensor),
        cmocka_unit_test(test_as_predicted),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_missing_parts),
        cmocka_unit_test(test_metrics_with_rubbish),
        cmocka_unit_test(test_traces_of_another_layout),
        cmocka_unit_test(test_other_clocks),
        cmocka_unit_test(test_profile),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_elsewhere),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
