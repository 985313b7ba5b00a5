/* SPDX-License-Identifier: Apache-2.0
 *
 * Run files with faults, through the library: each is an error, the process goes on, and the error
 * and the lines of the log are what `echelon train` prints. ECHELON_RUN_FILES=3000 tries so many.
 */
#include <echelon.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/fixture.h"
#include "base/log.h"
#include "config/bad_run_files.h"
#include "config/capture.h"
#include "program/command.h"
#include "unit.h"

static void log_line(const char *line, void *context)
{
    ech_text_append(context, "%s\n", line);
}

/* By the library: what is logged, and the error. */
static echelon_status run_library(const char *path, ech_text *log, ech_text *error)
{
    echelon_run *run;
    echelon_training *training = NULL;
    bool quiet = ech_log_set_quiet(false);
    echelon_set_log(log_line, log);
    assert_int_equal(echelon_run_open(path, &run), ECHELON_OK);
    echelon_status status = echelon_train_start(run, NULL, &training);
    ech_text_append(error, "%s", echelon_last_error());
    echelon_run_close(run);
    ech_log_set_quiet(quiet);
    assert_null(training);
    return status;
}

/* By the program, whose log is standard error. */
static int run_program(char *path, char **said)
{
    char program[] = "echelon", train[] = "train", *argv[] = {program, train, path, NULL};
    capture c = begin_capture();
    echelon_set_log(echelon_log_print, NULL);
    int code = ECH_EXIT_DONE;
    ech_status status = ech_command_train(2, argv + 1, &code);
    *said = end_capture(&c);
    return status == ECH_OK ? code : ech_status_exit_code(status);
}

static void check(int number, const ech_text *file)
{
    char path[300];
    ECH_FREED_TEXT log = {0}, error = {0};
    ECH_FREED char *said = NULL;
    snprintf(path, sizeof path, "%s/run.yaml", fixture_folder);
    assert_int_equal(ech_file_write(path, file->n ? file->at : "", file->n), ECH_OK);
    echelon_status status = run_library(path, &log, &error);
    int code = run_program(path, &said);
    if (status != ECHELON_EUSAGE || code != ECH_EXIT_USAGE)
        fail_msg("file %d: status %d, code %d:\n%s", number, status, code, file->at);
    if (strcmp(log.at, said) != 0)
        fail_msg("file %d: the library says\n%sthe program\n%s", number, log.at, said);
    if (!error.n || !strstr(said, error.at))
        fail_msg("file %d: the error is \"%s\" of\n%s", number, error.at, said);
}

TEST(library_says_what_the_program_says)
{
    for (int i = 0; i < count_bad_run_files(); i++) {
        ECH_FREED_TEXT file = {0};
        draw_bad_run_file(&file);
        check(i, &file);
    }
}

ALL_TESTS(fixture_setup, fixture_teardown)
