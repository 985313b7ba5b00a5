/* SPDX-License-Identifier: Apache-2.0
 *
 * A small checkpoint whose every element is known, cut over ranks in three ways.
 */
#ifndef TESTS_CHECKPOINT_FIXTURE_H
#define TESTS_CHECKPOINT_FIXTURE_H

#include "checkpoint/checkpoint.h"
#include "checkpoint/scratch.h"
#include "comm/ranks.h"

typedef enum fixture_cut { BY_ROWS, BY_COLUMNS, BY_OWNERS, FIXTURE_CUTS } fixture_cut;

enum { FIXTURE_TENSORS = 8, FIXTURE_MODEL_TENSORS = 5 };
static const ech_saved_tensor fixture_tensors[FIXTURE_TENSORS] = {
    {.name = "wte.weight", .dtype = ECH_F32, .dims = 2, .shape = {7, 6}},
    {.name = "norm.bias", .dtype = ECH_F32, .dims = 1, .shape = {5}},
    {.name = "half.weight", .dtype = ECH_BF16, .dims = 2, .shape = {3, 5}},
    {.name = "conv.weight", .dtype = ECH_F64, .dims = 4, .shape = {3, 2, 4, 3}},
    {.name = "empty", .dtype = ECH_F32, .dims = 2, .shape = {0, 3}},
    {.name = "wte.weight", .is_state = true, .dtype = ECH_F64, .dims = 2, .shape = {7, 6}},
    {.name = "wte.weight.exp_avg", .is_state = true, .dtype = ECH_F32, .dims = 2, .shape = {7, 6}},
    {.name = "batches", .is_state = true, .dtype = ECH_I64, .dims = 0},
};

static inline void fixture_set_box(ech_saved_tensor *t, int d, int rank, int ranks)
{
    t->begin[d] = t->shape[d] * rank / ranks;
    t->size[d] = t->shape[d] * (rank + 1) / ranks - t->begin[d];
}

/* This rank's box of tensor i. */
static inline ech_saved_tensor fixture_box(int i, fixture_cut cut, int rank, int ranks)
{
    ech_saved_tensor t = fixture_tensors[i];
    memcpy(t.size, t.shape, sizeof t.size);
    int owner = cut == BY_OWNERS ? i % ranks : 0;
    if (t.dims == 0 || cut == BY_OWNERS) {
        t.size[0] = rank != owner ? 0 : t.dims ? t.shape[0] : 1;
    } else {
        fixture_set_box(&t, cut == BY_ROWS ? 0 : t.dims - 1, rank, ranks);
    }
    return t;
}

static inline int64_t fixture_count(const ech_saved_tensor *t)
{
    int64_t n = t->size[0];
    for (int d = 1; d < t->dims; d++) n *= t->size[d];
    return n;
}

/* What element k of the box is: its index in the whole tensor, and the tensor's name and the
 * checkpoint's seed. */
static inline int64_t fixture_value(const ech_saved_tensor *t, int seed, int64_t k)
{
    int64_t at = 0, stride = 1;
    for (int d = t->dims - 1; d >= 0; d--) {
        at += (t->begin[d] + k % t->size[d]) * stride;
        k /= t->size[d];
        stride *= t->shape[d];
    }
    return at + 200 * (int64_t)strlen(t->name) + 10000 * seed;
}

static inline void fixture_put(const ech_saved_tensor *t, int64_t k, int64_t value)
{
    switch (t->dtype) {
    case ECH_F32:
        ((float *)t->data)[k] = (float)value;
        break;
    case ECH_F64:
        ((double *)t->data)[k] = (double)value;
        break;
    case ECH_I64:
        ((int64_t *)t->data)[k] = value;
        break;
    default:
        ((uint16_t *)t->data)[k] = (uint16_t)value;
        break;
    }
}

static inline int64_t fixture_take(const ech_saved_tensor *t, int64_t k)
{
    switch (t->dtype) {
    case ECH_F32:
        return (int64_t)((float *)t->data)[k];
    case ECH_F64:
        return (int64_t)((double *)t->data)[k];
    case ECH_I64:
        return ((int64_t *)t->data)[k];
    default:
        return ((uint16_t *)t->data)[k];
    }
}

/* This rank's boxes, with memory; filled if seed >= 0. Released with fixture_free. */
static inline void fixture_make(ech_saved_tensor tensors[FIXTURE_TENSORS], fixture_cut cut,
                                int rank, int ranks, int seed)
{
    for (int i = 0; i < FIXTURE_TENSORS; i++) {
        ech_saved_tensor *t = &tensors[i];
        *t = fixture_box(i, cut, rank, ranks);
        t->data = ech_calloc((size_t)fixture_count(t) + 1, 8);
        for (int64_t k = 0; seed >= 0 && k < fixture_count(t); k++) {
            fixture_put(t, k, fixture_value(t, seed, k));
        }
    }
}

static inline void fixture_free(ech_saved_tensor tensors[FIXTURE_TENSORS])
{
    for (int i = 0; i < FIXTURE_TENSORS; i++) free(tensors[i].data);
}

static inline bool fixture_is(const ech_saved_tensor *t, int seed)
{
    for (int64_t k = 0; k < fixture_count(t); k++) {
        int64_t want = fixture_value(t, seed, k);
        if (t->dtype == ECH_BF16) want = (uint16_t)want;
        if (fixture_take(t, k) != want) return false;
    }
    return true;
}

static inline ech_checkpoint_info fixture_info(int64_t step)
{
    return (ech_checkpoint_info){.step = step,
                                 .optimizer_count = step - 1,
                                 .samples = 8 * step,
                                 .skipped_steps = 1,
                                 .loss = 0.7,
                                 .run_yaml = (char *)(uintptr_t) "training:\n  steps: 9\n",
                                 .config_json = (char *)(uintptr_t) "{\"model_type\":\"gpt2\"}"};
}

typedef struct fixture_job {
    const char *directory;
    fixture_cut cut;
    int64_t step;
    int seed;
    bool quiet;
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
    ech_log_set_quiet(job->quiet);
    ech_checkpoint_info info = fixture_info(job->step);
    ech_saved_tensor tensors[FIXTURE_TENSORS];
    int n = FIXTURE_TENSORS;
    fixture_make(tensors, job->cut, rank, size, job->seed);
    if (job->change) job->change(rank, &info, tensors, &n);
    job->results[rank] =
        ech_checkpoint_save(world, job->directory, &info, tensors, n, &job->bytes[rank]);
    if (rank == 0) snprintf(job->error, sizeof job->error, "%s", ech_last_error());
    fixture_free(tensors);
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

/* Whether the whole checkpoint is that of `seed`. */
static inline bool fixture_holds(const ech_checkpoint *checkpoint, int seed)
{
    ech_saved_tensor tensors[FIXTURE_TENSORS];
    fixture_make(tensors, BY_OWNERS, 0, 1, -1);
    bool same = ech_checkpoint_load(checkpoint, tensors, FIXTURE_TENSORS) == ECH_OK;
    for (int i = 0; i < FIXTURE_TENSORS; i++) same = same && fixture_is(&tensors[i], seed);
    fixture_free(tensors);
    return same;
}

#endif
