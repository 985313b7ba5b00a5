/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds a run's schedule, and checks that it fits the run.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/divisor.h"
#include "base/file.h"
#include "base/log.h"
#include "config/rules.h"
#include "schedule/protocol/protocol.h"

enum { MOST_TURNS = 64, CHECK_EVERY = 100, SAVE_EVERY = 1000 };
enum { MOST_BATCH = 1000000000 }; /* of training.global_batch_size */

static int fewest_micro_batches(const ech_layout *layout)
{
    int fewest = INT_MAX;
    for (int s = 0; s < layout->stages; s++) { /* a stage's last replica has the fewest */
        int own = ech_layout_micro_batches(layout, layout->first_rank[s + 1] - 1);
        if (own < fewest) fewest = own;
    }
    return fewest;
}

static ech_status take_generator(const ech_config *config, const ech_schedule_choice *choice,
                                 const ech_layout *layout, ech_schedule *schedule)
{
    schedule->generator = choice->generator;
    if (!schedule->generator)
        return ech_config_complain(config, "parallel.schedule",
                                   "no such schedule; use one of: %s- or a schedule file (a name "
                                   "with a dot or a slash)",
                                   ech_order_names());
    ech_pipeline_shape shape = {.stages = layout->stages,
                                .micro_batches = fewest_micro_batches(layout)};
    ECH_FREED_TEXT why = {0};
    schedule->weights = schedule->generator->weights;
    if (ech_generator_accepts(schedule->generator, &shape, &why)) return ECH_OK;
    if (!ech_config_is_set(config, "training.micro_batch_size"))
        ech_text_append(&why, "; give training.micro_batch_size, too: left out, each replica has "
                              "one micro-batch");
    return ech_config_complain(config, "training.global_batch_size", "%s", why.at);
}

/* Reads the file on the first call. A plugin writes an order for each pipeline. */
static ech_status read_text(ech_schedule_choice *choice, int stages, int chunks, int micro_batches)
{
    echelon_pipe pipe = {stages, chunks, micro_batches};
    if (!choice->plugged)
        return choice->text ? ECH_OK : ech_order_read(choice->name, &choice->text, &choice->n);
    free(choice->text);
    choice->text = NULL;
    return ech_order_write(choice->plugged, &pipe, &choice->text, &choice->n);
}

static ech_status take_orders(const ech_config *config, ech_schedule_choice *choice,
                              const ech_layout *layout, ech_schedule *schedule)
{
    if (!choice->text && !choice->plugged && !ech_file_exists(choice->name))
        return ech_config_complain(
            config, "parallel.schedule",
            "no such file, and no schedule has this name; the schedules are: %s",
            ech_order_names());
    int m = ech_layout_micro_batches(layout, 0);
    ECH_TRY(read_text(choice, layout->stages, layout->chunks, m));
    schedule->written = ech_calloc((size_t)layout->stages, sizeof *schedule->written);
    return ech_order_parse(choice->text, choice->n, choice->name, layout->stages, layout->chunks, m,
                           schedule->written);
}

/* ---- spans ---- */

/* span: name of what ends at multiples of parallel.flush_every steps. */
static ech_status check_cadence(const ech_config *config, const char *span, const char *key,
                                int64_t every)
{
    int64_t flush = config->parallel.flush_every;
    if (every % flush == 0) return ECH_OK;
    return ech_config_complain(config, key,
                               "not a multiple of parallel.flush_every = %lld, at whose end %s can "
                               "do that; use %lld",
                               (long long)flush, span, (long long)((every / flush + 1) * flush));
}

/* Replicas that synchronize every `sync` steps have common weights only right after it. */
static ech_status check_meetings(const ech_config *config, int64_t sync)
{
    const struct {
        const char *key;
        int64_t every;
    } all[] = {{"training.steps", config->training.steps},
               {"training.validate_every", config->training.validate_every},
               {"training.check_every", config->training.check_every},
               {"checkpoint.every", config->checkpoint.every}};
    for (size_t i = 0; i < sizeof all / sizeof *all && sync > 0; i++)
        if (all[i].every % sync)
            return ech_config_complain(config, all[i].key,
                                       "not a multiple of parallel.sync_every = %lld, after which "
                                       "all replicas have the same weights; use %lld",
                                       (long long)sync,
                                       (long long)((all[i].every / sync + 1) * sync));
    return ECH_OK;
}

/* The most training steps of the busiest rank that fit into a plan. */
static int64_t most_turns(const ech_config *config, const ech_layout *layout)
{
    return ECH_MOST_BLOCK_RUNS / ech_layout_block_runs(layout, config);
}

static int64_t next_multiple(int64_t n, int64_t of)
{
    return (n + of - 1) / of * of;
}

/* What is auto happens after a number of `span` steps. */
static void resolve_cadences(ech_config *config, int64_t span)
{
    int64_t tenth = next_multiple(config->training.steps, 10) / 10;
    if (config->training.check_every == ECH_AUTO)
        config->training.check_every = next_multiple(CHECK_EVERY, span);
    if (config->checkpoint.every == ECH_AUTO)
        config->checkpoint.every = next_multiple(tenth > SAVE_EVERY ? tenth : SAVE_EVERY, span);
}

/* A span of one step cannot delay anything. all: greatest common divisor of the calendar's
 * numbers; most: steps of a plan. */
static ech_status check_delays(const ech_config *config, int64_t all, int64_t most)
{
    int64_t fits = ech_largest_divisor(all, most);
    if (!config->memory.offload_delayed_from || config->parallel.flush_every > 1) return ECH_OK;
    if (most == 1)
        return ech_config_complain(config, "training.global_batch_size",
                                   "delayed updates need spans of two steps or more, and one step "
                                   "fills a plan; use a larger training.micro_batch_size");
    if (fits == 1)
        return ech_config_complain(config, "memory.offload_delayed_from",
                                   "delayed updates need spans of two steps or more, but this key, "
                                   "training.steps, validate_every, check_every and "
                                   "checkpoint.every have no common divisor of at most %lld, the "
                                   "steps that fit into a plan; use even numbers",
                                   (long long)most);
    return ech_config_complain(config, "parallel.flush_every",
                               "delayed updates need spans of two steps or more; use %lld",
                               (long long)fits);
}

static ech_status resolve_flush(ech_config *config, const ech_layout *layout,
                                ech_schedule *schedule)
{
    int64_t steps = config->training.steps;
    int64_t all = ech_common_divisor(steps, config->training.validate_every);
    if (config->training.check_every != ECH_AUTO)
        all = ech_common_divisor(all, config->training.check_every);
    if (config->checkpoint.every != ECH_AUTO)
        all = ech_common_divisor(all, config->checkpoint.every);
    all = ech_common_divisor(all, config->memory.offload_delayed_from);
    int64_t most = most_turns(config, layout);
    if (config->parallel.flush_every == ECH_AUTO) {
        int64_t flush = most < MOST_TURNS ? most : MOST_TURNS;
        if (all > 0 && all < flush) flush = all;
        while (all % flush) flush--;
        config->parallel.flush_every = flush;
    }
    if (config->parallel.flush_every > most)
        return ech_config_complain(
            config, "parallel.flush_every", "%s make a list too long to plan; at most %lld",
            ECH_COUNT(config->parallel.flush_every, "step"), (long long)most);
    ECH_TRY(check_delays(config, all, most));
    resolve_cadences(config, config->parallel.flush_every);
    const char *span =
        schedule->delayed_from ? "a span of delayed updates" : ech_protocol_span(layout);
    ECH_TRY(check_cadence(config, span, "training.steps", steps));
    ECH_TRY(
        check_cadence(config, span, "training.validate_every", config->training.validate_every));
    ECH_TRY(check_cadence(config, span, "training.check_every", config->training.check_every));
    ECH_TRY(check_cadence(config, span, "checkpoint.every", config->checkpoint.every));
    ECH_TRY(check_cadence(config, span, "memory.offload_delayed_from",
                          config->memory.offload_delayed_from));
    schedule->turns = (int)config->parallel.flush_every;
    return ECH_OK;
}

/* The samples of the fewest micro-batches that every stage's replicas divide; 0: too many for a
 * batch. */
static int64_t smallest_batch(const ech_layout *layout)
{
    int64_t all = 1, most = MOST_BATCH / layout->micro_batch;
    for (int s = 0; s < layout->stages && all <= most; s++)
        all = all / ech_common_divisor(all, layout->replicas[s]) * layout->replicas[s];
    return all <= most ? all * layout->micro_batch : 0;
}

/* If the number of micro-batches follows from the batch, another batch gives another number. */
static ech_status refuse_batch(const ech_config *config, const ech_layout *layout, int stage)
{
    const char *key = "training.micro_batch_size";
    long long b = layout->micro_batch, samples = smallest_batch(layout);
    ECH_FREED_TEXT offer = {0};
    if (!samples)
        ech_text_append(&offer, "use numbers of replicas with a smaller common multiple");
    else if (ech_config_is_set(config, key))
        ech_text_append(&offer, "%lld would", samples);
    else
        ech_text_append(&offer, "use %s=%lld training.global_batch_size=%lld", key, b, samples);
    return ech_config_complain(
        config, "training.global_batch_size",
        "makes %s a step, not a multiple of the %d replicas of stage %d, as an asynchronous "
        "schedule needs; %s",
        ECH_COUNT(layout->micro_batches, "micro-batch"), layout->replicas[stage], stage, offer.at);
}

static ech_status check_shares(const ech_config *config, const ech_layout *layout)
{
    for (int s = 0; s < layout->stages; s++)
        if (layout->micro_batches % layout->replicas[s]) return refuse_batch(config, layout, s);
    return ECH_OK;
}

ech_status ech_schedule_create(ech_config *config, ech_schedule_choice *choice,
                               const ech_layout *layout, ech_schedule **out)
{
    ECH_ASSERT(!ech_rule_broken(config, ECH_RULES_OF_RUN));
    ECH_ASSERT(!ech_rule_broken(config, ECH_RULES_OF_GRID));
    ECH_CLEANUP(ech_schedule_destroy_at) ech_schedule *schedule = ech_calloc(1, sizeof *schedule);
    schedule->stages = layout->stages;
    schedule->turns = 1;
    schedule->ring = (ech_schedule_ring){1, layout->world, INT_MAX};
    schedule->stashing = config->parallel.weight_stashing == 1;
    schedule->vertical_sync = config->parallel.vertical_sync == 1;
    ECH_TRY(choice->is_written ? take_orders(config, choice, layout, schedule)
                               : take_generator(config, choice, layout, schedule));
    bool asynchronous = !ech_weights_are_synchronous(schedule->weights);
    if (config->memory.offload_delayed_from > 0) {
        schedule->weights = ECH_WEIGHTS_DELAYED;
        schedule->delayed_from = config->memory.offload_delayed_from;
    }
    const ech_protocol *protocol = ech_protocol_of(layout);
    if (protocol->schedule) protocol->schedule(config, layout, schedule);
    if (asynchronous) ECH_TRY(check_shares(config, layout));
    if (schedule->weights != ECH_WEIGHTS_FLUSHED) ECH_TRY(resolve_flush(config, layout, schedule));
    int64_t sync = protocol->meets_every(config);
    resolve_cadences(config, sync ? sync : 1);
    ECH_TRY(check_meetings(config, sync));
    *out = schedule;
    schedule = NULL;
    return ECH_OK;
}

void ech_schedule_destroy(ech_schedule *schedule)
{
    if (!schedule) return;
    for (int s = 0; schedule->written && s < schedule->stages; s++) free(schedule->written[s].at);
    free(schedule->written);
    free(schedule);
}

ech_list_kind ech_schedule_list(const ech_schedule *schedule, int64_t step, int *turns)
{
    bool undelayed = step < schedule->delayed_from;
    *turns = undelayed ? 1 : schedule->turns;
    return undelayed ? ECH_LIST_UNDELAYED : ECH_LIST_TRAIN;
}

/* ---- before the layout exists ---- */

ech_schedule_choice ech_schedule_find(const ech_config *config)
{
    const char *name = config->parallel.schedule;
    const echelon_order *plugged = ech_order_find_plugged(name);
    return (ech_schedule_choice){.name = name,
                                 .generator = ech_generator_find(name),
                                 .is_written = plugged || strpbrk(name, "/."),
                                 .plugged = plugged};
}

void ech_schedule_choice_free(ech_schedule_choice *choice)
{
    free(choice->text);
    *choice = (ech_schedule_choice){0};
}

ech_placement ech_schedule_placement(const ech_schedule_choice *choice)
{
    return choice->generator ? choice->generator->placement : ECH_PLACEMENT_LOOP;
}

void ech_schedule_fill_chunks(ech_config *config, const ech_schedule_choice *choice)
{
    const ech_generator *generator = choice->generator;
    if (config->parallel.virtual_stages != ECH_AUTO) return;
    config->parallel.virtual_stages = generator && generator->chunks ? generator->chunks : 1;
}

static bool accepts_written(ech_schedule_choice *choice, const ech_layout_shape *shape)
{
    if (!choice->is_measured || choice->plugged) {
        bool quiet = ech_log_set_quiet(true);
        ech_status status = read_text(choice, shape->stages, shape->chunks, shape->micro_batches);
        if (status == ECH_OK)
            status = ech_order_measure(choice->text, choice->n, choice->name, shape->chunks,
                                       &choice->stages, &choice->micro_batches);
        ech_log_set_quiet(quiet);
        if (status != ECH_OK) choice->stages = 0;
        choice->is_measured = true;
    }
    return shape->stages == choice->stages && shape->micro_batches == choice->micro_batches;
}

bool ech_schedule_accepts(void *context, const ech_layout_shape *shape)
{
    ech_schedule_choice *choice = context;
    if (choice->is_written) return accepts_written(choice, shape);
    const ech_generator *generator = choice->generator;
    ech_pipeline_shape pipeline = {.stages = shape->stages, .micro_batches = shape->micro_batches};
    ECH_FREED_TEXT why = {0};
    bool accepts = generator && ech_generator_accepts(generator, &pipeline, &why);
    return accepts && (ech_weights_are_synchronous(generator->weights) || shape->divides);
}

/* ---- orders ---- */

static int depth_of(const ech_layout *layout, int stage)
{
    int later = 0, own = layout->replicas[stage];
    for (int s = stage; s < layout->stages; s++) later += layout->replicas[s];
    return (later + own - 1) / own;
}

/* Appends a number of training steps that the generator treats as one. */
static void order_turns(const ech_schedule *schedule, const ech_layout *layout, int rank, int turns,
                        bool forwards, ech_order *order)
{
    int stage = layout->coordinates[rank].stage;
    ech_pipe pipe = {.stages = layout->stages,
                     .stage = stage,
                     .chunks = layout->chunks,
                     .micro_batches = turns * ech_layout_micro_batches(layout, rank),
                     .depth = depth_of(layout, stage)};
    if (forwards)
        ech_order_forwards(&pipe, order);
    else if (schedule->generator)
        schedule->generator->generate(&pipe, order);
    else
        for (size_t i = 0; i < schedule->written[stage].n; i++)
            ECH_PUSH(*order, schedule->written[stage].at[i]);
}

void ech_schedule_order(const ech_schedule *schedule, const ech_layout *layout, int rank, int turns,
                        bool forwards, ech_order *order)
{
    bool apart = ech_weights_are_synchronous(schedule->weights); /* one after the other */
    for (int turn = 0; turn < (apart ? turns : 1); turn++) {
        size_t first = order->n;
        order_turns(schedule, layout, rank, apart ? 1 : turns, forwards, order);
        for (size_t i = first; i < order->n; i++)
            order->at[i].micro += turn * ech_layout_micro_batches(layout, rank);
    }
}
