/* SPDX-License-Identifier: Apache-2.0
 *
 * verify on random run files: every key that decides what is computed, by whom and when. What is
 * refused is asked for again as the error's hint says, a few times. None may fail, and the worst
 * error of many is what ECH_TOLERANCE is ten times of. A few cases here; ECHELON_VERIFY_RANDOM=500
 * tries 500, and ECHELON_VERIFY_RANDOM=500,7 others. verify runs the same masks of documents on
 * both sides; so random run files with such masks are asked besides whether a document's tokens
 * change the logits of others.
 */

#include <math.h>

#include "app/grid_run.h"
#include "app/random_run.h"
#include "app/verdict.h"
#include "app/verify/verifier.h"
#include "unit.h"

enum { CASES = 24, MASKED_CASES = 12, STEPS = 6, LONG_STEPS = 30, RANKS = 8, HINTS = 10 };

/* ---- drawing ---- */

/* One of `names`, or as often as not nothing: the default. */
#define ADD_ONE_OF(dice, run, key, names)                                                          \
    do {                                                                                           \
        if (chance(dice, 50)) add(run, key, ONE_OF(dice, names));                                  \
    } while (0)

/* Most of what does not go with the gate is left to errors' hints. */
static void draw_experts(dice *d, random_run *r, const char *family)
{
    bool qwen = family[0] == 'q', ours = family[0] == 's';
    static const char *const gates[] = {"topk",       "topk",         "switch", "gshard",
                                        "noisy_topk", "hierarchical", "bias",   "dense"};
    static const char *const factors[] = {"0.5", "1", "1.25", "4"};
    static const char *const coefficients[] = {"0.1", "3"};
    static const char *const chances[] = {"0.1", "0.5"};
    static const char *const activations[] = {"relu", "gelu_new", "swiglu",      "relu2",
                                              "gelu", "geglu",    "geglu_exact", "swiglu_clamped"};
    static const char *const bounds[] = {"1", "1.2", "1.5", "4"};
    bool chooses = !ours || chance(d, 50); /* Switch has a gate of its own */
    const char *gate = chooses ? ONE_OF(d, gates) : "switch";
    bool levels = gate[0] == 'h', noisy = levels || gate[0] == 'n';
    int64_t groups = from_to(d, 2, 4), each = from_to(d, 1, 3), of = from_to(d, 1, groups);
    int64_t k = from_to(d, 1, 2 * groups < groups * each ? 2 * groups : groups * each);
    if (levels) k = of * from_to(d, 1, each);
    add_number(r, "model.num_local_experts", groups * each);
    if (chooses) {
        add(r, "model.moe_gate", gate);
        add_number(r, "model.num_experts_per_tok",
                   gate[0] == 's'   ? 1
                   : gate[0] == 'g' ? 2
                   : gate[0] == 'd' ? groups * each
                                    : k);
    }
    if (levels || (gate[0] == 'b' && k <= of * each)) {
        add_number(r, "model.n_group", groups);
        add_number(r, "model.topk_group", of);
    }
    if (gate[0] == 'b') ADD_ONE_OF(d, r, "model.router_bias_rate", chances);
    if (gate[0] == 'b') ADD_ONE_OF(d, r, "model.routed_scaling_factor", factors);
    if (chance(d, 20)) add_number(r, "model.moe_shared_experts", from_to(d, 1, 2));
    if (gate[0] != 'd') ADD_ONE_OF(d, r, "model.moe_capacity_factor", factors);
    if (!(noisy || gate[0] == 'd') || chance(d, 5))
        ADD_ONE_OF(d, r, "model.router_aux_loss_coef", coefficients);
    if (noisy || chance(d, 5)) ADD_ONE_OF(d, r, "model.router_importance_coef", coefficients);
    if (noisy || chance(d, 5)) ADD_ONE_OF(d, r, "model.router_load_coef", coefficients);
    bool looks = strstr(r->words.at, "moe_capacity_factor") || strstr(r->words.at, "_coef");
    if (chance(d, looks ? 40 : 5)) add_number(r, "model.moe_group_samples", from_to(d, 1, 3));
    if (chance(d, gate[0] == 'g' ? 50 : 5)) add(r, "model.moe_gshard_ports", "true");
    ADD_ONE_OF(d, r, "model.router_jitter_noise", chances);
    ADD_ONE_OF(d, r, "model.moe_dropout", chances);
    if (chance(d, 60)) {
        add_number(r, "parallel.expert", from_to(d, 1, 4));
        ADD_ONE_OF(d, r, "model.moe_bound", bounds);
    }
    if (qwen && chance(d, strchr("tb", gate[0]) ? 50 : 5)) add(r, "model.norm_topk_prob", "false");
    if (qwen && chance(d, 50)) add_number(r, "model.moe_intermediate_size", from_to(d, 1, 12));
    if (ours) ADD_ONE_OF(d, r, "model.hidden_act", activations);
    if (!qwen && !ours) return;
    if (chance(d, ours && r->layers == 1 ? 100
                                         : 30)) /* every second layer where Switch says nothing */
        add_number(r, "model.moe_every", from_to(d, 1, r->layers));
    if (chance(d, 30)) add_number(r, "model.moe_first_dense", from_to(d, 0, 1));
}

static bool has_experts(const random_run *r)
{
    return strstr(r->words.at, "model.num_local_experts") != NULL;
}

static void draw_model(dice *d, random_run *r)
{
    static const char *const ranges[] = {"0.005", "0.05", "0.1", "0.2"};
    static const char *const dropouts[] = {"0.1", "0.5", "0.9"};
    static const char *const bools[] = {"true", "false"};
    static const char *const epsilons[] = {"1e-3", "1e-6"};
    static const char *const thetas[] = {"100", "500000"};
    static const char *const widths[] = {"2", "4", "6"};
    static const char *const scales[] = {"0.01", "0.3", "1"};
    static const char *const families[] = {"gpt2",  "gpt2",    "gpt2",      "llama",
                                           "qwen3", "mixtral", "qwen3_moe", "switch"};
    const char *family = ONE_OF(d, families);
    bool llama = strcmp(family, "gpt2") != 0; /* or what descends from it */
    bool ours = strcmp(family, "switch") == 0;
    int64_t heads = from_to(d, 1, 8), groups = from_to(d, 1, heads);
    add(r, "model.architecture", family);
    add_number(r, "model.num_attention_heads", heads);
    int64_t width = heads * 2 * from_to(d, 1, 5);
    /* LayerNorm of two numbers leaves only the sign. Gradients then nearly cancel, and rounding
     * leaves 1e-11 of them. The same happens to four numbers if dropout removes most of them. */
    while (!llama && width < 8) width += 2 * heads;
    add_number(r, "model.hidden_size", width);
    if (llama && chance(d, 60)) add_number(r, "model.num_key_value_heads", groups);
    r->layers = from_to(d, 1, 4);
    add_number(r, "model.num_hidden_layers", r->layers);
    add_number(r, "model.intermediate_size", from_to(d, 1, 12) * from_to(d, 1, 4));
    add_number(r, "model.vocab_size", from_to(d, 257, 272));
    ADD_ONE_OF(d, r, "model.tie_word_embeddings", bools);
    if (ours)
        ADD_ONE_OF(d, r, "model.initializer_scale", scales);
    else
        ADD_ONE_OF(d, r, "model.initializer_range", ranges);
    ADD_ONE_OF(d, r, "model.attn_pdrop", dropouts);
    ADD_ONE_OF(d, r, "model.resid_pdrop", dropouts);
    ADD_ONE_OF(d, r, "model.embd_pdrop", dropouts);
    ADD_ONE_OF(d, r, llama ? "model.rms_norm_eps" : "model.layer_norm_epsilon", epsilons);
    if (llama) ADD_ONE_OF(d, r, "model.rope_theta", thetas);
    if (llama) ADD_ONE_OF(d, r, "model.head_dim", widths);
    if (llama && chance(d, 20)) add(r, "model.rope_scaling", "llama3");
    if (ech_text_has_word("mixtral qwen3_moe switch", family)) draw_experts(d, r, family);
}

static void draw_optimizer(dice *d, random_run *r)
{
    static const char *const rates[] = {"1e-4", "3e-3", "3e-2"};
    static const char *const curves[] = {"constant", "linear", "wsd"};
    static const char *const clips[] = {"0", "0.01", "0.3"};
    static const char *const epsilons[] = {"1e-6", "1e-12", "1e-16"};
    static const char *const decays[] = {"0", "0.5"};
    ADD_ONE_OF(d, r, "optimizer.learning_rate", rates);
    ADD_ONE_OF(d, r, "optimizer.schedule", curves);
    static const char *const others[] = {
        "sm3", "sm3 optimizer.momentum=0.9", "adafactor", "adafactor optimizer.momentum=0.9",
        "muon optimizer.momentum=0.95", "adamw8 optimizer.block=4", "adamw8"};
    ADD_ONE_OF(d, r, "optimizer.clip_norm", clips);
    ADD_ONE_OF(d, r, "optimizer.weight_decay", decays);
    if (chance(d, 50)) add_number(r, "optimizer.warmup_steps", from_to(d, 0, 4));
    if (chance(d, 50)) {
        ADD_ONE_OF(d, r, "optimizer.eps", epsilons);
        return;
    }
    if (chance(d, 60)) {
        add(r, "optimizer.name", ONE_OF(d, others));
        return;
    }
    add(r, "optimizer.name", "sgd");
    if (chance(d, 60)) {
        add(r, "optimizer.momentum", "0.9");
        if (chance(d, 50)) add(r, "optimizer.nesterov", "true");
    }
}

static void add_list(random_run *r, const char *key, const int64_t *numbers, int64_t n)
{
    ech_text list = {0};
    for (int64_t i = 0; i < n; i++)
        ech_text_append(&list, "%s%lld", i ? "," : "[", (long long)numbers[i]);
    ech_text_append(&list, "]");
    add(r, key, list.at);
    ech_text_free(&list);
}

static void draw_partition(dice *d, random_run *r, int64_t stages)
{
    int64_t layers[2 * RANKS] = {0};
    for (int64_t i = 0; i < r->layers; i++) layers[from_to(d, 0, stages - 1)]++;
    add_list(r, "parallel.partition", layers, stages);
}

static void draw_replicas(dice *d, random_run *r, int64_t stages)
{
    int64_t replicas[RANKS];
    for (int64_t i = 0; i < stages; i++) replicas[i] = from_to(d, 1, 2);
    add_list(r, "parallel.stage_replicas", replicas, stages);
    r->ranks = 0; /* as many as it says */
}

/* Not many ranks, whatever the rest is. */
static void draw_grid(dice *d, random_run *r, const char *schedule)
{
    int64_t stages, data, context, tensor;
    do {
        stages = chance(d, 60) ? from_to(d, 1, 4) : 1;
        data = chance(d, 50) ? from_to(d, 1, 4) : 1;
        context = chance(d, 30) ? from_to(d, 2, 3) : 1;
        tensor = chance(d, 40) ? from_to(d, 2, 4) : 1;
    } while (stages * data * context * tensor > RANKS);
    r->ranks = (int)(stages * data * context * tensor);
    add_number(r, "parallel.pipeline", stages);
    add_number(r, "parallel.context", context);
    add_number(r, "parallel.tensor", tensor);
    if (tensor > 1) ADD_ONE_OF(d, r, "parallel.sequence", random_sequences);
    if (context > 1) ADD_ONE_OF(d, r, "parallel.context_method", random_methods);
    if (context == 1 && chance(d, 20)) add_number(r, "memory.sequence_chunks", from_to(d, 2, 3));
    if (chance(d, 40)) ADD_ONE_OF(d, r, "memory.recompute", random_recomputes);
    if (stages > 1 && chance(d, 20) && strstr(schedule, "2bw") == NULL)
        draw_replicas(d, r, stages);
    else if (stages > 1 && chance(d, 25))
        draw_partition(d, r,
                       strstr(schedule, "virtual") || strstr(schedule, "bubble-v") ? 2 * stages
                                                                                   : stages);
}

static void draw_schedule(dice *d, random_run *r)
{
    const char *schedule = ONE_OF(d, random_schedules);
    add(r, "parallel.schedule", schedule);
    draw_grid(d, r, schedule);
    if (strncmp(schedule, "pipedream", 9) == 0 && chance(d, 50))
        add_number(r, "parallel.flush_every", from_to(d, 1, 5));
}

/* Workers with the whole model, and servers: as many ranks as that makes. */
static void draw_strategy(dice *d, random_run *r)
{
    static const char *const strategies[] = {"local_sgd parallel.sync_every=2",
                                             "diloco parallel.sync_every=3",
                                             "gossip parallel.sync_every=4",
                                             "easgd parallel.sync_every=2",
                                             "central_storage",
                                             "parameter_server",
                                             "parameter_server parallel.servers=2",
                                             "parameter_server parallel.backup_workers=1",
                                             "asp",
                                             "asp parallel.servers=2",
                                             "ssp parallel.staleness=1",
                                             "hogwild",
                                             "hogwild_ring parallel.cluster_ranks=2"};
    const char *strategy;
    do /* backup workers do not go with experts */
        strategy = ONE_OF(d, strategies);
    while (has_experts(r) && strstr(strategy, "backup_workers"));
    int64_t data = 2 * from_to(d, 1, 2);
    add(r, "parallel.strategy", strategy);
    add_number(r, "parallel.data", data);
    bool two = strstr(strategy, "servers=2") != NULL;
    bool served = strstr(strategy, "server") || strstr(strategy, "asp") || strstr(strategy, "ssp");
    r->ranks = (int)(data + (served ? two ? 2 : 1 : 0));
}

static bool says(const random_run *r, const char *words)
{
    return strstr(r->words.at, words) != NULL;
}

static void draw_compression(dice *d, random_run *r)
{
    static const char *const orthogonal[] = {"householder", "gram_schmidt"};
    static const char *const densities[] = {"0.01", "0.1", "0.5"};
    bool factors = chance(d, 60);
    add(r, "parallel.compression", factors ? "powersgd" : "topk");
    if (factors) {
        add_number(r, "parallel.compression_rank", from_to(d, 1, 6));
        ADD_ONE_OF(d, r, "parallel.compression_orthogonal", orthogonal);
    } else {
        ADD_ONE_OF(d, r, "parallel.compression_density", densities);
    }
}

static void draw_data(dice *d, random_run *r)
{
    static const char *const reductions[] = {"direct", "ring", "naive", "torus", "hierarchical"};
    static const char *const buckets[] = {"1", "500", "8KiB", "1GiB"};
    int64_t micro = from_to(d, 1, 4);
    add_number(r, "data.sequence_length",
               chance(d, 50) ? 12 * from_to(d, 1, 3) : from_to(d, 1, 40));
    if (chance(d, 30)) add(r, "data.document_mask", "true");
    add_number(r, "training.micro_batch_size", micro);
    add_number(r, "training.global_batch_size", micro * from_to(d, 1, 8));
    add_number(r, "training.seed", from_to(d, 1, 1000));
    if (chance(d, 30)) add_number(r, "training.check_every", from_to(d, 0, 5));
    ADD_ONE_OF(d, r, "parallel.reduction", reductions);
    add_number(r, "parallel.node_ranks", from_to(d, 1, 4));
    ADD_ONE_OF(d, r, "parallel.bucket_bytes", buckets);
    if (chance(d, 20)) add_number(r, "parallel.threads", 2);
}

static random_run draw(uint64_t seed, int64_t number, int64_t most_steps)
{
    random_run r = {.steps = 0};
    dice d = {.key = {.seed = seed, .step = (uint32_t)number}};
    draw_model(&d, &r);
    draw_optimizer(&d, &r);
    if (chance(&d, 25))
        draw_strategy(&d, &r);
    else
        draw_schedule(&d, &r);
    draw_data(&d, &r);
    /* Most of what rules refuse is not drawn; errors' hints mend the rest. */
    bool plain = !says(&r, "parallel.strategy"), flushed = !says(&r, "schedule=pipedream");
    bool compresses = plain && chance(&d, 25);
    if (compresses) draw_compression(&d, &r);
    r.steps = from_to(&d, 1, most_steps);
    add_number(&r, "training.steps", r.steps);
    /* Experts are chosen alike where what is compared of logits is no accident of the last bits. */
    static const char *const types[] = {"fp32", "fp32", "fp64", "bf16",
                                        "fp16 precision.loss_scale=16"};
    add(&r, "precision.compute", has_experts(&r) ? "fp64" : plain ? ONE_OF(&d, types) : "fp32");
    if (chance(&d, 15)) add(&r, "model.reversible", "true");
    if (chance(&d, 30)) add(&r, "parallel.device", chance(&d, 50) ? "queued" : "walled");
    int64_t zero = plain && chance(&d, 40) ? from_to(&d, 1, !flushed ? 1 : compresses ? 2 : 3) : 0;
    add_number(&r, "parallel.zero", zero);
    if (zero == 3 && chance(&d, 30)) add(&r, "parallel.zero_keep", "true");
    if (plain && !compresses && chance(&d, 30)) {
        add(&r, "memory.offload_optimizer", chance(&d, 50) ? "host" : "disk");
        if (flushed && chance(&d, 30))
            add_number(&r, "memory.offload_delayed_from", from_to(&d, 1, 4));
        if (flushed && chance(&d, 30))
            add(&r, "memory.offload_parameters", chance(&d, 50) ? "host" : "disk");
    }
    static const char *const spaces[] = {"host", "disk", "peer"};
    if (chance(&d, 30)) add(&r, "memory.offload_activations", ONE_OF(&d, spaces));
    add_number(&r, "memory.prefetch", from_to(&d, 0, 2));
    /* A step of padded samples has few tokens, so that rounding in fp32 shows more. */
    bool fits = !says(&r, "sequence_length=1 "); /* a mask leaves no target in one token */
    if (says(&r, "precision.compute=fp64") && chance(&d, 60) && fits)
        add(&r, "data.packing", "documents");
    return r;
}

/* ---- all ---- */

/* What no case changes. */
static void print_yaml(ech_text *out)
{
    ech_text_append(out,
                    "data:\n  train: %s/all-train\n  valid: %s/all-valid\n"
                    "optimizer:\n  learning_rate: 1e-2\n"
                    "parallel:\n  comm: local\n  threads: 1\n"
                    "log:\n  directory: %s/run\n",
                    fixture_folder, fixture_folder, fixture_folder);
}

typedef struct tally {
    int64_t passed, failed, refused, ill, hints;
    double worst, worst_own;
    char worst_at[256], worst_own_at[256];
} tally;

static void judge(const char *yaml, const random_run *r, tally *n)
{
    ech_config *config = fixture_config_of(yaml, r->words.at);
    const verdict_request request = {
        .config = config, .ranks = r->ranks, .steps = r->steps, .own_precision = true};
    verdict found = verdict_of(&request);
    ech_config_destroy(config);
    if (found.passed)
        n->passed++;
    else if (found.refused)
        n->refused++;
    else if (found.ill)
        n->ill++;
    else
        n->failed++;
    if (!found.passed)
        fprintf(stderr,
                "%s: %s\n    echelon verify %s/run.yaml --ranks %d --steps %lld "
                "--own-precision %s\n",
                found.refused || found.ill ? "left out" : "FAILED", found.why, fixture_folder,
                r->ranks, (long long)r->steps, r->words.at);
    if (found.worst > n->worst) {
        n->worst = found.worst;
        memcpy(n->worst_at, found.worst_at, sizeof n->worst_at);
    }
    if (found.worst_own > n->worst_own) {
        n->worst_own = found.worst_own;
        memcpy(n->worst_own_at, found.worst_own_at, sizeof n->worst_own_at);
    }
}

/* Does what errors' hints say. Returns what is refused even so; NULL: nothing. */
static const char *mend(const char *yaml, random_run *r, int64_t *hints)
{
    const char *why = refusal(yaml, fixture_tokenizer, r);
    for (int i = 0; i < HINTS && why; i++) {
        char error[2000];
        snprintf(error, sizeof error, "%s", why);
        if (!follow_hint(r, error)) break;
        ++*hints;
        why = refusal(yaml, fixture_tokenizer, r);
    }
    return why;
}

static void run_case(const char *yaml, random_run *r, tally *n)
{
    const char *why = mend(yaml, r, &n->hints);
    if (!why) {
        judge(yaml, r, n);
        return;
    }
    n->refused++;
    if (getenv("ECHELON_VERIFY_RANDOM")) print_message("refused: %s\n", why);
}

static void write_run_file(const ech_text *yaml)
{
    char path[300];
    snprintf(path, sizeof path, "%s/run.yaml", fixture_folder);
    assert_int_equal(ech_file_write(path, yaml->at, yaml->n), ECH_OK);
}

static bool keeps_folder; /* for the commands that failed */

TEST(test_random)
{
    const char *asked = getenv("ECHELON_VERIFY_RANDOM"), *comma = asked ? strchr(asked, ',') : NULL;
    int64_t cases = asked ? atoll(asked) : CASES;
    uint64_t seed = comma ? strtoull(comma + 1, NULL, 10) : 1;
    tally n = {0};
    ech_text yaml = {0};
    print_yaml(&yaml);
    write_run_file(&yaml);
    for (int64_t i = 0; i < cases; i++) {
        random_run r = draw(seed, i, asked ? LONG_STEPS : STEPS);
        run_case(yaml.at, &r, &n);
        ech_text_free(&r.words);
    }
    ech_text_free(&yaml);
    print_message("%lld cases: %lld passed, %lld failed, %lld ill-conditioned, %lld refused, "
                  "after %lld hints; worst "
                  "%.1e in fp64 at %s, %.1e in fp32 at %s\n",
                  (long long)cases, (long long)n.passed, (long long)n.failed, (long long)n.ill,
                  (long long)n.refused, (long long)n.hints, n.worst, n.worst_at, n.worst_own,
                  n.worst_own_at);
    keeps_folder = n.failed > 0;
    assert_int_equal(n.failed, 0);
    assert_true(n.passed > cases / 2);
}

/* ---- documents are apart ---- */

/* The logits of a rank's rows in the first training step, call after call. */
typedef struct rows_of_rank {
    ECH_LIST(double) number;
    ECH_LIST(int64_t) end; /* of each row: where it ends there */
} rows_of_rank;

enum { CHANGES = 4 }; /* of no documents, of those of one parity, of the others, of all */

typedef struct recorded {
    rows_of_rank *rank; /* [ranks], which stage replicas and hints may make more than RANKS */
} recorded;

static const ech_kernels *kernels_in_use;
/* What has been computed on this thread since the observer was called last. */
static _Thread_local rows_of_rank computed;

static void record_logits(ech_kernel_context *context, const ech_tensor *logits,
                          const ech_tensor *targets, int64_t first_id, const ech_tensor *stats)
{
    for (int64_t row = 0; row < logits->shape[0]; row++) {
        const double *at = (const double *)logits->data + row * logits->stride[0];
        for (int64_t i = 0; i < logits->shape[1]; i++) ECH_PUSH(computed.number, at[i]);
        ECH_PUSH(computed.end, (int64_t)computed.number.n);
    }
    kernels_in_use->loss_statistics(context, logits, targets, first_id, stats);
}

static void free_rows(rows_of_rank *rows)
{
    free(rows->number.at);
    free(rows->end.at);
    *rows = (rows_of_rank){0};
}

/* Later turns of a list have weights that all documents have changed. */
static void keep_logits(void *context, ech_exec *exec, const ech_step *step)
{
    rows_of_rank *rows = context;
    (void)exec;
    int64_t before = (int64_t)rows->number.n;
    for (size_t i = 0; i < computed.number.n && step->turn == 0; i++)
        ECH_PUSH(rows->number, computed.number.at[i]);
    for (size_t i = 0; i < computed.end.n && step->turn == 0; i++)
        ECH_PUSH(rows->end, before + computed.end.at[i]);
    free_rows(&computed);
}

static ech_status record_step(void *context, int rank, ech_compared_run *c)
{
    recorded *all = context;
    ech_exec_observe(c->session.exec, keep_logits, &all->rank[rank]);
    return ech_exec_run(c->session.exec, ECH_LIST_TRAIN, 0);
}

static ech_status record_rank(ech_comm *comm, const ech_design *design, void *context)
{
    ech_design with = *design;
    ech_kernels recording = *kernels_in_use;
    grid_job job = {record_step, context};
    recording.loss_statistics = record_logits;
    with.kernels = &recording;
    return grid_rank(comm, &with, &job);
}

/* Records the first step with token file number `which`. */
static void record(const char *yaml, const random_run *r, int which, const char *mask,
                   recorded *out)
{
    ECH_FREED_TEXT words = {0};
    ech_text_append(&words, "%s data.train=%s/apart-%d %s", r->words.at, fixture_folder, which,
                    mask);
    ech_config *config = fixture_config_of(yaml, words.at);
    assert_non_null(config);
    ech_status status = fixture_run(config, r->ranks, record_rank, out);
    if (status != ECH_OK) fail_msg("%s: %s", words.at, ech_last_error());
    ech_config_destroy(config);
}

/* Counts rows. */
typedef struct rows_seen {
    int64_t all, changed, mixed; /* mixed: by documents of both parities */
} rows_seen;

/* By how much n numbers differ, over the largest of them. */
static double difference(const double *a, const double *b, int64_t n)
{
    return ech_verifier_error(a, b, n, 0);
}

/* One row with each token file. */
static void see_row(const double *row[CHANGES], int64_t n, rows_seen *seen)
{
    const double odd = fmax(difference(row[1], row[0], n), difference(row[3], row[2], n));
    const double even = fmax(difference(row[2], row[0], n), difference(row[3], row[1], n));
    seen->all++;
    seen->changed += odd > 1e-9 || even > 1e-9;
    seen->mixed += !(odd <= 1e-12) && !(even <= 1e-12);
}

/* A row is of one document: tokens of documents of one parity change it, and of the other never. */
static rows_seen see_rows(const char *yaml, const random_run *r, const char *mask)
{
    recorded with[CHANGES];
    rows_seen seen = {0};
    for (int which = 0; which < CHANGES; which++) {
        with[which].rank = ech_calloc((size_t)r->ranks, sizeof *with[which].rank);
        record(yaml, r, which, mask, &with[which]);
    }
    for (int rank = 0; rank < r->ranks; rank++) {
        const rows_of_rank *rows = &with[0].rank[rank];
        for (int which = 1; which < CHANGES; which++)
            assert_int_equal(with[which].rank[rank].number.n, rows->number.n);
        for (size_t i = 0; i < rows->end.n; i++) {
            int64_t begin = i ? rows->end.at[i - 1] : 0, n = rows->end.at[i] - begin;
            const double *row[CHANGES];
            for (int which = 0; which < CHANGES; which++)
                row[which] = with[which].rank[rank].number.at + begin;
            if (n) see_row(row, n, &seen);
        }
    }
    for (int which = 0; which < CHANGES; which++) {
        for (int rank = 0; rank < r->ranks; rank++) free_rows(&with[which].rank[rank]);
        free(with[which].rank);
    }
    assert_true(seen.changed > seen.all / 2);
    return seen;
}

/* Servers and independent replicas have several versions of weights in a step, and all tokens of a
 * group share its capacity. */
static bool keeps_rows_apart(const random_run *r)
{
    return !says(r, "parallel.strategy") && !says(r, "moe_capacity") && !says(r, "gshard") &&
           !says(r, "offload_delayed");
}

/* Without a mask tokens attend to all earlier tokens, and a document changes others. So the test
 * would see a mask that does not separate documents. */
TEST(test_documents_are_apart)
{
    static const char *const lengths[] = {"data.sequence_length=24", "data.sequence_length=36"};
    const char *asked = getenv("ECHELON_VERIFY_RANDOM"), *comma = asked ? strchr(asked, ',') : NULL;
    int64_t cases = asked ? atoll(asked) : MASKED_CASES, tried = 0, unmasked = 0, hints = 0;
    uint64_t seed = (comma ? strtoull(comma + 1, NULL, 10) : 1) + 1000;
    int64_t rows = 0;
    int contexts = 0, windows = 0, whole = 0;
    ech_text yaml = {0};
    print_yaml(&yaml);
    kernels_in_use = ech_kernels_on("cpu", ECH_F64);
    for (int which = 0; which < CHANGES; which++) {
        char name[20];
        snprintf(name, sizeof name, "apart-%d", which);
        grid_write_file(name, 23, (unsigned)which);
    }
    for (int64_t i = 0; i < cases; i++) {
        random_run r = draw(seed, i, STEPS);
        const char *packing = i / 2 % 2 ? "data.packing=documents" : "data.packing=stream";
        set(&r, "data.document_mask=true");
        set(&r, packing);
        if (i % 3 == 0) set(&r, "model.sliding_window=7");
        set(&r, "precision.compute=fp64");
        set(&r, "parallel.device=cpu");
        set(&r, lengths[i % 2]);
        /* With weights of 0.005 a document hardly attends to anything. */
        set(&r, strstr(r.words.at, "architecture=switch") ? "model.initializer_scale=1"
                                                          : "model.initializer_range=0.2");
        if (keeps_rows_apart(&r) && !mend(yaml.at, &r, &hints) &&
            says(&r, "data.document_mask=true")) {
            rows_seen seen = see_rows(yaml.at, &r, packing);
            if (seen.mixed)
                fail_msg("documents change %lld of %lld rows of others: echelon verify ... "
                         "--ranks %d %s",
                         (long long)seen.mixed, (long long)seen.all, r.ranks, r.words.at);
            rows += seen.all;
            tried++;
            contexts += says(&r, "parallel.context=2") || says(&r, "parallel.context=3");
            windows += says(&r, "model.sliding_window");
            whole += says(&r, "data.packing=documents");
            bool mixes =
                see_rows(yaml.at, &r, "data.packing=stream data.document_mask=false").mixed > 0;
            if (!mixes)
                print_message("without a mask, too, documents change no others: --ranks %d %s\n",
                              r.ranks, r.words.at);
            unmasked += mixes;
        }
        ech_text_free(&r.words);
    }
    ech_text_free(&yaml);
    print_message(
        "%lld cases with masks of documents, %d of them over context ranks, %d with windows, %d "
        "with whole documents: %lld rows; without masks documents change others in %lld cases\n",
        (long long)tried, contexts, windows, whole, (long long)rows, (long long)unmasked);
    /* The only sample of a run may have one document, or be changed in its last: 3 of 253. */
    assert_true(tried > cases / 3 && contexts > 0 && windows > 0 && 100 * unmasked >= 95 * tried);
    assert_true(whole > 0 && whole < tried);
}

static int teardown(void **state)
{
    return keeps_folder ? 0 : fixture_teardown(state);
}

ALL_TESTS(grid_setup, teardown)
