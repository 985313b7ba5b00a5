/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs with pushes write down in which order these are served, and repeat such an order: then they
 * have the same bits, whoever is slow, in the run's own type, also over a resume. What a log says
 * of staleness and clocks is what asp and ssp promise.
 */

#include "app/runs.h"
#include "app/serve_orders.h"
#include "app/verify/verify.h"
#include "base/clock.h"
#include "config/capture.h"
#include "unit.h"

enum { STEPS = 8, SPAN = 4, FREE = 1000 /* asp knows no bound */ };
#define RUN                                                                                        \
    "training.steps=8 parallel.flush_every=4 checkpoint.every=4 training.validate_every=8 "        \
    "precision.compute=fp32 training.micro_batch_size=1 "

static void path_of(const char *name, char *out, size_t n)
{
    snprintf(out, n, "%s/%s/serves.jsonl", fixture_folder, name);
}

static char *read_text(const char *name)
{
    char path[400], *text;
    size_t n;
    path_of(name, path, sizeof path);
    assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_OK);
    return text;
}

#define TIME ",\"time\":"

/* Removes the next push's time from the text after *at, and returns it; -1: there is none. */
static double remove_time(char **at)
{
    char *end;
    *at = strstr(*at, TIME);
    if (!*at) return -1;
    double time = strtod(*at + strlen(TIME), &end);
    assert_int_equal(*end, '}');
    memmove(*at, end, strlen(end) + 1);
    return time;
}

/* A run's pushes have ascending times of the last hour. */
static void check_times(const char *of)
{
    char *text = read_text(of), *at = text;
    double last = ech_clock_wall() - 3600, time;
    int pushes = 0;
    for (; (time = remove_time(&at)) >= 0; pushes++, last = time) assert_true(time >= last);
    assert_true(pushes >= STEPS && last <= ech_clock_wall());
    free(text);
}

/* Compares the logs line by line, without times and the lines of later starts. */
static bool logs_are_same(const char *a, const char *b)
{
    char *text[2] = {read_text(a), read_text(b)};
    for (int i = 0; i < 2; i++) {
        for (char *at = text[i]; remove_time(&at) >= 0;) {
        }
        for (char *at = text[i]; (at = strstr(at + 1, "\n{\"step\":4,\"format\""));)
            memmove(at, strchr(at + 1, '\n'), strlen(strchr(at + 1, '\n')) + 1);
    }
    bool same = strcmp(text[0], text[1]) == 0;
    free(text[0]);
    free(text[1]);
    return same;
}

/* The run `name` repeats the order of `of`. */
static void repeat(const char *name, const char *of, int ranks, const char *words)
{
    char all[1000], path[400];
    path_of(of, path, sizeof path);
    snprintf(all, sizeof all, RUN "%s parallel.serve_log=%s", words, path);
    runs_train("gpt2", name, ranks, all);
}

static void first(const char *name, int ranks, const char *words)
{
    char all[1000];
    snprintf(all, sizeof all, RUN "%s", words);
    runs_train("gpt2", name, ranks, all);
}

/* ---- what a log says ---- */

/* The design of a run that repeats the order. */
static void read_log(const char *of, int ranks, const char *words, ech_config **config,
                     ech_design *design)
{
    char all[1000], path[400];
    path_of(of, path, sizeof path);
    snprintf(all, sizeof all, RUN "%s parallel.serve_log=%s", words, path);
    *config = runs_config("gpt2", "read", all);
    assert_int_equal(ech_design_create(*config, fixture_tokenizer, ranks, ranks, design), ECH_OK);
}

/* Checks a span. If the N-th push is a worker's n-th, the staleness of these n pushes adds up to
 * N - n, the number of pushes by others, however fast the worker is. So over the span it adds up to
 * the others' pushes less those after the worker's last one. */
static void check_span(const ech_serve *push, int pushes, int workers, int64_t staleness,
                       int64_t *clock)
{
    int64_t stale[8] = {0};
    int done[8] = {0}, last[8] = {0}, all = 0;
    for (int turn = 0; turn < pushes; turn++) {
        int w = push[turn].worker, least = pushes, most = 0;
        assert_int_equal(push[turn].clock, clock[w]++); /* each of a worker's pushes once */
        assert_int_equal(push[turn].read, last[w]);
        last[w] = turn + 1;
        stale[w] += turn - push[turn].read;
        assert_int_equal(stale[w], turn + 1 - ++done[w]);
        for (int other = 0; other < workers; other++) {
            if (done[other] < least) least = done[other];
            if (done[other] > most) most = done[other];
        }
        assert_true(most - least <= staleness); /* and who computes on is a step further */
    }
    for (int w = 0; w < workers; w++) {
        assert_true(done[w] > 0 && (staleness >= pushes || done[w] == SPAN));
        assert_int_equal(stale[w], pushes - done[w] - (pushes - last[w]));
        all += done[w];
    }
    assert_int_equal(all, pushes);
}

static void check_log(const char *of, int ranks, const char *words, int64_t staleness)
{
    ech_config *config;
    ech_design design;
    read_log(of, ranks, words, &config, &design);
    int workers = ech_layout_workers(design.layout);
    int64_t clock[8] = {0};
    assert_true(design.serves->first == 0 && design.serves->end == STEPS);
    assert_int_equal(design.serves->pushes, workers * SPAN);
    for (int64_t step = 0; step < STEPS; step += SPAN)
        check_span(ech_serve_log_span(design.serves, step), workers * SPAN, workers, staleness,
                   clock);
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

/* ---- runs ---- */

static const struct {
    int ranks;
    int64_t staleness;
    const char *words, *delay, *other_delay;
} cases[] = {
    {3, FREE, "parallel.strategy=asp parallel.data=2", "", "parallel.delay=0:0.004"},
    {4, FREE, "parallel.strategy=asp parallel.data=3 optimizer.name=sgd optimizer.momentum=0.9",
     "parallel.delay=1:0.01", "parallel.delay=0:0.004"},
    {5, 1, "parallel.strategy=ssp parallel.staleness=1 parallel.data=3 parallel.servers=2",
     "parallel.delay=2:0.005", "parallel.delay=1:0.005"},
    {6, 2,
     "parallel.strategy=ssp parallel.data=3 parallel.servers=3 precision.compute=bf16 "
     "optimizer.name=adamw8 optimizer.block=2 parallel.device=walled",
     "parallel.delay=0:0.01", "parallel.delay=2:0.004"},
};
enum { CASES = sizeof cases / sizeof *cases };

/* One that starts in the folder of a run with pushes, and one that resumes there. */
TEST(a_run_without_pushes_leaves_the_log)
{
    first("kept", 3, "parallel.strategy=asp parallel.data=2");
    ECH_FREED char *log = read_text("kept");
    for (int step = 4; step <= STEPS; step += 4) runs_remove_checkpoint("kept", step);
    first("kept", 2, "parallel.data=2");
    ECH_FREED char *started = read_text("kept");
    assert_string_equal(started, log);
    runs_remove_checkpoint("kept", STEPS);
    first("kept", 2, "parallel.data=2");
    ECH_FREED char *resumed = read_text("kept");
    assert_string_equal(resumed, log);
    assert_true(strlen(log) > 500);
    runs_remove("kept");
}

TEST(a_bound_run_has_the_same_bits)
{
    for (int i = 0; i < CASES; i++) {
        char words[600];
        int ranks = cases[i].ranks;
        snprintf(words, sizeof words, "%s %s", cases[i].words, cases[i].delay);
        first("one", ranks, words);
        check_times("one");
        check_log("one", ranks, words, cases[i].staleness);
        snprintf(words, sizeof words, "%s %s", cases[i].words, cases[i].other_delay);
        repeat("other", "one", ranks, words);
        assert_true(logs_are_same("one", "other"));
        assert_true(runs_same("one", "other", SPAN) && runs_same("one", "other", STEPS));
        runs_remove("one");
        runs_remove("other");
    }
}

/* When a run resumes from a checkpoint, the lines of the log after that checkpoint are removed
 * before new weights are computed. */
TEST(log_and_weights_agree_after_a_resume)
{
    static const char words[] = "parallel.strategy=asp parallel.data=3 parallel.servers=2";
    char slow[200];
    snprintf(slow, sizeof slow, "%s parallel.delay=2:0.005", words);
    first("parts", 5, words);
    runs_remove_checkpoint("parts", STEPS);
    first("parts", 5, slow); /* from the middle on, in another order */
    check_log("parts", 5, words, FREE);
    repeat("whole", "parts", 5, words);
    assert_true(logs_are_same("parts", "whole"));
    assert_true(runs_same("parts", "whole", SPAN) && runs_same("parts", "whole", STEPS));
    runs_remove_checkpoint("whole", STEPS);
    repeat("whole", "parts", 5, slow);
    assert_true(logs_are_same("parts", "whole"));
    assert_true(runs_same("parts", "whole", STEPS));
    runs_remove("parts");
    runs_remove("whole");
}

/* ---- orders that no run would come by ---- */

enum { WORKERS = 2, RANKS = 4, PUSHES = WORKERS * SPAN, SPANS = STEPS / SPAN };
static const char strange[] = "parallel.strategy=asp parallel.data=2 parallel.servers=2";
static const int orders[][SPANS * PUSHES] = {
    {1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1}, /* one has all that it can have */
    {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 0, 1, 1, 0},
};

static void write_order(const char *name, const int *workers)
{
    char path[400], all[600];
    ech_design design;
    snprintf(path, sizeof path, "%s/%s", fixture_folder, name);
    assert_int_equal(ech_file_make_folder(path), ECH_OK);
    path_of(name, path, sizeof path);
    snprintf(all, sizeof all, RUN "%s", strange);
    ech_config *config = runs_config("gpt2", name, all);
    assert_int_equal(ech_design_create(config, fixture_tokenizer, RANKS, RANKS, &design), ECH_OK);
    serve_orders_write(path, config, design.layout, design.schedule, 0, workers, SPANS);
    ech_design_destroy(&design);
    ech_config_destroy(config);
}

/* Any order is followed, and it is what decides: other orders make other weights. */
TEST(an_order_is_followed)
{
    for (int i = 0; i < 2; i++) {
        write_order(i ? "turns" : "one-alone", orders[i]);
        check_log(i ? "turns" : "one-alone", RANKS, strange, FREE);
        repeat(i ? "b" : "a", i ? "turns" : "one-alone", RANKS, strange);
        assert_true(logs_are_same(i ? "b" : "a", i ? "turns" : "one-alone"));
    }
    assert_true(!runs_same_file("a", "b", SPAN, runs_model));
    runs_remove("a");
    runs_remove("b");
}

/* Clocks at which the run does not stand, since each worker has pushed: another log's. */
TEST(other_clocks_are_refused)
{
    static const int turns[] = {0, 1, 0, 1, 0, 1, 0, 1};
    char all[1000], path[400];
    ech_design design;
    ech_serve span[PUSHES];
    ech_text text = {0};
    int64_t clock[WORKERS] = {0, 8};
    first("late", RANKS, strange);
    runs_remove_checkpoint("late", STEPS);
    snprintf(all, sizeof all, RUN "%s", strange);
    ech_config *config = runs_config("gpt2", "late", all);
    assert_int_equal(ech_design_create(config, fixture_tokenizer, RANKS, RANKS, &design), ECH_OK);
    ech_serve_log_begin(config, design.layout, design.schedule, SPAN, &text);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    serve_orders_fill(clock, turns, PUSHES, span);
    ech_serve_log_add(STEPS, span, PUSHES, &text);
    snprintf(path, sizeof path, "%s/clocks", fixture_folder);
    assert_int_equal(ech_file_write(path, text.at, text.n), ECH_OK);
    ech_text_free(&text);
    snprintf(all, sizeof all, RUN "%s parallel.serve_log=%s", strange, path);
    config = runs_config("gpt2", "late", all);
    ech_training training = {0};
    capture c = begin_capture();
    assert_int_equal(fixture_run(config, RANKS, ech_train_rank, &training), ECH_EUSAGE);
    char *said = end_capture(&c);
    if (!strstr(said, "continues after step 4 with the push of worker 0 in step 1, but this run"))
        fail_msg("%s", said);
    free(said);
    ech_config_destroy(config);
    runs_remove("late");
}

/* In fp64 and in fp32, in which the replay has the same bits. */
TEST(verify_follows_an_order)
{
    for (int i = 0; i < 2; i++) {
        char all[1000], path[400];
        write_order("given", orders[i]);
        path_of("given", path, sizeof path);
        snprintf(all, sizeof all, RUN "%s parallel.serve_log=%s", strange, path);
        ech_config *config = runs_config("gpt2", "verified", all);
        ech_verifications v = {.main = {.steps = STEPS, .tolerance = ECH_TOLERANCE}};
        assert_int_equal(fixture_run(config, RANKS, ech_verify_twice_rank, &v), ECH_OK);
        if (!v.main.passed || !v.own_compared || !v.own.passed || v.own.worst > 0)
            fail_msg("order %d: %g, %g at %s", i, v.main.worst, v.own.worst, v.own.worst_at);
        ech_config_destroy(config);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
