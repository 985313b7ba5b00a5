/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of weights: finding them, opening their files, checking them against a model, and reading
 * tensors.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/folder.h"
#include "checkpoint/foreign.h"
#include "checkpoint/manifest.h"
#include "checkpoint/shards.h"
#include "checkpoint/shards_index.h"
#include "checkpoint/transfer.h"

#define CONFIG "config.json"
#define SINGLE "model.safetensors"
#define INDEX  "model.safetensors.index.json"

enum { LARGEST_INDEX = 16 << 20 }; /* bytes */

struct ech_shards {
    /* names of the token embedding's table, and of a head that is not tied */
    char *folder, *table, *head;
    const ech_family *family;
    bool tied;
    int64_t had; /* rows of tables of the vocabulary; 0: as many as the model has */
    ECH_LIST(int64_t) grown_from; /* rows whose mean new rows are; none: all */
    ECH_LIST(ech_safetensors *) file;
};

/* Where a tensor is; file NULL: not found. */
typedef struct location {
    const ech_safetensors *file;
    int tensor; /* of the file */
    int number; /* among the tensors of all files */
} location;

/* model/ of the newest checkpoint of a folder of checkpoints or of a run directory; NULL: none. */
static ech_status find_run(const char *path, char **folder)
{
    ECH_CLEANUP(ech_checkpoint_close_at) ech_checkpoint *checkpoint = NULL;
    ECH_TRY(ech_checkpoint_open_run(path, false, &checkpoint));
    if (checkpoint) *folder = ech_file_join(ech_checkpoint_path(checkpoint), "model");
    return ECH_OK;
}

bool ech_shards_is_cache(const char *path)
{
    return ech_file_has(path, "snapshots") && ech_file_has(path, "blobs") &&
           !ech_file_has(path, CONFIG);
}

ech_status ech_shards_find(const char *path, char **folder)
{
    if (!ech_file_is_folder(path)) {
        ECH_TRY(ech_foreign_check(path));
        ECH_FAIL(ECH_EUSAGE, "%s: no such folder; name a Hugging Face model's, or a run directory",
                 path);
    }
    if (ech_shards_is_cache(path))
        ECH_FAIL(
            ECH_EUSAGE,
            "%s: Hugging Face's cache of a model, of all its versions; name one, a folder below "
            "%s/snapshots",
            path, path);
    ECH_FREED char *model = ech_file_join(path, "model"), *found = NULL;
    if (ech_file_has(path, CONFIG))
        found = ech_strdup(path);
    else if (ech_file_has(model, CONFIG))
        found = ech_strdup(model);
    ECH_TRY(found ? ech_manifest_verify_model(found, false) : find_run(path, &found));
    if (!found) ECH_TRY(ech_foreign_check(path));
    if (!found)
        ECH_FAIL(
            ECH_EUSAGE,
            "%s: has no " CONFIG
            ", and no checkpoint with one; name a Hugging Face model's folder, a checkpoint or "
            "a run directory",
            path);
    *folder = found;
    found = NULL;
    return ECH_OK;
}

/* ---- opening ---- */

static ech_status open_file(ech_shards *weights, const char *name)
{
    ech_safetensors *file;
    ECH_FREED char *path = ech_file_join(weights->folder, name);
    ECH_TRY(ech_safetensors_open(path, &file));
    ECH_PUSH(weights->file, file);
    return ECH_OK;
}

#define OF_OTHERS "; index and shards are of different saves: download the folder again"

static ech_status check_shard(const char *path, const ech_shards_index *index, const char *shard,
                              const ech_safetensors *file)
{
    const char *name;
    json_t *value;
    for (int t = 0; t < ech_safetensors_count(file); t++) {
        name = ech_safetensors_get(file, t).name;
        const char *listed = json_string_value(json_object_get(index->map, name));
        if (!listed || strcmp(listed, shard) != 0)
            ECH_FAIL(ECH_EINPUT, "%s: its shard %s has the tensor '%s', %s" OF_OTHERS, path, shard,
                     name,
                     listed ? "which weight_map says to be in another one"
                            : "which weight_map does not list");
    }
    if (json_integer_value(json_object_get(index->shards, shard)) == ech_safetensors_count(file))
        return ECH_OK;
    json_object_foreach(index->map, name, value)
    {
        if (strcmp(json_string_value(value), shard) == 0 && ech_safetensors_find(file, name) < 0)
            ECH_FAIL(ECH_EINPUT, "%s: tensor '%s' is not in its shard %s" OF_OTHERS, path, name,
                     shard);
    }
    return ECH_OK;
}

static ech_status open_shards(ech_shards *weights, const char *path)
{
    ECH_FREED char *text = NULL;
    ECH_CLEANUP(ech_shards_index_free) ech_shards_index index = {0};
    size_t n;
    const char *shard;
    json_t *tensors;
    ECH_TRY(ech_file_read(path, LARGEST_INDEX, &text, &n));
    ECH_TRY(ech_shards_index_parse(path, text, n, &index));
    json_object_foreach(index.shards, shard, tensors)
    {
        if (!ech_file_has(weights->folder, shard))
            ECH_FAIL(ECH_EINPUT, "%s: its shard %s is not there; copy all files of the model", path,
                     shard);
        ECH_TRY(open_file(weights, shard));
    }
    size_t f = 0;
    json_object_foreach(index.shards, shard, tensors)
    {
        ECH_TRY(check_shard(path, &index, shard, weights->file.at[f++]));
    }
    return ECH_OK;
}

bool ech_shards_are_there(const char *folder)
{
    return ech_file_has(folder, SINGLE) || ech_file_has(folder, INDEX);
}

/* As transformers looks: one file before shards. */
static ech_status open_all(ech_shards *weights)
{
    if (ech_file_has(weights->folder, SINGLE)) return open_file(weights, SINGLE);
    if (ech_file_has(weights->folder, INDEX)) {
        ECH_FREED char *path = ech_file_join(weights->folder, INDEX);
        return open_shards(weights, path);
    }
    ECH_TRY(ech_foreign_check(weights->folder));
    ECH_FAIL(ECH_EINPUT, "%s: has neither " SINGLE " nor " INDEX "; copy all files of the model",
             weights->folder);
}

ech_status ech_shards_open(const char *folder, const ech_family *family, bool tied, bool verify,
                           ech_shards **out)
{
    if (verify) ECH_TRY(ech_manifest_verify_model(folder, true));
    ECH_CLEANUP(ech_shards_close_at) ech_shards *weights = ech_calloc(1, sizeof *weights);
    weights->folder = ech_strdup(folder);
    weights->family = family;
    weights->table = ech_family_table(family);
    weights->head = ech_family_head(family);
    weights->tied = tied;
    ECH_TRY(open_all(weights));
    *out = weights;
    weights = NULL;
    return ECH_OK;
}

void ech_shards_close(ech_shards *weights)
{
    if (!weights) return;
    for (size_t f = 0; f < weights->file.n; f++) ech_safetensors_close(weights->file.at[f]);
    free(weights->file.at);
    free(weights->grown_from.at);
    free(weights->folder);
    free(weights->table);
    free(weights->head);
    free(weights);
}

int ech_shards_count(const ech_shards *weights)
{
    int n = 0;
    for (size_t f = 0; f < weights->file.n; f++) n += ech_safetensors_count(weights->file.at[f]);
    return n;
}

/* ---- names ---- */

static location find_exactly(const ech_shards *weights, const char *name)
{
    int before = 0;
    for (size_t f = 0; f < weights->file.n; f++) {
        const ech_safetensors *file = weights->file.at[f];
        int t = ech_safetensors_find(file, name);
        if (t >= 0) return (location){file, t, before + t};
        before += ech_safetensors_count(file);
    }
    return (location){0};
}

/* By our name, or by our name without the family's prefix. */
static location find_tensor(const ech_shards *weights, const char *name)
{
    size_t n = strlen(weights->family->prefix);
    location at = find_exactly(weights, name);
    if (!at.file && strncmp(name, weights->family->prefix, n) == 0)
        at = find_exactly(weights, name + n);
    return at;
}

ech_dtype ech_shards_dtype(const ech_shards *weights, const char *name)
{
    location at = find_tensor(weights, name);
    ECH_ASSERT(at.file);
    return ech_safetensors_get(at.file, at.tensor).dtype;
}

ech_status ech_shards_read_count(const ech_shards *weights, const char *name, int64_t *count)
{
    location at = find_tensor(weights, name);
    ech_saved_tensor want = {.name = name, .dtype = ECH_I64};
    ech_tensor number = ech_tensor_view(count, ECH_I64, 0, NULL);
    *count = 0;
    if (!at.file) return ECH_OK;
    ech_saved_tensor stored = ech_safetensors_get(at.file, at.tensor);
    if (stored.dtype != ECH_I64 || stored.dims != 0)
        ECH_FAIL(ECH_EINPUT, "%s: tensor '%s' counts batches, but is no I64 scalar",
                 weights->folder, name);
    ech_saved_add(&want, (const int64_t[1]){0}, &number);
    ECH_TRY(ech_safetensors_read(at.file, at.tensor, &want));
    if (*count < 0)
        ECH_FAIL(ECH_EINPUT, "%s: tensor '%s' counts batches, but is negative", weights->folder,
                 name);
    return ECH_OK;
}

/* ---- checking ---- */

static bool is_grown(const ech_shards *weights, const ech_saved_tensor *want)
{
    return weights->had > 0 && want->by_token && want->shape[0] > weights->had;
}

static ech_status check_one(const ech_shards *weights, const ech_saved_tensor *stored,
                            const ech_saved_tensor *want)
{
    if (!ech_dtype_is_real(stored->dtype))
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: tensor '%s' is of type %s; weights are F32, F64, BF16 or F16; save it in "
                 "bf16, in transformers",
                 weights->folder, stored->name, ech_dtype_on_disk(stored->dtype));
    ech_saved_tensor whole = *want;
    if (is_grown(weights, want)) whole.shape[0] = weights->had;
    return ech_shape_check(weights->folder, stored, &whole, "; by the model section it is ",
                           "; leave model keys to config.json, or name another folder");
}

static ech_status demand(const ech_shards *weights, const ech_saved_tensor *want, location *out)
{
    location at = find_tensor(weights, want->name);
    if (!at.file && strcmp(want->name, weights->head) == 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s: " CONFIG
                 " says tie_word_embeddings = false, but there is no tensor '%s'; set "
                 "it to true to use '%s' as the head",
                 weights->folder, want->name, weights->table);
    if (!at.file)
        return ech_safetensors_fail_missing(weights->folder, weights->file.at, weights->file.n,
                                            want->name);
    ech_saved_tensor stored = ech_safetensors_get(at.file, at.tensor);
    *out = at;
    return check_one(weights, &stored, want);
}

static bool is_buffer(const ech_shards *weights, const char *name)
{
    size_t n = strlen(name), length;
    for (const char *end = weights->family->buffers; *end; end += length + (end[length] == ' ')) {
        length = strcspn(end, " ");
        if (n >= length && strncmp(name + n - length, end, length) == 0) return true;
    }
    return false;
}

/* The number of the layer that the tensor belongs to; -1: of none. */
static int64_t layer_of(const char *layers, const char *name)
{
    size_t n = strlen(layers), digits;
    char number[20];
    if (strncmp(name, layers, n) != 0 || name[n] != '.') return -1;
    digits = strspn(name + n + 1, "0123456789");
    if (digits == 0 || digits >= sizeof number || name[n + 1 + digits] != '.') return -1;
    memcpy(number, name + n + 1, digits);
    number[digits] = '\0';
    return strtoll(number, NULL, 10);
}

/* Whether it is of a layer that predicts further tokens, after the model's: such a layer joins the
 * embedding of the next token by eh_proj (DeepSeek-AI 2024, arXiv:2412.19437, section 2.2). */
static bool predicts_more(const ech_shards *weights, const char *name)
{
    const char *layers = ech_names_of(weights->family).layers;
    int64_t layer = layer_of(layers, name);
    ECH_FREED_TEXT joins = {0};
    ech_text_append(&joins, "%s.%" PRId64 ".eh_proj.weight", layers, layer);
    return weights->family->predicts_more && layer >= 0 && find_exactly(weights, joins.at).file;
}

static bool is_tied_head(const ech_shards *weights, const char *name)
{
    return weights->tied && strcmp(name, weights->head) == 0;
}

ech_status ech_shards_check(const ech_shards *weights, const ech_saved_tensor *tensors, int n)
{
    ECH_FREED bool *used = ech_calloc((size_t)ech_shards_count(weights) + 1, sizeof *used);
    int number = 0;
    for (int i = 0; i < n; i++) {
        location at;
        ECH_TRY(demand(weights, &tensors[i], &at));
        used[at.number] = true;
    }
    for (size_t f = 0; f < weights->file.n; f++)
        for (int t = 0; t < ech_safetensors_count(weights->file.at[f]); t++) {
            const char *name = ech_safetensors_get(weights->file.at[f], t).name;
            if (used[number++] || is_buffer(weights, name) || is_tied_head(weights, name) ||
                predicts_more(weights, name))
                continue;
            ECH_FAIL(ECH_EINPUT,
                     "%s: tensor '%s' belongs to nothing in this model; is it a model of another "
                     "family? See model_type in its config.json",
                     weights->folder, name);
        }
    return ECH_OK;
}

/* ---- rows ---- */

enum { ROWS_ELEMENTS = 1 << 16 }; /* to read at once, where a row is not longer */

/* Indices [first, first + rows) of the first dimension, as fp64. */
static ech_status read_rows(location at, int64_t first, int64_t rows, double *to)
{
    const int64_t begin[ECH_MAX_DIMS] = {first};
    ech_saved_tensor tensor = ech_safetensors_get(at.file, at.tensor);
    int64_t shape[ECH_MAX_DIMS];
    memcpy(shape, tensor.shape, sizeof shape);
    shape[0] = rows;
    ech_tensor part = ech_tensor_view(to, ECH_F64, tensor.dims, shape);
    tensor.dtype = ECH_F64;
    ech_saved_add(&tensor, begin, &part);
    return ech_safetensors_read(at.file, at.tensor, &tensor);
}

/* How many rows of that many elements to read at once. */
static int64_t rows_at_once(int64_t width)
{
    return width < ROWS_ELEMENTS ? ROWS_ELEMENTS / width : 1;
}

/* ---- a tied head ---- */

static ech_status compare_rows(const ech_shards *weights, location head, location table,
                               int64_t first, int64_t rows, int64_t width, double *room)
{
    ECH_TRY(read_rows(head, first, rows, room));
    ECH_TRY(read_rows(table, first, rows, room + rows * width));
    for (int64_t i = 0; i < rows * width; i++)
        if (memcmp(&room[i], &room[rows * width + i], sizeof *room) != 0)
            ECH_FAIL(ECH_EINPUT,
                     "%s: " CONFIG " says tie_word_embeddings = true, but tensor '%s' differs from "
                     "'%s' at row %" PRId64 "; set it to false to use both tables",
                     weights->folder, weights->head, weights->table, first + i / width);
    return ECH_OK;
}

ech_status ech_shards_check_head(const ech_shards *weights)
{
    if (!weights->tied) return ECH_OK;
    location head = find_exactly(weights, weights->head);
    if (!head.file) return ECH_OK;
    location table = find_tensor(weights, weights->table);
    ech_saved_tensor is = ech_safetensors_get(head.file, head.tensor);
    ech_saved_tensor must = ech_safetensors_get(table.file, table.tensor);
    ECH_TRY(check_one(weights, &is, &must));
    int64_t V = must.shape[0], width = must.shape[1];
    int64_t rows = rows_at_once(width);
    ECH_FREED double *room = ech_calloc((size_t)(2 * rows * width), sizeof *room);
    for (int64_t first = 0; first < V; first += rows)
        ECH_TRY(compare_rows(weights, head, table, first, V - first < rows ? V - first : rows,
                             width, room));
    return ECH_OK;
}

/* ---- new rows of a vocabulary ---- */

void ech_shards_grow(ech_shards *weights, int64_t had, const int64_t *from, int n)
{
    weights->had = had;
    weights->grown_from.n = 0;
    for (int i = 0; i < n; i++) ECH_PUSH(weights->grown_from, from[i]);
}

/* Adds rows[n] up, one after the other. */
static void add_rows(const double *rows, int64_t n, int64_t width, double *sum)
{
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < width; i++) sum[i] += rows[r * width + i];
}

int64_t ech_shards_grown_from(const ech_shards *weights)
{
    return weights->had;
}

/* A new row of the table. */
static ech_status find_mean(const ech_shards *weights, location at, int64_t width, double *mean)
{
    const ech_dtype dtype = ech_safetensors_get(at.file, at.tensor).dtype;
    size_t named = weights->grown_from.n;
    int64_t most = named ? 1 : rows_at_once(width);
    int64_t all = named ? (int64_t)named : weights->had;
    ECH_FREED double *rows = ech_calloc((size_t)(most * width), sizeof *rows);
    for (int64_t r = 0; r < all; r += most) {
        int64_t n = all - r < most ? all - r : most;
        ECH_TRY(read_rows(at, named ? weights->grown_from.at[r] : r, n, rows));
        add_rows(rows, n, width, mean);
    }
    for (int64_t i = 0; i < width; i++) {
        mean[i] /= (double)all;
        if (dtype != ECH_F64) mean[i] = (float)mean[i];
    }
    return ECH_OK;
}

/* Indices begin .. end - 1 of the box's first dimension; without any it is empty. */
static ech_box rows_of(const ech_box *box, int64_t begin, int64_t end)
{
    ech_box part = *box;
    int64_t last = box->begin[0] + box->size[0];
    if (part.begin[0] < begin) part.begin[0] = begin;
    part.size[0] = (end < last ? end : last) - part.begin[0];
    if (part.size[0] < 0) part.size[0] = 0;
    if (part.size[0]) part.at += (part.begin[0] - box->begin[0]) * box->stride[0];
    return part;
}

static ech_status take_new_rows(const ech_box *rows, const double *mean, ech_saved_tensor tensor)
{
    tensor.shape[0] = 1;
    tensor.boxes = 1;
    for (int64_t r = 0; r < rows->size[0]; r++) {
        tensor.box[0] = *rows;
        tensor.box[0].at += r * rows->stride[0];
        tensor.box[0].begin[0] = 0;
        tensor.box[0].size[0] = 1;
        ECH_TRY(ech_transfer_take(mean, &tensor));
    }
    return ECH_OK;
}

static ech_status load_grown(const ech_shards *weights, location at, const ech_saved_tensor *want)
{
    ech_saved_tensor known = *want;
    int64_t width = ech_box_count(want->dims, want->shape) / want->shape[0], added = 0;
    known.shape[0] = weights->had;
    for (int b = 0; b < want->boxes; b++) {
        known.box[b] = rows_of(&want->box[b], 0, weights->had);
        added += rows_of(&want->box[b], weights->had, want->shape[0]).size[0];
        if (!known.box[b].size[0]) known.box[b].begin[0] = 0;
    }
    ECH_TRY(ech_safetensors_read(at.file, at.tensor, &known));
    if (!added) return ECH_OK;
    ECH_FREED double *mean = ech_calloc((size_t)width, sizeof *mean);
    ECH_TRY(find_mean(weights, at, width, mean));
    for (int b = 0; b < want->boxes; b++) {
        ech_box rows = rows_of(&want->box[b], weights->had, want->shape[0]);
        ECH_TRY(take_new_rows(&rows, mean, *want));
    }
    return ECH_OK;
}

/* ---- reading ---- */

ech_status ech_shards_load(const ech_shards *weights, const ech_saved_tensor *tensors, int n)
{
    for (int i = 0; i < n; i++) {
        location at;
        ECH_TRY(demand(weights, &tensors[i], &at));
        ECH_TRY(is_grown(weights, &tensors[i])
                    ? load_grown(weights, at, &tensors[i])
                    : ech_safetensors_read(at.file, at.tensor, &tensors[i]));
    }
    return ECH_OK;
}
