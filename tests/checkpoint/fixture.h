/* SPDX-License-Identifier: Apache-2.0
 *
 * A small checkpoint whose every element is known, cut over ranks in several ways.
 */
#ifndef ECH_TESTS_CHECKPOINT_FIXTURE_H
#define ECH_TESTS_CHECKPOINT_FIXTURE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/scratch.h"
#include "checkpoint/whole.h"
#include "comm/ranks.h"
#include "unit.h"

typedef enum fixture_cut {
    BY_ROWS,
    BY_COLUMNS,
    BY_OWNERS,
    BY_THREE_ROWS, /* a range of each third, side by side in memory */
    BY_THREE_COLUMNS,
    BY_PADDED_ROWS, /* followed by memory that is in no box */
    BY_PADDED_COLUMNS,
    FIXTURE_CUTS
} fixture_cut;

enum { FIXTURE_PADDING = 2, FIXTURE_UNTOUCHED = 0x5a };

enum { FIXTURE_TENSORS = 8, FIXTURE_MODEL_TENSORS = 5 };
static const ech_saved_tensor fixture_tensors[FIXTURE_TENSORS] = {
    {.name = "wte.weight", .dtype = ECH_F32, .dims = 2, .shape = {7, 6}},
    {.name = "norm.bias", .dtype = ECH_F32, .dims = 1, .shape = {5}},
    {.name = "half.weight", .dtype = ECH_BF16, .dims = 2, .shape = {3, 5}},
    {.name = "conv.weight", .dtype = ECH_F64, .dims = 4, .shape = {3, 2, 4, 3}},
    {.name = "empty", .dtype = ECH_F32, .dims = 2, .shape = {0, 3}},
    {.name = "wte.weight", .file = ECH_FILE_STATE, .dtype = ECH_F64, .dims = 2, .shape = {7, 6}},
    {.name = "wte.weight.exp_avg",
     .file = ECH_FILE_STATE,
     .dtype = ECH_F32,
     .dims = 2,
     .shape = {7, 6}},
    {.name = "batches", .file = ECH_FILE_STATE, .dtype = ECH_I64, .dims = 0},
};

/* What one rank has of them. */
typedef struct fixture_share {
    ech_saved_tensor tensors[FIXTURE_TENSORS];
    ech_tensor memory[FIXTURE_TENSORS]; /* the boxes lie in */
} fixture_share;

static inline int64_t fixture_bound(int64_t n, int i, int of)
{
    return n * i / of;
}

/* Dimension d in `parts` parts, of each of which the rank has a range; in memory they follow each
 * other along that dimension, and some padding. */
static inline void fixture_cut_dim(ech_saved_tensor *t, ech_tensor *memory, int d, int parts,
                                   int padding, int rank, int ranks)
{
    int64_t begin[ECH_MOST_BOXES], size[ECH_MOST_BOXES], shape[ECH_MAX_DIMS], at = 0;
    memcpy(shape, t->shape, sizeof shape);
    shape[d] = padding;
    for (int p = 0; p < parts; p++) {
        int64_t first = fixture_bound(t->shape[d], p, parts);
        int64_t n = fixture_bound(t->shape[d], p + 1, parts) - first;
        begin[p] = first + fixture_bound(n, rank, ranks);
        size[p] = first + fixture_bound(n, rank + 1, ranks) - begin[p];
        shape[d] += size[p];
    }
    *memory = ech_tensor_view(NULL, t->dtype, t->dims, shape);
    memory->data = ech_calloc((size_t)ech_tensor_count(memory) + 1, ech_dtype_bytes(t->dtype));
    for (int p = 0; p < parts; p++) {
        int64_t origin[ECH_MAX_DIMS] = {0};
        ech_tensor part = *memory;
        origin[d] = begin[p];
        part.shape[d] = size[p];
        part.data = (char *)memory->data +
                    (size_t)(at * memory->stride[d]) * ech_dtype_bytes(memory->dtype);
        ech_saved_add(t, origin, &part);
        at += size[p];
    }
}

static inline void fixture_cut_tensor(ech_saved_tensor *t, ech_tensor *memory, int i,
                                      fixture_cut cut, int rank, int ranks)
{
    *t = fixture_tensors[i];
    if (t->dims == 0 || cut == BY_OWNERS) {
        *memory = ech_tensor_view(NULL, t->dtype, t->dims, t->shape);
        memory->data = ech_calloc((size_t)ech_tensor_count(memory) + 1, ech_dtype_bytes(t->dtype));
        if (rank == (cut == BY_OWNERS ? i % ranks : 0)) saved_whole(t, memory->data);
        return;
    }
    bool rows = cut == BY_ROWS || cut == BY_THREE_ROWS || cut == BY_PADDED_ROWS;
    bool three = cut == BY_THREE_ROWS || cut == BY_THREE_COLUMNS;
    bool padded = cut == BY_PADDED_ROWS || cut == BY_PADDED_COLUMNS;
    fixture_cut_dim(t, memory, rows ? 0 : t->dims - 1, three ? 3 : 1, padded ? FIXTURE_PADDING : 0,
                    rank, ranks);
}

static inline int64_t fixture_count(const ech_saved_tensor *t, const ech_box *box)
{
    int64_t n = 1;
    for (int d = 0; d < t->dims; d++) n *= box->size[d];
    return n;
}

/* What element k of the box is: its index in the whole tensor, and the tensor's name and the
 * checkpoint's seed. *to: where it is in memory. */
static inline int64_t fixture_value(const ech_saved_tensor *t, const ech_box *box, int seed,
                                    int64_t k, char **to)
{
    int64_t at = 0, stride = 1, in_memory = box->at;
    for (int d = t->dims - 1; d >= 0; d--) {
        int64_t index = k % box->size[d];
        at += (box->begin[d] + index) * stride;
        in_memory += index * box->stride[d];
        k /= box->size[d];
        stride *= t->shape[d];
    }
    *to = (char *)t->data + (size_t)in_memory * ech_dtype_bytes(t->dtype);
    return at + 200 * (int64_t)strlen(t->name) + 10000 * seed;
}

static inline void fixture_put(ech_dtype dtype, void *to, int64_t value)
{
    if (dtype == ECH_F32)
        *(float *)to = (float)value;
    else if (dtype == ECH_F64)
        *(double *)to = (double)value;
    else if (dtype == ECH_I64)
        *(int64_t *)to = value;
    else
        *(uint16_t *)to = (uint16_t)value;
}

static inline bool fixture_has(ech_dtype dtype, const void *at, int64_t value)
{
    unsigned char want[8];
    fixture_put(dtype, want, value);
    return memcmp(at, want, ech_dtype_bytes(dtype)) == 0;
}

/* This rank's boxes, filled if seed >= 0, in memory that is otherwise FIXTURE_UNTOUCHED. Released
 * with fixture_free. */
static inline void fixture_make(fixture_share *share, fixture_cut cut, int rank, int ranks,
                                int seed)
{
    for (int i = 0; i < FIXTURE_TENSORS; i++) {
        ech_saved_tensor *t = &share->tensors[i];
        fixture_cut_tensor(t, &share->memory[i], i, cut, rank, ranks);
        memset(share->memory[i].data, FIXTURE_UNTOUCHED, ech_tensor_bytes(&share->memory[i]));
        for (int b = 0; seed >= 0 && b < t->boxes; b++) {
            for (int64_t k = 0; k < fixture_count(t, &t->box[b]); k++) {
                char *to;
                int64_t value = fixture_value(t, &t->box[b], seed, k, &to);
                fixture_put(t->dtype, to, value);
            }
        }
    }
}

static inline void fixture_free(fixture_share *share)
{
    for (int i = 0; i < FIXTURE_TENSORS; i++) free(share->memory[i].data);
}

/* Whether the boxes hold what they should. */
static inline bool fixture_is(const ech_saved_tensor *t, int seed)
{
    for (int b = 0; b < t->boxes; b++) {
        for (int64_t k = 0; k < fixture_count(t, &t->box[b]); k++) {
            char *at;
            int64_t want = fixture_value(t, &t->box[b], seed, k, &at);
            if (!fixture_has(t->dtype, at, want)) return false;
        }
    }
    return true;
}

/* Whether all memory outside of the boxes is as it was. Overwrites the boxes. */
static inline bool fixture_is_untouched(ech_saved_tensor *t, const ech_tensor *memory)
{
    size_t item = ech_dtype_bytes(t->dtype);
    for (int b = 0; b < t->boxes; b++) {
        for (int64_t k = 0; k < fixture_count(t, &t->box[b]); k++) {
            char *at;
            fixture_value(t, &t->box[b], 0, k, &at);
            memset(at, FIXTURE_UNTOUCHED, item);
        }
    }
    const unsigned char *bytes = memory->data;
    for (size_t k = 0; k < ech_tensor_bytes(memory); k++) {
        if (bytes[k] != FIXTURE_UNTOUCHED) return false;
    }
    return true;
}

/* Whether the checkpoint loads under this cut as that of `seed`. */
static inline bool fixture_loads(const ech_checkpoint *checkpoint, fixture_cut cut, int rank,
                                 int ranks, int seed)
{
    fixture_share share;
    fixture_make(&share, cut, rank, ranks, -1);
    bool good = ech_checkpoint_load(checkpoint, share.tensors, FIXTURE_TENSORS) == ECH_OK;
    for (int i = 0; i < FIXTURE_TENSORS; i++) {
        good = good && fixture_is(&share.tensors[i], seed) &&
               fixture_is_untouched(&share.tensors[i], &share.memory[i]);
    }
    fixture_free(&share);
    return good;
}

/* Whether the whole checkpoint is that of `seed`. */
static inline bool fixture_holds(const ech_checkpoint *checkpoint, int seed)
{
    return fixture_loads(checkpoint, BY_OWNERS, 0, 1, seed);
}

static inline ech_checkpoint_info fixture_info(int64_t step)
{
    return (ech_checkpoint_info){
        .step = step,
        .optimizer_count = step - 1,
        .samples = 8 * step,
        .skipped_steps = 1,
        .loss = 0.7,
        .run_yaml = (char *)(uintptr_t) "training:\n  steps: 9\n",
        .text[ECH_FILE_CONFIG] = {(char *)(uintptr_t) "{\"model_type\":\"gpt2\"}", 21}};
}

typedef struct fixture_job {
    const char *directory;
    fixture_cut cut;
    int64_t step;
    int seed;
    /* Called on every rank before it saves, if there is one. */
    void (*change)(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n);
    ech_status results[RANKS_MOST];
    int64_t bytes[RANKS_MOST];
    char error[512]; /* of rank 0 */
} fixture_job;

static inline ech_status fixture_save_rank(ech_comm *comm, void *context)
{
    fixture_job *job = context;
    int rank = ech_comm_rank(comm), size = ech_comm_size(comm), all[RANKS_MOST];
    for (int r = 0; r < size; r++) all[r] = r;
    ech_group *world;
    ECH_TRY(ech_group_create(comm, "world", all, size, &world));
    ech_log_set_quiet(true);
    ech_checkpoint_info info = fixture_info(job->step);
    fixture_share share;
    int n = FIXTURE_TENSORS;
    fixture_make(&share, job->cut, rank, size, job->seed);
    if (job->change) job->change(rank, &info, share.tensors, &n);
    job->results[rank] =
        ech_checkpoint_save(world, job->directory, &info, share.tensors, n, &job->bytes[rank]);
    if (rank == 0) snprintf(job->error, sizeof job->error, "%s", ech_last_error());
    fixture_free(&share);
    ech_group_destroy(world);
    return ECH_OK;
}

/* Saves with n ranks; what each returned is in job->results. */
static inline void fixture_save(int n, fixture_job *job)
{
    assert_int_equal(ranks_run(n, 60, fixture_save_rank, job, NULL), ECH_OK);
}

/* Saves with one rank and asserts that it went well. */
static inline void fixture_save_one(const char *directory, int64_t step, int seed)
{
    fixture_job job = {.directory = directory, .step = step, .seed = seed};
    fixture_save(1, &job);
    assert_int_equal(job.results[0], ECH_OK);
}

/* The newest checkpoint is that of the step, and holds what `seed` made. */
static inline void fixture_assert_newest(const char *directory, int64_t step, int seed)
{
    ech_checkpoint *checkpoint = NULL;
    assert_int_equal(ech_checkpoint_open_newest(directory, true, &checkpoint), ECH_OK);
    assert_non_null(checkpoint);
    assert_int_equal(ech_checkpoint_get_info(checkpoint)->step, step);
    assert_true(fixture_holds(checkpoint, seed));
    ech_checkpoint_close(checkpoint);
}

#endif
