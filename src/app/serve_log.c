/* SPDX-License-Identifier: Apache-2.0
 *
 * serves.jsonl: writing, reading and truncating.
 */
#include "app/serve_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/metrics.h"
#include "base/file.h"
#include "base/json.h"
#include "base/writing.h"

#define FORMAT "echelon serves"
enum { VERSION = 1, FIELDS = 5 };
static const int64_t MOST = INT64_C(10000000000000000);

/* ---- which run it is of ---- */

/* A run and one that is to repeat its order must agree in these. */
static const char *const field[FIELDS] = {"workers", "servers", "span", "samples", "seed"};

typedef struct identity {
    int64_t of[FIELDS];
} identity;

static identity identify(const ech_config *config, const ech_layout *layout,
                         const ech_schedule *schedule)
{
    const ech_roles roles = ech_layout_roles(layout);
    return (identity){{roles.train.n, roles.serve.n, schedule->turns,
                       config->training.global_batch_size, config->training.seed}};
}

/* ---- writing ---- */

void ech_serve_log_begin(const ech_config *config, const ech_layout *layout,
                         const ech_schedule *schedule, int64_t step, ech_text *out)
{
    identity own = identify(config, layout, schedule);
    ECH_FREED_TEXT line = {0};
    ech_metrics_int(&line, "step", step);
    ech_metrics_text(&line, "format", FORMAT);
    ech_metrics_int(&line, "version", VERSION);
    for (int i = 0; i < FIELDS; i++) ech_metrics_int(&line, field[i], own.of[i]);
    ech_text_append(out, "%s}\n", line.at);
}

void ech_serve_log_add(int64_t step, const ech_serve *serve, int pushes, ech_text *out)
{
    for (int i = 0; i < pushes; i++)
        ech_text_append(out,
                        "{\"step\":%lld,\"push\":%d,\"worker\":%d,\"clock\":%lld,\"read\":%d,"
                        "\"withheld\":%s%s,\"time\":%.3f}\n",
                        (long long)step, i, serve[i].worker, (long long)serve[i].clock + 1,
                        serve[i].read, serve[i].withheld ? "true" : "false",
                        serve[i].dropped ? ",\"dropped\":true" : "", serve[i].time);
}

/* ---- reading ---- */

typedef struct reading {
    ech_serve_log *log;
    identity own;
    int64_t last; /* training steps of the run: later lines are not read */
    int64_t line; /* its number, from 1 */
    int64_t at;   /* training steps done before the span that is read; -1: no line so far */
    int push;     /* its number in the span */
    ech_serving serving;
    int *left; /* [workers] the version that its last push of the span has left */
    int64_t
        *next; /* [workers] the clock of its next push; -1: not known, after another start */
    int64_t whole; /* bytes of whole lines */
} reading;

#define REFUSE(r, format, ...)                                                                     \
    ECH_FAIL(ECH_EINPUT, "%s:%lld: " format, (r)->log->path, (long long)(r)->line, __VA_ARGS__)
#define AS_WRITTEN "use the file as its run wrote it"

static bool to_int(const json_t *object, const char *key, int64_t *out)
{
    return ech_json_to_int(json_object_get(object, key), 0, MOST, out);
}

static ech_status compare(const reading *r, const json_t *object)
{
    for (int i = 0; i < FIELDS; i++) {
        int64_t value;
        if (!to_int(object, field[i], &value))
            REFUSE(r, "\"%s\" is no number; " AS_WRITTEN, field[i]);
        if (value != r->own.of[i])
            REFUSE(r,
                   "from another run: \"%s\" is %lld there and %lld in this run; use the log of a "
                   "run with the same layout",
                   field[i], (long long)value, (long long)r->own.of[i]);
    }
    return ECH_OK;
}

/* The line of a start. */
static ech_status take_start(reading *r, const json_t *object)
{
    int64_t version, step;
    const char *format = json_string_value(json_object_get(object, "format"));
    if (!format || strcmp(format, FORMAT) != 0)
        REFUSE(r,
               "does not begin with a start line (\"format\":\"%s\"); name the serves.jsonl of a "
               "run",
               FORMAT);
    if (!to_int(object, "version", &version) || version != VERSION)
        REFUSE(r, "not of version %d; use a log that this version of the program wrote", VERSION);
    ECH_TRY(compare(r, object));
    if (!to_int(object, "step", &step) || step % r->log->turns)
        REFUSE(r, "a start that is not at the end of a span of %d steps; " AS_WRITTEN,
               r->log->turns);
    if (r->at >= 0 && (r->push > 0 || step != r->at))
        REFUSE(r,
               "continues after step %lld, but the lines before it have pushes of %lld "
               "steps%s; " AS_WRITTEN,
               (long long)step, (long long)r->at, r->push > 0 ? " and a part" : "");
    if (r->at >= 0) return ECH_OK;
    r->log->first = r->log->end = r->at = step;
    for (int w = 0; w < r->serving.workers; w++) r->next[w] = step ? -1 : 0;
    return ECH_OK;
}

/* Whether the worker's push may be served now, and has read what it can. */
static ech_status check_push(const reading *r, const ech_serve *push)
{
    int w = push->worker;
    int64_t next = r->next[w] < 0 ? push->clock : r->next[w];
    if (push->clock < next)
        REFUSE(r,
               "repeats the push of worker %d in step %lld; its next push is in step "
               "%lld; " AS_WRITTEN,
               w, (long long)push->clock + 1, (long long)next + 1);
    if (push->clock > next)
        REFUSE(r, "the push of worker %d in step %lld precedes its push in step %lld; " AS_WRITTEN,
               w, (long long)push->clock + 1, (long long)next + 1);
    if (r->serving.ended[w])
        REFUSE(r,
               "worker %d has already made its last push of the span that ends with step "
               "%lld; " AS_WRITTEN,
               w, (long long)r->at + r->log->turns);
    if (!ech_serving_may(&r->serving, w))
        REFUSE(r,
               "takes worker %d more than parallel.staleness = %lld steps ahead of the slowest; "
               "raise parallel.staleness, or use another log",
               w, (long long)r->serving.staleness);
    if (push->read != r->left[w])
        REFUSE(r,
               "the push of worker %d read version %d, but its previous push returned version "
               "%d; " AS_WRITTEN,
               w, push->read, r->left[w]);
    return ECH_OK;
}

static void take_push(reading *r, const ech_serve *push)
{
    ECH_PUSH(r->log->serve, *push);
    ech_serving_take(&r->serving, push->worker);
    r->next[push->worker] = push->clock + 1;
    r->left[push->worker] = ++r->push;
    if (r->push < r->log->pushes) return;
    r->push = 0;
    r->log->end = r->at += r->log->turns;
    ech_serving_reset(&r->serving);
    memset(r->left, 0, (size_t)r->serving.workers * sizeof *r->left);
}

/* The line of a push. */
static ech_status take_serve(reading *r, const json_t *object)
{
    int64_t step, number, worker, clock, version;
    const json_t *withheld = json_object_get(object, "withheld");
    if (r->at < 0) return take_start(r, object);
    if (!to_int(object, "step", &step) || !to_int(object, "push", &number) ||
        !to_int(object, "worker", &worker) || !to_int(object, "clock", &clock) || clock < 1 ||
        !to_int(object, "read", &version) || !json_is_boolean(withheld))
        REFUSE(r,
               "not a push: it needs \"step\", \"push\", \"worker\", \"clock\", \"read\" and "
               "\"withheld\"; " AS_WRITTEN "%s",
               "");
    if (json_object_get(object, "dropped"))
        REFUSE(r,
               "a dropped push of worker %lld, which depends on its time of arrival or its "
               "worker's death; use the log of a run that dropped none",
               (long long)worker);
    if (step != r->at + r->log->turns || number != r->push)
        REFUSE(r,
               "push %lld of the span that ends with step %lld, but push %d of the span that ends "
               "with step %lld is due; " AS_WRITTEN,
               (long long)number, (long long)step, r->push, (long long)r->at + r->log->turns);
    if (worker >= r->serving.workers)
        REFUSE(r, "there is no worker %lld; workers are 0 to %d; " AS_WRITTEN, (long long)worker,
               r->serving.workers - 1);
    if (version > number)
        REFUSE(r, "read version %lld, but only %lld versions exist; " AS_WRITTEN,
               (long long)version, (long long)number);
    const ech_serve push = {.worker = (int)worker,
                            .clock = clock - 1,
                            .read = (int)version,
                            .withheld = json_is_true(withheld)};
    ECH_TRY(check_push(r, &push));
    take_push(r, &push);
    return ECH_OK;
}

static ech_status take_line(void *context, const char *line, size_t n, int64_t end)
{
    reading *r = context;
    r->line++;
    r->whole = end;
    if (r->at >= r->last && r->push == 0) return ECH_OK;
    json_auto_t *object = line ? json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    if (!json_is_object(object)) REFUSE(r, "no JSON object; " AS_WRITTEN "%s", "");
    return json_object_get(object, "format") ? take_start(r, object) : take_serve(r, object);
}

static ech_status check_end(reading *r, int64_t bytes)
{
    if (r->at >= r->last && r->push == 0) return ECH_OK;
    r->line++;
    if (r->whole < bytes) REFUSE(r, "the line is incomplete; " AS_WRITTEN "%s", "");
    if (r->at < 0) return take_start(r, NULL);
    if (r->push > 0)
        REFUSE(r,
               "ends after %d of the %d pushes of the span that ends with step "
               "%lld; " AS_WRITTEN,
               r->push, r->log->pushes, (long long)r->at + r->log->turns);
    ECH_FAIL(ECH_EUSAGE,
             "%s: ends with step %lld, and training.steps is %lld; use a longer log, or set "
             "training.steps to %lld",
             r->log->path, (long long)r->at, (long long)r->last, (long long)r->at);
}

static ech_status read_lines(reading *r)
{
    int fd;
    int64_t bytes;
    ECH_TRY(ech_file_open(r->log->path, &fd, &bytes));
    ech_status status = ech_metrics_lines(fd, r->log->path, 0, bytes, take_line, r);
    close(fd);
    return status == ECH_OK ? check_end(r, bytes) : status;
}

ech_status ech_serve_log_read(const char *path, const ech_config *config, const ech_layout *layout,
                              const ech_schedule *schedule, ech_serve_log **out)
{
    ECH_CLEANUP(ech_serve_log_destroy_at) ech_serve_log *log = ech_calloc(1, sizeof *log);
    *log = (ech_serve_log){.path = ech_strdup(path),
                           .turns = schedule->turns,
                           .pushes = schedule->turns * ech_layout_workers(layout)};
    ech_pool *pool = ech_pool_create();
    reading r = {.log = log,
                 .own = identify(config, layout, schedule),
                 .last = config->training.steps,
                 .at = -1,
                 .serving = ech_serving_begin(schedule, layout, pool)};
    r.left = ech_pool_alloc(pool, (size_t)r.serving.workers * sizeof *r.left);
    r.next = ech_pool_alloc(pool, (size_t)r.serving.workers * sizeof *r.next);
    ech_status status = read_lines(&r);
    ech_pool_destroy(pool);
    ECH_TRY(status);
    *out = log;
    log = NULL;
    return ECH_OK;
}

void ech_serve_log_destroy(ech_serve_log *log)
{
    if (!log) return;
    free(log->path);
    free(log->serve.at);
    free(log);
}

const ech_serve *ech_serve_log_span(const ech_serve_log *log, int64_t step)
{
    if (step < log->first || step >= log->end) return NULL;
    return &log->serve.at[(step - log->first) / log->turns * log->pushes];
}

int64_t ech_serve_log_clock(const ech_serve_log *log, int64_t step, int worker)
{
    const ech_serve *span = ech_serve_log_span(log, step);
    for (int i = 0; span && i < log->pushes; i++)
        if (span[i].worker == worker) return span[i].clock;
    return -1;
}

/* ---- truncating ---- */

typedef struct truncation {
    int64_t last, end; /* the last step that stays; where its lines end */
    bool ended;
} truncation;

/* Steps ascend, so all lines after a removed one are removed, too. */
static ech_status find_end(void *context, const char *line, size_t n, int64_t end)
{
    static const char head[] = "{\"step\":", format[] = "\"format\":";
    const size_t at = sizeof head - 1;
    truncation *t = context;
    bool has_step = line && n > at && memcmp(line, head, at) == 0;
    int64_t step = has_step ? strtoll(line + at, NULL, 10) : INT64_MAX;
    bool starts = line && memmem(line, n, format, sizeof format - 1);
    t->ended |= starts ? step >= t->last : step > t->last;
    if (!t->ended) t->end = end;
    return ECH_OK;
}

ech_status ech_serve_log_truncate(const char *path, int64_t step)
{
    truncation t = {.last = step};
    int fd;
    int64_t bytes;
    if (!ech_file_exists(path)) return ECH_OK;
    ECH_TRY(ech_file_open(path, &fd, &bytes));
    ech_status status = ech_metrics_lines(fd, path, 0, bytes, find_end, &t);
    close(fd);
    ECH_TRY(status);
    if (t.end == bytes) return ECH_OK;
    ECH_TRY(ech_file_open_to_write(path, O_WRONLY, &fd));
    bool done = ftruncate(fd, (off_t)t.end) == 0 && fsync(fd) == 0;
    int why = errno;
    close(fd);
    if (!done) ECH_FAIL(ECH_EIO, "%s: cannot be truncated: %s", path, ech_system_error(why));
    return ECH_OK;
}
