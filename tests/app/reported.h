/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: a tiny run, really trained, its files, and the page that reports it.
 */
#ifndef ECH_TESTS_APP_REPORTED_H
#define ECH_TESTS_APP_REPORTED_H

#include "app/recorded.h"
#include "app/report/report.h"
#include "app/train/train.h"
#include "base/log.h"
#include "draw/markup.h"
#include "unit.h"

#define PIPELINE "parallel.pipeline=2 training.micro_batch_size=3"
#define TRACED   "log.trace=true log.trace_steps=3 training.validate_every=2"

static char run_folder[300];

static inline void train(const char *keys, int ranks)
{
    char words[1024];
    ech_training training = {0};
    snprintf(run_folder, sizeof run_folder, "%s/run", fixture_folder);
    assert_int_equal(ech_file_remove_all(run_folder), ECH_OK);
    snprintf(words, sizeof words, "%s checkpoint.keep=1", keys);
    ech_config *config = fixture_config("gpt2", words);
    assert_int_equal(fixture_run(config, ranks, ech_train_rank, &training), ECH_OK);
    ech_config_destroy(config);
}

static inline char *path_of(const char *name)
{
    return ech_file_join(run_folder, name);
}

/* Released with free(). */
static inline void read_run_file(const char *name, char **out)
{
    char *path = path_of(name);
    size_t n;
    assert_int_equal(ech_file_read(path, 1 << 26, out, &n), ECH_OK);
    free(path);
}

static inline void write_run_file(const char *name, const char *text)
{
    char *path = path_of(name);
    assert_int_equal(ech_file_write(path, text, strlen(text)), ECH_OK);
    free(path);
}

static inline void remove_run_file(const char *name)
{
    char *path = path_of(name);
    assert_int_equal(ech_file_remove_all(path), ECH_OK);
    free(path);
}

static inline bool has_run_file(const char *name)
{
    char *path = path_of(name);
    bool there = ech_file_exists(path);
    free(path);
    return there;
}

/* `to` instead of the first `from`. */
static inline void change_run_file(const char *name, const char *from, const char *to)
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

static inline made report(void)
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

static inline void release(made *page)
{
    free(page->html);
    ech_text_free(&page->words);
}

static inline void assert_says(const char *text, const char *words)
{
    if (!strstr(text, words)) fail_msg("no \"%s\" in: %.600s", words, text);
}

static inline void assert_timelines(const made *page, int predicted, int measured)
{
    assert_int_equal(markup_count(page->html, ">Predicted</text>"), predicted);
    assert_int_equal(markup_count(page->html, ">Measured</text>"), measured);
    assert_int_equal(has_run_file("trace.json"), measured);
}

static inline void assert_charts(const made *page, bool there)
{
    static const char *const titles[] = {"loss", "gradient norm", "tokens per second",
                                         "learning rate"};
    for (int i = 0; i < 4; i++) {
        char title[60];
        snprintf(title, sizeof title, ">%s</text>", titles[i]);
        assert_int_equal(markup_count(page->html, title), there);
    }
}

static inline double number_behind(const char *text, const char *words)
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

static inline opened open_run(int ranks)
{
    opened run = {0};
    char *file = path_of("run.yaml"), *folder = path_of("trace");
    ech_text why = {0};
    assert_int_equal(ech_setup_config(file, NULL, 0, &run.config), ECH_OK);
    assert_int_equal(ech_design_create(run.config, fixture_tokenizer, ranks, ranks, &run.design),
                     ECH_OK);
    run.plan = ech_calloc((size_t)ranks, sizeof(ech_plan *));
    for (int rank = 0; rank < ranks; rank++)
        assert_int_equal(ech_design_outline(&run.design, rank, false, &run.plan[rank]), ECH_OK);
    const ech_plan *const *plans = (const ech_plan *const *)run.plan;
    assert_int_equal(ech_recording_read(folder, plans, ranks, &run.recording, &why), ECH_OK);
    assert_int_equal(why.n, 0);
    assert_true(ech_recording_has_one_clock(&run.recording));
    ech_recording_timeline(&run.recording, &run.timeline);
    free(file);
    free(folder);
    return run;
}

static inline void close_run(opened *run)
{
    ech_timeline_free(&run->timeline);
    ech_recording_free(&run->recording);
    for (int rank = 0; rank < run->design.world; rank++) ech_plan_destroy(run->plan[rank]);
    free(run->plan);
    ech_design_destroy(&run->design);
    ech_config_destroy(run->config);
}

#endif
