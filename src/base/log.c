/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines on standard error.
 */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/visible.h"

/* Replaced as a whole, while other threads may read it. */
typedef struct sink {
    ech_log_sink *write;
    void *context;
} sink;
static pthread_rwlock_t sink_lock = PTHREAD_RWLOCK_INITIALIZER;
static sink set_sink;

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

void ech_log_set_sink(ech_log_sink *write, void *context)
{
    pthread_rwlock_wrlock(&sink_lock);
    set_sink = (sink){write, context};
    pthread_rwlock_unlock(&sink_lock);
}

static sink get_sink(void)
{
    pthread_rwlock_rdlock(&sink_lock);
    sink now = set_sink;
    pthread_rwlock_unlock(&sink_lock);
    return now;
}

bool ech_log_has_sink(void)
{
    return get_sink().write != NULL;
}

static _Thread_local bool in_sink;

bool ech_log_is_in_sink(void)
{
    return in_sink;
}

/* A line of that length, in memory with room for its end. */
static void write_line(char *line, size_t length)
{
    sink to = get_sink();
    line[length] = to.write ? '\0' : '\n';
    if (!to.write) {
        write_all(line, length + 1);
        return;
    }
    if (in_sink) return; /* the sink would call itself without end */
    in_sink = true;
    to.write(line, to.context);
    in_sink = false;
}

void ech_log_text(const char *text)
{
    if (!ech_log_has_sink()) {
        write_all(text, strlen(text));
        return;
    }
    while (*text) {
        size_t n = strcspn(text, "\n");
        char *line = strndup(text, n);
        if (line) write_line(line, n);
        free(line);
        text += n + (text[n] == '\n');
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
    write_line(visible, length);
    if (line != small) free(line);
}
