/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON of `echelon plan`.
 */
#include "app/plan/json.h"
#include "app/setup/parts.h"
#include "schedule/calendar.h"
#include "schedule/peaks.h"
#include "schedule/print.h"
#include "schedule/states.h"
#include "schedule/traffic.h"

enum { VERSION = 2 };

static json_t *model_json(const ech_plan_report *report)
{
    const ech_model *model = report->design->model;
    json_t *blocks = json_array();
    for (int b = 0; b < (int)model->block.n; b++)
        json_array_append_new(
            blocks, json_pack("{s:s, s:I}", "name", model->block.at[b]->name, "parameters",
                              (json_int_t)ech_plan_block_elements(report->alike.at[0].plan, b)));
    ech_types types = ech_model_types(report->design->config);
    ech_dtype stream = ech_type_dtype(model->options.stream, types.wide, types);
    return json_pack("{s:s, s:I, s:I, s:s, s:s, s:s, s:s, s:f, s:f, s:o}", "architecture",
                     model->family->name, "parameters", (json_int_t)ech_model_params(model),
                     "active_parameters", (json_int_t)ech_model_active(model), "compute",
                     ech_dtype_name(types.compute), "wide", ech_dtype_name(types.wide), "gradients",
                     ech_dtype_name(types.gradient), "stream", ech_dtype_name(stream),
                     "flops_per_step", ech_plan_step_flops(report->design), "flops_per_token",
                     ech_plan_token_flops(report->design), "blocks", blocks);
}

/* How many ranks there are along each axis. */
static json_t *grid_json(const ech_design *design)
{
    const ech_layout *layout = design->layout;
    const ech_block_options *options = &design->model->options;
    json_t *replicas = json_array();
    for (int s = 0; s < layout->stages; s++)
        json_array_append_new(replicas, json_integer(layout->replicas[s]));
    return json_pack(
        "{s:i, s:i, s:o, s:i, s:s, s:i, s:i, s:s, s:i, s:s, s:b}", "stages", layout->stages,
        "chunks", layout->chunks, "replicas", replicas, "context", layout->context,
        "context_method", ech_config_name(design->config, "parallel.context_method"), "tensor",
        layout->tensor, "expert", (int)design->config->parallel.expert, "sequence",
        ech_config_name(design->config, "parallel.sequence"), "sequence_chunks",
        options->sequence_chunks > 1 ? options->sequence_chunks : 1, "recompute",
        ech_config_name(design->config, "memory.recompute"), "invert", options->invert);
}

static json_t *batch_json(const ech_design *design)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:s}", "global_batch_size",
                     (json_int_t)design->config->training.global_batch_size, "micro_batch_size",
                     (json_int_t)design->layout->micro_batch, "micro_batches",
                     (json_int_t)design->layout->micro_batches, "sequence_length",
                     (json_int_t)design->config->data.sequence_length, "unit",
                     ech_sample_row_of(design->model->family->samples)->unit);
}

/* [[first, end], ...]: one pair a chunk, `end` not included. */
static json_t *blocks_json(const ech_layout *layout, int rank)
{
    json_t *blocks = json_array();
    if (ech_layout_serves(layout, rank)) return blocks;
    for (int chunk = 0; chunk < layout->chunks; chunk++) {
        int first, end;
        ech_layout_blocks(layout, rank, chunk, &first, &end);
        json_array_append_new(blocks, json_pack("[i, i]", first, end));
    }
    return blocks;
}

/* Which rank is where. "plan": an index of "plans". "simulated_as": the first of its class. */
static json_t *ranks_json(const ech_plan_report *report)
{
    const ech_layout *layout = report->design->layout;
    json_t *ranks = json_array();
    for (int rank = 0; rank < layout->world; rank++) {
        const ech_coordinates *here = &layout->coordinates[rank];
        json_array_append_new(
            ranks, json_pack("{s:i, s:s, s:i, s:i, s:i, s:i, s:o, s:i, s:i, s:i}", "rank", rank,
                             "role", ech_layout_serves(layout, rank) ? "server" : "worker", "stage",
                             here->stage, "data", here->data, "context", here->context, "tensor",
                             here->tensor, "blocks", blocks_json(layout, rank), "micro_batches",
                             ech_layout_micro_batches(layout, rank), "plan", report->class_of[rank],
                             "simulated_as", layout->classes.first[layout->classes.of[rank]]));
    }
    return ranks;
}

static json_t *buckets_json(const ech_plan *plan)
{
    json_t *buckets = json_array();
    for (size_t b = 0; b < plan->bucket.n; b++) {
        const ech_bucket *bucket = &plan->bucket.at[b];
        json_t *names = json_array();
        for (int i = 0; i < bucket->params; i++) {
            int param = plan->bucket_param.at[bucket->first_param + i];
            json_array_append_new(names, json_string(plan->model->param.at[param].name));
        }
        json_array_append_new(
            buckets,
            json_pack("{s:i, s:I, s:I, s:I, s:s, s:i, s:o}", "block", bucket->block, "elements",
                      (json_int_t)bucket->elements, "padding", (json_int_t)bucket->padding, "bytes",
                      (json_int_t)ech_plan_bucket_bytes(plan, (int)b), "group",
                      ech_layout_group_name(bucket->group), "pieces", bucket->pieces, "parameters",
                      names));
    }
    return buckets;
}

/* Bytes by kind; `working`: of those that are at work at once alone. */
static json_t *kinds_json(const int64_t bytes[ECH_MEMORY_KINDS], bool working)
{
    json_t *kinds = json_object();
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        if (!working || ech_memory_is_working((ech_memory_kind)kind))
            json_object_set_new(kinds, ech_memory_name((ech_memory_kind)kind),
                                json_integer(bytes[kind]));
    return kinds;
}

static json_t *space_json(const ech_plan *plan, ech_space space)
{
    return json_pack("{s:I, s:I, s:I}", "persistent_bytes",
                     (json_int_t)plan->persistent_bytes[space], "arena_bytes",
                     (json_int_t)plan->arena_bytes[space], "lower_bound_bytes",
                     (json_int_t)ech_plan_lower_bound(plan, space));
}

/* Without padding and what is under way. */
static json_t *states_json(const ech_plan *plan)
{
    json_t *states = json_object();
    for (int k = 0; k < ECH_MODEL_STATES; k++)
        json_object_set_new(states, ech_memory_name(ech_model_states[k]),
                            json_integer(ech_plan_number_bytes(plan, ech_model_states[k])));
    return states;
}

/* What fills the device arena in its fullest tick; the sum is arena_bytes. */
static json_t *fullest_json(const ech_plan *plan)
{
    ech_arena_use use = ech_plan_arena_use(plan);
    json_t *out = json_object();
    for (int kind = 0; kind < ECH_MEMORY_KINDS; kind++)
        if (ech_memory_space((ech_memory_kind)kind) == ECH_SPACE_DEVICE && use.kind[kind])
            json_object_set_new(out, ech_memory_name((ech_memory_kind)kind),
                                json_integer(use.kind[kind]));
    json_object_set_new(out, "between values", json_integer(use.between[ECH_SPACE_DEVICE]));
    return out;
}

static json_t *memory_json(const ech_plan *plan)
{
    int64_t peak[ECH_MEMORY_KINDS], padding[ECH_MEMORY_KINDS];
    ech_working most = ech_plan_working(plan);
    ECH_FREED_TEXT step = {0};
    ech_plan_peaks(plan, peak);
    ech_plan_paddings(plan, padding);
    ech_step_print(most.step, &step);
    json_t *working = json_pack("{s:I, s:o, s:s, s:s}", "bytes", (json_int_t)most.bytes, "by_kind",
                                kinds_json(most.kind, true), "list", ech_list_name(most.list->kind),
                                "step", step.at);
    json_t *memory = space_json(plan, ECH_SPACE_DEVICE);
    json_object_set_new(memory, "peak_bytes", kinds_json(peak, false));
    json_object_set_new(memory, "padding_bytes", kinds_json(padding, false));
    json_object_set_new(memory, "fullest_bytes", fullest_json(plan));
    json_object_set_new(memory, "host", space_json(plan, ECH_SPACE_HOST));
    json_object_set_new(memory, "disk", space_json(plan, ECH_SPACE_DISK));
    json_object_set_new(memory, "window", space_json(plan, ECH_SPACE_SHARED));
    json_object_set_new(memory, "working", working);
    json_object_set_new(memory, "model_states_bytes", states_json(plan));
    return memory;
}

static json_t *evaluators_json(const ech_plan_report *report)
{
    json_t *memory = memory_json(report->evaluator.plan);
    json_object_del(memory, "model_states_bytes"); /* it has no gradients and optimizer states */
    ech_ranks evaluators = ech_layout_roles(report->design->layout).evaluate;
    return json_pack("{s:i, s:i, s:o}", "first_rank", evaluators.first, "ranks", evaluators.n,
                     "memory", memory);
}

/* By lane, of a training step. */
static json_t *waits_json(const double waits_for[ECH_LANES], int turns)
{
    json_t *waits = json_object();
    for (ech_lane lane = 0; lane < ECH_LANES; lane++)
        if (waits_for[lane] > 0)
            json_object_set_new(waits, ech_lane_name(lane), json_real(waits_for[lane] / turns));
    return waits;
}

static json_t *forecast_json(const ech_plan_report *report)
{
    ech_plan_forecast f = ech_plan_forecast_of(report);
    json_t *parts = json_object();
    for (int part = 0; part < ECH_FORECAST_PARTS; part++)
        json_object_set_new(parts, ech_plan_forecast_part(part), json_real(f.part[part]));
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "name",
                     report->design->cluster->name, "step_time", f.seconds, "low", f.low, "high",
                     f.high, "tokens_per_second", f.tokens_per_second, "tokens", f.tokens, "days",
                     f.days, "device_hours", f.device_hours, "model_flops_per_second",
                     f.model_flops, "executed_flops_per_second", f.executed_flops,
                     "peak_flops_per_second", f.peak, "parts", parts, "levels",
                     ech_plan_levels_json(report));
}

/* What each kind of box means, and its colour. */
static json_t *boxes_json(void)
{
    json_t *boxes = json_array();
    for (ech_bar_kind kind = 0; kind < ECH_BAR_KINDS; kind++)
        json_array_append_new(boxes, json_pack("{s:s, s:s, s:s}", "kind", ech_bar_kind_text(kind),
                                               "colour", ech_bar_kind_colour(kind), "meaning",
                                               ech_bar_kind_meaning(kind)));
    return boxes;
}

/* The boxes of the simulated ranks, by columns: there may be a million. */
static json_t *timeline_json(const ech_timeline *timeline)
{
    json_t *rank = json_array(), *kind = json_array(), *chunk = json_array(), *micro = json_array(),
           *begin = json_array(), *end = json_array(), *weight = json_array();
    for (size_t i = 0; i < timeline->bar.n; i++) {
        const ech_timeline_bar *bar = &timeline->bar.at[i];
        json_array_append_new(rank, json_integer(bar->rank));
        json_array_append_new(kind, json_integer(bar->kind));
        json_array_append_new(chunk, json_integer(bar->chunk));
        json_array_append_new(micro, json_integer(bar->micro));
        json_array_append_new(begin, json_real(bar->begin));
        json_array_append_new(end, json_real(bar->end));
        json_array_append_new(weight, json_real(bar->weight));
    }
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "rank", rank, "kind", kind, "chunk",
                     chunk, "micro", micro, "begin", begin, "end", end, "weight", weight);
}

/* The train list in virtual time. */
static json_t *simulation_json(const ech_plan_report *report)
{
    const ech_simulation *simulation = &report->simulation;
    const ech_timeline *timeline = &report->timeline;
    const ech_layout *layout = report->design->layout;
    int turns = report->design->schedule->turns;
    json_t *links = json_array(), *flight = json_array(), *busy = json_array();
    for (size_t i = 0; i < simulation->link.n; i++) {
        const ech_link_use *link = &simulation->link.at[i];
        json_array_append_new(links, json_pack("{s:i, s:i, s:I, s:I}", "from", link->from, "to",
                                               link->to, "messages", (json_int_t)link->messages,
                                               "bytes", (json_int_t)link->bytes));
    }
    json_t *waits = json_array();
    for (int rank = 0; rank < layout->world; rank++) {
        int i = ech_layout_plan_of(layout, simulation->plans, rank);
        json_array_append_new(flight, json_integer(simulation->in_flight[i]));
        json_array_append_new(busy, json_real(simulation->busy[i]));
        json_array_append_new(waits, waits_json(simulation->waits[i], turns));
    }
    double collectives = timeline->collective / timeline->ranks;
    bool others = report->design->profile && report->design->profile->busy;
    return json_pack(
        "{s:s, s:b, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o, s:o, s:o, s:o}", "unit",
        simulation->seconds ? "seconds" : "block forwards", "busy_profile", others, "turns", turns,
        "step_time", simulation->end / turns, "meeting_time", report->list_time[ECH_LIST_SYNC],
        "mixing_time", report->list_time[ECH_LIST_GOSSIP], "bubble", simulation->bubble,
        "collective_time", collectives / turns, "collective_wait",
        timeline->waits * timeline->end / turns, "waits", waits, "busy", busy, "in_flight", flight,
        "links", links, "timeline", timeline_json(timeline), "boxes", boxes_json());
}

static json_t *messages_json(const ech_flow *flow)
{
    return flow->messages < 0 ? json_null() : json_integer(flow->messages);
}

/* What goes along an axis: each kind of collective over each group. */
static json_t *flows_json(const ech_traffic *t)
{
    json_t *flows = json_array();
    for (int group = 0; group < ECH_GROUPS; group++)
        for (int kind = 0; kind < ECH_COLLECTIVES; kind++) {
            const ech_flow *flow = &t->of[group][kind];
            if (flow->calls)
                json_array_append_new(
                    flows, json_pack("{s:s, s:s, s:I, s:o, s:I, s:I}", "collective",
                                     ech_collective_name((ech_collective)kind), "group",
                                     ech_layout_group_name((ech_layout_group)group), "calls",
                                     (json_int_t)flow->calls, "messages", messages_json(flow),
                                     "bytes", (json_int_t)flow->bytes, "most_bytes",
                                     (json_int_t)(flow->bytes + flow->more)));
        }
    return flows;
}

/* By axis. Collectives that it has none of are left out. */
static json_t *traffic_json(const ech_traffic traffic[ECH_TRAFFIC_AXES])
{
    json_t *axes = json_object();
    for (int axis = 0; axis < ECH_TRAFFIC_AXES; axis++) {
        const ech_traffic *t = &traffic[axis];
        ech_flow all = ech_traffic_all(t);
        json_t *calls = json_object(), *groups = json_object();
        for (int kind = ECH_COLLECTIVE_NONE + 1; kind < ECH_COLLECTIVES; kind++) {
            int64_t n = ech_traffic_of(t, kind, ECH_FLOW_ANY).calls;
            if (n)
                json_object_set_new(calls, ech_collective_name((ech_collective)kind),
                                    json_integer(n));
        }
        for (int group = 0; group < ECH_GROUPS; group++) {
            int64_t n = ech_traffic_of(t, ECH_FLOW_ANY, group).calls -
                        t->of[group][ECH_COLLECTIVE_NONE].calls;
            if (n)
                json_object_set_new(groups, ech_layout_group_name((ech_layout_group)group),
                                    json_integer(n));
        }
        json_object_set_new(axes, ech_traffic_axis_name((ech_traffic_axis)axis),
                            json_pack("{s:I, s:I, s:o, s:o, s:o, s:o}", "bytes",
                                      (json_int_t)all.bytes, "most_bytes",
                                      (json_int_t)(all.bytes + all.more), "messages",
                                      messages_json(&all), "collectives", calls, "groups", groups,
                                      "flows", flows_json(t)));
    }
    return axes;
}

static json_t *plan_json(const ech_plan_report *report, const ech_plan_class *alike, bool steps)
{
    const ech_plan *plan = alike->plan;
    const ech_list *train = &plan->list[ECH_LIST_TRAIN];
    ECH_FREED_TEXT row = {0};
    ech_list_print_row(train, &row);
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    int64_t sent = 0;
    ech_plan_step_traffic(plan, traffic);
    for (ech_traffic_axis axis = 0; axis < ECH_TRAFFIC_AXES; axis++) {
        ech_space from, to;
        if (!ech_traffic_copies(axis, &from, &to)) sent += ech_traffic_all(&traffic[axis]).bytes;
    }
    ech_flow stages = ech_traffic_all(&traffic[ECH_TRAFFIC_PIPELINE]);
    json_t *out =
        json_pack("{s:i, s:i, s:s, s:o, s:i, s:I, s:I, s:I, s:o}", "rank", plan->rank, "ranks",
                  alike->ranks, "schedule", row.n ? row.at : "", "buckets", buckets_json(plan),
                  "weight_versions", plan->versions, "sent_bytes_per_step", (json_int_t)sent,
                  "stage_bytes_per_step", (json_int_t)stages.bytes, "stage_messages_per_step",
                  (json_int_t)stages.messages, "traffic", traffic_json(traffic));
    json_object_set_new(out, "memory", memory_json(plan));
    const ech_communicators joined = ech_communicators_of(report->design, plan);
    if (joined.n)
        json_object_set_new(
            out, "nccl",
            json_pack("{s:i, s:I}", "communicators", joined.n, "bytes", (json_int_t)joined.bytes));
    if (steps) ech_plan_add_list(report, alike, out);
    return out;
}

static json_t *calendar_json(const ech_config *config)
{
    ech_calendar calendar = ech_calendar_of(config);
    json_t *out = json_pack(
        "{s:I, s:b, s:I, s:I, s:I}", "steps", (json_int_t)calendar.steps, "validates",
        calendar.validates, "validate_every", (json_int_t)calendar.validate_every, "check_every",
        (json_int_t)calendar.check_every, "save_every", (json_int_t)calendar.save_every);
    if (calendar.sync_every)
        json_object_set_new(out, "sync_every", json_integer((json_int_t)calendar.sync_every));
    return out;
}

static json_t *data_json(const ech_corpus_counts *counts)
{
    return json_pack("{s:I, s:I, s:f, s:f, s:f, s:[f, f], s:I, s:I, s:I}", "samples",
                     (json_int_t)counts->samples, "epoch_samples",
                     (json_int_t)counts->epoch_samples, "tokens", counts->tokens, "trained_tokens",
                     counts->targets, "padding_tokens", counts->padding, "epochs",
                     counts->least_epochs, counts->most_epochs, "documents",
                     (json_int_t)counts->documents, "longer_documents", (json_int_t)counts->longer,
                     "left_out_tokens", (json_int_t)counts->left_out);
}

static json_t *chunks_json(const ech_plan_chunks *chunks)
{
    return json_pack("{s:I, s:I, s:b}", "device_bytes", (json_int_t)chunks->bytes,
                     "one_chunk_bytes", (json_int_t)chunks->whole, "pay",
                     !ech_plan_chunks_waste(chunks));
}

json_t *ech_plan_report_tree(const ech_plan_report *report, bool steps)
{
    const ech_config *config = report->design->config;
    int stage;
    double most = ech_plan_imbalance(report->design, &stage);
    bool is_known = config->memory.device_limit != ECH_LIMIT_UNKNOWN;
    json_t *limit = is_known ? json_integer(config->memory.device_limit) : json_null();
    json_t *balance = json_pack("{s:f, s:i}", "largest_over_mean", most, "stage", stage);
    json_t *plans = json_array();
    for (size_t c = 0; c < report->alike.n; c++)
        json_array_append_new(plans, plan_json(report, &report->alike.at[c], steps));
    json_t *all = json_pack(
        "{s:i, s:s, s:o, s:o, s:o, s:o, s:i, s:I, s:s, s:s, s:s, s:s, s:s, s:o, s:o, s:o, s:o, "
        "s:b}",
        "version", VERSION, "echelon", ECH_VERSION, "model", model_json(report), "batch",
        batch_json(report->design), "grid", grid_json(report->design), "balance", balance, "world",
        report->design->world, "threads", (json_int_t)config->parallel.threads, "comm",
        ech_config_name(config, "parallel.comm"), "schedule", config->parallel.schedule,
        "reduction", ech_config_name(config, "parallel.reduction"), "device",
        ech_config_name(config, "parallel.device"), "instruction_set",
        ech_kernels_architecture(report->design->kernels), "device_limit_bytes", limit, "ranks",
        ranks_json(report), "plans", plans, "calendar", calendar_json(config), "checked",
        report->checked);
    if (all)
        json_object_set_new(all, "host_limit_bytes",
                            json_integer((json_int_t)config->memory.host_limit));
    if (all && report->data.samples) json_object_set_new(all, "data", data_json(&report->data));
    if (all && report->chunks.bytes)
        json_object_set_new(all, "sequence_chunks", chunks_json(&report->chunks));
    if (all && report->evaluator.plan)
        json_object_set_new(all, "evaluators", evaluators_json(report));
    if (all && report->checked) {
        json_object_set_new(all, "bubble", json_real(report->simulation.bubble));
        json_object_set_new(all, "simulation", simulation_json(report));
        if (report->design->cluster) json_object_set_new(all, "cluster", forecast_json(report));
    }
    if (all) ech_advice_json(&report->advice, ech_plan_days(report), all);
    return all;
}

/* Appends and releases it. Errors: it is NULL, or a text in it is not UTF-8. */
static ech_status print_tree(json_t *tree, ech_text *out)
{
    json_auto_t *all = tree;
    ECH_FREED char *text = all ? json_dumps(all, JSON_INDENT(1)) : NULL;
    if (!text) ECH_FAIL(ECH_EINTERNAL, "the plan cannot be written as JSON: a name is not UTF-8");
    ech_text_append(out, "%s\n", text);
    return ECH_OK;
}

ech_status ech_plan_report_json(const ech_plan_report *report, ech_text *out)
{
    return print_tree(ech_plan_report_tree(report, report->options.steps), out);
}

ech_status ech_plan_report_html(const ech_plan_report *report, ech_text *out)
{
    ECH_FREED_TEXT json = {0};
    ECH_TRY(print_tree(ech_plan_report_tree(report, true), &json));
    ech_plan_page(json.at, out);
    return ECH_OK;
}
