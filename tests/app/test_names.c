/* SPDX-License-Identifier: Apache-2.0
 *
 * Every value of every key works by itself, with all other keys at their defaults: it is planned
 * on 1, 2 and 4 ranks, or it is refused for something that only the user can decide. Each such
 * decision is a row below. With the assignments of that row the value is planned.
 *
 * ECHELON_NAMES=train: each value also trains two steps, and verify compares them with one rank.
 */

#include "app/random_run.h"
#include "app/verdict.h"
#include "share.h"
#include "unit.h"

enum { MOST_CONTEXTS = 64, MOST_WORDS = 8, STEPS = 2 };

/* A value that needs a decision of the user. `key` may end with '*'. */
typedef struct decision {
    const char *key, *value; /* value NULL: any */
    const char *says;        /* part of the error */
    const char *with; /* assignments with which it works, separated by '|'; NULL: none here */
    int ranks;        /* ranks with which it then works; 0: the same; -1: as the error says */
} decision;

#define MIXTRAL  "model.architecture=mixtral"
#define PS       "parallel.strategy=parameter_server"
#define TOGETHER "reduces gradients in every step"
#define RING     "only parallel.strategy = hogwild_ring has"
#define STAGES   "parallel.pipeline=2|training.micro_batch_size=1"

static const decision decisions[] = {
    /* sizes that exclude each other */
    {"model.hidden_size", "2", "does not divide model.hidden_size", "model.num_attention_heads=1",
     0},
    {"model.max_position_embeddings", "2", "longer than", "data.sequence_length=2", 0},
    {"model.vocab_size", "2", "smaller than the vocabulary of tokenizer", NULL, 0},
    {"training.global_batch_size", "2", "does not divide by", "", 2},
    {"training.micro_batch_size", "2", "does not divide by", "training.global_batch_size=16", 0},
    {"optimizer.min_learning_rate", NULL, "above optimizer.learning_rate",
     "optimizer.learning_rate=3", 0},
    {"memory.device_limit", "2", "needs", "memory.device_limit=64MiB", 0},
    {"memory.host_limit", "2", "needs", "memory.host_limit=64MiB", 0},
    /* numbers of ranks */
    {"parallel.strategy", "one_device", "use --ranks 1", "", 1},
    {"parallel.strategy", NULL, "leaves no worker; start more ranks", "", 2},
    {"parallel.data", NULL, "ranks", "", -1},
    {"parallel.tensor", "2", "rank", "", 2},
    {"parallel.context", "2", "rank", "", 2},
    {"parallel.pipeline", "2", "rank", "", 2},
    {"parallel.evaluators", "2", "none to train", "data.split=8,2,0", 4},
    /* devices, files and texts that must be there */
    {"parallel.comm", "nccl", "parallel.device = cuda", "parallel.device=cuda", 0},
    {"precision.tf32", "true", "parallel.device = cuda", "parallel.device=cuda", 0},
    {"parallel.partition", "auto", "echelon profile", NULL, 0},
    {"model.rope_scaling", "longrope", "positive numbers",
     "model.rope_scaling_short_factor=1 1 1 1|model.rope_scaling_long_factor=1 1 1 1", 0},
    {"parallel.evaluators", NULL, "need validation data", "data.split=8,2,0", 4},
    {"checkpoint.keep_best", NULL, "no validation data", "data.split=8,2,0", 0},
    {"training.patience", NULL, "set training.validate_every",
     "data.split=8,2,0|training.validate_every=2", 0},
    {"training.min_improvement", NULL, "set training.patience",
     "training.patience=1|data.split=8,2,0|training.validate_every=2", 0},
    {"log.sample_every", NULL, "set log.sample", "log.sample=Once", 0},
    {"training.epochs", NULL, "training.steps is set, too", NULL, 0},
    {"optimizer.*", NULL, "not read by optimizer.relative_step = true", NULL, 0},
    /* what is trained: constants of families, which a mapping file states */
    {"model.norm", NULL, "not read by", NULL, 0},
    {"model.norm_placement", NULL, "not read by", NULL, 0},
    {"model.head_norm", NULL, "not read by", NULL, 0},
    {"model.position_encoding", NULL, "not read by", NULL, 0},
    {"model.parallel_residual", NULL, "not read by", NULL, 0},
    {"model.initialization", NULL, "not read by", NULL, 0},
    /* what keeps less, and of what */
    {"memory.encode", "lossless", "model.hidden_act = relu",
     "model.architecture=gpt2|model.hidden_act=relu", 0},
    {"memory.encode_norms", "true", "set memory.encode = fp16", "memory.encode=fp16", 0},
    {"memory.encode_density", NULL, "set memory.encode = lossless",
     "model.architecture=gpt2|model.hidden_act=relu|memory.encode=lossless", 0},
    /* of families of images */
    {"model.architecture", NULL, "required but not set: model.image_height", NULL, 0},
    {"data.crop_padding", NULL, "not read by", NULL, 0},
    {"data.flip", NULL, "not read by", NULL, 0},
    {"model.image_*", NULL, "not read by", NULL, 0},
    {"model.num_classes", NULL, "not read by", NULL, 0},
    {"model.weight_layers", NULL, "not read by", NULL, 0},
    {"model.base_channels", NULL, "not read by", NULL, 0},
    {"model.small_stem", NULL, "not read by", NULL, 0},
    {"model.pre_activation", NULL, "not read by", NULL, 0},
    {"model.norm_samples", NULL, "not read by", NULL, 0},
    {"model.norm_sync", NULL, "not read by", NULL, 0},
    {"model.classifier_dropout", NULL, "not read by", NULL, 0},
    {"training.label_smoothing", NULL, "not read by", NULL, 0},
    /* how it is trained: the option of a technique that changes results does not choose it */
    {"memory.invert", "true", "set model.reversible = true", "model.reversible=true", 0},
    {"data.long_documents", "drop", "set data.packing = documents", "data.packing=documents", 0},
    {"data.shares", "2", "set data.shards = static",
     "data.shards=static|training.micro_batch_size=1", 0},
    {"lora.*", NULL, "lora.rank", "lora.rank=2", 0},
    {"parallel.sync_every", NULL, TOGETHER, "parallel.strategy=local_sgd|training.steps=22", 0},
    {"parallel.outer_*", NULL, TOGETHER, "parallel.strategy=diloco", 0},
    {"parallel.server_sync", "false", "set parallel.strategy = asp", "parallel.strategy=asp", 4},
    {"parallel.servers", "2", "set parallel.strategy = parameter_server", PS, 4},
    {"parallel.backup_workers", "2", "set parallel.strategy = parameter_server", PS, 4},
    {"parallel.staleness", NULL, "set parallel.strategy = ssp", "parallel.strategy=ssp", 4},
    {"parallel.cluster_ranks", "2", RING, "parallel.strategy=hogwild_ring", 4},
    {"parallel.token_*", NULL, RING, "parallel.strategy=hogwild_ring", 0},
    {"parallel.expert", "2", "use model.architecture = mixtral", MIXTRAL, 4},
    {"parallel.virtual_stages", "2", "parallel.schedule = interleaved",
     "parallel.schedule=interleaved|" STAGES, 4},
    {"parallel.vertical_sync", "true", "set parallel.schedule = pipedream",
     "parallel.schedule=pipedream|" STAGES, 4},
    {"parallel.weight_stashing", "false", "set parallel.schedule = pipedream",
     "parallel.schedule=pipedream|" STAGES, 4},
    {"parallel.compression_density", NULL, "set parallel.compression = topk",
     "parallel.compression=topk", 0},
    {"parallel.compression_*", NULL, "set parallel.compression = powersgd",
     "parallel.compression=powersgd", 0},
    {"memory.offload_activations", "peer", "use more stages and micro-batches",
     "parallel.pipeline=4|training.micro_batch_size=1", 4},
    /* options of rope scalings, of gates and of experts */
    {"model.rope_scaling_high_freq_factor", "0", "not read by", NULL, 0},
    {"model.rope_scaling_high_freq_factor", "0.5", "not read by", NULL, 0},
    {"model.rope_scaling_beta_fast", "0.5", "not read by", NULL, 0},
    {"model.kv_lora_rank", "0", "not read by", NULL, 0},
    {"model.moe_shared_gate", "true", "not read by",
     "model.architecture=switch|model.moe_shared_experts=1", 0},
    {"model.moe_gshard_ports", "true", "not read by", MIXTRAL "|model.moe_gate=gshard", 0},
    {"model.topk_group", "2", "not read by", MIXTRAL "|model.moe_gate=hierarchical", 0},
    {"model.moe_group_samples", "2", "not read by",
     MIXTRAL "|model.moe_capacity_factor=1|training.micro_batch_size=2|"
             "training.global_batch_size=16",
     0},
    {"model.router_importance_coef", NULL, "not read by", MIXTRAL "|model.moe_gate=noisy_topk", 0},
    {"model.router_load_coef", NULL, "not read by", MIXTRAL "|model.moe_gate=noisy_topk", 0},
    {"model.moe_bound", "0.5", "not read by", NULL, 0},
};
enum { DECISIONS = sizeof decisions / sizeof *decisions };

static int decided[DECISIONS];
static char contexts[MOST_CONTEXTS][80];
static int n_contexts, surprises;

static const char run_file[] =
    "model: {architecture: llama, hidden_size: 32, num_hidden_layers: 4, num_attention_heads: 4,\n"
    "  vocab_size: 257}\n"
    "data: {train: %s/train, sequence_length: 8}\n"
    "training: {steps: 4, global_batch_size: 12}\n"
    "optimizer: {learning_rate: 1e-3}\n"
    "log: {directory: %s/run}\n";

static char yaml[1200];

/* ---- one run ---- */

/* The configuration of the run file with assignments separated by '|'. */
static ech_config *config_of(const char *words)
{
    char *copy = strdup(words), *rest = NULL, *assignment[MOST_WORDS];
    int n = 0;
    ech_config *config = NULL;
    for (char *word = strtok_r(copy, "|", &rest); word; word = strtok_r(NULL, "|", &rest)) {
        assert_true(n < MOST_WORDS);
        assignment[n++] = word;
    }
    ech_clear_error();
    ech_status status = ech_setup_config_text(yaml, "run.yaml", assignment, n, &config);
    free(copy);
    return status == ECH_OK ? config : NULL;
}

/* The first and the last rank have a plan. */
static ech_status plan_ends(const ech_design *design)
{
    int last = design->world - 1;
    for (int rank = 0; rank <= last; rank += last > 0 ? last : 1) {
        ech_plan *plan = NULL;
        ech_status status = ech_design_plan(design, rank, false, &plan);
        ech_plan_destroy(plan);
        if (status != ECH_OK) return status;
    }
    return ECH_OK;
}

/* NULL: all ranks have a plan; else why not. */
static const char *why_not(const char *words, int ranks)
{
    ech_design design = {0};
    ech_config *config = config_of(words);
    ech_status status =
        config ? ech_design_create(config, fixture_tokenizer, ranks, ranks, &design) : ECH_EUSAGE;
    if (status == ECH_OK) status = plan_ends(&design);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return status == ECH_OK ? NULL : ech_last_error();
}

static bool trains(void)
{
    const char *wanted = getenv("ECHELON_NAMES");
    return wanted && strcmp(wanted, "train") == 0;
}

/* In the long form: training agrees with one rank, or is counted as a surprise. */
static void train(const char *words, int ranks)
{
    char more[600];
    bool elsewhere = strstr(words, "parallel.comm=") || strstr(words, "parallel.device=") ||
                     strstr(words, "parallel.reduction=library"); /* of MPI or NCCL */
    /* A weight without gradients is then updated by 0 / 0. */
    elsewhere |= strstr(words, "optimizer.eps=0") != NULL;
    if (!trains() || elsewhere) return;
    snprintf(more, sizeof more, "%s|parallel.threads=1|parallel.comm=local", words);
    ech_config *config = config_of(more);
    assert_non_null(config);
    verdict found =
        verdict_of(&(verdict_request){.config = config, .ranks = ranks, .steps = STEPS});
    ech_config_destroy(config);
    if (found.passed) return;
    fprintf(stderr, "%s on %d ranks: %s\n", words, ranks, found.why);
    surprises++;
}

/* ---- values of keys ---- */

static void add_contexts(const char *key)
{
    ech_config *config = config_of("");
    char *names = strdup(ech_config_key_choices(config, key)), *rest = NULL;
    for (char *name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
        assert_true(n_contexts < MOST_CONTEXTS);
        snprintf(contexts[n_contexts++], sizeof *contexts, "|%s=%s", key, name);
    }
    free(names);
    ech_config_destroy(config);
}

/* Some choice of another key reads this one and has a plan. */
static bool works_somewhere(const char *word, int ranks)
{
    static int found; /* the next value is probably read there, too */
    for (int i = 0; i < n_contexts; i++) {
        char words[400];
        int context = (found + i) % n_contexts;
        snprintf(words, sizeof words, "%s%s", word, contexts[context]);
        if (why_not(words, ranks)) continue;
        found = context;
        return true;
    }
    return false;
}

static bool is_unread(const char *why)
{
    return strstr(why, ": not read by ") || strstr(why, ": not a property of ");
}

static bool names(const decision *d, const char *key, const char *value)
{
    size_t n = strcspn(d->key, "*");
    bool is_key = d->key[n] ? strncmp(d->key, key, n) == 0 : strcmp(d->key, key) == 0;
    return is_key && (!d->value || strcmp(d->value, value) == 0);
}

/* Whether a row knows this refusal. With its assignments the value has a plan. */
static bool is_decided(const char *key, const char *value, int ranks, const char *why)
{
    for (int i = 0; i < DECISIONS; i++) {
        const decision *d = &decisions[i];
        char words[500], said[1200];
        if (!names(d, key, value) || !strstr(why, d->says)) continue;
        decided[i]++;
        if (!d->with || d->ranks < 0) return true;
        snprintf(said, sizeof said, "%s", why);
        snprintf(words, sizeof words, "%s=%s|%s", key, value, d->with);
        int n = d->ranks ? d->ranks : ranks;
        const char *again = why_not(words, n);
        if (again) fail_msg("%s on %d ranks, after\n  %s:\n  %s", words, n, said, again);
        return true;
    }
    return false;
}

static void try_value(const char *key, const char *value)
{
    static const int all[] = {1, 2, 4};
    char word[300];
    snprintf(word, sizeof word, "%s=%s", key, value);
    for (int i = 0; i < 3; i++) {
        const char *why = why_not(word, all[i]);
        if (!why) {
            train(word, all[i]);
            continue;
        }
        char said[1200];
        snprintf(said, sizeof said, "%s", why);
        if (strstr(said, "out of bounds") || strstr(said, "not a whole number")) return;
        if (is_decided(key, value, all[i], said)) continue;
        if (is_unread(said) && works_somewhere(word, all[i])) continue;
        fprintf(stderr, "%s on %d ranks: %s\n", word, all[i], said);
        surprises++;
    }
}

static void try_words(const char *key, const char *words)
{
    char *copy = strdup(words), *rest = NULL;
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        try_value(key, word);
    free(copy);
}

static void try_key(const ech_config_about *about)
{
    char key[100];
    snprintf(key, sizeof key, "%s.%s", about->section, about->name);
    ech_config *config = config_of("");
    char *choices = strdup(ech_config_key_choices(config, key));
    ech_config_destroy(config);
    try_words(key, choices);
    free(choices);
    if (strcmp(about->type, "BOOL") == 0) try_words(key, "true false");
    if (strcmp(about->fallback, "auto") == 0) try_words(key, "auto");
    if (ech_text_has_word("INT REAL SIZE TIME", about->type)) try_words(key, "0 2");
    if (strcmp(about->type, "REAL") == 0) try_words(key, "0.5");
}

TEST(every_value_works_by_itself)
{
    ech_config_about about;
    snprintf(yaml, sizeof yaml, run_file, fixture_folder, fixture_folder);
    add_contexts("model.architecture");
    add_contexts("optimizer.name");
    add_contexts("optimizer.schedule");
    add_contexts("model.rope_scaling");
    for (int k = 0; ech_config_about_key(k, &about); k++)
        if (share_takes()) try_key(&about);
    assert_int_equal(surprises, 0);
    for (int i = 0; i < DECISIONS && share_read().of == 1; i++)
        if (!decided[i]) fail_msg("no value needs the decision about %s", decisions[i].key);
}

ALL_TESTS(fixture_setup, fixture_teardown)
