/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports of runs of which something is missing, damaged or from elsewhere: it is said, or refused.
 */

#include "app/reported.h"
#include "unit.h"

TEST(test_missing_parts)
{
    train(PIPELINE " " TRACED, 2);
    remove_run_file("metrics.jsonl");
    made page = report();
    assert_timelines(&page, 1, 1);
    assert_charts(&page, false);
    assert_null(strstr(page.html, "last loss"));
    assert_says(page.words.at, "no charts: ");
    release(&page);
    remove_run_file("trace/rank-00001.json");
    page = report();
    assert_timelines(&page, 1, 0);
    assert_says(page.words.at, "rank-00001.json is not there; run again with log.trace=true");
    release(&page);
    write_run_file("trace/rank-00001.json", "[{\"name\":");
    page = report();
    assert_timelines(&page, 1, 0);
    assert_says(page.words.at, "rank-00001.json is empty");
    release(&page);
}

TEST(test_metrics_with_rubbish)
{
    train(PIPELINE, 2);
    change_run_file("metrics.jsonl", "{\"step\":2",
                    "rubbish\n{\"step\":1,\"loss\":7}\n{\"step\":2");
    made page = report();
    assert_charts(&page, true);
    assert_says(page.words.at, "metrics.jsonl: 2 lines left out that cannot be read");
    release(&page);
}

TEST(test_traces_of_another_layout)
{
    train(PIPELINE " " TRACED, 2);
    change_run_file("run.yaml", "schedule: 1f1b", "schedule: gpipe");
    made page = report();
    assert_timelines(&page, 1, 0);
    assert_says(page.words.at, "not of this layout");
    release(&page);
}

/* Rank 1's times become those of a machine that was switched on a thousand days before. */
TEST(test_other_clocks)
{
    train(PIPELINE " " TRACED, 2);
    static const char key[] = "\"ts\":";
    char *text = NULL;
    ech_text changed = {0};
    read_run_file("trace/rank-00001.json", &text);
    char *at = text;
    for (const char *next; (next = strstr(at, key));) {
        ech_text_append_bytes(&changed, at, (size_t)(next - at) + strlen(key));
        ech_text_append(&changed, "%.3f", strtod(next + strlen(key), &at) + 1000 * 86400e6);
    }
    ech_text_append(&changed, "%s", at);
    write_run_file("trace/rank-00001.json", changed.at);
    made page = report();
    assert_timelines(&page, 1, 0);
    assert_says(page.words.at, "the ranks' clocks differ");
    assert_says(page.words.at, "predicted from the run's own block times");
    release(&page);
    ech_text_free(&changed);
    free(text);
}

/* ---- a profile ---- */

TEST(test_profile)
{
    train(PIPELINE " parallel.partition=[1,1] " TRACED, 2);
    opened run = open_run(2);
    ech_profile *profile = ech_recording_profile(&run.recording);
    ech_text model = {0};
    char *path = path_of("profile.json"), line[400];
    /* Each forward takes a second, and backwards take no time. 4 forwards in turn on each of two
     * stages take 5 times two blocks, and each rank idles a fifth of that. */
    for (int b = 0; b < profile->blocks; b++) {
        ech_profile_block *cost = &profile->block[b];
        *cost = (ech_profile_block){0};
        cost->low[ECH_FORWARD] = cost->seconds[ECH_FORWARD] = cost->high[ECH_FORWARD] = 1;
    }
    profile->update_seconds = profile->other_seconds = 0;
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
    assert_int_equal(ech_report_run(directory, out, &said), wanted);
    assert_says(ech_last_error(), words);
    assert_int_equal(said.n, 0);
}

TEST(test_errors)
{
    train(PIPELINE " " TRACED, 2);
    assert_fails("/nowhere", NULL, ECH_EUSAGE, "/nowhere/run.yaml: does not exist");
    assert_fails(run_folder, "/nowhere/page.html", ECH_EIO, "/nowhere/page.html");
    change_run_file("trace/rank-00001.json", "\"ts\":", "\"ts\":-");
    assert_fails(run_folder, NULL, ECH_EINPUT, "rank-00001.json:");
    assert_false(has_run_file("report.html"));
    change_run_file("trace/rank-00001.json", "\"ts\":-", "\"ts\":");
    change_run_file("run.yaml", "num_hidden_layers: 2", "num_hidden_layers: two");
    assert_fails(run_folder, NULL, ECH_EUSAGE, "run.yaml:");
}

TEST(test_elsewhere)
{
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

ALL_TESTS(fixture_setup, fixture_teardown)
