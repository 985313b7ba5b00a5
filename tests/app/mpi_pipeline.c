/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipelines over MPI, run by mpirun: mpi_pipeline MODE verifies every schedule that fits the ranks
 * and trains, validates and saves under some.
 *
 *   plain        as a user runs them
 *   synchronous  with sends that complete only when received: an order that needs a library's
 *                buffers would stand still
 *   split        the same, with messages split into parts of 1,000 bytes
 */
#include <string.h>

#include "app/fixture.h"
#include "app/train/train.h"
#include "app/verify/verify.h"
#include "base/log.h"
#include "comm/comm.h"

typedef struct shape {
    int ranks, micro_batches;
    const char *more;
} shape;

static const shape shapes[] = {
    {2, 5, "parallel.pipeline=2 parallel.schedule=gpipe"},
    {2, 5, "parallel.pipeline=2 parallel.schedule=1f1b model.tie_word_embeddings=true"},
    {2, 4, "parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=2"},
    {2, 6, "parallel.pipeline=2 parallel.schedule=interleaved parallel.virtual_stages=3"},
    {2, 5, "parallel.pipeline=2 parallel.schedule=zero-bubble"},
    {2, 3, "parallel.pipeline=2 parallel.schedule=naive"},
    {2, 1, "parallel.pipeline=2 parallel.schedule=pipedream"},
    {2, 3, "parallel.pipeline=2 parallel.schedule=pipedream-2bw"},
    {3, 5, "parallel.pipeline=3 parallel.schedule=gpipe model.tie_word_embeddings=true"},
    {3, 4, "parallel.pipeline=3 parallel.schedule=1f1b parallel.partition=[0,3,1]"},
    {3, 6, "parallel.pipeline=3 parallel.schedule=interleaved parallel.virtual_stages=2"},
    {2, 5, "parallel.pipeline=2 parallel.schedule=zero-bubble-v model.tie_word_embeddings=true"},
    {3, 5, "parallel.pipeline=3 parallel.schedule=zero-bubble"},
    {3, 7, "parallel.pipeline=3 parallel.schedule=zero-bubble-v"},
    {3, 2, "parallel.pipeline=3 parallel.schedule=pipedream parallel.vertical_sync=true"},
    {3, 2, "parallel.pipeline=3 parallel.schedule=pipedream parallel.weight_stashing=false"},
    {3, 3, "parallel.pipeline=3 parallel.schedule=pipedream-2bw"},
    {3, 5, "parallel.stage_replicas=[2,1] parallel.schedule=1f1b"},
    {3, 7, "parallel.stage_replicas=[1,2] parallel.schedule=gpipe"},
    {3, 4, "parallel.stage_replicas=[2,1] parallel.schedule=pipedream"},
    {4, 6, "parallel.pipeline=4 parallel.schedule=1f1b"},
    {4, 8, "parallel.pipeline=4 parallel.schedule=zero-bubble model.tie_word_embeddings=true"},
    {4, 4, "parallel.pipeline=2 parallel.data=2 parallel.schedule=gpipe"},
    {4, 8,
     "parallel.pipeline=2 parallel.data=2 parallel.schedule=interleaved parallel.virtual_stages=2 "
     "parallel.reduction=ring model.tie_word_embeddings=true"},
    {4, 6,
     "parallel.pipeline=2 parallel.data=2 parallel.schedule=zero-bubble parallel.bucket_bytes=1"},
    {4, 2, "parallel.pipeline=2 parallel.data=2 parallel.schedule=pipedream"},
    {4, 6, "parallel.pipeline=2 parallel.data=2 parallel.schedule=pipedream-2bw"},
    {4, 5, "parallel.stage_replicas=[1,2,1] parallel.schedule=1f1b model.tie_word_embeddings=true"},
    {4, 5, "parallel.stage_replicas=[3,1] parallel.schedule=naive"},
    {4, 7, "parallel.stage_replicas=[1,3] parallel.schedule=1f1b"},
};

static ech_config *config_of(const shape *s, const char *architecture)
{
    char more[600];
    snprintf(more, sizeof more,
             "parallel.comm=mpi training.micro_batch_size=1 training.global_batch_size=%d "
             "training.check_every=0 model.num_hidden_layers=4 model.resid_pdrop=0.1 %s %s",
             s->micro_batches, strstr(s->more, "tie_") ? "" : "model.tie_word_embeddings=false",
             s->more);
    return fixture_config(architecture, more);
}

/* On this process's rank. */
static ech_status run_on(ech_comm *comm, ech_config *config, ech_design_main main, void *context)
{
    ech_design design = {0};
    ech_status status = ech_design_create(config, fixture_tokenizer, ech_comm_size(comm),
                                          ech_comm_local_size(comm), &design);
    if (status == ECH_OK) status = main(comm, &design, context);
    ech_design_destroy(&design);
    return status;
}

/* True where it went wrong, on rank 0. */
static ech_status verify(ech_comm *comm, const shape *s, const char *architecture, bool *wrong)
{
    ech_config *config = config_of(s, architecture);
    ech_verification v = {.steps = 4, .tolerance = ECH_TOLERANCE};
    ech_status status = run_on(comm, config, ech_verify_rank, &v);
    ech_config_destroy(config);
    ECH_TRY(status);
    if (ech_comm_rank(comm) != 0 || (v.passed && v.compared > 1000)) return ECH_OK;
    *wrong = true;
    fprintf(stderr, "%s with %s: %g at %s\n", architecture, s->more, v.worst, v.worst_at);
    return ECH_OK;
}

/* Steps, validations and checkpoints in turns. Each rank writes into rank 0's folder. */
static ech_status train(ech_comm *comm, const shape *s, const char *architecture)
{
    ech_config *config = config_of(s, architecture);
    config->training.validate_every = config->checkpoint.every = 2;
    ech_training training = {0};
    bool before = ech_log_set_quiet(true);
    ech_status status = run_on(comm, config, ech_train_rank, &training);
    ech_log_set_quiet(before);
    if (status == ECH_OK && ech_comm_rank(comm) == 0)
        status = ech_file_remove_all(config->log.directory);
    ech_config_destroy(config);
    return status;
}

static ech_status share_folder(ech_comm *comm, ech_group **world)
{
    int ranks[64];
    ECH_ASSERT(ech_comm_size(comm) <= 64);
    for (int r = 0; r < ech_comm_size(comm); r++) ranks[r] = r;
    ECH_TRY(ech_group_create(comm, "world", ranks, ech_comm_size(comm), world));
    if (ech_comm_rank(comm) == 0)
        fixture_open();
    else
        ECH_TRY(ech_tokenizer_open("bytes", &fixture_tokenizer));
    return ech_group_broadcast(*world, 0, fixture_folder, sizeof fixture_folder);
}

static ech_status run(ech_comm *comm, bool *wrong)
{
    ech_group *world = NULL;
    int shapes_here = 0;
    ECH_TRY(share_folder(comm, &world));
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const char *architecture = i % 2 ? "gpt2" : "llama";
        if (shapes[i].ranks != ech_comm_size(comm)) continue;
        ECH_TRY(verify(comm, &shapes[i], architecture, wrong));
        if (shapes_here++ % 3 == 2) ECH_TRY(train(comm, &shapes[i], architecture));
    }
    ECH_TRY(ech_group_barrier(world));
    ech_group_destroy(world);
    if (ech_comm_rank(comm) != 0) {
        ech_tokenizer_close(fixture_tokenizer);
        return ECH_OK;
    }
    fixture_close();
    fprintf(stderr, "%d layouts on %d ranks\n", shapes_here, ech_comm_size(comm));
    return shapes_here > 0 ? ECH_OK : ECH_EUSAGE;
}

int main(int argc, char **argv)
{
    const char *mode = argc == 2 ? argv[1] : "";
    ech_comm *comm;
    if (ech_comm_open(ech_comm_find("mpi"), 0, 300, &comm) != ECH_OK) return 1;
    ech_log_set_rank(ech_comm_rank(comm));
    bool wrong = false;
    ech_status status = ECH_EUSAGE;
    if (strcmp(mode, "synchronous") == 0) ech_mpi_tune(comm, true, 1 << 30);
    if (strcmp(mode, "split") == 0) ech_mpi_tune(comm, true, 1000);
    if (mode[0]) status = run(comm, &wrong);
    if (status != ECH_OK) ech_comm_abort(comm, status);
    ech_comm_close(comm);
    return status == ECH_OK && !wrong ? 0 : 1;
}
