/* SPDX-License-Identifier: Apache-2.0
 *
 * Run files with faults (bad_run_files.h): each is refused, and what is said
 * names a line of the file, the file or a key, in printable characters. ECHELON_RUN_FILES=10000
 * tries so many. ECHELON_MESSAGES=FILE appends what is said to a file, for tools/check_words.py.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/bad_run_files.h"
#include "config/capture.h"
#include "config/sample.h"
#include "unit.h"

/* ---- what is said ---- */

static bool names_key(const char *said)
{
    for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
        char path[128];
        snprintf(path, sizeof path, "%s.%s", keys[k].section, keys[k].name);
        if (strstr(said, path)) return true;
    }
    return false;
}

static bool is_printable(const char *said)
{
    for (; *said; said++)
        if (((unsigned char)*said < ' ' && *said != '\n') || *said == 0x7f) return false;
    return true;
}

static void record(const char *said)
{
    const char *path = getenv("ECHELON_MESSAGES");
    if (!path) return;
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    fputs(said, file);
    assert_int_equal(fclose(file), 0);
}

static void check(const ech_text *file, int number)
{
    ech_config *config = sample_create();
    capture c = begin_capture();
    ech_status st = ech_config_read_text(config, file->at ? file->at : "", file->n, "run.yaml");
    ECH_ALSO(&st, ech_config_check(config));
    char *said = end_capture(&c);
    if (st != ECH_EUSAGE) fail_msg("file %d: status %d, not refused:\n%s", number, st, file->at);
    if (!strstr(said, "run.yaml:") && !names_key(said))
        fail_msg("file %d: nothing is named: %s\n%s", number, said, file->at);
    if (!is_printable(said)) fail_msg("file %d: unprintable: %s", number, said);
    record(said);
    free(said);
    ech_config_destroy(config);
}

TEST(test_refused)
{
    int tries = count_bad_run_files();
    for (int i = 0; i < tries; i++) {
        ech_text file = {0};
        draw_bad_run_file(&file);
        check(&file, i);
        ech_text_free(&file);
    }
}

/* What faults are put into has none. */
TEST(test_sample_is_good)
{
    ech_config *config = sample_create();
    assert_int_equal(sample_read(config, sample_run), ECH_OK);
    assert_int_equal(ech_config_check(config), ECH_OK);
    ech_config_destroy(config);
}
