/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of metrics.jsonl: made, and cut back on resume.
 */
#include "app/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

enum { FILE_LIMIT = 1 << 30, MOST_STARTS = 1000000 };

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

/* Whether the line is whole and belongs to a step that stays. */
static bool stays(const char *line, size_t n, int64_t last_step, int64_t *starts)
{
    if (n > ECH_METRICS_LONGEST_LINE) return false;
    json_t *object = json_loadb(line, n, JSON_REJECT_DUPLICATES, NULL);
    int64_t step;
    ech_json_to_int(json_object_get(object, "start"), *starts, MOST_STARTS, starts);
    bool kept = json_is_object(object) &&
                ech_json_to_int(json_object_get(object, "step"), 0, last_step, &step);
    json_decref(object);
    return kept;
}

ech_status ech_metrics_cut(const char *path, int64_t last_step, int64_t *starts)
{
    char *all;
    size_t n;
    *starts = 0;
    if (!ech_file_exists(path)) return ECH_OK;
    ECH_TRY(ech_file_read(path, FILE_LIMIT, &all, &n));
    ech_text kept = {0};
    for (const char *at = all, *end; (end = memchr(at, '\n', n - (size_t)(at - all))); at = end + 1)
        if (stays(at, (size_t)(end - at), last_step, starts))
            ech_text_append_bytes(&kept, at, (size_t)(end - at) + 1);
    ech_status st = kept.n == n ? ECH_OK : ech_file_write(path, kept.n ? kept.at : "", kept.n);
    ech_text_free(&kept);
    free(all);
    return st;
}
