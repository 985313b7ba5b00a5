/* SPDX-License-Identifier: Apache-2.0
 *
 * Recomputation changes no bit of losses, gradients and weights, runs no product or attention of the forward more than
 * twice, and takes the memory that plans say. So does R that makes a reversible layer's inputs from its outputs, but for
 * roundings; what is kept then does not depend on the number of layers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "app/grid_run.h"
#include "layer/layers.h"
#include "share.h"

enum { RANKS = 8, RUNS = 2 };

static const char sizes[] = "training.micro_batch_size=2 training.global_batch_size=12 "
                            "training.steps=8 model.resid_pdrop=0.1 model.attn_pdrop=0.2 "
                            "model.tie_word_embeddings=false";

/* ---- counted kernels ---- */

static ech_kernels counting;
static const ech_kernels *counted;
static atomic_llong attentions, products;

static void count_attention(ech_kernel_context *context, const ech_tensor *q, const ech_tensor *k,
                            const ech_tensor *v, double scale, const ech_attention_shard *shard,
                            const ech_tensor *starts, const ech_dropout *dropout, bool merge,
                            const ech_tensor *out, const ech_tensor *lse)
{
    atomic_fetch_add(&attentions, 1);
    counted->attention_forward(context, q, k, v, scale, shard, starts, dropout, merge, out, lse);
}

static void count_product(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                          const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                          const ech_tensor *add, const ech_tensor *c)
{
    atomic_fetch_add(&products, 1);
    counted->matmul(context, a, a_transposed, b, b_transposed, bias, add, c);
}

/* ---- what a run leaves ---- */

typedef struct left {
    ech_text bytes[RANKS];            /* losses, norms, gradients of the last turn, weights */
    int64_t peak[ECH_MEMORY_KINDS];   /* of rank 0 */
    long long attentions, products;   /* that were run */
    long long planned, planned_again; /* attentions: in F, in R */
    long long steps_again;            /* R steps of the plans */
    const char *words;
} left;

static void append_tensor(ech_text *out, ech_tensor x)
{
    ech_text_append_bytes(out, x.data, (size_t)ech_tensor_count(&x) * ech_dtype_bytes(x.dtype));
}

static void count_plan(left *l, const ech_plan *plan)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        bool again = step->kind == ECH_STEP_RECOMPUTE;
        if (again) __atomic_fetch_add(&l->steps_again, 1, __ATOMIC_RELAXED);
        if (step->kind != ECH_STEP_FORWARD && !again) continue;
        const ech_block *block = plan->model->block.at[step->block];
        for (int c = step->first_call; c < step->first_call + step->calls; c++) {
            const ech_layer *layer = block->node.at[block->program[step->phase].at[c].node].layer;
            if (layer == &ech_layer_row_attention || layer == &ech_layer_row_attend)
                __atomic_fetch_add(again ? &l->planned_again : &l->planned, RUNS, __ATOMIC_RELAXED);
        }
    }
}

static ech_status leave(ech_comm *comm, const ech_design *design, void *context)
{
    left *l = context;
    int rank = ech_comm_rank(comm);
    ech_compared_run c = {.design = design};
    ech_status status = ech_compared_run_open(&c, comm);
    ech_text *out = &l->bytes[rank];
    for (int run = 0; run < RUNS && status == ECH_OK; run++) {
        status = ech_exec_run(c.session.exec, ECH_LIST_TRAIN, run * design->schedule->turns);
        for (int turn = 0; turn < design->schedule->turns && status == ECH_OK; turn++) {
            const ech_readings *r = &ech_exec_readings(c.session.exec)[turn];
            double read[] = {r->loss, r->grad_norm};
            ech_text_append_bytes(out, (const char *)read, sizeof read);
        }
    }
    for (int p = 0; p < (int)design->model->param.n && status == ECH_OK; p++) {
        if (!ech_layout_holds(design->layout, rank, p)) continue;
        append_tensor(out, ech_exec_param(c.session.exec, p));
    }
    if (status == ECH_OK) {
        int64_t planned[ECH_MEMORY_KINDS], measured[ECH_MEMORY_KINDS];
        ech_plan_peaks(c.session.plan, planned);
        ech_exec_peaks(c.session.exec, measured);
        /* Validation is not run here: its list is never the one that needs most. */
        for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
            if (kind != ECH_MEMORY_SNAPSHOT && planned[kind] != measured[kind]) {
                fprintf(stderr, "%s: rank %d: %s: %lld bytes, planned %lld\n", l->words, rank,
                        ech_memory_name((ech_memory_kind)kind), (long long)measured[kind],
                        (long long)planned[kind]);
                status = ECH_EINTERNAL;
            }
        if (rank == 0) memcpy(l->peak, measured, sizeof measured);
        count_plan(l, c.session.plan);
    }
    ech_compared_run_close(&c);
    return status;
}

static left run_with(const char *family, const char *grid, const char *more)
{
    char words[900];
    snprintf(words, sizeof words, "%s %s %s", sizes, grid, more);
    left l = {.words = words};
    ech_config *config = grid_config(family, words);
    ech_design design = {0};
    int ranks = grid_ranks(config);
    assert_true(ranks <= RANKS);
    ech_status status = ech_design_create(config, fixture_tokenizer, ranks, ranks, &design);
    if (status == ECH_OK) {
        counted = design.kernels;
        counting = *counted;
        counting.attention_forward = count_attention;
        counting.matmul = count_product;
        design.kernels = &counting;
        atomic_store(&attentions, 0);
        atomic_store(&products, 0);
        status = ech_design_run(&design, leave, &l);
        l.attentions = atomic_load(&attentions);
        l.products = atomic_load(&products);
    }
    if (status != ECH_OK) fail_msg("%s with %s: %s", family, words, ech_last_error());
    ech_design_destroy(&design);
    ech_config_destroy(config);
    l.words = NULL;
    return l;
}

static void free_left(left *l)
{
    for (int r = 0; r < RANKS; r++) ech_text_free(&l->bytes[r]);
}

/* ---- the layouts ---- */

static const struct {
    const char *family, *grid;
    bool four; /* stages of four layers: segments */
} cases[] = {
    {"gpt2", "model.num_hidden_layers=4", true},
    {"llama", "model.num_hidden_layers=4 model.num_key_value_heads=2 precision.compute=fp32", true},
    {"gpt2",
     "model.num_hidden_layers=4 precision.compute=bf16 precision.residual=fp32 parallel.tensor=2",
     true},
    {"qwen3", "model.num_hidden_layers=4 parallel.data=2 data.document_mask=true", true},
    {"gpt2", "model.num_hidden_layers=4 memory.sequence_chunks=3", true},
    {"llama", "model.num_hidden_layers=4 memory.sequence_chunks=2 parallel.tensor=2", true},
    {"gpt2", "model.num_hidden_layers=4 parallel.tensor=4 parallel.sequence=true", true},
    {"gpt2",
     "model.num_hidden_layers=4 parallel.tensor=2 parallel.sequence=keep "
     "precision.compute=fp32",
     true},
    {"llama", "model.num_hidden_layers=4 parallel.context=3", true},
    {"qwen3",
     "model.num_hidden_layers=4 parallel.context=2 parallel.context_method=ulysses "
     "parallel.tensor=2",
     true},
    {"gpt2", "model.num_hidden_layers=8 parallel.pipeline=2 parallel.partition=[4,4]", true},
    {"gpt2",
     "model.num_hidden_layers=8 parallel.pipeline=2 parallel.partition=[4,4] "
     "parallel.schedule=zero-bubble parallel.tensor=2",
     true},
    {"llama",
     "model.num_hidden_layers=4 parallel.pipeline=2 parallel.virtual_stages=2 "
     "parallel.schedule=interleaved parallel.partition=[1,1,1,1] training.global_batch_size=8",
     false},
    {"gpt2",
     "model.num_hidden_layers=4 parallel.pipeline=2 parallel.schedule=zero-bubble-v "
     "parallel.partition=[1,1,1,1]",
     false},
    {"gpt2",
     "model.num_hidden_layers=8 parallel.pipeline=2 parallel.partition=[4,4] "
     "parallel.schedule=pipedream",
     true},
    {"llama",
     "model.num_hidden_layers=8 parallel.pipeline=2 parallel.partition=[4,4] "
     "parallel.schedule=pipedream-2bw parallel.context=2",
     true},
    {"gpt2",
     "model.num_hidden_layers=8 parallel.partition=[4,4] parallel.stage_replicas=[1,2] "
     "memory.sequence_chunks=2",
     true},
};

static const struct {
    const char *words;
    bool four, full;
} choices[] = {{"memory.recompute=selective", false, false},
               {"memory.recompute=full memory.recompute_blocks=1", false, true},
               {"memory.recompute=full memory.recompute_blocks=2", true, true},
               {"memory.recompute=full memory.recompute_blocks=3", true, true},
               {"memory.recompute=full memory.recompute_blocks=4", true, true}};

enum { CHOICES = sizeof choices / sizeof *choices };

static void check_same(const left *none, const left *some, const char *family, const char *grid,
                       const char *choice)
{
    for (int r = 0; r < RANKS; r++)
        if (none->bytes[r].n != some->bytes[r].n ||
            (none->bytes[r].n && memcmp(none->bytes[r].at, some->bytes[r].at, none->bytes[r].n)))
            fail_msg("%s with %s: %s changes what rank %d computes", family, grid, choice, r);
    assert_true(none->steps_again == 0 && some->steps_again > 0);
    /* Each attention of the forward once more. */
    assert_int_equal(none->attentions, none->planned);
    assert_int_equal(some->attentions, some->planned + some->planned_again);
    assert_int_equal(some->planned_again, none->planned);
}

static void test_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!share_takes()) continue;
        left none = run_with(cases[i].family, cases[i].grid, "");
        for (size_t k = 0; k < CHOICES; k++) {
            /* Two or three of the choices with each layout. */
            if ((choices[k].four && !cases[i].four) || (i + k) % 2) continue;
            left some = run_with(cases[i].family, cases[i].grid, choices[k].words);
            check_same(&none, &some, cases[i].family, cases[i].grid, choices[k].words);
            if (!choices[k].full) assert_int_equal(some.products, none.products);
            free_left(&some);
        }
        free_left(&none);
    }
}

/* ---- reversible models ---- */

static const struct {
    const char *family, *grid, *more; /* more: with inverses alone */
    bool rounds;                      /* in bf16: other roundings than where inputs are kept */
} reversible[] = {
    {"gpt2", "", "", false},
    {"llama", "parallel.tensor=2 parallel.sequence=true", "memory.recompute_blocks=3", false},
    {"qwen3", "parallel.context=3 data.document_mask=true", "", false},
    {"gpt2", "memory.sequence_chunks=3 parallel.pipeline=2 parallel.partition=[2,2]", "", false},
    {"gpt2", "parallel.pipeline=3 parallel.partition=[1,2,1] parallel.tensor=2", "", false},
    {"llama", "parallel.pipeline=2 parallel.schedule=zero-bubble-v parallel.partition=[1,1,1,1]",
     "", false},
    {"gpt2", "parallel.pipeline=2 parallel.schedule=pipedream parallel.partition=[2,2]", "", false},
    {"llama", "parallel.pipeline=2 parallel.partition=[2,2] precision.compute=bf16", "", true},
};

/* fp64 numbers, of which one run rounded inputs otherwise than the other. */
static void check_near(const left *stored, const left *inverted, const char *grid)
{
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(stored->bytes[r].n, inverted->bytes[r].n);
        for (size_t i = 0; i + sizeof(double) <= stored->bytes[r].n; i += sizeof(double)) {
            double a, b;
            memcpy(&a, stored->bytes[r].at + i, sizeof a);
            memcpy(&b, inverted->bytes[r].at + i, sizeof b);
            if (!(fabs(a - b) <= 1e-10 * (1 + fabs(a))))
                fail_msg("%s: rank %d: %.17g with inputs from outputs, %.17g with those kept", grid,
                         r, b, a);
        }
    }
}

static void test_inverted(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof reversible / sizeof *reversible; i++) {
        if (!share_takes()) continue;
        char grid[200];
        snprintf(grid, sizeof grid, "%s model.reversible=true model.num_hidden_layers=4",
                 reversible[i].grid);
        left stored = run_with(reversible[i].family, grid, "memory.invert=false");
        left inverted = run_with(reversible[i].family, grid, reversible[i].more);
        if (!reversible[i].rounds) check_near(&stored, &inverted, grid);
        assert_true(stored.steps_again == 0 && inverted.steps_again > 0);
        assert_int_equal(inverted.attentions, inverted.planned + inverted.planned_again);
        assert_int_equal(inverted.planned_again, inverted.planned);
        assert_true(inverted.products < 2 * stored.products);
        assert_true(inverted.peak[ECH_MEMORY_ACTIVATIONS] < stored.peak[ECH_MEMORY_ACTIVATIONS]);
        free_left(&stored);
        free_left(&inverted);
    }
}

static int64_t planned_activations(const char *more, int layers)
{
    int64_t peak[ECH_MEMORY_KINDS], most = 0;
    char words[200];
    snprintf(words, sizeof words, "model.reversible=true model.num_hidden_layers=%d %s", layers,
             more);
    grid_plans g = grid_plan("llama", words);
    for (int rank = 0; rank < g.ranks; rank++) {
        ech_plan_peaks(g.plan[rank], peak);
        if (peak[ECH_MEMORY_ACTIVATIONS] > most) most = peak[ECH_MEMORY_ACTIVATIONS];
    }
    grid_plans_free(&g);
    return most;
}

/* What is kept does not grow with the depth: it is a stage's last outputs. */
static void test_depth(void **state)
{
    (void)state;
    static const char *const grids[] = {"", "training.micro_batch_size=1 parallel.pipeline=2",
                                        "parallel.tensor=2 parallel.sequence=true",
                                        "parallel.context=2"};
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        char stored[200];
        snprintf(stored, sizeof stored, "%s memory.invert=false", grids[i]);
        assert_int_equal(planned_activations(grids[i], 4), planned_activations(grids[i], 64));
        assert_true(planned_activations(stored, 64) > 8 * planned_activations(stored, 4));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_bits),
                                       cmocka_unit_test(test_inverted),
                                       cmocka_unit_test(test_depth)};
    return cmocka_run_group_tests(tests, grid_setup, fixture_teardown);
}
