/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans of a small model without any file.
 */
#ifndef ECH_TESTS_SCHEDULE_FIXTURE_H
#define ECH_TESTS_SCHEDULE_FIXTURE_H

#include <unistd.h>

#include "check/check.h"
#include "config/rules.h"
#include "layout/sample.h"
#include "schedule/passes.h"

enum { FIXTURE_MOST_RANKS = 16 };

typedef struct fixture {
    sample of;
    ech_schedule *schedule;
    ech_plan *plan[FIXTURE_MOST_RANKS];
    int ranks;
} fixture;

static inline void fixture_free(fixture *f)
{
    for (int rank = 0; rank < FIXTURE_MOST_RANKS; rank++) ech_plan_destroy(f->plan[rank]);
    ech_schedule_destroy(f->schedule);
    sample_free(&f->of);
}

/* Everything but plans, as far as it comes. Takes the configuration. */
static inline ech_status fixture_try(ech_config *config, int ranks, fixture *f)
{
    *f = (fixture){.ranks = ranks};
    f->of.config = config;
    ech_schedule_choice choice = ech_schedule_find(config);
    ech_status status = ech_rules_check(config);
    if (status == ECH_OK)
        status = sample_try(config, ech_schedule_placement(&choice), ranks, &f->of);
    if (status == ECH_OK) status = ech_schedule_create(config, &choice, f->of.layout, &f->schedule);
    ech_schedule_choice_free(&choice);
    return status;
}

static inline ech_plan_request fixture_request(const fixture *f, int rank)
{
    return (ech_plan_request){.config = f->of.config,
                              .model = f->of.model,
                              .layout = f->of.layout,
                              .schedule = f->schedule,
                              .kernels = ech_kernels_ref(ECH_F32),
                              .device = ech_device_row_find("cpu"),
                              .rank = rank,
                              .threads = 1};
}

/* One rank's plan, made and checked whatever other plans there are. */
static inline ech_plan *fixture_plan_rank(const fixture *f, int rank)
{
    ech_plan_request request = fixture_request(f, rank);
    ech_plan *plan = NULL;
    ECH_ASSERT(ech_checked_plan_create(&request, &plan) == ECH_OK);
    return plan;
}

/* Takes the configuration. */
static inline fixture fixture_plan(ech_config *config, int ranks)
{
    fixture f;
    ECH_ASSERT(fixture_try(config, ranks, &f) == ECH_OK && ranks <= FIXTURE_MOST_RANKS);
    for (int rank = 0; rank < ranks; rank++) f.plan[rank] = fixture_plan_rank(&f, rank);
    return f;
}

/* ---- pipelines ---- */

typedef struct fixture_shape {
    const char *schedule, *architecture; /* NULL: gpt2 */
    int stages, chunks, data;            /* chunks, data 0: 1 */
    int context, tensor;                 /* 0: 1 */
    const char *replicas;                /* "[3,1]" in place of `data` */
    int micro_batches;                   /* of a replica and step; with `replicas`, of all */
    int turns;                           /* of a span; 0: synchronous */
    int layers;                          /* 0: one for each virtual stage */
    const char *more;                    /* assignments */
} fixture_shape;

static inline int fixture_world(const fixture_shape *shape)
{
    int world = shape->replicas ? 0 : shape->stages * (shape->data ? shape->data : 1);
    for (const char *at = shape->replicas; at && *at != ']'; at += strcspn(at, ",]"))
        world += (int)strtol(++at, NULL, 10);
    return world * (shape->context ? shape->context : 1) * (shape->tensor ? shape->tensor : 1);
}

/* Micro-batches of one sample; tables are not shared, so that all schedules can be had. */
static inline ech_config *fixture_shape_config(const fixture_shape *shape)
{
    ech_config *config = sample_config(shape->architecture ? shape->architecture : "gpt2");
    int chunks = shape->chunks ? shape->chunks : 1, data = shape->data ? shape->data : 1;
    ech_text text = {0};
    ech_text_append(&text, "model.tie_word_embeddings=false training.check_every=0");
    ech_text_append(&text, " model.num_hidden_layers=%d parallel.pipeline=%d",
                    shape->layers ? shape->layers : shape->stages * chunks, shape->stages);
    ech_text_append(&text, " parallel.virtual_stages=%d parallel.schedule=%s", chunks,
                    shape->schedule);
    ech_text_append(&text, " training.micro_batch_size=1 training.global_batch_size=%d",
                    shape->micro_batches * data);
    if (shape->replicas)
        ech_text_append(&text, " parallel.stage_replicas=%s", shape->replicas);
    else
        ech_text_append(&text, " parallel.data=%d", data);
    if (shape->turns)
        ech_text_append(&text, " training.steps=%d parallel.flush_every=%d", 2 * shape->turns,
                        shape->turns);
    if (shape->context) ech_text_append(&text, " parallel.context=%d", shape->context);
    if (shape->tensor) ech_text_append(&text, " parallel.tensor=%d", shape->tensor);
    if (shape->more) ech_text_append(&text, " %s", shape->more);
    sample_set(config, text.at);
    ech_text_free(&text);
    return config;
}

static inline fixture fixture_pipeline(fixture_shape shape)
{
    return fixture_plan(fixture_shape_config(&shape), fixture_world(&shape));
}

static const char *const fixture_schedules[] = {"naive",       "gpipe",        "1f1b",
                                                "interleaved", "zero-bubble",  "zero-bubble-v",
                                                "pipedream",   "pipedream-2bw"};
enum { FIXTURE_SCHEDULES = sizeof fixture_schedules / sizeof *fixture_schedules };

/* Chunks of a rank to try the schedule with. */
static inline int fixture_chunks(const char *schedule)
{
    return strcmp(schedule, "interleaved") == 0 || strcmp(schedule, "zero-bubble-v") == 0 ? 2 : 1;
}

/* Whether a schedule keeps several versions of the weights. */
static inline bool fixture_is_asynchronous(const char *schedule)
{
    return strncmp(schedule, "pipedream", strlen("pipedream")) == 0;
}

/* ---- what there is ---- */

static inline const ech_plan *const *fixture_plans(const fixture *f)
{
    return (const ech_plan *const *)f->plan;
}

/* All ranks' lists of a kind fit together, on lanes and in queues. */
static inline void fixture_check(const fixture *f, ech_list_kind kind)
{
    ECH_ASSERT(ech_check_plans(fixture_plans(f), f->ranks, kind) == ECH_OK);
    ECH_ASSERT(ech_check_queues(fixture_plans(f), f->ranks, kind) == ECH_OK);
}

static inline const ech_list *fixture_list(const fixture *f, int rank)
{
    return &f->plan[rank]->list[ECH_LIST_TRAIN];
}

/* Returns the bytes of an activation or its gradient between two blocks, for one micro-batch:
 * b T C numbers of four bytes. */
static inline int64_t fixture_boundary_bytes(const fixture *f)
{
    const ech_config *config = f->of.config;
    return config->training.micro_batch_size * config->data.sequence_length *
           config->model.hidden_size * 4;
}

static inline bool fixture_is_backward(const ech_step *step)
{
    return step->kind == ECH_STEP_BACKWARD_INPUT || step->kind == ECH_STEP_BACKWARD_WEIGHT;
}

/* A new file with that text; free() the path. */
static inline char *fixture_write(const char *text)
{
    const char *parent = getenv("TMPDIR");
    ech_text path = {0};
    ech_text_append(&path, "%s/echelon-order-XXXXXX", parent ? parent : "/tmp");
    int file = mkstemp(path.at);
    ECH_ASSERT(file >= 0 && write(file, text, strlen(text)) == (ssize_t)strlen(text));
    ECH_ASSERT(close(file) == 0);
    return path.at;
}

#endif
