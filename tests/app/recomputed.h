/* SPDX-License-Identifier: Apache-2.0
 *
 * Two runs of a train list: what they leave (losses, gradients, weights), how often kernels ran
 * beside what plans say, and memory, which must be as planned. After cmocka.h.
 */
#ifndef ECH_TESTS_APP_RECOMPUTED_H
#define ECH_TESTS_APP_RECOMPUTED_H

#include <stdatomic.h>

#include "app/grid_run.h"
#include "layer/layers.h"
#include "schedule/peaks.h"
#include "unit.h"

enum { RANKS = 8, RUNS = 2 };

static const char sizes[] = "training.micro_batch_size=2 training.global_batch_size=12 "
                            "training.steps=8 model.resid_pdrop=0.1 model.attn_pdrop=0.2 "
                            "model.tie_word_embeddings=false";

/* ---- counted kernels ---- */

static ech_kernels counting;
static const ech_kernels *counted;
static atomic_llong attentions, products, cheap;

static void count_attention(ech_kernel_context *context, const ech_tensor *q, const ech_tensor *k,
                            const ech_tensor *v, const ech_attention_rule *rule,
                            const ech_attention_shard *shard, const ech_tensor *starts,
                            const ech_dropout *dropout, bool merge, const ech_tensor *out,
                            const ech_tensor *lse)
{
    atomic_fetch_add(&attentions, 1);
    counted->attention_forward(context, q, k, v, rule, shard, starts, dropout, merge, out, lse);
}

static void count_product(ech_kernel_context *context, const ech_tensor *a, bool a_transposed,
                          const ech_tensor *b, bool b_transposed, const ech_tensor *bias,
                          const ech_tensor *add, const ech_tensor *c)
{
    atomic_fetch_add(&products, 1);
    counted->matmul(context, a, a_transposed, b, b_transposed, bias, add, c);
}

static void count_layernorm(ech_kernel_context *context, const ech_tensor *x,
                            const ech_tensor *gain, const ech_tensor *bias, double eps,
                            const ech_tensor *y, const ech_tensor *mean, const ech_tensor *rstd)
{
    atomic_fetch_add(&cheap, 1);
    counted->layernorm_forward(context, x, gain, bias, eps, y, mean, rstd);
}

static void count_rmsnorm(ech_kernel_context *context, const ech_tensor *x,
                          const ech_tensor *squares, const ech_tensor *gain, double offset,
                          double eps, const ech_tensor *y, const ech_tensor *rstd)
{
    atomic_fetch_add(&cheap, 1);
    counted->rmsnorm_forward(context, x, squares, gain, offset, eps, y, rstd);
}

static void count_add_layernorm(ech_kernel_context *context, const ech_tensor *a,
                                const ech_tensor *b, const ech_tensor *x, const ech_tensor *gain,
                                const ech_tensor *bias, double eps, const ech_tensor *y,
                                const ech_tensor *mean, const ech_tensor *rstd)
{
    atomic_fetch_add(&cheap, 1);
    counted->add_layernorm(context, a, b, x, gain, bias, eps, y, mean, rstd);
}

static void count_add_rmsnorm(ech_kernel_context *context, const ech_tensor *a, const ech_tensor *b,
                              const ech_tensor *x, const ech_tensor *gain, double offset,
                              double eps, const ech_tensor *y, const ech_tensor *rstd)
{
    atomic_fetch_add(&cheap, 1);
    counted->add_rmsnorm(context, a, b, x, gain, offset, eps, y, rstd);
}

static void count_gelu(ech_kernel_context *context, const ech_tensor *x, const ech_tensor *y)
{
    atomic_fetch_add(&cheap, 1);
    counted->gelu_forward(context, x, y);
}

static void count_swiglu(ech_kernel_context *context, const ech_tensor *gate, const ech_tensor *up,
                         const ech_tensor *y)
{
    atomic_fetch_add(&cheap, 1);
    counted->swiglu_forward(context, gate, up, y);
}

/* ---- what a run leaves ---- */

typedef struct left {
    ech_text bytes[RANKS];            /* losses, norms, gradients of the last turn, weights */
    int64_t peak[ECH_MEMORY_KINDS];   /* of rank 0 */
    long long attentions, products;   /* that were run */
    long long planned, planned_again; /* attentions: in F, in R */
    long long cheap, planned_cheap;   /* norms, GELU, SwiGLU: that were run; in F, B, W and R */
    long long steps_again;            /* R steps of the plans */
    const char *words;
} left;

static inline void append_tensor(ech_text *out, ech_tensor x)
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

/* The cheap one of two layers that a call fuses; the layer itself where it fuses none. */
static const ech_layer *unfused(const ech_layer *layer)
{
    if (layer == &ech_layer_row_linear_gelu) return &ech_layer_row_gelu;
    if (layer == &ech_layer_row_residual_layernorm) return &ech_layer_row_layernorm;
    if (layer == &ech_layer_row_residual_rmsnorm) return &ech_layer_row_rmsnorm;
    return layer;
}

/* How often a call of the block and micro-batch runs the layer's forward: in F, and in all
 * phases. */
typedef struct runs {
    int forward, all;
} runs;

static runs count_runs(const ech_plan *plan, const ech_layer *layer, int block, int micro)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    runs r = {0};
    for (size_t s = 0; s < list->step.n; s++) {
        const ech_step *step = &list->step.at[s];
        if (step->lane != ECH_LANE_COMPUTE || ech_step_kind_phase(step->kind) < 0) continue;
        if (step->block != block || step->micro != micro) continue;
        const ech_block *of = plan->model->block.at[block];
        for (int c = step->first_call; c < step->first_call + step->calls; c++) {
            const ech_block_call *call = &of->program[step->phase].at[c];
            if (call->node < 0 || unfused(of->node.at[call->node].layer) != layer) continue;
            r.forward += step->phase == ECH_FORWARD;
            r.all += step->phase == ECH_FORWARD || call->recompute;
        }
    }
    return r;
}

/* Norms, GELU and SwiGLU run once in F and once for B and W. */
static ech_status count_cheap(left *l, const ech_plan *plan)
{
    const ech_list *list = &plan->list[ECH_LIST_TRAIN];
    for (int b = 0; b < (int)plan->model->block.n; b++) {
        if (!ech_layout_has_block(plan->layout, plan->rank, b)) continue;
        const ech_block *block = plan->model->block.at[b];
        bool *seen = ech_calloc(block->node.n + 1, sizeof *seen);
        for (size_t n = 0; n < block->node.n; n++) {
            const ech_layer *layer = block->node.at[n].layer;
            for (size_t m = 0; m < n; m++) seen[n] |= block->node.at[m].layer == layer;
            for (int micro = 0; !seen[n] && layer->cheap && micro < list->micro_batches; micro++) {
                runs r = count_runs(plan, layer, b, micro);
                if (r.all > 2 * r.forward) {
                    fprintf(stderr, "%s: %s of block %d runs %d times, %d in F\n", l->words,
                            layer->name, b, r.all, r.forward);
                    free(seen);
                    return ECH_EINTERNAL;
                }
                __atomic_fetch_add(&l->planned_cheap, RUNS * r.all, __ATOMIC_RELAXED);
            }
        }
        free(seen);
    }
    return ECH_OK;
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
        ECH_ALSO(&status, count_cheap(l, c.session.plan));
    }
    ech_compared_run_close(&c);
    return status;
}

/* If not NULL, given each design's model before anything is planned. */
static void (*change_model)(ech_model *model, const ech_config *config);

static inline left run_with(const char *family, const char *grid, const char *more)
{
    char words[900];
    snprintf(words, sizeof words, "%s %s %s", sizes, grid, more);
    left l = {.words = words};
    ech_config *config = grid_config(family, words);
    ech_design design = {0};
    int ranks = grid_ranks(config);
    assert_true(ranks <= RANKS);
    ech_status status = ech_design_create(config, fixture_tokenizer, ranks, ranks, &design);
    if (status == ECH_OK && change_model) change_model(design.model, config);
    if (status == ECH_OK) {
        counted = design.kernels;
        counting = *counted;
        counting.attention_forward = count_attention;
        counting.matmul = count_product;
        counting.layernorm_forward = count_layernorm;
        counting.rmsnorm_forward = count_rmsnorm;
        counting.add_layernorm = count_add_layernorm;
        counting.add_rmsnorm = count_add_rmsnorm;
        counting.gelu_forward = count_gelu;
        counting.swiglu_forward = count_swiglu;
        design.kernels = &counting;
        atomic_store(&attentions, 0);
        atomic_store(&products, 0);
        atomic_store(&cheap, 0);
        status = ech_design_run(&design, leave, &l);
        l.attentions = atomic_load(&attentions);
        l.products = atomic_load(&products);
        l.cheap = atomic_load(&cheap);
    }
    if (status != ECH_OK) fail_msg("%s with %s: %s", family, words, ech_last_error());
    ech_design_destroy(&design);
    ech_config_destroy(config);
    l.words = NULL;
    return l;
}

static inline void free_left(left *l)
{
    for (int r = 0; r < RANKS; r++) ech_text_free(&l->bytes[r]);
}

#endif
