/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines on standard error.
 */
#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/visible.h"

static _Thread_local int log_rank = -1;
static _Thread_local bool log_quiet;

void ech_log_set_rank(int rank)
{
    log_rank = rank;
}

int ech_log_rank(void)
{
    return log_rank;
}

bool ech_log_set_quiet(bool quiet)
{
    bool before = log_quiet;
    log_quiet = quiet;
    return before;
}

bool ech_log_is_quiet(void)
{
    return log_quiet;
}

/* A log that cannot be written has nobody to tell. */
static void write_all(const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t written = write(STDERR_FILENO, bytes, n);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        bytes += written;
        n -= (size_t)written;
    }
}

static size_t format_prefix(const char *kind, char *out, size_t size)
{
    int n;
    if (log_rank < 0)
        n = snprintf(out, size, "echelon: %s", kind);
    else
        n = snprintf(out, size, "echelon: rank %d: %s", log_rank, kind);
    return n < 0 ? 0 : (size_t)n;
}

void ech_log_line(const char *kind, const char *format, ...)
{
    if (log_quiet) return;
    char small[4096];
    char *line = small;
    size_t prefix = format_prefix(kind, small, sizeof small);
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int n = vsnprintf(small + prefix, sizeof small - prefix, format, arguments);
    size_t length = prefix + (n < 0 ? 0 : (size_t)n);
    if (length + 1 >= sizeof small) {
        char *large = malloc(length + 2);
        if (large) {
            format_prefix(kind, large, length + 2);
            vsnprintf(large + prefix, length + 2 - prefix, format, again);
            line = large;
        } else {
            length = sizeof small - 2;
        }
    }
    va_end(again);
    va_end(arguments);
    char shown[2 * sizeof small];
    char *visible = line;
    if (!ech_visible_is(line, length, false)) {
        length = ech_visible_print(line, length, shown, sizeof shown - 1);
        visible = shown;
    }
    visible[length] = '\n';
    write_all(visible, length + 1);
    if (line != small) free(line);
}
