/* SPDX-License-Identifier: Apache-2.0
 *
 * What is printed to standard error, as text. After cmocka.h.
 */
#ifndef ECH_TESTS_CONFIG_CAPTURE_H
#define ECH_TESTS_CONFIG_CAPTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "unit.h"

/* Captures standard error from begin_capture to end_capture. */
typedef struct capture {
    int before;
    FILE *file;
} capture;

static inline capture begin_capture(void)
{
    capture c = {.before = dup(STDERR_FILENO), .file = tmpfile()};
    assert_true(c.before >= 0 && c.file);
    dup2(fileno(c.file), STDERR_FILENO);
    ech_log_set_quiet(false);
    return c;
}

/* New memory. */
static inline char *end_capture(capture *c)
{
    enum { MOST = 1 << 16 };
    char *text = calloc(1, MOST);
    dup2(c->before, STDERR_FILENO);
    ech_log_set_quiet(true);
    close(c->before);
    rewind(c->file);
    assert_non_null(text);
    assert_true(fread(text, 1, MOST - 1, c->file) < MOST - 1);
    fclose(c->file);
    return text;
}

#endif
