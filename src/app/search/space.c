/* SPDX-License-Identifier: Apache-2.0
 *
 * The candidates of a search: the values of each key, which depend on earlier keys, and the closed
 * formulas that bound and estimate a candidate's step.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app/search/search.h"
#include "base/text.h"
#include "comm/collective.h"
#include "layout/cost.h"

typedef struct key_row {
    const char *key, *names;
} key_row;

static const key_row keys[ECH_SEARCH_KEYS] = {
#define KEY(name, key, names, ...) {key, names},
#include "app/search/space.def"
};

enum { MOST_DIVISORS = 1536 }; /* of a number below 2^31 */

/* The values of a key: divisors, or fewer. */
typedef struct values {
    int64_t at[MOST_DIVISORS];
    int n;
} values;

static void add(values *list, int64_t value)
{
    ECH_ASSERT(list->n < MOST_DIVISORS);
    list->at[list->n++] = value;
}

/* The divisors of `whole` that are at most `most`. */
static void add_divisors(values *list, int64_t whole, int64_t most)
{
    for (int64_t i = 1; i <= whole && i <= most; i++)
        if (whole % i == 0) add(list, i);
}

/* False if the system for which layouts are searched lacks the value. */
static bool has_value(const ech_search_space *space, ech_search_key key, int64_t value)
{
    char text[32];
    return !space->system ||
           ech_emit_has_value(space->system, keys[key].key, ech_search_value(key, value, text));
}

#define OF(name) (c->value[ECH_SEARCH_##name])

enum { SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_ZERO_BUBBLE, SCHEDULE_ZERO_BUBBLE_V };
enum { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL };

/* ---- one generator for each row of space.def ---- */

static void find_pipeline(const ech_search_space *space, const ech_candidate *c, values *out)
{
    (void)c;
    add_divisors(out, space->ranks, space->blocks);
}

/* Ranks are numbered tensor ranks first, so a group of t of them is within one machine if t divides
 * the ranks of a machine, or if there is only one machine. */
static bool within_machine(const ech_search_space *space, int64_t t)
{
    int machine = space->cluster->level[0].ranks;
    return space->ranks <= machine || machine % t == 0;
}

/* Within a machine, since every layer waits for its collectives. A group that crosses machines is
 * not searched. */
static void find_tensor(const ech_search_space *space, const ech_candidate *c, values *out)
{
    values all = {.n = 0};
    add_divisors(&all, space->ranks / OF(pipeline), space->cluster->level[0].ranks);
    bool shares = ech_family_reads(space->config, "model.num_attention_heads");
    for (int i = 0; i < all.n; i++)
        if (all.at[i] == 1 || (shares && within_machine(space, all.at[i]) &&
                               space->config->model.num_attention_heads % all.at[i] == 0))
            add(out, all.at[i]);
}

/* Only long sequences are split: with few tokens a rank, its messages take longer than its
 * attention. Fewer are not searched. */
static void find_context(const ech_search_space *space, const ech_candidate *c, values *out)
{
    int64_t T = space->config->data.sequence_length, most = T / ECH_SEARCH_FEWEST_TOKENS;
    values all = {.n = 0};
    add_divisors(&all, space->ranks / OF(pipeline) / OF(tensor), most > 1 ? most : 1);
    for (int i = 0; i < all.n; i++)
        if (all.at[i] == 1 || T % (2 * all.at[i]) == 0) add(out, all.at[i]);
}

static int64_t data_ranks(const ech_search_space *space, const ech_candidate *c)
{
    return space->ranks / (OF(pipeline) * OF(tensor) * OF(context));
}

static void find_expert(const ech_search_space *space, const ech_candidate *c, values *out)
{
    int64_t experts = space->config->model.num_local_experts;
    values all = {.n = 0};
    add_divisors(&all, experts > 0 ? data_ranks(space, c) : 1, experts > 0 ? experts : 1);
    for (int i = 0; i < all.n; i++)
        if (experts <= 0 || experts % all.at[i] == 0) add(out, all.at[i]);
}

/* Powers of two, up to so many that products gain little from more rows. Others are not
 * searched. */
static void find_micro(const ech_search_space *space, const ech_candidate *c, values *out)
{
    int64_t d = data_ranks(space, c), least = space->config->training.micro_batch_size;
    if (space->batch % d) return;
    for (int64_t i = 1; i <= ECH_SEARCH_MOST_MICRO; i *= 2)
        if (space->batch / d % (i * least) == 0) add(out, i * least);
}

/* Sequence parallelism wherever tensor ranks can share out the rows: it saves memory, and sends no
 * more. */
static void find_sequence(const ech_search_space *space, const ech_candidate *c, values *out)
{
    int64_t rows = OF(micro) * space->config->data.sequence_length / OF(context);
    add(out,
        OF(tensor) > 1 && rows % OF(tensor) == 0 && has_value(space, ECH_SEARCH_sequence, true));
}

static void find_schedule(const ech_search_space *space, const ech_candidate *c, values *out)
{
    int64_t p = OF(pipeline), m = space->batch / data_ranks(space, c) / OF(micro);
    add(out, SCHEDULE_1F1B);
    if (p == 1) return;
    if (m % p == 0) add(out, SCHEDULE_INTERLEAVED);
    add(out, SCHEDULE_ZERO_BUBBLE);
    if (2 * p <= space->layers) add(out, SCHEDULE_ZERO_BUBBLE_V);
}

static void find_chunks(const ech_search_space *space, const ech_candidate *c, values *out)
{
    int64_t p = OF(pipeline), layers = space->layers;
    if (OF(schedule) == SCHEDULE_INTERLEAVED) {
        for (int64_t v = 2; p * v <= layers; v++)
            if (layers % (p * v) == 0) add(out, v);
    } else {
        add(out, OF(schedule) == SCHEDULE_ZERO_BUBBLE_V ? 2 : 1);
    }
}

/* With a pipeline, stages 2 and 3 reduce gradients or gather weights for each micro-batch. */
static void find_zero(const ech_search_space *space, const ech_candidate *c, values *out)
{
    int most = data_ranks(space, c) == 1 ? 0 : OF(pipeline) > 1 ? 1 : 3;
    for (int64_t stage = 0; stage <= most; stage++) add(out, stage);
}

static void find_recompute(const ech_search_space *space, const ech_candidate *c, values *out)
{
    (void)space;
    (void)c;
    for (int64_t i = RECOMPUTE_NONE; i <= RECOMPUTE_FULL; i++) add(out, i);
}

static void find_offload(const ech_search_space *space, const ech_candidate *c, values *out)
{
    (void)space;
    (void)c;
    add(out, false);
    add(out, true);
}

/* ---- enumeration ---- */

typedef void generator(const ech_search_space *space, const ech_candidate *c, values *out);

static generator *const generators[ECH_SEARCH_KEYS] = {
#define KEY(name, ...) find_##name,
#include "app/search/space.def"
};

typedef struct walk {
    const ech_search_space *space;
    void (*found)(void *context, const ech_candidate *candidate);
    void *context;
} walk;

static void find_values(const walk *w, ech_candidate *c, ech_search_key key)
{
    const ech_search_space *space = w->space;
    values list = {.n = 0};
    if (key == ECH_SEARCH_KEYS) {
        c->data = data_ranks(space, c);
        int64_t d = c->data * OF(micro), given = space->run->config->parallel.data;
        if (c->data == 0 || space->batch % d || (given != ECH_AUTO && given != c->data)) return;
        c->micro_batches = space->batch / d;
        c->seconds = (double)NAN;
        ech_search_estimate(space, c);
        w->found(w->context, c);
        return;
    }
    if (space->fixed[key])
        add(&list, space->value[key]);
    else
        generators[key](space, c, &list);
    for (int i = 0; i < list.n; i++) {
        c->value[key] = list.at[i];
        if (!space->fixed[key] && !has_value(space, key, list.at[i])) continue;
        int64_t ranks = OF(pipeline) * (key < ECH_SEARCH_tensor ? 1 : OF(tensor)) *
                        (key < ECH_SEARCH_context ? 1 : OF(context));
        if (space->ranks % ranks == 0) find_values(w, c, key + 1);
    }
}

void ech_search_enumerate(const ech_search_space *space,
                          void (*found)(void *context, const ech_candidate *candidate),
                          void *context)
{
    walk w = {.space = space, .found = found, .context = context};
    ech_candidate c = {.fate = ECH_SEARCH_LEFT};
    find_values(&w, &c, 0);
}

/* ---- formulas ---- */

bool ech_search_delays_weights(const ech_candidate *c)
{
    return OF(schedule) >= SCHEDULE_ZERO_BUBBLE;
}

/* The bound counts only products, at the highest rate that the cluster file gives, and no
 * recomputation. The mean rank of a replica has 1 / (p c t) of them. Of a pipeline, the last stage
 * begins after the forwards of p - 1 chunks and ends before as many backwards; only blocks between
 * the first and the last count there, as many as every chunk has. */
static double bound_of(const ech_search_space *space, const ech_candidate *c, double rate)
{
    double p = (double)OF(pipeline), v = (double)OF(chunks), m = (double)c->micro_batches;
    double sharded = (double)(OF(tensor) * OF(context)), samples = (double)OF(micro);
    double all = space->forward + space->rest;
    double mean = m * samples * all / (p * sharded * rate);
    double each = floor((space->blocks - 2) / (p * v)), ahead = (p - 1) * each * space->layer;
    double last = v * each * space->layer; /* forwards of its blocks */
    double parts = 3 * m * last + 2 * ahead;
    if (ech_search_delays_weights(c)) /* weight gradients may come during the ends */
        parts = ahead + fmax(3 * m * last, 2 * m * last + ahead);
    return fmax(mean, samples * parts / (sharded * rate));
}

static double fraction(double size, double half)
{
    return size / (size + half);
}

/* Of the peak rate, what the products of a layer reach. */
static double share_of(const ech_search_space *space, const ech_candidate *c)
{
    const ech_cluster *cluster = space->cluster;
    double rows = (double)(OF(micro) * space->config->data.sequence_length / OF(context));
    double width = (double)space->width;
    return cluster->products_share * fraction(rows, cluster->products_half_m) *
           fraction(4 * width / (double)OF(tensor), cluster->products_half_n) *
           fraction(width, cluster->products_half_k);
}

/* Bytes of the device that needs the most, roughly. */
static double memory_of(const ech_search_space *space, const ech_candidate *c)
{
    const double kept[] = {[RECOMPUTE_NONE] = 34, [RECOMPUTE_SELECTIVE] = 24, [RECOMPUTE_FULL] = 2};
    double p = (double)OF(pipeline), t = (double)OF(tensor), d = (double)c->data;
    double own = (space->parameters - space->in_experts) / (p * t) +
                 space->in_experts / (p * t * (double)OF(expert));
    double wide = space->bytes / space->parameters; /* of a weight */
    int64_t zero = OF(zero);
    double states = OF(offload) ? 0 : 12 / (zero >= 1 ? d : 1);
    double gradients = OF(offload) ? 0 : 4 / (zero >= 2 ? d : 1); /* else they leave the device */
    double per = wide / (zero >= 3 ? d : 1) + gradients + states;
    double rows = (double)(OF(micro) * space->config->data.sequence_length / OF(context));
    double flight = fmin((double)c->micro_batches, p) / p;
    if (OF(chunks) > 1) flight *= 1 + (p - 1) / (p * (double)OF(chunks));
    double layers = (double)space->layers;
    double acts = rows * (double)space->width * layers * flight;
    double spread = OF(recompute) == RECOMPUTE_FULL && !OF(sequence) ? 1 : t;
    return own * per + acts * kept[OF(recompute)] * wide / 2 / spread +
           6 * rows * (double)space->config->model.vocab_size / t;
}

/* Adds to the bound's products recomputation, smaller rates, other kernels, and the communication
 * that compute waits for, roughly. */
static double estimate_of(const ech_search_space *space, const ech_candidate *c, double peak)
{
    const ech_cluster *cluster = space->cluster;
    const double again[] = {
        [RECOMPUTE_NONE] = 0, [RECOMPUTE_SELECTIVE] = 0.05, [RECOMPUTE_FULL] = 1};
    ech_rates rates = ech_rates_of_cluster(cluster);
    double wide = space->bytes / space->parameters;
    double p = (double)OF(pipeline), t = (double)OF(tensor), d = (double)c->data;
    double context = (double)OF(context), m = (double)c->micro_batches;
    double layers = (double)space->layers / p;
    double parts = p * (double)OF(chunks), most = ceil(layers * p / parts) * parts / (layers * p);
    double rows = (double)(OF(micro) * space->config->data.sequence_length) / context;
    double bytes = rows * (double)space->width * wide;
    double flops = space->forward * (1 + again[OF(recompute)]) + space->rest;
    double micro = (double)OF(micro) * flops / (p * t * context * peak * share_of(space, c));
    micro += layers * (40 + 15 * again[OF(recompute)]) * bytes / t / cluster->device_bandwidth /
             cluster->kernels_share;
    int tensors = (int)OF(tensor), stride = (int)(OF(tensor) * OF(context));
    if (tensors > 1)
        micro += layers * (4 + 2 * again[OF(recompute)]) *
                 ech_cost_reduction(&rates, bytes, tensors, 0, tensors - 1);
    micro *= most; /* of the chunk with the most layers */
    double bubble = OF(schedule) == SCHEDULE_ZERO_BUBBLE     ? (p - 1) / 3
                    : OF(schedule) == SCHEDULE_ZERO_BUBBLE_V ? 0
                                                             : (p - 1) / (double)OF(chunks);
    double own = (space->parameters - space->in_experts) / (p * t) +
                 space->in_experts / (p * t * (double)OF(expert));
    double sums = 0;
    if (c->data > 1) {
        int last = (int)(c->data - 1) * stride;
        sums = ech_cost_reduction(&rates, own * 4, (int)c->data, 0, last);
        if (OF(zero) >= 2) { /* for each micro-batch, most of them during compute */
            sums *= OF(zero) == 2 ? 1 + m / 2 : 1 + m;
            sums = fmax(sums / 8, sums - m * micro);
        }
    }
    double held = own / (OF(zero) >= 1 ? d : 1);
    double update = held * 16 / cluster->device_bandwidth;
    /* gradients go to the host after each micro-batch, and weights come back */
    double sent = OF(zero) >= 2 ? held : own;
    if (OF(offload)) update = (held * 16 + sent * 4 * m) / cluster->device_host;
    double message =
        p > 1 ? ech_cost_message(&rates, bytes / t, 0, (int)(space->ranks / OF(pipeline))) : 0;
    return (m + bubble) * micro + m * (double)(OF(chunks) - 1) * message + sums + update;
}

void ech_search_estimate(const ech_search_space *space, ech_candidate *c)
{
    const ech_cluster *cluster = space->cluster;
    double peak = cluster->flops[ech_model_types(space->config).compute] / cluster->step_factor;
    double share = fmax(cluster->products_share, cluster->attention_share);
    c->bound = bound_of(space, c, peak * share);
    c->estimate = fmax(c->bound, estimate_of(space, c, peak));
    c->estimated_bytes = memory_of(space, c);
}

/* ---- the space of a run ---- */

const char *ech_search_value(ech_search_key key, int64_t value, char buffer[32])
{
    const char *name = keys[key].names;
    if (!*name) {
        snprintf(buffer, 32, "%lld", (long long)value);
        return buffer;
    }
    for (int64_t i = 0; i < value; i++) name += strcspn(name, " ") + 1;
    snprintf(buffer, 32, "%.*s", (int)strcspn(name, " "), name);
    return buffer;
}

const char *ech_search_key_name(ech_search_key key)
{
    return keys[key].key;
}

/* The value of a key that the run sets; -1: another one than a search has, such as a schedule of
 * the user's own. */
static int64_t read_value(const ech_config *config, ech_search_key key)
{
    ECH_FREED_TEXT text = {0};
    int64_t number;
    ech_config_format(config, keys[key].key, &text);
    if (!*keys[key].names) return ech_text_to_int(text.at, &number) ? number : -1;
    return ech_text_find_word(keys[key].names, text.at);
}

static ech_status find_fixed(ech_search_space *space)
{
    const ech_config *config = space->run->config;
    char words[32];
    for (ech_search_key key = 0; key < ECH_SEARCH_KEYS; key++) {
        space->value[key] = read_value(config, key);
        ECH_FREED_TEXT text = {0};
        ech_config_format(config, keys[key].key, &text);
        space->fixed[key] =
            ech_config_is_set(config, keys[key].key) && strcmp(text.at, "auto") != 0;
        if (!space->fixed[key] || space->value[key] >= 0) continue;
        return ech_config_complain(config, keys[key].key,
                                   "not a value that a search knows; it has %s; remove the key, or "
                                   "plan without --search",
                                   *keys[key].names ? keys[key].names
                                                    : ech_search_value(key, 1, words));
    }
    return ECH_OK;
}

static double flops_of(const ech_block *block, ech_phase phase, ech_extent extent)
{
    double multiplies = 0;
    for (size_t i = 0; i < block->program[phase].n; i++)
        multiplies += ech_call_multiplies(block, &block->program[phase].at[i], phase, extent);
    return 2 * multiplies;
}

static void count_model(ech_search_space *space)
{
    const ech_model *model = space->alone.model;
    ech_extent extent = ech_layout_extent(space->alone.layout, space->config, model);
    const ech_block *first = model->block.at[0];
    const ech_shape *crosses = &first->value.at[first->output.at[0]].shape;
    space->blocks = (int)model->block.n;
    space->layers = space->blocks > 2 ? space->blocks - 2 : 1;
    space->width = crosses->size[crosses->dims - 1];
    space->layer = INFINITY;
    for (int b = 0; b < space->blocks; b++) {
        const ech_block *block = model->block.at[b];
        double forward = flops_of(block, ECH_FORWARD, extent);
        space->forward += forward;
        space->rest += flops_of(block, ECH_BACKWARD_INPUT, extent) +
                       flops_of(block, ECH_BACKWARD_WEIGHT, extent);
        if (b > 0 && b < space->blocks - 1) space->layer = fmin(space->layer, forward);
    }
    if (!isfinite(space->layer)) space->layer = 0;
    double bytes = (double)ech_dtype_bytes(ech_model_types(space->config).compute);
    for (size_t i = 0; i < model->param.n; i++) {
        const ech_shape *shape = &model->param.at[i].shape;
        double elements = (double)ech_shape_whole(shape);
        space->parameters += elements;
        for (int d = 0; d < shape->dims; d++)
            if (shape->axis[d] == ECH_AXIS_EXPERTS) space->in_experts += elements;
    }
    space->bytes = bytes * space->parameters;
    double samples = (double)space->config->training.micro_batch_size;
    space->forward /= samples;
    space->rest /= samples;
    space->layer /= samples;
}

ech_status ech_search_space_create(const ech_run *run, const ech_cluster *cluster, int ranks,
                                   ech_search_space *out)
{
    *out = (ech_search_space){.run = run, .cluster = cluster, .ranks = ranks};
    if (ech_strategy_servers(run->config) > 0)
        return ech_config_complain(run->config, "parallel.strategy",
                                   "a search places the ranks that train, and no servers; use "
                                   "parallel.strategy = synchronous, or plan without --search");
    if (ranks < 1)
        return ech_config_complain(run->config, "parallel.evaluators",
                                   "no rank is left to train; start more ranks, or use fewer");
    out->batch = run->config->training.global_batch_size;
    ECH_TRY(find_fixed(out));
    out->config = ech_config_copy(run->config);
    ech_config_set_alone(out->config);
    /* Experts are balanced over whole groups of samples. */
    out->config->training.global_batch_size = ech_model_least_samples(out->config);
    out->config->training.micro_batch_size = out->config->training.global_batch_size;
    ECH_TRY(ech_design_create(out->config, run->tokenizer, 1, 1, &out->alone));
    count_model(out);
    return ECH_OK;
}

void ech_search_space_free(ech_search_space *space)
{
    ech_design_destroy(&space->alone);
    ech_config_destroy(space->config);
    *space = (ech_search_space){0};
}
