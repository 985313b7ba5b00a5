/* SPDX-License-Identifier: Apache-2.0
 *
 * serves.jsonl: a log reads back as it was written. A file that no run can have written, or that is
 * of another run, is one error before a session is made; it names the line and says what would
 * work. Lines after the checkpoint of a resume are removed.
 */

#include "app/grid_run.h"
#include "app/runs.h"
#include "app/metrics.h"
#include "app/plan/report.h"
#include "app/serve_orders.h"
#include "config/capture.h"
#include "unit.h"

enum {
    WORKERS = 3,
    RANKS = 5,
    TURNS = 2,
    PUSHES = WORKERS * TURNS,
    SPANS = 3,
    LINES = 1 + SPANS * PUSHES
};
#define RUN                                                                                        \
    "parallel.strategy=ssp parallel.staleness=1 parallel.data=3 parallel.servers=2 "               \
    "training.steps=6 parallel.flush_every=2 training.global_batch_size=6 "                        \
    "training.micro_batch_size=1 "
/* Of three spans. */
static const int workers[SPANS * PUSHES] = {0, 1, 2, 2, 1, 0, 1, 0, 2, 2, 0, 1, 2, 0, 1, 0, 1, 2};

static char path[300];
static char *lines[LINES];

/* The design of a run with these words besides. */
static ech_status design_of(const char *more, ech_config **config, ech_design *out)
{
    char words[1000];
    snprintf(words, sizeof words, RUN "%s", more);
    *config = grid_config("gpt2", words);
    ech_clear_error();
    ech_status status = ech_design_create(*config, fixture_tokenizer, RANKS, RANKS, out);
    return status;
}

/* Writes the file, and keeps its lines. */
static void write_log(void)
{
    ech_config *config;
    ech_design design;
    char *text, *rest = NULL;
    size_t bytes;
    snprintf(path, sizeof path, "%s/serves", fixture_folder);
    assert_int_equal(design_of("", &config, &design), ECH_OK);
    serve_orders_write(path, config, design.layout, design.schedule, 0, workers, SPANS);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    assert_int_equal(ech_file_read(path, 1 << 20, &text, &bytes), ECH_OK);
    int n = 0;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        lines[n++] = strdup(line);
    assert_int_equal(n, LINES);
    free(text);
}

static int setup(void **state)
{
    grid_setup(state);
    write_log();
    return 0;
}

static int teardown(void **state)
{
    for (int i = 0; i < LINES; i++) free(lines[i]);
    return fixture_teardown(state);
}

/* Of the lines those before `end`, with `text` in place of that number (from 1), whose line's end
 * may lack. */
static void write_lines(int number, const char *text, int end, bool torn)
{
    ech_text all = {0};
    for (int i = 0; i < end; i++) {
        const char *line = i + 1 == number ? text : lines[i];
        if (line) ech_text_append(&all, "%s\n", line);
    }
    if (torn) all.n--;
    assert_int_equal(ech_file_write(path, all.n ? all.at : "", all.n), ECH_OK);
    ech_text_free(&all);
}

static ech_status read_with(const char *more, ech_design *design)
{
    char words[700];
    ech_config *config;
    ech_design own;
    snprintf(words, sizeof words, "parallel.serve_log=%s %s", path, more);
    ech_status status = design_of(words, &config, &own);
    if (status == ECH_OK && design)
        *design = own;
    else if (status == ECH_OK)
        ech_design_destroy(&own);
    if (!design) ech_config_destroy(config);
    return status;
}

/* ---- files that are taken ---- */

TEST(what_is_written_reads_back)
{
    ech_design design;
    ech_serve span[PUSHES];
    int64_t clock[WORKERS] = {0};
    write_lines(0, NULL, LINES, false);
    assert_int_equal(read_with("", &design), ECH_OK);
    const ech_serve_log *log = design.serves;
    assert_true(log->first == 0 && log->end == SPANS * TURNS && log->pushes == PUSHES);
    for (int s = 0; s < SPANS; s++) {
        serve_orders_fill(clock, workers + s * PUSHES, PUSHES, span);
        const ech_serve *read = ech_serve_log_span(log, s * TURNS);
        for (int i = 0; i < PUSHES; i++)
            assert_true(read[i].worker == span[i].worker && read[i].clock == span[i].clock &&
                        read[i].read == span[i].read && !read[i].withheld);
    }
    assert_null(ech_serve_log_span(log, SPANS * TURNS));
    /* Plans are bound to the first span. */
    ech_plan *plan;
    assert_int_equal(ech_design_outline(&design, WORKERS, false, &plan), ECH_OK);
    assert_ptr_equal(plan->list[ECH_LIST_TRAIN].bound, ech_serve_log_span(log, 0));
    ech_plan_destroy(plan);
    ech_config *config = (ech_config *)design.config;
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

/* The plan says what its lists are bound to, step by step, and that they fit. */
TEST(plans_are_bound)
{
    ech_design design;
    ech_plan_report report;
    ech_text text = {0}, line = {0};
    write_lines(0, NULL, LINES, false);
    assert_int_equal(read_with("", &design), ECH_OK);
    const ech_plan_options options = {.steps = true, .simulate = true};
    assert_int_equal(ech_plan_report_create(&design, &options, &report), ECH_OK);
    assert_true(report.checked && report.simulation.end > 0);
    ech_plan_report_text(&report, &text);
    ech_text_append(&line, "\nbound       to %s: pushes of steps 1 to 6, each span checked; ",
                    path);
    assert_non_null(strstr(text.at, line.at));
    const char *at = strstr(text.at, "of the list train, rank 3");
    for (int i = 0; i < PUSHES; i++) {
        char serve[30];
        snprintf(serve, sizeof serve, " serve of rank %d\n", workers[i]);
        const char *next = strstr(at, " serve of rank ");
        assert_true(next && strncmp(next, serve, strlen(serve) - 1) == 0);
        at = next + 1;
    }
    ech_text_free(&line);
    ech_text_free(&text);
    ech_plan_report_destroy(&report);
    ech_config *config = (ech_config *)design.config;
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

/* A run of fewer steps does not read the lines after them. The log may have a start between
 * spans. */
TEST(more_than_is_needed_is_taken)
{
    ech_text all = {0};
    for (int i = 0; i < LINES; i++) {
        if (i == 1 + PUSHES)
            ech_text_append(&all, "{\"step\":2,%s\n", lines[0] + strlen("{\"step\":0,"));
        ech_text_append(&all, "%s\n", lines[i]);
    }
    ech_text_append(&all, "whatever");
    assert_int_equal(ech_file_write(path, all.at, all.n), ECH_OK);
    ech_text_free(&all);
    assert_int_equal(read_with("", NULL), ECH_OK);
    assert_int_equal(read_with("training.steps=2", NULL), ECH_OK);
}

/* ---- files that are refused ---- */

/* The line with another value of a key, which is printed before it. */
static void expect_refused(int number, const char *text, int end, bool torn, const char *why)
{
    char where[400];
    write_lines(number, text, end, torn);
    ech_status status = read_with("", NULL);
    if (number > 0)
        snprintf(where, sizeof where, "%s:%d: ", path, number);
    else
        snprintf(where, sizeof where, "%s", path);
    if (status == ECH_OK || !strstr(ech_last_error(), where) || !strstr(ech_last_error(), why))
        fail_msg("line %d: expected '%s%s' in: %s", number, where, why, ech_last_error());
}

TEST(lines_that_cannot_be_are_errors)
{
#define START(workers, servers, span, samples, seed)                                               \
    "{\"step\":0,\"format\":\"echelon serves\",\"version\":1,\"workers\":" #workers                \
    ",\"servers\":" #servers ",\"span\":" #span ",\"samples\":" #samples ",\"seed\":" #seed "}"
#define PUSH(step, push, worker, clock, read)                                                      \
    "{\"step\":" #step ",\"push\":" #push ",\"worker\":" #worker ",\"clock\":" #clock              \
    ",\"read\":" #read ",\"withheld\":false}"
    static const struct {
        int number;
        const char *text, *why;
    } faults[] = {
        {1, START(2, 2, 2, 6, 1), "from another run: \"workers\" is 2 there and 3 in this run"},
        {1, START(3, 1, 2, 6, 1), "\"servers\" is 1 there and 2 in this run"},
        {1, START(3, 2, 4, 6, 1), "\"span\" is 4 there and 2 in this run; use the log of a run"},
        {1, START(3, 2, 2, 8, 1), "\"samples\" is 8 there and 6 in this run"},
        {1, START(3, 2, 2, 6, 7), "\"seed\" is 7 there and 1 in this run"},
        {1, START(3, 2, 2, 6, 1e3), "\"seed\" is no number"},
        {1, "{\"step\":1,\"start\":1,\"time\":1700000000,\"ranks\":2,\"layout\":\"\"}",
         "does not begin with a start line (\"format\":\"echelon serves\")"},
        {1, "", "no JSON object"},
        {1, "{\"format\":\"echelon serves\",\"version\":2}", "not of version 1"},
        {2, "[]", "no JSON object"},
        {2, "{\"step\":2,\"step\":2}", "no JSON object"},
        {2, "{\"step\":2,\"push\":0,\"worker\":0,\"clock\":1,\"read\":0}",
         "not a push: it needs \"step\", "},
        {2, PUSH(2, 0, -1, 1, 0), "not a push: it needs \"step\", "},
        {2, PUSH(2, 0, 0, 0, 0), "not a push: it needs \"step\", "},
        {2, PUSH(2, 0, 0, 1, 1e300), "not a push: it needs \"step\", "},
        {2, PUSH(2, 0, 3, 1, 0), "there is no worker 3; workers are 0 to 2"},
        {2, PUSH(2, 0, 9000000000000000, 1, 0), "there is no worker 9000000000000000"},
        {2, PUSH(2, 0, 0, 1, 1), "read version 1, but only 0 versions exist"},
        {2,
         "{\"step\":2,\"push\":0,\"worker\":1,\"clock\":1,\"read\":0,\"withheld\":false,"
         "\"dropped\":true}",
         "a dropped push of worker 1"},
        {2, PUSH(2, 1, 0, 1, 0), "push 1 of the span that ends with step 2, but push 0"},
        {3, PUSH(4, 1, 1, 1, 0),
         "push 1 of the span that ends with step 4, but push 1 of the span that ends with step 2 "
         "is due"},
        {3, NULL, "push 2 of the span that ends with step 2, but push 1"},
        {4, PUSH(2, 2, 1, 1, 0),
         "repeats the push of worker 1 in step 1; its next push is in step 2"},
        {2, PUSH(2, 0, 0, 2, 0), "the push of worker 0 in step 2 precedes its push in step 1"},
        {2, PUSH(2, 0, 0, 3, 0), "the push of worker 0 in step 3 precedes its push in step 1"},
        {5, PUSH(2, 3, 2, 2, 2), "read version 2, but its previous push returned version 3"},
        {3, PUSH(2, 1, 0, 2, 1), "takes worker 0 more than parallel.staleness = 1 steps ahead"},
        {7, PUSH(2, 5, 2, 3, 4),
         "worker 2 has already made its last push of the span that ends with step 2"},
        {8, PUSH(4, 0, 1, 4, 0), "the push of worker 1 in step 4 precedes its push in step 3"},
        {3, START(3, 2, 2, 6, 1),
         "continues after step 0, but the lines before it have pushes of 0 steps and a part"},
        {8, START(3, 2, 2, 6, 1),
         "continues after step 0, but the lines before it have pushes of 2 steps; use"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        expect_refused(faults[i].number, faults[i].text, LINES, false, faults[i].why);
}

TEST(files_that_end_early_are_errors)
{
    expect_refused(0, NULL, 0, false, ":1: does not begin with a start line");
    expect_refused(0, NULL, 4, false,
                   ":5: ends after 3 of the 6 pushes of the span that ends with step 2");
    expect_refused(0, NULL, 4, true,
                   ":4: the line is incomplete; use the file as its run wrote it");
    expect_refused(0, NULL, LINES, true, ":19: the line is incomplete");
    expect_refused(
        0, NULL, 1 + PUSHES, false,
        "ends with step 2, and training.steps is 6; use a longer log, or set training.steps to 2");
    write_lines(0, NULL, LINES, false);
    assert_int_equal(read_with("training.steps=8", NULL), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "ends with step 6, and training.steps is 8"));
    char long_line[ECH_METRICS_LONGEST_LINE + 10];
    memset(long_line, ' ', sizeof long_line);
    memcpy(long_line, lines[1], strlen(lines[1]));
    long_line[sizeof long_line - 1] = '\0';
    expect_refused(2, long_line, LINES, false, "no JSON object");
}

TEST(what_is_no_log_is_an_error)
{
    ech_config *config;
    ech_design design;
    assert_int_equal(design_of("parallel.serve_log=/nowhere/serves.jsonl", &config, &design),
                     ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "no such file; a run of asp or ssp writes one"));
    ech_config_destroy(config);
    assert_true(design_of("parallel.serve_log=/dev/zero", &config, &design) != ECH_OK);
    ech_config_destroy(config);
    write_lines(0, NULL, LINES, false);
    assert_int_equal(read_with("parallel.strategy=parameter_server", NULL), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(),
                           "only asp and ssp have pushes whose order it can set; "
                           "remove this key, or set parallel.strategy = asp"));
}

/* What is said when the run is refused; once, whatever its ranks. */
static void expect_said(const char *name, ech_status (*run)(const ech_config *config),
                        const char *why)
{
    char words[700];
    snprintf(words, sizeof words, RUN "parallel.serve_log=%s", path);
    ech_config *config = runs_config("gpt2", name, words);
    capture c = begin_capture();
    ech_status status = run(config);
    char *said = end_capture(&c), *at = strstr(said, why);
    ech_config_destroy(config);
    if (status != ECH_EUSAGE || !at || strstr(at + 1, why))
        fail_msg("expected %s in: %s", why, said);
    free(said);
}

static ech_status train(const ech_config *config)
{
    ech_training training = {0};
    return fixture_run(config, RANKS, ech_train_rank, &training);
}

static ech_status verify(const ech_config *config)
{
    ech_verification v = {.steps = 1, .tolerance = ECH_TOLERANCE};
    return fixture_run(config, RANKS, ech_verify_rank, &v);
}

/* The log must have the steps of the run, which begin after its checkpoint, and must not be the
 * run's own log. */
TEST(logs_are_of_the_runs_steps)
{
    ech_config *config;
    ech_design design;
    assert_int_equal(design_of("", &config, &design), ECH_OK);
    serve_orders_write(path, config, design.layout, design.schedule, 2, workers, 2);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    assert_int_equal(read_with("", NULL), ECH_OK);
    expect_said("late", train,
                "has the pushes of steps 3 to 6, but the run has steps 1 to 6; train the same "
                "steps as the log's run");
    expect_said("late", verify, "has the pushes of steps 3 to 6, but the run has steps 1 to 2");
    runs_remove("late");

    char before[sizeof path];
    memcpy(before, path, sizeof path);
    snprintf(path, sizeof path, "%s/own", fixture_folder);
    assert_int_equal(ech_file_make_folder(path), ECH_OK);
    snprintf(path, sizeof path, "%s/own/serves.jsonl", fixture_folder);
    write_lines(0, NULL, LINES, false);
    expect_said("own", train, "this run would overwrite the file; use another");
    assert_int_equal(read_with("", NULL), ECH_OK); /* and is as it was */
    runs_remove("own");
    memcpy(path, before, sizeof path);
}

/* ---- truncating ---- */

/* How many whole lines stay of the log with a torn line. */
static int left_behind(int64_t step)
{
    char *text;
    size_t n;
    int left = 0;
    write_lines(0, NULL, LINES, true);
    assert_int_equal(ech_serve_log_truncate(path, step), ECH_OK);
    assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_OK);
    assert_true(n == 0 || text[n - 1] == '\n');
    for (size_t i = 0; i < n; i++) left += text[i] == '\n';
    free(text);
    return left;
}

TEST(what_is_behind_a_checkpoint_goes)
{
    assert_int_equal(left_behind(0), 0); /* the start, too: another one is written */
    assert_int_equal(left_behind(2), 1 + PUSHES);
    assert_int_equal(left_behind(4), 1 + 2 * PUSHES);
    assert_int_equal(left_behind(6), LINES - 1); /* but for the torn one */
    assert_int_equal(ech_serve_log_truncate("/nowhere/serves.jsonl", 2), ECH_OK);
    write_lines(3, "no line of a log", LINES, false);
    assert_int_equal(ech_serve_log_truncate(path, 6), ECH_OK);
    char *text;
    size_t n;
    assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_OK);
    assert_int_equal(n, strlen(lines[0]) + strlen(lines[1]) + 2);
    free(text);
}

ALL_TESTS(setup, teardown)
