/* SPDX-License-Identifier: Apache-2.0
 *
 * The rules by which a grid fits a model, its batch and the number of ranks.
 */
#include "layout/grid.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/divisor.h"
#include "comm/collective.h"
#include "config/rules.h"
#include "config/strategy.h"
#include "model/model.h"

int64_t ech_nearest_multiple(int64_t n, int64_t step)
{
    int64_t below = n / step * step;
    if (below == 0) return step;
    return n - below <= below + step - n ? below : below + step;
}

int64_t ech_saturating_product(int64_t a, int64_t b)
{
    return a > INT64_MAX / b ? INT64_MAX : a * b;
}

/* ---- grids ---- */

ech_grid_problem ech_grid_problem_of(const ech_config *config, int64_t blocks, int64_t world,
                                     const ech_layout_filter *filter)
{
    const ech_config_list *list = &config->parallel.stage_replicas;
    int64_t servers = ech_strategy_servers(config);
    ech_grid_problem p = {.config = config,
                          .blocks = blocks,
                          .world = world - servers,
                          .servers = servers,
                          .evaluators = config->parallel.evaluators,
                          .filter = filter};
    p.listed = list->n;
    p.most = p.least = p.listed ? list->at[0] : 0;
    for (int s = 0; s < p.listed; s++) {
        p.sum += list->at[s];
        if (list->at[s] > p.most) p.most = list->at[s];
        if (list->at[s] < p.least) p.least = list->at[s];
    }
    return p;
}

int64_t ech_grid_ranks(const ech_grid_problem *p, int64_t world)
{
    return world + p->servers + p->evaluators;
}

ech_grid ech_grid_asked(const ech_grid_problem *p)
{
    int64_t stages = p->config->parallel.pipeline;
    if (p->listed) stages = p->listed;
    return (ech_grid){.pipeline = stages == ECH_AUTO ? 1 : stages,
                      .data = p->listed ? ECH_GRID_LISTED : p->config->parallel.data,
                      .context = p->config->parallel.context,
                      .tensor = p->config->parallel.tensor};
}

/* Ranks of a replica. */
static int64_t replica_of(const ech_grid *g)
{
    return g->context * g->tensor;
}

ech_grid ech_grid_fill(const ech_grid_problem *p, ech_grid grid)
{
    int64_t others = ech_saturating_product(replica_of(&grid), grid.pipeline);
    if (grid.data == ECH_AUTO && p->world % others == 0) grid.data = p->world / others;
    return grid;
}

static int64_t ranks_of(const ech_grid_problem *p, const ech_grid *g)
{
    int64_t replicas = g->data == ECH_GRID_LISTED ? p->sum : g->pipeline * g->data;
    return ech_saturating_product(replicas, replica_of(g));
}

int64_t ech_grid_micro_batch(const ech_grid_problem *p, const ech_grid *g)
{
    int64_t samples = p->config->training.global_batch_size;
    int64_t b = p->config->training.micro_batch_size;
    if (b != ECH_AUTO) return b;
    if (g->data != ECH_GRID_LISTED) return samples / g->data;
    return ech_largest_divisor(samples, samples / p->most > 0 ? samples / p->most : 1);
}

/* ---- rules ---- */

static bool refuse(ech_grid_refusal *refusal, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Always false. */
static bool refuse(ech_grid_refusal *refusal, const char *key, const char *format, ...)
{
    char text[512];
    if (!refusal) return false;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    refusal->key = key;
    ech_text_append(refusal->why, "%s", text);
    return false;
}

typedef long long number; /* for printf */

static bool rule_tensor(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    const char *key = "parallel.tensor";
    number t = g->tensor, heads = p->config->model.num_attention_heads;
    number key_value = p->config->model.num_key_value_heads;
    number width = p->config->model.intermediate_size, vocabulary = p->config->model.vocab_size;
    number experts = p->config->model.moe_intermediate_size;
    if (heads % t)
        return refuse(refusal, key, "%lld tensor ranks do not divide %s", t,
                      ECH_COUNT(heads, "attention head"));
    if (key_value % t && t % key_value)
        return refuse(refusal, key, "%lld tensor ranks neither divide %s nor are a multiple of %s",
                      t, ECH_COUNT(key_value, "key/value head"), key_value == 1 ? "it" : "them");
    if (width % t)
        return refuse(refusal, key, "%lld tensor ranks do not divide a feed-forward width of %lld",
                      t, width);
    if (p->config->model.num_local_experts > 0 && experts % t)
        return refuse(refusal, key, "%lld tensor ranks do not divide a width of experts of %lld", t,
                      experts);
    if (t > vocabulary)
        return refuse(refusal, key, "%lld tensor ranks for a vocabulary of %lld", t, vocabulary);
    return true;
}

/* Under Ulysses, ranks have all tokens of their heads during attention. */
static bool divides_heads(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    number heads = p->config->model.num_attention_heads;
    number key_value = p->config->model.num_key_value_heads;
    if (heads % replica_of(g) == 0 && key_value % replica_of(g) == 0) return true;
    return refuse(refusal, "parallel.context",
                  "%lld context x %lld tensor ranks do not divide %s, as parallel.context_method = "
                  "ulysses needs",
                  (number)g->context, (number)g->tensor,
                  heads % replica_of(g) ? ECH_COUNT(heads, "attention head")
                                        : ECH_COUNT(key_value, "key/value head"));
}

static bool rule_context(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    number c = g->context, tokens = p->config->data.sequence_length;
    bool ring = p->config->parallel.context_method == ECH_CONTEXT_RING;
    if (c == 1) return true;
    if (tokens % c)
        return refuse(refusal, "parallel.context", "%lld context ranks do not divide %s", c,
                      ECH_COUNT(tokens, "token"));
    if (ring && tokens % (2 * c))
        return refuse(refusal, "parallel.context",
                      "each of %lld context ranks of a ring has two chunks of a sequence, and "
                      "%lld tokens do not divide by 2 x %lld",
                      c, tokens, c);
    return ring || divides_heads(p, g, refusal);
}

static bool rule_together(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    ech_config config = *p->config; /* its texts belong to the other configuration */
    config.parallel.pipeline = g->pipeline;
    config.parallel.context = g->context;
    config.parallel.tensor = g->tensor;
    config.training.micro_batch_size = ech_grid_micro_batch(p, g);
    const ech_rule *broken = ech_rule_broken(&config, ECH_RULES_OF_GRID);
    if (!broken || !refusal) return !broken;
    refusal->key = ech_rule_explain(broken, &config, refusal->why);
    return false;
}

/* ---- ranks ---- */

/* The number of ranks nearest to the actual one on which the requested degrees work; 0: none is
 * near. */
static int64_t fitting_world(const ech_grid_problem *problem)
{
    enum { MOST_TRIES = 64 };
    ech_grid_problem p = *problem;
    ech_grid asked = ech_grid_asked(&p);
    bool open = asked.data == ECH_AUTO;
    int64_t others = ech_saturating_product(replica_of(&asked), asked.pipeline), found = 0;
    if (others > INT32_MAX) return 0;
    int64_t middle = open ? p.world / others : 1, tries = open ? MOST_TRIES : 0;
    for (int64_t d = middle > tries ? middle - tries : 1; d <= middle + tries; d++) {
        ech_grid grid = asked;
        if (open) grid.data = d;
        p.world = ranks_of(&p, &grid);
        if (!ech_grid_is_offered(&p, &grid)) continue;
        if (!found || llabs(p.world - problem->world) < llabs(found - problem->world))
            found = p.world;
    }
    return found;
}

/* `otherwise`: another remedy; NULL: none. Always false. */
static bool refuse_ranks(const ech_grid_problem *p, const char *otherwise,
                         ech_grid_refusal *refusal)
{
    if (!refusal) return false;
    int64_t world = fitting_world(p);
    if (world)
        ech_text_append(refusal->why, "; use --ranks %lld", (number)ech_grid_ranks(p, world));
    if (otherwise) ech_text_append(refusal->why, "%s%s", world ? ", or " : "; ", otherwise);
    return false;
}

static bool rule_replica(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    number c = g->context, t = g->tensor, world = p->world;
    bool tensor = world % t;
    const char *key = tensor ? "parallel.tensor" : "parallel.context";
    if (world % (c * t) == 0) return true;
    if (tensor || t == 1)
        refuse(refusal, key, "%lld %s ranks do not divide %s", tensor ? t : c,
               tensor ? "tensor" : "context", ECH_COUNT(world, "rank"));
    else
        refuse(refusal, key, "%lld context x %lld tensor ranks do not divide %s", c, t,
               ECH_COUNT(world, "rank"));
    return refuse_ranks(p, NULL, refusal);
}

static const char *longest_key(const ech_grid *g)
{
    if (g->data == ECH_GRID_LISTED) return "parallel.stage_replicas";
    if (g->pipeline > 1) return "parallel.pipeline";
    return g->data > 1 || replica_of(g) == 1 ? "parallel.data"
           : g->tensor > 1                   ? "parallel.tensor"
                                             : "parallel.context";
}

static const char *besides(const ech_grid_problem *p)
{
    if (p->servers && p->evaluators) return " besides servers and evaluators";
    return p->servers ? " besides servers" : p->evaluators ? " besides evaluators" : "";
}

static bool rule_ranks(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    number world = p->world, each = replica_of(g), stages = g->pipeline;
    if (g->data == ECH_AUTO) {
        if (each == 1)
            refuse(refusal, "parallel.pipeline", "%lld stages do not divide %s", stages,
                   ECH_COUNT(world, "rank"));
        else
            refuse(refusal, "parallel.pipeline",
                   "%s of %lld ranks each (context x tensor) do not divide %s",
                   ECH_COUNT(stages, "stage"), each, ECH_COUNT(world, "rank"));
        return refuse_ranks(p, NULL, refusal);
    }
    number ranks = ranks_of(p, g);
    const char *were = world == 1 ? "was" : "were";
    if (ranks == world) return true;
    if (g->data == ECH_GRID_LISTED && each == 1)
        refuse(refusal, longest_key(g), "needs %s, and %lld %s started", ECH_COUNT(ranks, "rank"),
               world, were);
    else if (g->data == ECH_GRID_LISTED)
        refuse(refusal, longest_key(g),
               "%s of %lld ranks each (context x tensor) need %lld ranks, and %lld %s "
               "started",
               ECH_COUNT(p->sum, "replica"), each, ranks, world, were);
    else
        refuse(refusal, longest_key(g),
               "pipeline %lld x data %lld x context %lld x tensor %lld needs %s, and %lld %s "
               "started%s",
               stages, (number)g->data, (number)g->context, (number)g->tensor,
               ECH_COUNT(ranks, "rank"), world, were, besides(p));
    ech_grid open = *g;
    open.data = ECH_AUTO;
    open = ech_grid_fill(p, open);
    bool may_be_open =
        g->data != ECH_GRID_LISTED && open.data != ECH_AUTO && ech_grid_is_offered(p, &open);
    return refuse_ranks(p, may_be_open ? "leave parallel.data out" : NULL, refusal);
}

/* ---- stages ---- */

static bool rule_stages(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    number v = p->config->parallel.virtual_stages, stages = g->pipeline * v;
    if (stages <= p->blocks) return true;
    /* If there are more stages than blocks, no number of virtual stages works, and vice versa. */
    bool is_virtual = v > 1 && (g->pipeline <= p->blocks || v > p->blocks);
    int64_t most = p->blocks / (is_virtual ? g->pipeline : v);
    ECH_FREED_TEXT blocks = {0};
    ech_text_append(&blocks, "%s", ECH_COUNT(p->blocks, "block"));
    if (ech_model_reads_texts(p->config) && p->blocks > 2)
        ech_text_append(&blocks, " (embedding, %s, head)", ECH_COUNT(p->blocks - 2, "layer"));
    return refuse(refusal, is_virtual ? "parallel.virtual_stages" : "parallel.pipeline",
                  "%lld stages%s for %s: at most %s", stages,
                  v > 1 ? " (pipeline x virtual_stages)" : "", blocks.at,
                  ECH_COUNT(most > 1 ? most : 1, is_virtual ? "virtual stage" : "stage"));
}

/* ---- experts ---- */

/* True if an expert group of e ranks is e of a replica's context ranks, or all context ranks of
 * several replicas. */
static bool has_groups(const ech_grid *g, int64_t e)
{
    if (e <= g->context) return g->context % e == 0;
    return g->data != ECH_GRID_LISTED && e % g->context == 0 && g->data % (e / g->context) == 0;
}

static bool rule_experts(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    const char *key = "parallel.expert";
    number e = p->config->parallel.expert, experts = p->config->model.num_local_experts, fits = e;
    if (e == 1) return true;
    while (!has_groups(g, fits) || experts % fits) fits--;
    if (experts % e)
        return refuse(refusal, key, "%lld expert ranks do not divide %s; %lld would", e,
                      ECH_COUNT(experts, "expert"), fits);
    if (fits == e) return true;
    if (e > g->context && g->data == ECH_GRID_LISTED)
        return refuse(refusal, key,
                      "%lld expert ranks are more than the %lld context ranks of a replica, and "
                      "replicas of parallel.stage_replicas run other micro-batches; use %lld",
                      e, (number)g->context, fits);
    if (e <= g->context)
        return refuse(refusal, key,
                      "%lld expert ranks do not divide %lld context ranks; %lld would", e,
                      (number)g->context, fits);
    return refuse(refusal, key,
                  "%lld expert ranks are not all context ranks of several replicas (data %lld x "
                  "context %lld); %lld would be",
                  e, (number)g->data, (number)g->context, fits);
}

/* Up to three ranks are one row. */
static bool form_torus(int64_t ranks)
{
    return ranks < 4 || ranks > INT32_MAX || ech_torus_columns((int)ranks) < ranks;
}

static bool rule_torus(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    const ech_config_list *list = &p->config->parallel.stage_replicas;
    if (p->config->parallel.reduction != ECH_REDUCTION_TORUS) return true;
    for (int s = 0; s < (p->listed ? p->listed : 1); s++) {
        int64_t ranks = (p->listed ? list->at[s] : g->data) * g->context;
        if (form_torus(ranks)) continue;
        return refuse(refusal, "parallel.reduction",
                      "%lld data x context ranks form no torus, of rows and columns of at least "
                      "two; %lld or %lld would, or use direct or ring",
                      (number)ranks, (number)(ranks - 1), (number)(ranks + 1));
    }
    return true;
}

static bool rule_partition(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    int64_t v = p->config->parallel.virtual_stages;
    int n = p->config->parallel.partition.n;
    if (n == 0 || n == g->pipeline * v) return true;
    return refuse(refusal, "parallel.partition", "%s for %s%s: one each", ECH_COUNT(n, "number"),
                  ECH_COUNT(g->pipeline * v, "stage"), v > 1 ? " (pipeline x virtual_stages)" : "");
}

/* ---- samples ---- */

/* Loads of replicas may differ by one micro-batch if each stage has its own number of replicas;
 * each replica needs at least one. */
static bool rule_batch(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    const char *key = "training.global_batch_size";
    bool listed = g->data == ECH_GRID_LISTED;
    number samples = p->config->training.global_batch_size, data = listed ? 1 : g->data;
    number b = ech_grid_micro_batch(p, g), least = listed ? p->most : 1;
    if (samples % data)
        refuse(refusal, key, "does not divide by parallel.data = %lld", data);
    else if (samples % (b * data) && listed)
        refuse(refusal, key, "does not divide by micro_batch_size = %lld", b);
    else if (samples % (b * data))
        refuse(refusal, key, "does not divide by micro_batch_size x data = %lld x %lld", b, data);
    else if (samples / b < least)
        refuse(refusal, key,
               "makes %s of %s for a stage of %lld replicas; at least %lld are needed",
               ECH_COUNT(samples / b, "micro-batch"), ECH_COUNT(b, "sample"), least, least);
    else
        return true;
    number nearest = refusal ? ech_grid_nearest_batch(p, g) : 0;
    if (nearest) ech_text_append(refusal->why, "; %lld would", nearest);
    return false;
}

static bool rule_groups(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    number b = ech_grid_micro_batch(p, g), samples = p->config->model.moe_group_samples;
    if (b % samples == 0) return true;
    return refuse(refusal, "model.moe_group_samples",
                  "balance groups of %lld samples cross micro-batches of %lld; %lld would not",
                  samples, b, (number)ech_largest_divisor(b, samples));
}

/* Tokens of a sample that a rank has at a time. */
static int64_t tokens_of(const ech_grid_problem *p, const ech_grid *g)
{
    return p->config->data.sequence_length / (g->context * p->config->memory.sequence_chunks);
}

static bool rule_rows(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    bool sequence = p->config->parallel.sequence != ECH_SEQUENCE_FALSE;
    if (g->tensor == 1 || (!sequence && p->config->parallel.expert < 2)) return true;
    number b = ech_grid_micro_batch(p, g);
    number tokens = tokens_of(p, g);
    if (b * tokens % g->tensor == 0) return true;
    return refuse(refusal, sequence ? "parallel.sequence" : "parallel.expert",
                  "%lld tensor ranks do not divide the %s that a micro-batch has at a time "
                  "(micro_batch_size %lld x %s)",
                  (number)g->tensor, ECH_COUNT(b * tokens, "row"), b, ECH_COUNT(tokens, "token"));
}

/* Libraries count rows in 32 bits. */
static bool rule_counts(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    number b = ech_grid_micro_batch(p, g);
    number tokens = tokens_of(p, g);
    if (tokens == 0 || b <= INT32_MAX / tokens) return true;
    return refuse(
        refusal, "training.micro_batch_size",
        "%s of %s each are more than the %d rows that kernels can count; use at most %lld",
        ECH_COUNT(b, "sample"), ECH_COUNT(tokens, "token"), INT32_MAX, INT32_MAX / tokens);
}

/* The least multiple of b that makes at most `most` of `each` micro-batches. */
static number larger_micro_batch(int64_t b, int64_t each, int64_t most)
{
    return each / ech_largest_divisor(each, most) * b;
}

static bool rule_runs(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal)
{
    int64_t b = ech_grid_micro_batch(p, g), chunks = p->config->memory.sequence_chunks;
    int64_t least = g->data == ECH_GRID_LISTED ? p->least : g->data;
    int64_t each = (p->config->training.global_batch_size / b + least - 1) / least;
    int64_t own = (p->blocks + g->pipeline - 1) / g->pipeline;
    if (chunks > ECH_MOST_BLOCK_RUNS / own)
        return refuse(
            refusal, "memory.sequence_chunks",
            "%s of %s make more runs of blocks than the %d that a rank's plan can hold; use %lld "
            "or fewer, or more stages",
            ECH_COUNT(chunks, "sequence chunk"), ECH_COUNT(own, "block"), ECH_MOST_BLOCK_RUNS,
            (number)ech_largest_divisor(p->config->data.sequence_length,
                                        ECH_MOST_BLOCK_RUNS / own));
    own *= chunks;
    if (each <= ECH_MOST_BLOCK_RUNS / own) return true;
    return refuse(refusal, "training.global_batch_size",
                  "%s x %s on a rank are more than the %d that its plan can hold; use "
                  "training.micro_batch_size = %lld, or more ranks",
                  ECH_COUNT(each, "micro-batch"), ECH_COUNT(own, "block run"), ECH_MOST_BLOCK_RUNS,
                  larger_micro_batch(b, each, ECH_MOST_BLOCK_RUNS / own));
}

/* ---- all rules ---- */

static const struct {
    bool (*holds)(const ech_grid_problem *p, const ech_grid *g, ech_grid_refusal *refusal);
    ech_grid_scope scope;
} rules[] = {
#define X(name, scope, meaning) {rule_##name, ECH_GRID_##scope},
#include "layout/grid_rules.def"
};

bool ech_grid_works(const ech_grid_problem *problem, const ech_grid *grid, ech_grid_scope scope,
                    ech_grid_refusal *refusal)
{
    for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
        if (rules[r].scope <= scope && !rules[r].holds(problem, grid, refusal)) return false;
    return true;
}

ech_status ech_grid_check(const ech_grid_problem *problem, ech_grid grid, ech_grid_scope scope)
{
    ECH_FREED_TEXT why = {0};
    ech_grid_refusal refusal = {.why = &why};
    ech_grid filled = ech_grid_fill(problem, grid);
    if (ech_grid_works(problem, &filled, scope, &refusal)) return ECH_OK;
    ech_grid_print_nearest(problem, grid, &why);
    return ech_config_complain(problem->config, refusal.key, "%s", why.at);
}
