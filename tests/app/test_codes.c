/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.encode: kept values have the sizes of the formulas, and arenas are smaller. Lossless codes
 * change no bit, also of tensors that spill, which the reports count. Narrow codes change gradients
 * alone. Every layout passes verification. probes/bits.c of the lattice compares narrow codes with
 * and without recomputation and offload.
 */
#include <math.h>
#include <unistd.h>

#include "app/block_times.h"
#include "app/codes.h"
#include "app/grid_run.h"
#include "kernel/codes.h"
#include "layer/layers.h"
#include "unit.h"

#define RELU "model.hidden_act=relu "

enum { STEPS = 3, LAYERS = 2, F = 48, ROWS = 24 };

/* ---- sizes ---- */

static int64_t kept_bytes(const ech_plan *plan, int block, ech_kept kept)
{
    const ech_block *of = plan->model->block.at[block];
    int64_t bytes = 0;
    for (size_t v = 0; v < of->value.n; v++)
        if (of->value.at[v].kept == kept)
            bytes += (int64_t)ech_block_value_bytes(of, (int)v, plan->list[ECH_LIST_TRAIN].extent,
                                                    plan->types);
    return bytes;
}

/* Bytes of block 1 per row, in fp64; the micro-batch has 4 samples. */
static void check_sizes(const char *encode, int64_t bits, int64_t sparse, int64_t narrow)
{
    char words[200];
    snprintf(words, sizeof words, RELU "memory.encode=%s", encode);
    grid_plans g = grid_plan("gpt2", words);
    int64_t rows = g.plan[0]->list[ECH_LIST_TRAIN].extent.batch * ROWS;
    assert_int_equal(kept_bytes(g.plan[0], 1, ECH_KEPT_BITS), rows * bits);
    assert_int_equal(kept_bytes(g.plan[0], 1, ECH_KEPT_SPARSE), rows * sparse);
    assert_int_equal(kept_bytes(g.plan[0], 1, ECH_KEPT_NARROW), rows * narrow);
    grid_plans_free(&g);
}

/* Narrow: the ReLU's output, and attention's of 8 heads of width 4. */
TEST(sizes_follow_the_formulas)
{
    check_sizes("lossless", F / 8, F / 2 * (8 + 1) + 4, 0);
    check_sizes("lossless memory.encode_density=0.25", F / 8, F / 4 * (8 + 1) + 4, 0);
    check_sizes("fp16", F / 8, 0, 2 * F + 2 * 32);
    check_sizes("fp10", F / 8, 0, 4 * F / 3 + 8 * 4 * 2);
    check_sizes("fp8", F / 8, 0, F + 32);
}

static int64_t arena_of(const char *words)
{
    char all[300];
    snprintf(all, sizeof all,
             RELU "parallel.schedule=gpipe training.micro_batch_size=1 "
                  "training.global_batch_size=12 %s",
             words);
    grid_plans g = grid_plan("gpt2", all);
    int64_t bytes = g.plan[0]->arena_bytes[ECH_SPACE_DEVICE];
    grid_plans_free(&g);
    return bytes;
}

TEST(arenas_are_smaller)
{
    int64_t none = arena_of(""), lossless = arena_of("memory.encode=lossless");
    int64_t fp16 = arena_of("memory.encode=fp16"), fp10 = arena_of("memory.encode=fp10");
    int64_t fp8 = arena_of("memory.encode=fp8");
    int64_t norms = arena_of("memory.encode=fp10 memory.encode_norms=true");
    assert_true(lossless < none && fp16 < none && fp10 < fp16 && fp8 < fp10 && norms < fp10);
}

/* ---- bits ---- */

typedef struct trained {
    double loss[STEPS], norm[STEPS];
    ech_code_metrics codes; /* of the last step */
} trained;

static ech_status train_rank(ech_comm *comm, const ech_design *design, void *context)
{
    trained *out = context;
    ech_compared_run run = {.design = design};
    ech_status status = ech_compared_run_open(&run, comm);
    for (int step = 0; step < STEPS && status == ECH_OK; step++) {
        status = ech_exec_run(run.session.exec, ECH_LIST_TRAIN, step);
        const ech_readings *r = ech_exec_readings(run.session.exec);
        if (status != ECH_OK || ech_comm_rank(comm) != 0) continue;
        out->loss[step] = r->loss;
        out->norm[step] = r->grad_norm;
        out->codes = ech_code_metrics_of(design->model, r->reports);
    }
    ech_compared_run_close(&run);
    return status;
}

static trained train(const char *words)
{
    char all[900];
    trained out = {0};
    snprintf(all, sizeof all,
             RELU "precision.compute=fp32 training.micro_batch_size=2 "
                  "training.global_batch_size=4 %s",
             words);
    ech_config *config = grid_config("gpt2", all);
    assert_int_equal(fixture_run(config, grid_ranks(config), train_rank, &out), ECH_OK);
    ech_config_destroy(config);
    return out;
}

/* Weights of the next step follow from gradients, so its loss and norm do, too. */
static bool same_bits(const trained *a, const trained *b)
{
    return memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
           memcmp(a->norm, b->norm, sizeof a->norm) == 0;
}

TEST(lossless_codes_change_no_bit)
{
    static const char *const layouts[] = {"", "parallel.pipeline=2 ", "parallel.tensor=2 ",
                                          "memory.recompute=full ",
                                          "memory.offload_activations=host "};
    for (size_t l = 0; l < sizeof layouts / sizeof *layouts; l++) {
        char words[200];
        trained plain = train(layouts[l]);
        assert_false(plain.codes.sparse);
        for (int dense = 0; dense < 2; dense++) {
            snprintf(words, sizeof words, "%smemory.encode=lossless memory.encode_density=%s",
                     layouts[l], dense ? "0.02" : "0.7");
            trained coded = train(words);
            assert_true(same_bits(&plain, &coded));
            int tensors = LAYERS * 2 * (strstr(words, "tensor=2") ? 2 : 1);
            assert_true(coded.codes.sparse && coded.codes.spilled == dense * tensors);
            assert_true(coded.codes.density > 0.02 && coded.codes.density < 0.7);
        }
    }
}

TEST(narrow_codes_change_gradients_alone)
{
    static const char *const codes[] = {"fp16", "fp10", "fp8"};
    trained plain = train("");
    double before = 0;
    for (size_t c = 0; c < sizeof codes / sizeof *codes; c++) {
        char words[60];
        snprintf(words, sizeof words, "memory.encode=%s", codes[c]);
        trained coded = train(words);
        double off = fabs(coded.norm[0] / plain.norm[0] - 1);
        assert_true(coded.loss[0] == plain.loss[0] && off > before && off < 0.02);
        before = off;
    }
}

static void check_refused(const char *family, const char *words, const char *why)
{
    ech_design design = {0};
    ech_config *config = grid_config_of(family, "run", words);
    ech_status status =
        config ? ech_design_create(config, fixture_tokenizer, 1, 1, &design) : ECH_EUSAGE;
    if (status == ECH_OK || !strstr(ech_last_error(), why))
        fail_msg("%s: %s, not \"%s\"", words, ech_last_error(), why);
    ech_config_destroy(config);
}

/* ---- room that was measured ---- */

static ech_status measure_rank(ech_comm *comm, const ech_design *design, void *out)
{
    return ech_measure_blocks(design, comm, 1, out);
}

/* Blocks 1 and 2 are layers, each with one ReLU; their neighbours have none. */
static ech_profile *measured(const char *words)
{
    ech_profile *profile = NULL;
    ech_config *config = grid_config("gpt2", words);
    assert_int_equal(fixture_run(config, 1, measure_rank, &profile), ECH_OK);
    ech_config_destroy(config);
    assert_int_equal(profile->blocks, LAYERS + 2);
    return profile;
}

#define MEASURED                                                                                   \
    RELU "precision.compute=fp32 training.micro_batch_size=2 training.global_batch_size=4 "        \
         "memory.encode=lossless "

/* Block 1 has room for so many non-zeros of a row. */
static void check_room(const ech_profile *profile, const char *path, const char *more, double room)
{
    char words[700];
    assert_int_equal(ech_profile_write(profile, path), ECH_OK);
    snprintf(words, sizeof words, MEASURED "parallel.profile=%s %s", path, more);
    grid_plans g = grid_plan("gpt2", words);
    int64_t rows = g.plan[0]->list[ECH_LIST_TRAIN].extent.batch * ROWS;
    assert_int_equal(kept_bytes(g.plan[0], 1, ECH_KEPT_SPARSE),
                     rows * ((int64_t)ceil(room) * (4 + 1) + 4));
    grid_plans_free(&g);
}

/* A tenth more than in the profile; a block too dense for a code keeps its ReLU's input. */
TEST(a_profile_makes_room)
{
    char path[300], with[600], below[700];
    snprintf(path, sizeof path, "%s/densities.json", fixture_folder);
    snprintf(with, sizeof with, MEASURED "parallel.profile=%s", path);
    snprintf(below, sizeof below, "%s memory.encode_density=0.01", with);
    ech_profile *none = measured(RELU), *profile = measured(MEASURED);
    for (int b = 0; b < profile->blocks; b++) {
        bool layer = b > 0 && b <= LAYERS;
        assert_true(none->block[b].density == 0);
        assert_int_equal(profile->block[b].density > 0.02 && profile->block[b].density < 0.7,
                         layer);
        assert_int_equal(profile->block[b].density > 0, layer);
    }
    check_room(profile, path, "memory.encode_density=0.7", F * 0.7); /* a key goes first */
    check_room(profile, path, "", 1.1 * profile->block[1].density * F);
    profile->block[2].density = 0.81; /* with a tenth more above 0.77, the most that pays in fp32 */
    assert_int_equal(ech_profile_write(profile, path), ECH_OK);
    grid_plans g = grid_plan("gpt2", with);
    assert_true(kept_bytes(g.plan[0], 1, ECH_KEPT_SPARSE) > 0);
    assert_int_equal(kept_bytes(g.plan[0], 2, ECH_KEPT_SPARSE), 0);
    assert_int_equal(kept_bytes(g.plan[0], 2, ECH_KEPT_BITS), 0);
    grid_plans_free(&g);
    trained plain = train(""), coded = train(with + strlen(RELU));
    assert_true(same_bits(&plain, &coded));
    assert_true(coded.codes.sparse && coded.codes.spilled == 0);
    ech_log_set_quiet(true);
    check_refused("gpt2", below, "that parallel.profile measured in block 1");
    ech_log_set_quiet(false);
    unlink(path);
    ech_profile_destroy(none);
    ech_profile_destroy(profile);
}

/* ---- layouts ---- */

#define LOSSLESS RELU "memory.encode=lossless memory.encode_density=0.45 "
#define NORMS    "memory.encode=fp10 memory.encode_norms=true "

TEST(every_layout_verifies)
{
    static const struct {
        const char *family, *words;
    } runs[] = {
        {"gpt2", LOSSLESS "memory.recompute=full memory.recompute_blocks=2"},
        {"gpt2", LOSSLESS "parallel.data=2 parallel.zero=3 memory.offload_activations=disk"},
        {"gpt2", LOSSLESS "parallel.pipeline=2 parallel.schedule=zero-bubble"},
        {"gpt2", LOSSLESS "parallel.pipeline=2 model.tie_word_embeddings=false "
                          "parallel.schedule=pipedream parallel.weight_stashing=false"},
        {"gpt2", LOSSLESS "parallel.context=2 parallel.device=walled"},
        {"gpt2", LOSSLESS "memory.sequence_chunks=2"},
        {"gpt2", LOSSLESS "model.reversible=true"},
        {"gpt2", "memory.encode=fp8 memory.recompute=selective parallel.data=2"},
        {"gpt2", "memory.encode=fp8 memory.recompute=full memory.sequence_chunks=2"},
        {"gpt2", "memory.encode=fp8 parallel.context=2 parallel.context_method=ulysses"},
        {"gpt2", NORMS "memory.recompute=full memory.recompute_blocks=2"},
        {"gpt2", NORMS "parallel.tensor=2 parallel.sequence=true memory.recompute=full"},
        {"gpt2", NORMS "model.reversible=true"},
        {"llama", "memory.encode=fp8 parallel.tensor=2 parallel.sequence=keep"},
        {"olmo2", NORMS "parallel.tensor=2"},
        {"gpt2", "memory.encode=fp8 lora.rank=2 lora.targets=all-linear"},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        grid_verify(runs[i].family, runs[i].words, 1);
}

/* ---- bad input ---- */

TEST(nothing_to_encode_is_an_error)
{
    ech_log_set_quiet(true);
    check_refused("gpt2", "memory.encode=lossless", "use memory.encode = fp16, fp10 or fp8");
    check_refused("gpt2", "memory.encode=fp8 optimizer.rates=*=0\t*.ln_f.*=1",
                  "has nothing to encode");
    check_refused("gpt2", RELU "memory.encode=lossless memory.encode_density=0.9",
                  "use less than 0.87");
    check_refused("gpt2", "memory.encode=fp8 memory.encode_norms=true",
                  "use memory.encode = fp10 or fp16");
    ech_log_set_quiet(false);
}

ALL_TESTS(grid_setup, fixture_teardown)
