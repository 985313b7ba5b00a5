/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of metrics.jsonl and of the lines on standard error, plain and drawn.
 */
#include "checkpoint/scratch.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "app/count.h"
#include "app/train/progress.h"
#include "base/terminal.h"

static ech_step_metrics metrics_of(int64_t step)
{
    return (ech_step_metrics){.step = step,
                              .loss = 1.83125,
                              .learning_rate = 9.8e-4,
                              .grad_norm = 0.41,
                              .units = step * 512,
                              .samples = step * 16,
                              .step_seconds = 0.5,
                              .units_per_second = 21340.4,
                              .flops_per_second = 93.1e9,
                              .bytes_sent = 4096,
                              .peak_bytes = 1 << 20};
}

/* Standard error goes to a file, seen or not as a terminal of that many columns. */
typedef struct capture {
    int before;
    char *path;
} capture;

static capture begin_capture(const char *folder, const char *columns)
{
    capture c = {.before = dup(STDERR_FILENO), .path = ech_file_join(folder, "stderr")};
    int file = open(c.path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(file >= 0 && c.before >= 0);
    dup2(file, STDERR_FILENO);
    ech_log_set_quiet(false);
    close(file);
    setenv(ECH_TERMINAL_VARIABLE, columns, 1);
    return c;
}

/* What was written, released with free(). */
static void end_capture(capture *c, char **out)
{
    size_t n;
    dup2(c->before, STDERR_FILENO);
    ech_log_set_quiet(true);
    close(c->before);
    unsetenv(ECH_TERMINAL_VARIABLE);
    assert_int_equal(ech_file_read(c->path, 1 << 20, out, &n), ECH_OK);
    free(c->path);
}

static ech_progress *open_progress(const char *folder, int64_t first_step)
{
    ech_progress_setup setup = {.directory = folder,
                                .steps = 2000,
                                .first_step = first_step,
                                .every = 10,
                                .ranks = 4,
                                .layout = "2 stages",
                                .peak_flops = 93.1e9 / 0.4};
    ech_progress *progress = NULL;
    assert_int_equal(ech_progress_create(&setup, &progress), ECH_OK);
    return progress;
}

static void submit_step(ech_progress *progress, const ech_step_metrics *metrics)
{
    ech_progress_submit(progress, &(ech_note){.kind = ECH_NOTE_STEP, .step = *metrics});
}

/* Released with free(). */
static void read_metrics(const char *folder, char **out)
{
    char *path = ech_file_join(folder, "metrics.jsonl");
    size_t n;
    assert_int_equal(ech_file_read(path, 1 << 20, out, &n), ECH_OK);
    free(path);
}

TEST(formats_numbers)
{
    char buffer[ECH_COUNT_BYTES];
    assert_string_equal(ech_count_text(0, buffer), "0");
    assert_string_equal(ech_count_text(999, buffer), "999");
    assert_string_equal(ech_count_text(21340, buffer), "21,340");
    assert_string_equal(ech_count_text(-1234567, buffer), "-1,234,567");
    assert_string_equal(ech_count_text(INT64_MIN, buffer), "-9,223,372,036,854,775,808");
    assert_string_equal(ech_count_words(9999, buffer), "9,999");
    assert_string_equal(ech_count_words(10000, buffer), "10.0 thousand");
    assert_string_equal(ech_count_words(484311, buffer), "484 thousand");
    assert_string_equal(ech_count_words(999600, buffer), "1.00 million");
    assert_string_equal(ech_count_words(INT64_MAX, buffer), "9223372 trillion");
    assert_string_equal(ech_count_scaled(93.1e9, "FLOP/s", buffer), "93.1 GFLOP/s");
    assert_string_equal(ech_count_scaled(999.96e9, "FLOP/s", buffer), "1.0 TFLOP/s");
    assert_string_equal(ech_count_scaled(0, "FLOP/s", buffer), "0.0 FLOP/s");
    assert_string_equal(ech_count_span(102, buffer), "1:42");
    assert_string_equal(ech_count_span(3 * 3600 + 5 * 60 + 9, buffer), "3:05:09");
    assert_string_equal(ech_count_span(2 * 86400 + 3 * 3600 + 300, buffer), "2d 03:05");
    assert_string_equal(ech_count_span(NAN, buffer), "?");
    assert_string_equal(ech_count_span(-1, buffer), "?");
    assert_string_equal(ech_count_span(INFINITY, buffer), "?");
}

/* A peak that was measured beside other programs is too low, and the line says so. */
TEST(says_the_load_of_the_peak)
{
    char *folder = scratch_make(), *text;
    capture c = begin_capture(folder, "0");
    ech_progress *progress;
    const ech_progress_setup setup = {.directory = folder,
                                      .steps = 3,
                                      .every = 1,
                                      .peak_flops = 93.1e9 / 0.4,
                                      .load = 3.25,
                                      .ranks = 1};
    assert_int_equal(ech_progress_create(&setup, &progress), ECH_OK);
    ech_step_metrics m = metrics_of(1);
    submit_step(progress, &m);
    ech_progress_destroy(progress);
    end_capture(&c, &text);
    assert_non_null(strstr(text, "(mfu 40%, peak measured at load 3.2)"));
    free(text);
    scratch_remove(folder);
}

TEST(writes_plain_lines_into_a_pipe)
{
    char *folder = scratch_make();
    capture c = begin_capture(folder, "0");
    ech_progress *progress = open_progress(folder, 0);
    for (int64_t step = 1; step <= 12; step++) {
        ech_step_metrics m = metrics_of(step);
        m.skipped = step == 10;
        submit_step(progress, &m);
    }
    ech_step_metrics last = metrics_of(2000);
    submit_step(progress, &last);
    ech_progress_say(progress, "done in %d s", 7);
    ech_progress_destroy(progress);
    char *text;
    end_capture(&c, &text);
    const char *rest = "norm 0.41 | lr 9.8e-04 | 21,340 tok/s | 93.1 GFLOP/s (mfu 40%)";
    ech_text wanted = {0};
    ech_text_append(&wanted, "step     1/2000 | loss 1.8313 | ETA 16:40 | %s\n", rest);
    ech_text_append(&wanted, "step    10/2000 | loss 1.8313 | ETA 16:35 | update skipped | %s\n",
                    rest);
    ech_text_append(&wanted, "step  2000/2000 | loss 1.8313 | ETA 0:00 | %s\ndone in 7 s\n", rest);
    /* 1.83125 is a tie; either rounding will do. */
    for (char *at = text; (at = strstr(at, "1.8312 ")); at++) at[5] = '3';
    assert_string_equal(text, wanted.at);
    ech_text_free(&wanted);
    free(text);
    scratch_remove(folder);
}

TEST(draws_over_one_line_on_a_terminal)
{
    char *folder = scratch_make();
    capture c = begin_capture(folder, "40");
    ech_progress *progress = open_progress(folder, 0);
    ech_step_metrics first = metrics_of(1), last = metrics_of(2000);
    submit_step(progress, &first);
    ech_progress_submit(
        progress,
        &(ech_note){.kind = ECH_NOTE_VALIDATION,
                    .validation = {
                        .step = 1,
                        .found = {.loss = 2, .tokens = 1024, .bits_per_byte = NAN, .seconds = 1}}});
    submit_step(progress, &last);
    ech_progress_destroy(progress);
    char *text;
    end_capture(&c, &text);
    /* The line cut to 39 columns, the one that stays above it, the line again, the last step. */
    assert_non_null(strstr(text, "\rstep     1/2000 | loss 1.83"));
    assert_non_null(
        strstr(text, "\r\033[Kstep     1/2000 | validation loss 2.0000 | 1,024 tokens"));
    const char *end = strrchr(text, '\r');
    assert_non_null(end);
    assert_int_equal(strncmp(end, "\rstep  2000/2000 | loss 1.83", 28), 0);
    assert_string_equal(end + 1 + 39, "\033[K\n");
    free(text);
    scratch_remove(folder);
}

/* Named where they begin, with their factor, and counted at the end with the updates that were
 * skipped. */
TEST(names_spikes_and_counts_what_was_skipped)
{
    char *folder = scratch_make(), *text;
    capture c = begin_capture(folder, "0");
    ech_progress *progress = open_progress(folder, 0);
    for (int64_t step = 1; step <= 33; step++) {
        ech_step_metrics m = metrics_of(step);
        m.loss = step < 30 ? 2 : step < 32 ? 5 : 2;
        m.skipped = step == 33;
        submit_step(progress, &m);
    }
    ech_progress_submit(progress, &(ech_note){.kind = ECH_NOTE_END, .end = {33, 3}});
    ech_progress_destroy(progress);
    end_capture(&c, &text);
    const char *spike =
        "step    30/2000 | loss spike: 5.0000 is 2.5 times the median of the losses "
        "before it\n";
    char *first = strstr(text, spike);
    assert_non_null(first);
    assert_null(strstr(first + strlen(spike), "loss spike:"));
    assert_non_null(strstr(text,
                           "updates skipped for a NaN or infinity: 3 of 33; loss spikes since "
                           "this start: 1\n"));
    free(text);
    read_metrics(folder, &text);
    assert_non_null(strstr(text, "{\"step\":33,\"skipped_steps\":3,\"loss_spikes\":1}\n"));
    int high = 0;
    for (char *at = text; (at = strstr(at, "\"skipped\":false,\"loss_spike\":2.5}")); at++) high++;
    assert_int_equal(high, 2);
    free(text);
    scratch_remove(folder);
}

/* The first line of a start: "time" is the only thing in it that is not known. */
static const char *behind_start(const char *text, int64_t step, int64_t start)
{
    const char *newline = strchr(text, '\n');
    assert_non_null(newline);
    json_t *line = json_loadb(text, (size_t)(newline - text), 0, NULL);
    assert_int_equal(json_integer_value(json_object_get(line, "step")), step);
    assert_int_equal(json_integer_value(json_object_get(line, "start")), start);
    assert_int_equal(json_integer_value(json_object_get(line, "ranks")), 4);
    assert_true(json_integer_value(json_object_get(line, "time")) > 1700000000);
    assert_string_equal(json_string_value(json_object_get(line, "layout")), "2 stages");
    assert_int_equal(json_object_size(line), 5);
    json_decref(line);
    return newline + 1;
}

TEST(writes_json_with_null_for_what_is_no_number)
{
    char *folder = scratch_make();
    capture c = begin_capture(folder, "0");
    ech_progress *progress = open_progress(folder, 0);
    ech_step_metrics m = metrics_of(1);
    m.loss = NAN;
    m.grad_norm = INFINITY;
    m.learning_rate = 0.1 + 0.2;
    m.skipped = true;
    const ech_checkpoint_metrics checkpoint = {1, "a\"b", 77, 0.5, 0.25, 0.125};
    submit_step(progress, &m);
    ech_progress_submit(progress,
                        &(ech_note){.kind = ECH_NOTE_CHECKPOINT, .checkpoint = checkpoint});
    ech_progress_destroy(progress);
    char *text;
    end_capture(&c, &text);
    free(text);
    read_metrics(folder, &text);
    const char *first = behind_start(text, 0, 1), *newline = strchr(first, '\n');
    assert_non_null(newline);
    json_t *line = json_loadb(first, (size_t)(newline - first), 0, NULL);
    assert_true(json_is_null(json_object_get(line, "loss")));
    assert_true(json_is_null(json_object_get(line, "grad_norm")));
    assert_true(json_real_value(json_object_get(line, "learning_rate")) == 0.1 + 0.2);
    assert_true(json_is_true(json_object_get(line, "skipped")));
    assert_true(fabs(json_real_value(json_object_get(line, "mfu")) - 0.4) < 1e-12);
    assert_int_equal(json_integer_value(json_object_get(line, "peak_bytes")), 1 << 20);
    json_decref(line);
    assert_string_equal(newline + 1,
                        "{\"step\":1,\"checkpoint\":\"a\\\"b\",\"bytes\":77,\"seconds\":0.5,"
                        "\"stall_seconds\":0.25,\"waited_seconds\":0.125}\n");
    free(text);
    scratch_remove(folder);
}

TEST(drops_what_a_resumed_run_writes_again)
{
    static const char before[] = "{\"step\":1,\"loss\":3}\n"
                                 "{\"step\":2,\"loss\":2.5}\n"
                                 "{\"step\":2,\"checkpoint\":\"step-00000002\"}\n"
                                 "{\"step\":3,\"loss\":2}\n"
                                 "{\"step\":3,\"start\":3}\n"
                                 "not json\n"
                                 "{\"loss\":2}\n"
                                 "{\"step\":2,\"loss\":9";
    static const char kept[] = "{\"step\":1,\"loss\":3}\n"
                               "{\"step\":2,\"loss\":2.5}\n"
                               "{\"step\":2,\"checkpoint\":\"step-00000002\"}\n";
    char *folder = scratch_make();
    free(scratch_write(folder, "metrics.jsonl", before, strlen(before)));
    ech_progress_destroy(open_progress(folder, 2));
    char *text;
    read_metrics(folder, &text);
    assert_memory_equal(text, kept, sizeof kept - 1);
    assert_string_equal(behind_start(text + sizeof kept - 1, 2, 4), "");
    free(text);
    /* A run that starts anew drops all, and still counts. */
    ech_progress_destroy(open_progress(folder, 0));
    read_metrics(folder, &text);
    assert_string_equal(behind_start(text, 0, 5), "");
    free(text);
    scratch_remove(folder);
}

/* A full disk stands in the way from the third line on: the run goes on, and the file has whole
 * lines. */
TEST(goes_on_with_a_full_disk)
{
    char *folder = scratch_make(), *text;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    capture c = begin_capture(folder, "0");
    ech_progress *progress = open_progress(folder, 0);
    ech_step_metrics m = metrics_of(1);
    submit_step(progress, &m);
    ech_progress_settle(progress);
    struct rlimit small = {.rlim_cur = 400, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int64_t step = 2; step <= 4; step++) {
        m = metrics_of(step);
        submit_step(progress, &m);
    }
    ech_progress_settle(progress);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    m = metrics_of(5);
    submit_step(progress, &m);
    ech_progress_destroy(progress);
    end_capture(&c, &text);
    /* Said once, by name. (Standard error is a file here, and as full.) */
    assert_non_null(strstr(text, "metrics.jsonl: is written again; missing records: 3"));
    free(text);
    read_metrics(folder, &text);
    const char *first = behind_start(text, 0, 1), *second = strchr(first, '\n');
    assert_memory_equal(first, "{\"step\":1,", 10);
    assert_memory_equal(second + 1, "{\"step\":5,", 10);
    assert_string_equal(strchr(second + 1, '\n'), "\n");
    free(text);
    scratch_remove(folder);
}

TEST(fails_where_nothing_can_be_written)
{
    char *folder = scratch_make(), *file = scratch_write(folder, "run", "", 0);
    ech_progress_setup setup = {.directory = file, .steps = 1, .every = 1};
    ech_progress *progress = NULL;
    assert_int_equal(ech_progress_create(&setup, &progress), ECH_EIO);
    assert_null(progress);
    assert_error_has(file);
    free(file);
    scratch_remove(folder);
}
