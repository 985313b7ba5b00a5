/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing and reading manifest.json. Its text ends in a hash of all bytes before that hash's
 * digits, so that any damage is found.
 */
#include "checkpoint/manifest.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"

/* A manifest has the lowest version that has its keys. Version 2 adds the keys of a dynamic loss
 * scale, version 3 the counts of pushes. Version 4 adds the keys of validations to any of these. */
enum { VERSION = 1, SCALED_VERSION = 2, CLOCKED_VERSION = 3, VALIDATED_VERSION = 4 };
static const char FORMAT[] = "echelon checkpoint";
static const char HASH_KEY[] = ",\"xxh3_128\":\"";
static const char ENDING[] = "\"}\n";

#define DAMAGED ": damaged; use an older checkpoint, or copy it again"

const char *ech_checkpoint_file_name(ech_checkpoint_file file)
{
    static const char *const names[ECH_FILES] = {
        [ECH_FILE_MODEL] = "model/model.safetensors",
        [ECH_FILE_STATE] = "state/state.safetensors",
        [ECH_FILE_ADAPTER] = "model/adapter_model.safetensors",
#define X(NAME, file) [ECH_FILE_##NAME] = "model/" file,
#include "checkpoint/texts.def"
#undef X
    };
    return names[file];
}

const char *ech_checkpoint_text_name(ech_checkpoint_file file)
{
    return ech_checkpoint_file_name(file) + strlen("model/");
}

static char *copy_bytes(const char *bytes, size_t n)
{
    if (!bytes) return NULL;
    char *copy = ech_calloc(n + 1, 1);
    memcpy(copy, bytes, n);
    return copy;
}

ech_checkpoint_info ech_checkpoint_info_copy(const ech_checkpoint_info *info)
{
    ech_checkpoint_info copy = *info;
    copy.run_yaml = info->run_yaml ? ech_strdup(info->run_yaml) : NULL;
    copy.card = info->card ? ech_strdup(info->card) : NULL;
    copy.clock = ech_calloc((size_t)info->clocks + 1, sizeof *copy.clock);
    for (int w = 0; w < info->clocks; w++) copy.clock[w] = info->clock[w];
    for (int f = ECH_FIRST_TEXT; f < ECH_FILES; f++)
        copy.text[f].at = copy_bytes(info->text[f].at, info->text[f].n);
    return copy;
}

void ech_checkpoint_info_free(ech_checkpoint_info *info)
{
    free(info->run_yaml);
    info->run_yaml = NULL;
    free(info->card);
    info->card = NULL;
    free(info->clock);
    info->clock = NULL;
    info->clocks = 0;
    for (int f = ECH_FIRST_TEXT; f < ECH_FILES; f++) {
        free(info->text[f].at);
        info->text[f].at = NULL;
    }
}

void ech_manifest_free(ech_manifest *manifest)
{
    ech_checkpoint_info_free(&manifest->info);
    for (int f = 0; f < ECH_FILES; f++) {
        free(manifest->files[f].hashes);
        manifest->files[f].hashes = NULL;
    }
}

/* ---- writing ---- */

static void append_files(const ech_manifest *manifest, ech_text *out)
{
    const char *between = "";
    for (int f = 0; f < ECH_FILES; f++) {
        if (manifest->files[f].bytes < 0) continue;
        ech_text_append(out, "%s\n{\"name\":\"%s\",\"bytes\":%" PRId64 ",\"hashes\":[", between,
                        ech_checkpoint_file_name((ech_checkpoint_file)f), manifest->files[f].bytes);
        for (int64_t i = 0; i < ech_hash_ranges(manifest->files[f].bytes); i++) {
            char digits[ECH_HASH_DIGITS + 1];
            ech_hash_print(manifest->files[f].hashes[i], digits);
            ech_text_append(out, "%s\"%s\"", i ? "," : "", digits);
        }
        ech_text_append(out, "]}");
        between = ",";
    }
}

/* Whole numbers, all. */
static const struct {
    const char *key;
    size_t field; /* its offset in an ech_scaler */
    int64_t most;
} scaler_keys[] = {
    {"loss_scale", offsetof(ech_scaler, scale), INT64_C(1) << 40},
    {"loss_scale_good_steps", offsetof(ech_scaler, good_steps), INT64_C(1) << 53},
    {"loss_scale_tolerance", offsetof(ech_scaler, tolerance), ECH_SCALER_HYSTERESIS},
    {"overflows", offsetof(ech_scaler, overflows), INT64_C(1) << 53},
};
enum { SCALER_KEYS = sizeof scaler_keys / sizeof *scaler_keys };

static double *scaler_field(ech_scaler *scaler, int key)
{
    return (double *)((char *)scaler + scaler_keys[key].field);
}

static void append_scaler(ech_scaler scaler, ech_text *out)
{
    for (int i = 0; i < SCALER_KEYS; i++)
        ech_text_append(out, "\"%s\":%" PRId64 ",\n", scaler_keys[i].key,
                        (int64_t)*scaler_field(&scaler, i));
}

static void append_clocks(const ech_checkpoint_info *info, ech_text *out)
{
    ech_text_append(out, "\"clocks\":\"");
    for (int w = 0; w < info->clocks; w++)
        ech_text_append(out, "%s%" PRId64, w ? " " : "", info->clock[w]);
    ech_text_append(out, "\",\n");
}

/* A loss scale that changes, and pushes, do not go together. */
static int version_of(const ech_checkpoint_info *info)
{
    if (info->validated.is) return VALIDATED_VERSION;
    if (info->clocks) return CLOCKED_VERSION;
    return info->has_scaler ? SCALED_VERSION : VERSION;
}

static void append_loss(const char *key, double loss, ech_text *out)
{
    char number[32] = "null"; /* JSON has neither NaN nor infinity */
    if (isfinite(loss)) ech_text_print(number, sizeof number, "%.17g", loss);
    ech_text_append(out, "\"%s\":%s,\n", key, number);
}

static void append_validated(const ech_validated *v, ech_text *out)
{
    ech_text_append(out, "\"validated_step\":%" PRId64 ",\n", v->step);
    append_loss("valid_loss", v->loss, out);
    ech_text_append(out, "\"best_step\":%" PRId64 ",\n", v->best_step);
    append_loss("best_valid_loss", v->best, out);
    ech_text_append(out, "\"validations_waited\":%" PRId64 ",\n", v->waited);
}

ech_status ech_manifest_print(const ech_manifest *manifest, ech_text *out)
{
    const ech_checkpoint_info *info = &manifest->info;
    ECH_FREED_TEXT text = {0};
    ech_text_append(&text, "{\"format\":\"%s\",\n\"version\":%d,\n", FORMAT, version_of(info));
    ech_text_append(&text, "\"step\":%" PRId64 ",\n", info->step);
    ech_text_append(&text, "\"optimizer_count\":%" PRId64 ",\n", info->optimizer_count);
    ech_text_append(&text, "\"samples\":%" PRId64 ",\n", info->samples);
    ech_text_append(&text, "\"skipped_steps\":%" PRId64 ",\n", info->skipped_steps);
    if (info->has_scaler) append_scaler(info->scaler, &text);
    if (info->clocks) append_clocks(info, &text);
    if (info->validated.is) append_validated(&info->validated, &text);
    append_loss("loss", info->loss, &text);
    ech_text_append(&text, "\"ranks\":%d,\n\"run_yaml\":", info->ranks);
    if (!ech_json_append_string(&text, info->run_yaml ? info->run_yaml : ""))
        ECH_FAIL(ECH_EINPUT, "the run file is not UTF-8, so no checkpoint can hold it: look for "
                             "odd bytes in its names and paths");
    ech_text_append(&text, ",\n\"range_bytes\":%d,\n\"files\":[", ECH_HASH_RANGE);
    append_files(manifest, &text);
    ech_text_append(&text, "]\n%s", HASH_KEY);
    char digits[ECH_HASH_DIGITS + 1];
    ech_hash_print(ech_hash_bytes(text.at, text.n), digits);
    ech_text_append(&text, "%s%s", digits, ENDING);
    if (text.n > ECH_MANIFEST_LIMIT)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "a manifest of %zu bytes is above the limit of %d; shorten the run file", text.n,
                 ECH_MANIFEST_LIMIT);
    ech_text_append_bytes(out, text.at, text.n);
    return ECH_OK;
}

/* ---- reading ---- */

bool ech_manifest_is_ours(const char *text, size_t n)
{
    return memmem(text, n, FORMAT, sizeof FORMAT - 1) ||
           memmem(text, n, HASH_KEY, sizeof HASH_KEY - 1);
}

/* The text ends as it must and its hash is right. */
static ech_status check_own_hash(const char *path, const char *text, size_t n)
{
    size_t ending = sizeof ENDING - 1, key = sizeof HASH_KEY - 1;
    ech_hash stated;
    if (n < key + ECH_HASH_DIGITS + ending || memcmp(text + n - ending, ENDING, ending) != 0 ||
        !ech_hash_parse(text + n - ending - ECH_HASH_DIGITS, &stated))
        ECH_FAIL(ECH_EINPUT, "%s: does not end in its hash" DAMAGED, path);
    size_t hashed = n - ending - ECH_HASH_DIGITS;
    if (memcmp(text + hashed - key, HASH_KEY, key) != 0 ||
        !ech_hash_equal(stated, ech_hash_bytes(text, hashed)))
        ECH_FAIL(ECH_EINPUT, "%s: its bytes 0..%zu do not have the hash it states" DAMAGED, path,
                 hashed);
    return ECH_OK;
}

static ech_status take_int(const char *path, const json_t *root, const char *key, int64_t low,
                           int64_t high, int64_t *out)
{
    if (!ech_json_to_int(json_object_get(root, key), low, high, out))
        ECH_FAIL(ECH_EINPUT, "%s: '%s' is no integer in %" PRId64 "..%" PRId64 DAMAGED, path, key,
                 low, high);
    return ECH_OK;
}

static ech_status check_kind(const char *path, const json_t *root, int64_t *version)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, FORMAT) != 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s: 'format' is not \"%s\": not a checkpoint's manifest; name another checkpoint",
                 path, FORMAT);
    ECH_TRY(take_int(path, root, "version", 1, INT64_MAX, version));
    if (*version > VALIDATED_VERSION)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: version %" PRId64
                 ", this program reads versions up to %d: a newer Echelon wrote it; use that one",
                 path, *version, VALIDATED_VERSION);
    int64_t range;
    ECH_TRY(take_int(path, root, "range_bytes", ECH_HASH_RANGE, ECH_HASH_RANGE, &range));
    return ECH_OK;
}

/* A number, or null for NaN. */
static ech_status take_loss(const char *path, const json_t *root, const char *key, double *out)
{
    const json_t *loss = json_object_get(root, key);
    if (!json_is_number(loss) && !json_is_null(loss))
        ECH_FAIL(ECH_EINPUT, "%s: '%s' is neither a number nor null" DAMAGED, path, key);
    *out = json_is_null(loss) ? (double)NAN : json_number_value(loss);
    return ECH_OK;
}

enum { VALIDATED_KEYS = 5 };
static ech_status take_validated(const char *path, const json_t *root, ech_validated *out)
{
    const int64_t most = INT64_C(1) << 53;
    out->is = true;
    ECH_TRY(take_int(path, root, "validated_step", 0, most, &out->step));
    ECH_TRY(take_loss(path, root, "valid_loss", &out->loss));
    ECH_TRY(take_int(path, root, "best_step", 0, most, &out->best_step));
    ECH_TRY(take_loss(path, root, "best_valid_loss", &out->best));
    return take_int(path, root, "validations_waited", 0, most, &out->waited);
}

static ech_status take_counters(const char *path, const json_t *root, ech_checkpoint_info *info)
{
    const int64_t most = INT64_C(1) << 53;
    int64_t ranks;
    ECH_TRY(take_int(path, root, "step", 0, most, &info->step));
    ECH_TRY(take_int(path, root, "optimizer_count", 0, most, &info->optimizer_count));
    ECH_TRY(take_int(path, root, "samples", 0, most, &info->samples));
    ECH_TRY(take_int(path, root, "skipped_steps", 0, most, &info->skipped_steps));
    ECH_TRY(take_int(path, root, "ranks", 1, 1 << 24, &ranks));
    info->ranks = (int)ranks;

    ECH_TRY(take_loss(path, root, "loss", &info->loss));

    const char *yaml = json_string_value(json_object_get(root, "run_yaml"));
    if (!yaml) ECH_FAIL(ECH_EINPUT, "%s: 'run_yaml' is no text" DAMAGED, path);
    info->run_yaml = ech_strdup(yaml);
    return ECH_OK;
}

/* A loss scale is a power of two. */
static ech_status take_scaler(const char *path, const json_t *root, ech_scaler *out)
{
    for (int i = 0; i < SCALER_KEYS; i++) {
        bool is_scale = i == 0;
        int64_t value;
        ECH_TRY(take_int(path, root, scaler_keys[i].key, is_scale, scaler_keys[i].most, &value));
        if (is_scale && (value & (value - 1)))
            ECH_FAIL(ECH_EINPUT, "%s: 'loss_scale' is no power of two" DAMAGED, path);
        *scaler_field(out, i) = (double)value;
    }
    return ECH_OK;
}

/* Numbers with blanks between. */
static ech_status take_clocks(const char *path, const json_t *root, ech_checkpoint_info *out)
{
    const json_t *value = json_object_get(root, "clocks");
    const char *at = json_string_value(value);
    out->clock = ech_calloc(json_string_length(value) / 2 + 2, sizeof *out->clock);
    for (bool more = at != NULL; more; at++) {
        char *end;
        errno = 0;
        int64_t clock = isdigit((unsigned char)*at) ? strtoll(at, &end, 10) : -1;
        if (clock < 0 || errno || clock > INT64_C(1) << 53 || (*end && *end != ' ')) break;
        out->clock[out->clocks++] = clock;
        more = *end == ' ';
        at = end;
        if (!more) return ECH_OK;
    }
    ECH_FAIL(ECH_EINPUT, "%s: 'clocks' are no numbers with blanks between" DAMAGED, path);
}

static bool find_file(const char *name, int *out)
{
    for (int f = 0; name && f < ECH_FILES; f++) {
        if (strcmp(name, ech_checkpoint_file_name((ech_checkpoint_file)f)) != 0) continue;
        *out = f;
        return true;
    }
    return false;
}

static ech_status take_file(const char *path, const json_t *value, ech_manifest *out)
{
    const char *name = json_string_value(json_object_get(value, "name"));
    int f;
    if (!find_file(name, &f) || out->files[f].bytes >= 0)
        ECH_FAIL(ECH_EINPUT, "%s: 'files' lists '%.80s', which is unknown or listed twice" DAMAGED,
                 path, name ? name : "");
    int64_t bytes;
    ECH_TRY(take_int(path, value, "bytes", 0, INT64_MAX, &bytes));
    const json_t *hashes = json_object_get(value, "hashes");
    if (json_object_size(value) != 3 || !json_is_array(hashes) ||
        (int64_t)json_array_size(hashes) != ech_hash_ranges(bytes))
        ECH_FAIL(ECH_EINPUT,
                 "%s: '%s' of %" PRId64 " bytes needs exactly name, bytes and %" PRId64
                 " hashes" DAMAGED,
                 path, name, bytes, ech_hash_ranges(bytes));
    out->files[f].hashes = ech_calloc(json_array_size(hashes) + 1, sizeof(ech_hash));
    out->files[f].bytes = bytes;
    for (size_t i = 0; i < json_array_size(hashes); i++) {
        const json_t *digits = json_array_get(hashes, i);
        if (json_string_length(digits) != ECH_HASH_DIGITS ||
            !ech_hash_parse(json_string_value(digits), &out->files[f].hashes[i]))
            ECH_FAIL(ECH_EINPUT, "%s: hash %zu of '%s' is not %d hexadecimal digits" DAMAGED, path,
                     i, name, ECH_HASH_DIGITS);
    }
    return ECH_OK;
}

static ech_status take_all(const char *path, const json_t *root, ech_manifest *out)
{
    enum { KEYS = 12 };
    int64_t version;
    ECH_TRY(check_kind(path, root, &version));
    bool validated = version == VALIDATED_VERSION;
    bool scaled =
        validated ? json_object_get(root, "loss_scale") != NULL : version == SCALED_VERSION;
    bool clocked = validated ? json_object_get(root, "clocks") != NULL : version == CLOCKED_VERSION;
    int keys = KEYS + (scaled ? SCALER_KEYS : 0) + clocked + VALIDATED_KEYS * validated;
    out->info.has_scaler = scaled;
    if ((int)json_object_size(root) != keys)
        ECH_FAIL(ECH_EINPUT, "%s: %zu keys where version %d has %d" DAMAGED, path,
                 json_object_size(root), (int)version, keys);
    ECH_TRY(take_counters(path, root, &out->info));
    if (scaled) ECH_TRY(take_scaler(path, root, &out->info.scaler));
    if (clocked) ECH_TRY(take_clocks(path, root, &out->info));
    if (validated) ECH_TRY(take_validated(path, root, &out->info.validated));
    const json_t *files = json_object_get(root, "files");
    if (!json_is_array(files)) ECH_FAIL(ECH_EINPUT, "%s: 'files' is no array" DAMAGED, path);
    for (size_t i = 0; i < json_array_size(files); i++)
        ECH_TRY(take_file(path, json_array_get(files, i), out));
    if (out->files[ECH_FILE_MODEL].bytes < 0)
        ECH_FAIL(ECH_EINPUT, "%s: 'files' lacks '%s'" DAMAGED, path,
                 ech_checkpoint_file_name(ECH_FILE_MODEL));
    return ECH_OK;
}

ech_status ech_manifest_parse(const char *path, const char *text, size_t n, ech_manifest *out)
{
    ECH_TRY(check_own_hash(path, text, n));
    ech_json_limits limits = {
        .depth = 4, .containers = 2 + 2 * ECH_FILES, .values = n / ECH_HASH_DIGITS + 64};
    json_auto_t *root = NULL;
    ECH_TRY(ech_json_parse(path, text, n, limits, &root));
    ECH_CLEANUP(ech_manifest_free) ech_manifest manifest = {0};
    for (int f = 0; f < ECH_FILES; f++) manifest.files[f].bytes = -1;
    ECH_TRY(take_all(path, root, &manifest));
    *out = manifest;
    manifest = (ech_manifest){0};
    return ECH_OK;
}
