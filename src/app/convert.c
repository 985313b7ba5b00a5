/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening the input of a conversion, and writing the folder.
 */
#include "app/convert.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app/merge.h"
#include "app/setup/adapters.h"
#include "app/setup/initial.h"
#include "app/setup/setup.h"
#include "base/file.h"
#include "checkpoint/folder.h"
#include "checkpoint/stored.h"

/* ---- adapters ---- */

/* Opens the adapters of `in`, and finds the folder of their base. */
static ech_status find_base(const char *in, const char *base, ech_conversion *c)
{
    ECH_FREED char *folder = NULL;
    ECH_TRY(ech_peft_find(in, &folder));
    ECH_TRY(ech_peft_open(folder, true, &c->adapters));
    if (!base && ech_file_has(folder, "config.json")) base = folder;
    if (!base) base = ech_peft_settings_of(c->adapters)->base;
    if (!ech_file_is_folder(base))
        ECH_FAIL(ECH_EUSAGE, "%s: the adapters' base '%s' is no folder here; name it with --base",
                 folder, base);
    return ech_shards_find(base, &c->folder);
}

/* A folder with both has the base that its adapters were trained on. */
static ech_status check_base(const ech_conversion *c)
{
    const char *stated = ech_peft_base(c->adapters);
    char hash[ECH_CHECKPOINT_DIGITS + 1];
    ECH_TRY(ech_merge_check(c->adapters, c->model));
    if (!stated || ech_peft_is_there(c->folder)) return ECH_OK;
    ECH_TRY(ech_setup_hash_base(c->model, c->shards, hash));
    if (strcmp(stated, hash) == 0) return ECH_OK;
    ECH_FAIL(ECH_EINPUT,
             "%s: has other weights (%s) than the base '%s' of the adapters (%.*s); name that base "
             "with --base",
             c->folder, hash, ech_peft_settings_of(c->adapters)->base, ECH_CHECKPOINT_DIGITS,
             stated);
}

/* ---- opening ---- */

static ech_status find_folder(const char *in, const ech_conversion_options *options,
                              ech_conversion *c)
{
    if (options->merge) return find_base(in, options->base, c);
    if (!ech_peft_is_there(in)) ECH_TRY(ech_shards_find(in, &c->folder));
    const char *folder = c->folder ? c->folder : in;
    if (ech_peft_is_there(folder))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: has adapters; --merge adds them to the weights of their base, and --base "
                 "names it where it is not the one that they state",
                 folder);
    return ECH_OK;
}

static ech_status fill_from_folder(const char *in, const ech_conversion_options *options,
                                   ech_conversion *c)
{
    ECH_TRY(find_folder(in, options, c));
    ECH_FREED char *path = ech_file_join(c->folder, "config.json");
    c->format = options->merge ? "Hugging Face folder with adapters" : "Hugging Face folder";
    ECH_TRY(ech_model_import(c->config, path, &c->ends));
    if (c->config->model.reversible == 1)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: no other program supports reversible models; echelon train, sample and eval "
                 "read the folder as it is",
                 path);
    return ech_initial_check_shapes(c->config, c->folder);
}

static ech_status fill_from_file(const char *in, ech_conversion *c)
{
    ECH_TRY(ech_raw_open(in, c->config, &c->raw));
    c->format = c->raw.format;
    c->dtype = c->raw.dtype;
    c->ends = (ech_model_text_ends){c->raw.begin_of_text, c->raw.end_of_text};
    return ECH_OK;
}

static ech_status open_shards(ech_conversion *c)
{
    ECH_TRY(ech_initial_open(c->config, c->folder, true, &c->shards));
    ECH_TRY(ech_initial_check_model(c->model, c->shards));
    ECH_TRY(ech_shards_check_head(c->shards));
    if (c->adapters) ECH_TRY(check_base(c));
    c->dtype = ech_shards_dtype(c->shards, c->model->param.at[0].name);
    return ECH_OK;
}

static ech_status check_raw(const ech_conversion *c)
{
    for (size_t i = 0; i < c->model->param.n; i++) {
        const ech_param *want = &c->model->param.at[i];
        const ech_raw_tensor *has = ech_raw_find(&c->raw, want->name);
        bool same = has && has->dims == want->shape.dims;
        for (int d = 0; same && d < want->shape.dims; d++)
            same = has->shape[d] == want->shape.size[d];
        if (!same)
            ECH_FAIL(ECH_EINTERNAL, "%s: a %s has no tensor '%s' of the model's shape", c->raw.path,
                     c->format, want->name);
    }
    return ECH_OK;
}

ech_status ech_conversion_open(const char *in, const ech_conversion_options *options,
                               ech_conversion *out)
{
    ECH_CLEANUP(ech_conversion_close) ech_conversion c = {.raw.fd = -1};
    bool is_folder = options->merge || ech_file_is_folder(in);
    ECH_TRY(ech_setup_defaults(&c.config));
    ECH_TRY(is_folder ? fill_from_folder(in, options, &c) : fill_from_file(in, &c));
    ECH_TRY(ech_model_resolve(c.config, 1));
    ECH_TRY(ech_model_create_whole(c.config, &c.model));
    ECH_TRY(is_folder ? open_shards(&c) : check_raw(&c));
    *out = c;
    c = (ech_conversion){.raw.fd = -1};
    return ECH_OK;
}

void ech_conversion_close(ech_conversion *conversion)
{
    ech_shards_close(conversion->shards);
    ech_peft_close(conversion->adapters);
    ech_raw_close(&conversion->raw);
    ech_model_destroy(conversion->model);
    ech_config_destroy(conversion->config);
    free(conversion->folder);
}

/* ---- a Hugging Face folder, written row by row ---- */

enum {
    ELEMENTS = 1 << 20,     /* in memory at once, where rows are not longer */
    COPY_LIMIT = 256 << 20, /* bytes of a text */
};

/* The smallest magnitude that rounds to an infinity. */
static double beyond(ech_dtype dtype)
{
    if (dtype == ECH_F16) return 65520;
    if (dtype == ECH_BF16) return 0x1.ffp127;
    return dtype == ECH_F32 ? 0x1.ffffffp127 : (double)INFINITY;
}

static ech_status check_range(const ech_saved_tensor *tensor, const double *rows, int64_t n)
{
    double limit = beyond(tensor->narrow);
    for (int64_t i = 0; i < n; i++)
        if (fabs(rows[i]) >= limit && !isinf(rows[i]))
            ECH_FAIL(ECH_EUSAGE, "tensor '%s' has the value %g, too large for %s; use --dtype fp32",
                     tensor->name, rows[i], ech_dtype_name(tensor->narrow));
    return ECH_OK;
}

static ech_status read_rows(const ech_conversion *c, const ech_saved_tensor *tensor, int64_t first,
                            int64_t rows, double *to)
{
    if (c->shards) return ech_shards_load(c->shards, tensor, 1);
    return ech_raw_rows(&c->raw, ech_raw_find(&c->raw, tensor->name), first, rows, to);
}

/* A tensor that is written, and where. */
typedef struct written {
    const ech_conversion *c;
    int fd;
    const char *path;
    const ech_saved_tensor *whole;
    int64_t offset;
    ech_merge merge; /* what is added to it */
} written;

static ech_status write_rows(const written *w, int64_t first, int64_t rows, double *room)
{
    const ech_saved_tensor *whole = w->whole;
    const int64_t begin[ECH_MAX_DIMS] = {whole->dims > 1 ? first : 0};
    int64_t shape[ECH_MAX_DIMS];
    ech_saved_tensor tensor = *whole;
    memcpy(shape, whole->shape, sizeof shape);
    if (whole->dims > 1) shape[0] = rows;
    ech_tensor part = ech_tensor_view(room, ECH_F64, whole->dims, shape);
    ech_saved_add(&tensor, begin, &part);
    ECH_TRY(read_rows(w->c, &tensor, first, rows, room));
    ech_merge_add(&w->merge, first, rows, room);
    ECH_TRY(check_range(&tensor, room, ech_tensor_count(&part)));
    return ech_safetensors_write(w->fd, w->path, &tensor, w->offset, NULL);
}

static ech_status write_tensor(const written *w)
{
    const ech_saved_tensor *tensor = w->whole;
    int64_t rows = tensor->dims > 1 ? tensor->shape[0] : 1;
    int64_t width = ech_box_count(tensor->dims, tensor->shape) / rows;
    int64_t most = width < ELEMENTS ? ELEMENTS / width : 1;
    if (most > rows) most = rows;
    ECH_FREED double *room = ech_calloc((size_t)(most * width), sizeof *room);
    for (int64_t first = 0; first < rows; first += most)
        ECH_TRY(write_rows(w, first, rows - first < most ? rows - first : most, room));
    return ECH_OK;
}

/* Of a tensor of the model's list; NULL: it is one of a stack. */
static const ech_param *param_of(const ech_model *model, const ech_saved_tensor *tensor)
{
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_param *p = &model->param.at[i];
        if (strcmp(p->file_name ? p->file_name : p->name, tensor->name) == 0 &&
            p->place.offset == tensor->place.offset)
            return p;
    }
    return NULL;
}

static void free_written(written *w)
{
    ech_merge_free(&w->merge);
}

static ech_status write_count(const written *w)
{
    int64_t count = 0;
    ech_saved_tensor tensor = *w->whole;
    ech_tensor number = ech_tensor_view(&count, ECH_I64, 0, NULL);
    if (w->c->shards) ECH_TRY(ech_shards_read_count(w->c->shards, tensor.name, &count));
    ech_saved_add(&tensor, (const int64_t[1]){0}, &number);
    return ech_safetensors_write(w->fd, w->path, &tensor, w->offset, NULL);
}

static ech_status write_tensors(const ech_conversion *c, int fd, const char *path,
                                const ech_stored *stored)
{
    for (int i = 0; i < stored->n; i++) {
        const ech_saved_tensor *tensor = &stored->tensors[i];
        ECH_CLEANUP(free_written)
        written w = {.c = c, .fd = fd, .path = path, .whole = tensor, .offset = stored->offsets[i]};
        if (tensor->dtype == ECH_I64) {
            ECH_TRY(write_count(&w));
            continue;
        }
        ECH_TRY(ech_merge_read(c->adapters, c->model, param_of(c->model, tensor), &w.merge));
        ECH_TRY(write_tensor(&w));
    }
    return ECH_OK;
}

static ech_status write_weights(const ech_conversion *c, const char *folder, ech_dtype dtype)
{
    ECH_CLEANUP(ech_saved_list_free) ech_saved_list all = {0};
    for (size_t i = 0; i < c->model->param.n; i++) {
        const ech_param *param = &c->model->param.at[i];
        ech_saved_tensor whole = ech_initial_tensor(param);
        whole.dtype = ECH_F64;
        whole.narrowed = true;
        whole.narrow = ech_saved_weight_dtype(param, dtype);
        ech_saved_list_add(&all, param, NULL, &whole);
        if (param->counter)
            ECH_PUSH(all.tensor, ((ech_saved_tensor){.name = param->counter, .dtype = ECH_I64}));
    }
    ECH_CLEANUP(ech_stored_free) ech_stored stored = {0};
    ECH_FREED char *path = ech_file_join(folder, "model.safetensors");
    int fd;
    ECH_TRY(ech_stored_plan(all.tensor.at, (int)all.tensor.n, ECH_FILE_MODEL, NULL, &stored));
    ECH_TRY(ech_stored_begin(&stored, path, &fd));
    return ech_stored_finish(fd, path, write_tensors(c, fd, path, &stored));
}

static ech_status write_text(const char *folder, ech_checkpoint_file file, const void *bytes,
                             size_t n)
{
    ECH_FREED char *path = ech_file_join(folder, ech_checkpoint_text_name(file));
    return ech_file_write(path, bytes, n);
}

/* Copies a text that belongs to a model besides its weights. */
static ech_status copy_text(const ech_conversion *c, const char *folder, ech_checkpoint_file file)
{
    ECH_FREED char *from = ech_file_join(c->folder, ech_checkpoint_text_name(file)), *bytes = NULL;
    size_t n;
    if (!ech_file_exists(from)) return ECH_OK;
    ECH_TRY(ech_file_read(from, COPY_LIMIT, &bytes, &n));
    return write_text(folder, file, bytes, n);
}

static ech_status write_texts(const ech_conversion *c, const char *folder, ech_dtype dtype)
{
    ECH_FREED_TEXT config = {0};
    ECH_TRY(ech_initial_export(c->config, c->folder, dtype, c->folder ? NULL : &c->ends, false,
                               &config));
    ECH_TRY(write_text(folder, ECH_FILE_CONFIG, config.at, config.n));
    for (int f = ECH_FILE_GENERATION_CONFIG; c->folder && f < ECH_FILES; f++)
        ECH_TRY(copy_text(c, folder, (ech_checkpoint_file)f));
    return ECH_OK;
}

static ech_status write_folder(const ech_conversion *c, const char *folder, ech_dtype dtype)
{
    ECH_TRY(ech_file_make_folder(folder));
    ECH_TRY(write_weights(c, folder, dtype));
    ECH_TRY(write_texts(c, folder, dtype));
    return ech_file_sync_folder(folder);
}

/* The name beside OUT, without its final slashes, under which the folder is written. */
static char *temporary_name(const char *out)
{
    ech_text name = {0};
    size_t n = strlen(out);
    while (n > 1 && out[n - 1] == '/') n--;
    ech_text_append(&name, "%.*s.tmp-%ld", (int)n, out, (long)getpid());
    return name.at;
}

ech_status ech_conversion_write(const ech_conversion *conversion, const char *out, ech_dtype dtype)
{
    if (ech_file_exists(out))
        ECH_FAIL(ECH_EUSAGE, "%s: already exists; name a new folder, or remove it", out);
    ECH_FREED char *temporary = temporary_name(out);
    ech_status st = write_folder(conversion, temporary, dtype);
    if (st == ECH_OK) st = ech_folder_rename(temporary, out);
    if (st != ECH_OK) ech_file_remove_all(temporary);
    return st;
}
