/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints do not depend on the grid: what one saves another loads, saves again to the last bit,
 * and goes on from as one rank would; in files tensors are whole and nothing is padded. Here of few
 * heads and of optimizers' states along five grids; probes/moves.c has every grid's loaded by one
 * rank.
 */

#include <math.h>

#include "app/grid_run.h"
#include "unit.h"

enum { HALF = 2, WHOLE = 4, RANKS = 8 };

/* Vocabularies of 257 are padded where the table is cut. */
static const char *const grids[] = {
    "",
    "parallel.data=4 parallel.reduction=ring",
    "parallel.pipeline=3 parallel.schedule=zero-bubble",
    "parallel.pipeline=2 parallel.tensor=2 parallel.schedule=zero-bubble-v",
    "parallel.tensor=2",
    "parallel.tensor=4 parallel.sequence=true parallel.data=2 parallel.zero=1 "
    "memory.offload_optimizer=host memory.offload_parameters=disk",
    "parallel.tensor=8 parallel.bucket_bytes=1",
    "parallel.context=4 memory.offload_optimizer=disk",
    ("parallel.pipeline=2 parallel.tensor=2 parallel.schedule=interleaved "
     "parallel.virtual_stages=2"),
    "parallel.pipeline=2 parallel.data=2 parallel.tensor=2 parallel.sequence=keep parallel.zero=2 "
    "memory.offload_optimizer=disk memory.offload_parameters=host",
    "parallel.pipeline=2 parallel.context=2 parallel.tensor=2 parallel.context_method=ulysses "
    "parallel.zero=3 memory.offload_optimizer=host memory.offload_parameters=host",
};
enum { GRIDS = sizeof grids / sizeof *grids };

/* ---- one run ---- */

/* Trains from the start, or goes on from a checkpoint; saves at step HALF; HALF steps more. */
typedef struct part {
    const char *from; /* checkpoint, or NULL */
    const char *folder;
    double loss[RANKS][WHOLE];
} part;

static ech_status train_to(part *p, int rank, ech_compared_run *c, int first, int end)
{
    for (int step = first; step < end; step++) {
        ECH_TRY(ech_exec_run(c->session.exec, ECH_LIST_TRAIN, step));
        p->loss[rank][step] = ech_exec_readings(c->session.exec)->loss;
    }
    return ECH_OK;
}

static ech_status restore(const part *p, ech_compared_run *c)
{
    ech_checkpoint *checkpoint;
    ECH_TRY(ech_checkpoint_open(p->from, true, &checkpoint));
    ech_status status = ech_exec_restore(c->session.exec, checkpoint);
    ech_checkpoint_close(checkpoint);
    return status;
}

static ech_status save(const part *p, ech_compared_run *c)
{
    char yaml[] = "none", json[] = "{}";
    ech_checkpoint_info info = {.step = HALF,
                                .optimizer_count = ech_exec_updates(c->session.exec),
                                .ranks = c->design->world,
                                .run_yaml = yaml,
                                .text[ECH_FILE_CONFIG] = {json, strlen(json)}};
    ech_exec_set_save(c->session.exec, p->folder, &info, 0, -1);
    return ech_exec_run(c->session.exec, ECH_LIST_SAVE, HALF);
}

/* Batches from step HALF on. */
static ech_status go_on(part *p, int rank, ech_compared_run *c)
{
    ech_loader *loader;
    ech_loader_options options = ech_design_reads(c->design, rank, true, INT64_MAX);
    ECH_TRY(ech_loader_create(c->data, &options, HALF, &loader));
    ech_exec_set_loader(c->session.exec, ECH_TRAIN, loader);
    ech_status status = train_to(p, rank, c, HALF, WHOLE);
    ech_loader_destroy(loader);
    return status;
}

static ech_status run_part(void *context, int rank, ech_compared_run *c)
{
    part *p = context;
    ECH_TRY(p->from ? restore(p, c) : train_to(p, rank, c, 0, HALF));
    ECH_ASSERT(ech_exec_updates(c->session.exec) == HALF);
    ECH_TRY(save(p, c));
    return go_on(p, rank, c);
}

static void print_folder(char *out, size_t n, const char *name)
{
    snprintf(out, n, "%s/%s", fixture_folder, name);
}

/* `from`: the name of another run, or NULL. */
static part run(const char *family, const char *model, int grid, const char *from, const char *name)
{
    char words[500], folder[400], checkpoint[400];
    part p = {.from = NULL, .folder = folder};
    snprintf(words, sizeof words,
             "%s %s training.steps=%d training.global_batch_size=16 training.micro_batch_size=2 "
             "model.resid_pdrop=0.1 model.attn_pdrop=0.1 optimizer.warmup_steps=1",
             model, grids[grid], WHOLE);
    print_folder(folder, sizeof folder, name);
    snprintf(checkpoint, sizeof checkpoint, "%s/%s/step-%08d", fixture_folder, from ? from : "",
             HALF);
    if (from) p.from = checkpoint;
    grid_run(family, words, run_part, &p);
    p.from = p.folder = NULL;
    return p;
}

/* ---- files ---- */

static const char *const files[] = {"model/model.safetensors", "state/state.safetensors"};

static void print_file(char *out, size_t n, const char *name, int file)
{
    snprintf(out, n, "%s/%s/step-%08d/%s", fixture_folder, name, HALF, files[file]);
}

static void assert_same_files(const char *a, const char *b, const char *what)
{
    const char *const runs[] = {a, b};
    for (int file = 0; file < 2; file++) {
        char path[400], *bytes[2];
        size_t n[2];
        for (int i = 0; i < 2; i++) {
            print_file(path, sizeof path, runs[i], file);
            assert_int_equal(ech_file_read(path, 1 << 26, &bytes[i], &n[i]), ECH_OK);
        }
        if (n[0] != n[1] || memcmp(bytes[0], bytes[1], n[0]) != 0)
            fail_msg("%s: %s is not what was loaded", what, files[file]);
        free(bytes[0]);
        free(bytes[1]);
    }
}

static void assert_shape(const ech_safetensors *file, const char *name, const ech_shape *shape)
{
    int t = ech_safetensors_find(file, name);
    if (t < 0) fail_msg("no tensor %s", name);
    ech_saved_tensor x = ech_safetensors_get(file, t);
    assert_int_equal(x.dims, shape->dims);
    for (int d = 0; d < x.dims; d++) assert_int_equal(x.shape[d], shape->size[d]);
}

/* The model's parameters in one file and their states in the other, whole and without padding. */
static void assert_whole(const char *family, const char *model, const char *name)
{
    char path[400];
    grid_plans g = grid_plan(family, model);
    int params = (int)g.design.model->param.n;
    for (int file = 0; file < 2; file++) {
        ech_safetensors *saved;
        print_file(path, sizeof path, name, file);
        assert_int_equal(ech_safetensors_open(path, &saved), ECH_OK);
        assert_int_equal(ech_safetensors_count(saved), file == 0 ? params : 2 * params);
        for (int p = 0; p < params; p++) {
            const ech_param *param = &g.design.model->param.at[p];
            ech_optimizer_needs needs = ech_optimizer_needs_of(g.design.config, param);
            if (file == 0) assert_shape(saved, param->name, &param->shape);
            for (int s = 0; file == 1 && s < needs.states; s++) {
                char tensor[200];
                snprintf(tensor, sizeof tensor, "%s.%s", param->name, needs.state[s].name);
                assert_shape(saved, tensor, &needs.state[s].shape);
            }
        }
        ech_safetensors_close(saved);
    }
    grid_plans_free(&g);
}

/* ---- moves ---- */

static void assert_goes_on(const part *p, const part *one, int first, const char *what)
{
    int ranks = 0;
    while (ranks < RANKS && p->loss[ranks][HALF] != 0) ranks++;
    assert_true(ranks > 0);
    for (int r = 0; r < ranks; r++)
        for (int step = first; step < WHOLE; step++) {
            double a = p->loss[r][step], b = one->loss[0][step];
            if (!(fabs(a - b) <= 1e-10 * fabs(b)))
                fail_msg("%s: loss of step %d on rank %d is %.17g, one rank's is %.17g", what,
                         step + 1, r, a, b);
        }
}

/* From one of five grids to the next. */
static void move_along(const char *model, const int some[5])
{
    part one = run("llama", model, 0, NULL, "first");
    for (int i = 0; i < 5; i++) {
        part moved =
            run("llama", model, some[i], i % 2 ? "moved" : "first", i % 2 ? "first" : "moved");
        assert_same_files("first", "moved", grids[some[i]]);
        assert_goes_on(&moved, &one, HALF, grids[some[i]]);
    }
}

TEST(test_one_head_moves)
{
    const char *model = "model.num_key_value_heads=1 model.vocab_size=261 "
                        "model.tie_word_embeddings=true data.document_mask=true";
    move_along(model, (int[]){3, 5, 7, 0, 4});
    assert_whole("llama", model, "first");
}

/* States of rows, columns and blocks, of which ranks that share out a bucket have some. */
TEST(test_states_move)
{
    static const char *const optimizers[] = {
        "optimizer.name=adamw8 optimizer.block=2 optimizer.eps=1e-6",
        "optimizer.name=adafactor optimizer.momentum=0.9",
        "optimizer.name=sm3 optimizer.momentum=0.9",
        "optimizer.name=muon optimizer.momentum=0.9 optimizer.eps=1e-6",
    };
    for (int i = 0; i < 4; i++) {
        char words[200];
        snprintf(words, sizeof words, "model.num_key_value_heads=4 model.vocab_size=257 %s",
                 optimizers[i]);
        move_along(words, (int[]){9, 4, 5, 1, 9});
    }
}

ALL_TESTS(grid_setup, fixture_teardown)
