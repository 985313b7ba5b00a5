/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of metrics.jsonl: writing, reading, and truncating on resume.
 */
#include "app/metrics.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/writing.h"

enum {
    MOST_STARTS = 1000000,
    ROOM = 4 * ECH_METRICS_LONGEST_LINE /* bytes of a file in memory at once */
};

static void append_name(ech_text *line, const char *name)
{
    ech_text_append(line, "%s\"%s\":", line->n ? "," : "{", name);
}

void ech_metrics_int(ech_text *line, const char *name, int64_t value)
{
    append_name(line, name);
    ech_text_append(line, "%" PRId64, value);
}

void ech_metrics_real(ech_text *line, const char *name, double value)
{
    append_name(line, name);
    if (!isfinite(value)) {
        ech_text_append(line, "null");
        return;
    }
    char digits[40];
    ech_text_from_real(value, 6, digits, sizeof digits);
    ech_text_append(line, "%s", digits);
}

void ech_metrics_text(ech_text *line, const char *name, const char *value)
{
    append_name(line, name);
    if (!ech_json_append_string(line, value)) ech_text_append(line, "null");
}

/* ---- lines ---- */

ech_status ech_metrics_lines(int fd, const char *path, int64_t begin, int64_t end,
                             ech_metrics_line *take, void *context)
{
    ECH_FREED char *room = ech_calloc(ROOM, 1);
    size_t held = 0; /* bytes of an incomplete line */
    bool is_long = false;
    while (begin < end) {
        size_t n = ROOM - held, used = 0;
        if ((int64_t)n > end - begin) n = (size_t)(end - begin);
        ECH_TRY(ech_file_read_at(fd, path, room + held, n, begin));
        begin += (int64_t)n;
        held += n;
        for (char *newline; (newline = memchr(room + used, '\n', held - used));) {
            size_t length = (size_t)(newline - room) - used;
            bool whole = !is_long && length <= ECH_METRICS_LONGEST_LINE;
            const char *line = room + used;
            used += length + 1;
            ECH_TRY(take(context, whole ? line : NULL, whole ? length : 0,
                         begin - (int64_t)(held - used)));
            is_long = false;
        }
        held -= used;
        memmove(room, room + used, held);
        is_long |= held > ECH_METRICS_LONGEST_LINE;
        if (is_long) held = 0;
    }
    return ECH_OK;
}

/* NULL: no object. */
static json_t *parse(const char *line, size_t n)
{
    json_t *object = line ? json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (json_is_object(object)) return object;
    json_decref(object);
    return NULL;
}

/* ---- finding ---- */

typedef struct sought {
    const char *key;
    ech_metrics_steps *out;
} sought;

/* Most lines are not parsed: a file may have millions. */
static ech_status seek_line(void *context, const char *line, size_t n, int64_t end)
{
    (void)end;
    const sought *s = context;
    int64_t step;
    if (!line || !memmem(line, n, s->key, strlen(s->key))) return ECH_OK;
    json_auto_t *object = parse(line, n);
    if (json_object_get(object, s->key) &&
        ech_json_to_int(json_object_get(object, "step"), 0, INT64_MAX, &step))
        ECH_PUSH(*s->out, step);
    return ECH_OK;
}

ech_status ech_metrics_find(const char *path, const char *key, ech_metrics_steps *out)
{
    sought s = {key, out};
    int fd;
    int64_t size;
    if (!ech_file_exists(path)) return ECH_OK;
    ECH_TRY(ech_file_open(path, &fd, &size));
    ech_status st = ech_metrics_lines(fd, path, 0, size, seek_line, &s);
    close(fd);
    return st;
}

/* ---- truncating ---- */

typedef struct truncation {
    int fd;
    const char *path;
    int64_t size, last_step, starts;
    int64_t end;      /* after the last training step that stays, of the lines examined so far */
    int64_t size_now; /* of the lines that stay, so far */
    int writes_to;    /* -1: nothing is written yet */
} truncation;

/* The number that a line begins with as this program writes lines of steps ("{"step":12,"); false:
 * it begins otherwise. */
static bool take_step(const char *line, size_t n, int64_t *out)
{
    static const char head[] = "{\"step\":";
    const size_t at = sizeof head - 1;
    bool has = n > at && memcmp(line, head, at) == 0 && isdigit((unsigned char)line[at]);
    if (has) *out = strtoll(line + at, NULL, 10);
    return has;
}

/* Lines of later steps, which are most of those that are asked for, are not parsed. */
static bool stays(const truncation *c, const char *line, size_t n)
{
    int64_t step;
    if (!line || (take_step(line, n, &step) && step > c->last_step)) return false;
    json_auto_t *object = parse(line, n);
    return ech_json_to_int(json_object_get(object, "step"), 0, c->last_step, &step);
}

/* Steps ascend, and other lines follow their step's line. So all lines before a training step that
 * is kept are kept, too. Most lines are not parsed, since a file may have millions. */
static ech_status examine_line(void *context, const char *line, size_t n, int64_t end)
{
    static const char start[] = "\"start\":", loss[] = "\"loss\":";
    int64_t step;
    truncation *c = context;
    if (!line) return ECH_OK;
    if (memmem(line, n, start, sizeof start - 1)) {
        json_auto_t *object = parse(line, n);
        ech_json_to_int(json_object_get(object, "start"), 0, MOST_STARTS, &c->starts);
    }
    if (take_step(line, n, &step) && step <= c->last_step && memmem(line, n, loss, sizeof loss - 1))
        c->end = end;
    return ECH_OK;
}

static ech_status open_to_write(truncation *c)
{
    if (c->writes_to >= 0) return ECH_OK;
    return ech_file_open_to_write(c->path, O_WRONLY, &c->writes_to);
}

/* Lines only move towards the beginning: after a kill some are there twice or incomplete, but none
 * is lost. */
static ech_status move_line(void *context, const char *line, size_t n, int64_t end)
{
    (void)end;
    truncation *c = context;
    if (!stays(c, line, n)) return ECH_OK;
    ECH_TRY(open_to_write(c));
    ECH_TRY(ech_file_write_at(c->writes_to, c->path, line, n, c->size_now));
    ECH_TRY(ech_file_write_at(c->writes_to, c->path, "\n", 1, c->size_now + (int64_t)n));
    c->size_now += (int64_t)n + 1;
    return ECH_OK;
}

static ech_status move_rest(truncation *c)
{
    c->size_now = c->end;
    ECH_TRY(ech_metrics_lines(c->fd, c->path, c->end, c->size, move_line, c));
    if (c->size_now == c->size) return ECH_OK;
    ECH_TRY(open_to_write(c));
    if (ftruncate(c->writes_to, (off_t)c->size_now) != 0 || fsync(c->writes_to) != 0)
        ECH_FAIL(ECH_EIO, "%s: cannot be truncated: %s", c->path, ech_system_error(errno));
    return ECH_OK;
}

ech_status ech_metrics_truncate(const char *path, int64_t last_step, int64_t *starts)
{
    truncation c = {.path = path, .last_step = last_step, .writes_to = -1};
    *starts = 0;
    if (!ech_file_exists(path)) return ECH_OK;
    ECH_TRY(ech_file_open(path, &c.fd, &c.size));
    ech_status st = ech_metrics_lines(c.fd, path, 0, c.size, examine_line, &c);
    if (st == ECH_OK) st = move_rest(&c);
    if (c.writes_to >= 0) close(c.writes_to);
    close(c.fd);
    *starts = c.starts;
    return st;
}
