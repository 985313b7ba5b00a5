/* SPDX-License-Identifier: Apache-2.0
 *
 * The tests of a program: entered before main, run file by file.
 */
#include "unit.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { MOST_TESTS = 200, MOST_FILES = 40 };

typedef struct unit_file {
    char noun[64];
    struct CMUnitTest tests[MOST_TESTS];
    size_t n;
    unit_fixture *setup, *teardown;           /* of all */
    unit_fixture *each_setup, *each_teardown; /* of each */
} unit_file;

static unit_file files[MOST_FILES];
static int n_files;

static void stop(const char *why)
{
    fprintf(stderr, "tests/unit.c: %s\n", why);
    abort();
}

/* tests/ROOM/test_NOUN.c is NOUN. */
static unit_file *file_of(const char *path)
{
    char noun[sizeof files->noun];
    const char *base = strrchr(path, '/') ? strrchr(path, '/') + 1 : path;
    if (strncmp(base, "test_", 5) == 0) base += 5;
    snprintf(noun, sizeof noun, "%.*s", (int)strcspn(base, "."), base);
    for (int i = 0; i < n_files; i++)
        if (strcmp(files[i].noun, noun) == 0) return &files[i];
    if (n_files == MOST_FILES) stop("more files than MOST_FILES");
    strcpy(files[n_files].noun, noun);
    return &files[n_files++];
}

void unit_add(const char *file, const char *name, unit_function *test)
{
    unit_file *f = file_of(file);
    if (f->n == MOST_TESTS) stop("a file has more tests than MOST_TESTS");
    f->tests[f->n++] = (struct CMUnitTest){.name = name, .test_func = test};
}

void unit_add_fixture(const char *file, unit_fixture *setup, unit_fixture *teardown, int each)
{
    unit_file *f = file_of(file);
    *(each ? &f->each_setup : &f->setup) = setup;
    *(each ? &f->each_teardown : &f->teardown) = teardown;
}

static int run_file(unit_file *f)
{
    for (size_t i = 0; i < f->n; i++) {
        f->tests[i].setup_func = f->each_setup;
        f->tests[i].teardown_func = f->each_teardown;
    }
    return _cmocka_run_group_tests(f->noun, f->tests, f->n, f->setup, f->teardown);
}

int unit_run(const char *noun)
{
    int failed = 0, ran = 0;
    ech_log_set_quiet(getenv("ECHELON_TEST_LOG") == NULL);
    for (int i = 0; i < n_files; i++) {
        if (files[i].n == 0 || (noun && strcmp(noun, files[i].noun) != 0)) continue;
        failed += run_file(&files[i]);
        ran++;
    }
    if (ran == 0) fprintf(stderr, "there is no such test\n");
    return failed + (ran == 0);
}

void unit_choose(const char *pattern)
{
    for (int i = 0; i < n_files; i++) {
        size_t n = 0;
        for (size_t t = 0; t < files[i].n; t++)
            if (fnmatch(pattern, files[i].tests[t].name, 0) == 0)
                files[i].tests[n++] = files[i].tests[t];
        files[i].n = n;
    }
}

void unit_print_nouns(void)
{
    for (int i = 0; i < n_files; i++) puts(files[i].noun);
}

__attribute__((weak)) int main(int argc, char **argv)
{
    if (argc > 2) {
        fprintf(stderr, "usage: %s [PATTERN]\n", argv[0]);
        return 2;
    }
    if (argc == 2) unit_choose(argv[1]);
    return unit_run(NULL);
}
