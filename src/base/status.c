/* SPDX-License-Identifier: Apache-2.0
 *
 * Failing once, with one line, and remembering it for whoever asks.
 */
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/about.h"
#include "base/log.h"

static _Thread_local char last_error[2048];
static _Thread_local const char *about_what; /* NULL: nothing */

const char *ech_set_about(const char *text)
{
    const char *before = about_what;
    about_what = text;
    return before;
}

/* Names and values out of files end up in messages: no control character reaches the terminal, and
 * an error stays one line. */
static void make_one_line(char *message)
{
    for (unsigned char *at = (unsigned char *)message; *at; at++) {
        bool of_two = *at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0; /* U+0080 to U+009F */
        if (of_two) at[1] = ' ';
        if (*at < 0x20 || *at == 0x7f || of_two) *at = ' ';
    }
}

ech_status ech_fail_at(const char *file, int line, ech_status st, const char *format, ...)
{
    /* Not straight into last_error: it may be one of the arguments. */
    char message[sizeof last_error];
    va_list arguments;
    va_start(arguments, format);
    int n = about_what ? snprintf(message, sizeof message / 2, "%s: ", about_what) : 0;
    size_t begin = (size_t)n < sizeof message / 2 ? (size_t)n : sizeof message / 2 - 1;
    vsnprintf(message + begin, sizeof message - begin, format, arguments);
    va_end(arguments);
    make_one_line(message);
    memcpy(last_error, message, sizeof last_error);
    if (st == ECH_EINTERNAL)
        ech_log_line("error: ",
                     "%s (%s:%d): this is a fault of Echelon; please report it with the run file "
                     "and the command",
                     message, file, line);
    else
        ech_log_line("error: ", "%s", message);
    return st;
}

const char *ech_last_error(void)
{
    return last_error;
}

void ech_set_last_error(const char *message)
{
    snprintf(last_error, sizeof last_error, "%s", message);
}

void ech_clear_error(void)
{
    last_error[0] = '\0';
}

static const char *remedy_of(int error)
{
    static const struct {
        int error;
        const char *remedy;
    } rows[] = {
        {ENOSPC, "free some space, or name a folder on another disk"},
        {EDQUOT, "free some space, or name a folder on another disk"},
        {EACCES, "give this user access, or name another path"},
        {EPERM, "give this user access, or name another path"},
        {EROFS, "name a path on a disk that can be written"},
        {EIO, "check this disk or network mount: dmesg shows its errors"},
        {ESTALE, "mount this network folder again"},
        {EMFILE, "raise the limit on open files (ulimit -n)"},
        {ENFILE, "close other programs, or raise fs.file-max (sysctl)"},
        {ENOMEM, "end other programs, or raise the container's memory limit"},
        {EAGAIN, ECH_NO_THREAD},
        {EFBIG, "raise the limit on file sizes (ulimit -f), or name another disk"},
        {ENAMETOOLONG, "use a shorter path"},
        {ENOENT, "check the path"},
        {ENOTDIR, "a part of this path is a file; name another path"},
        {EISDIR, "name a file, not a folder"},
        {EEXIST, "remove or rename it"},
        {ELOOP, "remove the link, or name the file itself"},
        {EPIPE, "the program that reads this output has ended"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].error == error) return rows[i].remedy;
    return "";
}

const char *ech_system_error(int error)
{
    static _Thread_local char text[256];
    const char *remedy = remedy_of(error);
    snprintf(text, sizeof text, "%s%s%s", strerror(error), *remedy ? "; " : "", remedy);
    return text;
}

void ech_assert_failed(const char *file, int line, const char *what)
{
    ech_log_set_quiet(false);
    ech_log_line("", "%s:%d: broken promise: %s", file, line, what);
    abort();
}

void ech_free_at(void *pointer)
{
    void *at;
    memcpy(&at, pointer, sizeof at);
    free(at);
}
