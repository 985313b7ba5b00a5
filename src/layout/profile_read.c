/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads profiles from untrusted JSON: every number has bounds, and so has the memory of reading.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "layout/profile.h"

/* A block with short numbers and an empty name takes 139 bytes. */
enum { LARGEST_FILE = 64 << 20, MOST_BLOCKS = 1000000, SHORTEST_BLOCK = 100 };
enum { KEYS = 11, BLOCK_KEYS = 7, BLOCK_COMMAS = BLOCK_KEYS + 2 * ECH_PHASES };

static const double LONGEST = 1e9;  /* seconds */
static const double FASTEST = 1e18; /* bytes per second */
/* So that sums over all blocks are far from overflowing. */
static const int64_t LARGEST = INT64_C(1000000000000);

/* What is being read, for errors: "p.json: blocks[3]: 'forward' ..." */
typedef struct place {
    const char *file;
    char in[40];
} place;

/* Whether the text may hold more values than a profile of its length has: a tree of them would take
 * far more memory than the text. */
static bool is_crowded(const char *text, size_t n)
{
    size_t containers = 0, commas = 0, blocks = n / SHORTEST_BLOCK + 1;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string && c == '\\')
            i++;
        else if (c == '"')
            in_string = !in_string;
        else if (!in_string) {
            containers += c == '{' || c == '[';
            commas += c == ',';
        }
    }
    return containers > (1 + ECH_PHASES) * blocks + 2 || commas > KEYS + BLOCK_COMMAS * blocks;
}

static ech_status take_number(const place *p, const json_t *number, const char *key, double most,
                              double *out)
{
    double value = json_number_value(number);
    if (!json_is_number(number) || !(value >= 0 && value <= most))
        ECH_FAIL(ECH_EINPUT, "%s: %s'%s' is no number from 0 to %g", p->file, p->in, key, most);
    *out = value;
    return ECH_OK;
}

static ech_status take_real(const place *p, const json_t *object, const char *key, double most,
                            double *out)
{
    return take_number(p, json_object_get(object, key), key, most, out);
}

/* [quartile, median, quartile], none of which is below the one before. */
static ech_status take_times(const place *p, const json_t *object, const char *key, ech_phase phase,
                             ech_profile_block *out)
{
    const json_t *times = json_object_get(object, key);
    double *into[] = {&out->low[phase], &out->seconds[phase], &out->high[phase]};
    double before = 0;
    if (json_array_size(times) != 3)
        ECH_FAIL(ECH_EINPUT, "%s: %s'%s' is no array of three numbers", p->file, p->in, key);
    for (size_t i = 0; i < 3; before = *into[i++]) {
        ECH_TRY(take_number(p, json_array_get(times, i), key, LONGEST, into[i]));
        if (*into[i] < before)
            ECH_FAIL(ECH_EINPUT, "%s: %s'%s' does not ascend", p->file, p->in, key);
    }
    return ECH_OK;
}

static ech_status take_bytes(const place *p, const json_t *object, const char *key, int64_t *out)
{
    const json_t *number = json_object_get(object, key);
    json_int_t value = json_integer_value(number);
    if (!json_is_integer(number) || value < 0 || value > LARGEST)
        ECH_FAIL(ECH_EINPUT, "%s: %s'%s' is no whole number from 0 to %" PRId64, p->file, p->in,
                 key, LARGEST);
    *out = value;
    return ECH_OK;
}

static ech_status check_keys(const place *p, const json_t *object, size_t keys, const char *text)
{
    if (json_object_size(object) != keys)
        ECH_FAIL(ECH_EINPUT, "%s: %s%zu keys where version %d has %zu", p->file, p->in,
                 json_object_size(object), ECH_PROFILE_VERSION, keys);
    if (!json_is_string(json_object_get(object, text)))
        ECH_FAIL(ECH_EINPUT, "%s: %s'%s' is no text", p->file, p->in, text);
    return ECH_OK;
}

static ech_status take_block(const place *p, const json_t *object, ech_profile_block *out)
{
    if (!json_is_object(object)) ECH_FAIL(ECH_EINPUT, "%s: %sis no object", p->file, p->in);
    ECH_TRY(take_times(p, object, "forward", ECH_FORWARD, out));
    ECH_TRY(take_times(p, object, "backward_input", ECH_BACKWARD_INPUT, out));
    ECH_TRY(take_times(p, object, "backward_weight", ECH_BACKWARD_WEIGHT, out));
    ECH_TRY(take_bytes(p, object, "activation_bytes", &out->activation_bytes));
    ECH_TRY(take_bytes(p, object, "boundary_bytes", &out->boundary_bytes));
    ECH_TRY(take_bytes(p, object, "parameter_bytes", &out->param_bytes));
    return check_keys(p, object, BLOCK_KEYS, "name");
}

static ech_status take_blocks(place *p, const json_t *array, ech_profile *out)
{
    size_t n = json_array_size(array);
    if (n == 0 || n > MOST_BLOCKS)
        ECH_FAIL(ECH_EINPUT, "%s: 'blocks' is no array of 1 to %d objects", p->file, MOST_BLOCKS);
    out->blocks = (int)n;
    out->block = ech_calloc(n, sizeof *out->block);
    for (size_t i = 0; i < n; i++) {
        snprintf(p->in, sizeof p->in, "blocks[%zu]: ", i);
        ECH_TRY(take_block(p, json_array_get(array, i), &out->block[i]));
    }
    return ECH_OK;
}

static ech_status check_version(const place *p, const json_t *root)
{
    const json_t *version = json_object_get(root, "version");
    if (!json_is_integer(version))
        ECH_FAIL(ECH_EINPUT, "%s: 'version' is no whole number: no profile", p->file);
    if (json_integer_value(version) != ECH_PROFILE_VERSION)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: version %lld, this program reads version %d; measure again with `echelon "
                 "profile`",
                 p->file, (long long)json_integer_value(version), ECH_PROFILE_VERSION);
    return ECH_OK;
}

static ech_status take_all(const json_t *root, const char *name, ech_profile *out)
{
    place p = {.file = name};
    if (!json_is_object(root)) ECH_FAIL(ECH_EINPUT, "%s: the JSON is no object", name);
    ECH_TRY(check_version(&p, root));
    ECH_TRY(take_real(&p, root, "bandwidth", FASTEST, &out->bandwidth));
    ECH_TRY(take_real(&p, root, "latency", LONGEST, &out->latency));
    ECH_TRY(take_real(&p, root, "update_seconds_per_byte", LONGEST, &out->update_seconds));
    ECH_TRY(take_real(&p, root, "other_seconds", LONGEST, &out->other_seconds));
    ECH_TRY(take_real(&p, root, "spread", LONGEST, &out->spread));
    ECH_TRY(take_real(&p, root, "processor_share", 1, &out->processor_share));
    const json_t *busy = json_object_get(root, "busy");
    if (!json_is_boolean(busy)) ECH_FAIL(ECH_EINPUT, "%s: 'busy' is not true or false", name);
    out->busy = json_is_true(busy);
    const char *model = json_string_value(json_object_get(root, "model"));
    if (!model) ECH_FAIL(ECH_EINPUT, "%s: 'model' is no text", name);
    out->model = ech_strdup(model);
    ECH_TRY(check_keys(&p, root, KEYS, "echelon"));
    return take_blocks(&p, json_object_get(root, "blocks"), out);
}

ech_status ech_profile_parse(const char *text, size_t n, const char *name, ech_profile **out)
{
    if (n > LARGEST_FILE)
        ECH_FAIL(ECH_EINPUT, "%s: %zu bytes; a profile has at most %d", name, n, LARGEST_FILE);
    if (is_crowded(text, n))
        ECH_FAIL(ECH_EINPUT, "%s: more values than a profile of %zu bytes can have", name, n);
    json_error_t error;
    json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        ECH_FAIL(ECH_EINPUT, "%s:%d:%d: bad JSON: %s", name, error.line, error.column, error.text);
    ech_profile *profile = ech_calloc(1, sizeof *profile);
    ech_status st = take_all(root, name, profile);
    json_decref(root);
    if (st == ECH_OK)
        *out = profile;
    else
        ech_profile_destroy(profile);
    return st;
}

ech_status ech_profile_read(const char *path, ech_profile **out)
{
    char *text;
    size_t n;
    ECH_TRY(ech_file_read(path, LARGEST_FILE, &text, &n));
    ech_status st = ech_profile_parse(text, n, path, out);
    free(text);
    return st;
}
