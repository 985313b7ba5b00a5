/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.jsonl as series: what is taken, what is skipped and counted.
 */

#include <fcntl.h>
#include <math.h>
#include <jansson.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "app/fixture.h"
#include "app/report/parts.h"
#include "app/metrics.h"
#include "app/train/progress.h"
#include "base/log.h"
#include "unit.h"

static ech_metrics_series parse(const char *text)
{
    ech_metrics_series series;
    char *path = ech_file_join(fixture_folder, "metrics.jsonl");
    assert_int_equal(ech_file_write(path, text, strlen(text)), ECH_OK);
    assert_int_equal(ech_metrics_series_read(path, &series), ECH_OK);
    free(path);
    return series;
}

static void assert_point(const ech_report_points *points, size_t i, int64_t step, double value)
{
    assert_true(i < points->n);
    assert_int_equal(points->at[i].step, step);
    assert_true(points->at[i].value == value);
}

/* What progress.c writes, in the units of the kind. */
static void check_written(ech_sample_kind kind)
{
    const char *folder = fixture_folder;
    ech_progress_setup setup = {.directory = folder, .steps = 3, .every = 1, .samples = kind};
    ech_progress *progress;
    assert_int_equal(ech_progress_create(&setup, &progress), ECH_OK);
    for (int step = 1; step <= 3; step++) {
        ech_step_metrics metrics = {.step = step,
                                    .loss = 4.0 / step,
                                    .learning_rate = 0.5 * step,
                                    .grad_norm = step == 2 ? (double)NAN : 1.25,
                                    .step_seconds = 0.125,
                                    .units_per_second = 800};
        ech_progress_submit(progress, &(ech_note){.kind = ECH_NOTE_STEP, .step = metrics});
    }
    ech_progress_submit(
        progress, &(ech_note){.kind = ECH_NOTE_VALIDATION, .validation = {3, {1.5, 100, 0.1}}});
    const ech_checkpoint_metrics checkpoint = {3, "step-00000003", 10, 0.1, 0.1, 0};
    ech_progress_submit(progress,
                        &(ech_note){.kind = ECH_NOTE_CHECKPOINT, .checkpoint = checkpoint});
    ech_progress_destroy(progress);
    char *path = ech_file_join(folder, "metrics.jsonl");
    ech_metrics_series series;
    assert_int_equal(ech_metrics_series_read(path, &series), ECH_OK);
    assert_int_equal(series.steps, 3);
    assert_int_equal(series.skipped, 0);
    assert_int_equal(series.loss.n, 3);
    assert_point(&series.loss, 0, 1, 4);
    assert_point(&series.loss, 1, 2, 2);
    assert_point(&series.learning_rate, 2, 3, 1.5);
    assert_point(&series.grad_norm, 0, 1, 1.25);
    assert_true(isnan(series.grad_norm.at[1].value));
    assert_point(&series.units_per_second, 1, 2, 800);
    assert_point(&series.step_seconds, 1, 2, 0.125);
    assert_int_equal(series.restarts.n, 0);
    assert_int_equal(series.valid_loss.n, 1);
    assert_point(&series.valid_loss, 0, 3, 1.5);
    ech_metrics_series_free(&series);
    assert_int_equal(remove(path), 0);
    free(path);
}

TEST(as_written)
{
    check_written(ECH_SAMPLES_OF_tokens);
    check_written(ECH_SAMPLES_OF_images);
}

TEST(skipped)
{
    ech_metrics_series series = parse("{\"step\":1,\"loss\":3}\n"
                                      "\n"                                   /* 1 */
                                      "not JSON\n"                           /* 2 */
                                      "[1]\n"                                /* 3 */
                                      "{\"loss\":3}\n"                       /* 4 */
                                      "{\"step\":-1,\"loss\":3}\n"           /* 5 */
                                      "{\"step\":1,\"loss\":9}\n"            /* 6: once more */
                                      "{\"step\":2,\"loss\":\"3\"}\n"        /* 7 */
                                      "{\"step\":2,\"loss\":1,\"loss\":2}\n" /* 8 */
                                      "{\"step\":2,\"loss\":1e999}\n"        /* 9 */
                                      "{\"step\":2,\"loss\":2.5,\"grad_norm\":[]}\n" /* 10 */
                                      "{\"step\":4,\"loss\":null}\n"
                                      "{\"step\":4,\"valid_loss\":2}\n"
                                      "{\"step\":3,\"valid_loss\":2}\n" /* 11 */
                                      "{\"step\":4,\"valid_loss\":1}\n"
                                      "{\"step\":4,\"checkpoint\":\"x\"}\n"
                                      "{\"step\":5,\"loss\":2"); /* under way */
    assert_int_equal(series.skipped, 11);
    assert_int_equal(series.steps, 4);
    assert_int_equal(series.loss.n, 2);
    assert_point(&series.loss, 0, 1, 3);
    assert_true(isnan(series.loss.at[1].value));
    assert_int_equal(series.grad_norm.n, 0);
    assert_int_equal(series.valid_loss.n, 2);
    assert_point(&series.valid_loss, 1, 4, 1);
    ech_metrics_series_free(&series);
}

TEST(restarts)
{
    ech_metrics_series series = parse("{\"step\":0,\"start\":1}\n"
                                      "{\"step\":1,\"loss\":3}\n"
                                      "{\"step\":1,\"start\":2,\"ranks\":4}\n"
                                      "{\"step\":1,\"start\":5}\n"
                                      "{\"step\":0,\"start\":6}\n"     /* 1: back */
                                      "{\"step\":2,\"start\":0}\n"     /* 2 */
                                      "{\"step\":2,\"start\":\"3\"}\n" /* 3 */
                                      "{\"step\":2,\"loss\":2}\n");
    assert_int_equal(series.skipped, 3);
    assert_int_equal(series.loss.n, 2);
    assert_int_equal(series.restarts.n, 2);
    assert_point(&series.restarts, 0, 1, 2);
    assert_point(&series.restarts, 1, 1, 5);
    ech_metrics_series_free(&series);
}

TEST(long_lines)
{
    ech_text text = {0};
    for (int more = 0; more < 2; more++)
        ech_text_append(&text, "{\"step\":%d,\"loss\":1%*s}\n", more + 1, (1 << 16) - 19 + more,
                        "");
    ech_metrics_series series = parse(text.at);
    assert_int_equal(series.steps, 1);
    assert_int_equal(series.skipped, 1);
    ech_metrics_series_free(&series);
    ech_text_free(&text);
}

/* What a resume leaves: lines up to its step; neither long ones, nor others, nor a torn end. */
TEST(cut)
{
    static const char kept[] = "{\"step\":0,\"start\":2}\n{\"step\":1,\"loss\":4}\n";
    ech_text text = {0};
    int64_t starts = -1;
    char *path = ech_file_join(fixture_folder, "cut.jsonl"), *now;
    size_t n;
    ech_text_append(&text, "%sjunk\n{\"step\":1,\"x\":\"%0*d\"}\n", kept,
                    (int)ECH_METRICS_LONGEST_LINE, 0);
    ech_text_append(&text, "{\"step\":5,\"start\":3}\n{\"step\":1,");
    assert_int_equal(ech_file_write(path, text.at, text.n), ECH_OK);
    assert_int_equal(ech_metrics_truncate(path, 1, &starts), ECH_OK);
    assert_int_equal(starts, 3);
    assert_int_equal(ech_file_read(path, 1 << 20, &now, &n), ECH_OK);
    assert_string_equal(now, kept);
    free(now);
    free(path);
    ech_text_free(&text);
}

/* More than 1 GiB, most of which is a hole: one line that nobody reads, before the end or at it.
 * Neither a start nor a report holds it in memory. */
TEST(larger_than_memory)
{
    static const char head[] = "{\"step\":0,\"start\":7}\n{\"step\":1,\"loss\":4}\n";
    static const char tail[] = "\n{\"step\":2,\"loss\":3}\n{\"step\":3,\"loss\":2}\n"
                               "{\"step\":2,\"checkpoint\":\"step-00000002\"}\n{\"step\":4,";
    const int64_t hole = (INT64_C(1) << 30) + 12345, size = hole + (int64_t)sizeof tail - 1;
    char *path = ech_file_join(fixture_folder, "large.jsonl"), end[128] = "";
    ech_metrics_series series = {0};
    struct rusage before, after;
    struct stat info;
    int64_t starts;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(pwrite(fd, head, sizeof head - 1, 0), sizeof head - 1);
    assert_int_equal(pwrite(fd, tail, sizeof tail - 1, hole), sizeof tail - 1);
    assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
    assert_int_equal(ech_metrics_series_read(path, &series), ECH_OK);
    assert_int_equal(series.loss.n, 3);
    assert_int_equal(series.skipped, 1);
    ech_metrics_series_free(&series);
    assert_int_equal(ech_metrics_truncate(path, 2, &starts), ECH_OK);
    assert_int_equal(starts, 7);
    assert_int_equal(fstat(fd, &info), 0);
    static const char kept[] =
        "\n{\"step\":2,\"loss\":3}\n{\"step\":2,\"checkpoint\":\"step-00000002\"}\n";
    assert_int_equal(info.st_size, hole + (int64_t)sizeof kept - 1);
    assert_true(size > info.st_size);
    assert_int_equal(pread(fd, end, sizeof end, hole), sizeof kept - 1);
    assert_string_equal(end, kept);
    assert_int_equal(ech_metrics_truncate(path, 1, &starts), ECH_OK);
    assert_int_equal(starts, 7);
    assert_int_equal(fstat(fd, &info), 0);
    assert_int_equal(info.st_size, sizeof head - 1);
    assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
    assert_true(after.ru_maxrss - before.ru_maxrss < 64 << 10); /* KiB */
    close(fd);
    assert_int_equal(unlink(path), 0);
    free(path);
}

static int64_t allocations;

static void *count_allocation(size_t bytes)
{
    allocations++;
    return malloc(bytes);
}

/* If hundreds of thousands of steps follow the one from which a run resumes, hardly any line is
 * parsed: a start does not take minutes. */
TEST(cuts_without_parsing)
{
    enum { STEPS = 100000, LAST = 10 };
    char *path = ech_file_join(fixture_folder, "steps.jsonl");
    ech_text text = {0};
    int64_t starts;
    struct stat info;
    size_t kept = 0;
    ech_text_append(&text, "{\"step\":0,\"start\":1}\n");
    for (int step = 1; step <= STEPS; step++) {
        ech_text_append(&text, "{\"step\":%d,\"loss\":4}\n", step);
        if (step == LAST) kept = text.n;
    }
    assert_int_equal(ech_file_write(path, text.at, text.n), ECH_OK);
    json_set_alloc_funcs(count_allocation, free);
    assert_int_equal(ech_metrics_truncate(path, LAST, &starts), ECH_OK);
    json_set_alloc_funcs(malloc, free);
    assert_in_range(allocations, 1, 100);
    assert_int_equal(starts, 1);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_size, kept);
    free(path);
    ech_text_free(&text);
}

/* By a plain reading of all lines: what is cut from the end is what would stay. */
TEST(cut_anywhere)
{
    enum { STEPS = 9000, EVERY = 100 };
    char *path = ech_file_join(fixture_folder, "long.jsonl"), *now;
    ech_text text = {0};
    int64_t starts;
    size_t n;
    for (int step = 0; step <= STEPS; step++) {
        if (step % 4000 == 0)
            ech_text_append(&text, "{\"step\":%d,\"start\":%d}\n", step, 1 + step / 4000);
        ech_text_append(&text, "{\"step\":%d,\"loss\":%d,\"more\":\"%0*d\"}\n", step + 1, step,
                        step % 371, 0);
        if (step % EVERY == 3) /* a checkpoint is there three steps later */
            ech_text_append(&text, "{\"step\":%d,\"checkpoint\":\"c\"}\n", step - 2);
    }
    assert_true(text.n > 1500000);
    for (int last = STEPS; last >= 0; last -= last > 10 ? 700 : 1) {
        ech_text wanted = {0};
        for (const char *at = text.at, *end; (end = strchr(at, '\n')); at = end + 1)
            if (atoi(at + 8) <= last) ech_text_append_bytes(&wanted, at, (size_t)(end - at) + 1);
        assert_int_equal(ech_file_write(path, text.at, text.n), ECH_OK);
        assert_int_equal(ech_metrics_truncate(path, last, &starts), ECH_OK);
        assert_int_equal(starts, 3);
        assert_int_equal(ech_file_read(path, 1 << 26, &now, &n), ECH_OK);
        if (n != wanted.n || memcmp(now, wanted.at ? wanted.at : "", n) != 0)
            fail_msg("cut at %d", last);
        free(now);
        ech_text_free(&wanted);
    }
    ech_text_free(&text);
    free(path);
}

TEST(nothing)
{
    ech_metrics_series series = parse("");
    assert_int_equal(series.steps + series.skipped, 0);
    assert_int_equal(series.loss.n, 0);
    ech_metrics_series_free(&series);
    assert_int_equal(ech_metrics_series_read("/nowhere/metrics.jsonl", &series), ECH_EIO);
}

ALL_TESTS(fixture_setup, fixture_teardown)
