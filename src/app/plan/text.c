/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of `echelon plan`: one page.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "app/count.h"
#include "app/plan/report.h"
#include "layer/layers.h"
#include "config/follow.h"
#include "config/strategy.h"
#include "schedule/balance.h"
#include "schedule/calendar.h"
#include "schedule/print.h"
#include "schedule/segments.h"

enum {
    MOST_ROWS = 8,
    MOST_MICRO_BATCHES = 8,
    MOST_COLUMNS = 100,
    MOST_GRID_ROWS = 16,
    MOST_NAMES = 3
};

/* ---- axes ---- */

/* "3 stages of 3, 1 and 1 replicas". */
static void print_stages(const ech_layout *layout, ech_text *out)
{
    if (layout->stages * layout->chunks == 1) return;
    ech_text_append(out, "%s", ECH_COUNT(layout->stages, "stage"));
    if (layout->chunks > 1) ech_text_append(out, " of %d chunks", layout->chunks);
    if (layout->uniform) return;
    for (int s = 0; s < layout->stages; s++) {
        bool last = s + 1 == layout->stages, more = s == MOST_ROWS && !last;
        ech_text_append(out, s == 0 ? " of " : last ? " and " : ", ");
        ech_text_append(out, more ? "..." : "%d", layout->replicas[s]);
        if (more) break;
    }
    ech_text_append(out, " replicas");
}

/* Nothing of none. */
static void print_count(int64_t n, const char *noun, ech_text *out)
{
    if (n > 0) ech_text_append(out, ", %s", ECH_COUNT(n, noun));
}

void ech_print_axes(const ech_design *design, ech_text *out)
{
    const ech_layout *layout = design->layout;
    const ech_roles roles = ech_layout_roles(layout);
    int sequence_chunks = design->model->options.sequence_chunks;
    ECH_FREED_TEXT axes = {0};
    print_stages(layout, &axes);
    if (layout->uniform && layout->replicas[0] > 1)
        ech_text_append(&axes, " x %d replicas", layout->replicas[0]);
    if (layout->context > 1)
        ech_text_append(&axes, " x %d context (%s)", layout->context,
                        ech_config_name(design->config, "parallel.context_method"));
    if (layout->tensor > 1) ech_text_append(&axes, " x %d tensor", layout->tensor);
    if (layout->sharding.sequence) ech_text_append(&axes, ", sequence parallel");
    if (design->config->parallel.strategy != ECH_STRATEGY_SYNCHRONOUS)
        ech_text_append(&axes, ", %s%s", ech_config_name(design->config, "parallel.strategy"),
                        design->config->parallel.strategy == ECH_STRATEGY_TPU ? " (emulated)" : "");
    print_count(roles.serve.n, "server", &axes);
    print_count(roles.evaluate.n, "evaluator", &axes);
    print_count(ech_strategy_backups(design->config), "backup worker", &axes);
    if (layout->sharding.expert > 1)
        ech_text_append(&axes, ", experts over %d", layout->sharding.expert);
    if (sequence_chunks > 1) ech_text_append(&axes, ", %d sequence chunks", sequence_chunks);
    /* What separates the first from none before it is left out. */
    if (axes.n) ech_text_append(out, "%s", axes.at + strspn(axes.at, " x,"));
}

/* ---- model ---- */

/* Consecutive blocks with as many parameters make one row. */
static void print_blocks(const ech_plan *plan, ech_text *out)
{
    const ech_model *model = plan->model;
    int blocks = (int)model->block.n;
    for (int first = 0, end; first < blocks; first = end) {
        ECH_FREED_TEXT name = {0};
        int64_t elements = ech_plan_block_elements(plan, first);
        for (end = first + 1; end < blocks && ech_plan_block_elements(plan, end) == elements;)
            end++;
        ech_text_append(&name, "%s", model->block.at[first]->name);
        if (end - first > 1) ech_text_append(&name, " .. %s", model->block.at[end - 1]->name);
        ech_text_append(out, ECH_PLAN_INDENT "%-44s %4d x %16s\n", name.at, end - first,
                        ECH_DIGITS(elements));
    }
}

static bool is_in_group(const ech_config *config, const ech_param *param, const ech_param *of)
{
    if (param->frozen || of->frozen) return param->frozen && of->frozen;
    return param->decay == of->decay && !(param->rate < of->rate || param->rate > of->rate) &&
           strcmp(ech_optimizer_rule_of(config, param).name,
                  ech_optimizer_rule_of(config, of).name) == 0;
}

/* A row for the parameters that are updated as the first one is. */
static void print_group(const ech_design *design, size_t first, ech_text *out)
{
    const ech_model *model = design->model;
    const ech_param *of = &model->param.at[first];
    int64_t numbers = 0;
    int tensors = 0;
    ECH_FREED_TEXT names = {0};
    for (size_t i = first; i < model->param.n; i++) {
        const ech_param *param = &model->param.at[i];
        if (!is_in_group(design->config, param, of)) continue;
        numbers += ech_shape_whole(&param->shape);
        if (tensors++ < MOST_NAMES)
            ech_text_append(&names, "%s%s", names.n ? ", " : "", param->name);
    }
    ech_text_append(out, "%s", first ? ECH_PLAN_INDENT : "groups      ");
    if (of->frozen)
        ech_text_append(out, "frozen");
    else
        ech_text_append(out, "%s, rate x %g, %s", ech_optimizer_rule_of(design->config, of).name,
                        of->rate, of->decay ? "decay" : "no decay");
    ech_text_append(out, ": %s, %s numbers: %s%s\n", ECH_COUNT(tensors, "tensor"),
                    ECH_DIGITS(numbers), names.at, tensors > MOST_NAMES ? ", ..." : "");
}

/* Parameters with the same rule, rate and decay, in the order of the first of each. */
static void print_groups(const ech_design *design, ech_text *out)
{
    const ech_model *model = design->model;
    for (size_t i = 0; ech_optimizer_has_groups(design->config) && i < model->param.n; i++) {
        bool seen = false;
        for (size_t before = 0; before < i; before++)
            seen |= is_in_group(design->config, &model->param.at[before], &model->param.at[i]);
        if (!seen) print_group(design, i, out);
    }
}

/* "fp32", or "bf16 (gradients fp32, stream bf16, all else fp32)". */
static void print_types(const ech_design *design, ech_text *out)
{
    ech_types types = ech_model_types(design->config);
    ech_dtype stream = ech_type_dtype(design->model->options.stream, types.wide, types);
    ech_text_append(out, "%s", ech_dtype_name(types.compute));
    if (types.compute == types.wide) return;
    ech_text_append(out, " (gradients %s, stream %s, vectors, statistics, logits and masters %s)",
                    ech_dtype_name(types.gradient), ech_dtype_name(stream),
                    ech_dtype_name(types.wide));
}

/* What a layer's experts keep of rows that they receive, where they have a bound. */
static void print_bound(const ech_plan *plan, ech_text *out)
{
    const ech_model *model = plan->model;
    ech_extent extent = plan->list[ECH_LIST_TRAIN].extent;
    int64_t tensor = plan->layout->tensor, members = plan->layout->sharding.expert;
    for (size_t b = 0; b < model->block.n; b++)
        for (size_t n = 0; n < model->block.at[b]->node.n; n++) {
            const ech_block *block = model->block.at[b];
            const ech_node *node = &block->node.at[n];
            ech_round round = ech_node_round(node);
            if (round.of == 1 || node->layer != &ech_layer_row_exchange_rows) continue;
            ech_shape slices = ech_shape_of_rows(&block->value.at[node->out[0]].shape);
            ech_shape packed = ech_shape_of_rows(&block->value.at[node->in[0]].shape);
            int64_t kept = tensor * ech_shape_count(&slices, extent);
            int64_t all = tensor * members * ech_shape_count(&packed, extent);
            if (all > kept * round.of) all = kept * round.of;
            ech_text_append(out,
                            ECH_PLAN_INDENT "the experts of a rank buffer up to %s rows per layer, "
                                            "of at most %s; the rest needs up to %s\n",
                            ECH_DIGITS(kept), ECH_DIGITS(all),
                            ECH_COUNT(round.of - 1, "further round"));
            return;
        }
}

static void print_model(const ech_plan_report *report, ech_text *out)
{
    const ech_design *design = report->design;
    ECH_FREED_TEXT types = {0};
    print_types(design, &types);
    int64_t all = ech_model_params(design->model), active = ech_model_active(design->model);
    ech_text_append(out, "model       %s: %s parameters in %zu blocks, %s; %s a step\n",
                    design->model->family->name, ECH_DIGITS(all), design->model->block.n, types.at,
                    ECH_SCALED(ech_plan_step_flops(design), "FLOP"));
    if (active < all)
        ech_text_append(out, ECH_PLAN_INDENT "of these active in a token: %s; %s a token\n",
                        ECH_DIGITS(active), ECH_SCALED(ech_plan_token_flops(design), "FLOP"));
    int64_t trained = ech_model_trained(design->model);
    if (trained < all)
        ech_text_append(out, ECH_PLAN_INDENT "of these trained: %s; %s are frozen\n",
                        ECH_DIGITS(trained), ECH_DIGITS(all - trained));
    print_bound(report->alike.at[0].plan, out);
    print_blocks(report->alike.at[0].plan, out);
    print_groups(design, out);
}

/* ---- layout ---- */

/* "0 .. 3", or "0 .. 1, 8 .. 9" of several chunks. */
static void print_blocks_of(const ech_layout *layout, int rank, ech_text *out)
{
    for (int chunk = 0; chunk < layout->chunks; chunk++) {
        int first, end;
        ech_layout_blocks(layout, rank, chunk, &first, &end);
        ech_text_append(out, chunk ? ", %d" : "%d", first);
        if (end - 1 > first) ech_text_append(out, " .. %d", end - 1);
    }
}

/* "3", or "4 .. 7". */
static void print_range(int first, int count, int width, ech_text *out)
{
    char text[32];
    snprintf(text, sizeof text, count > 1 ? "%d .. %d" : "%d", first, first + count - 1);
    ech_text_append(out, "%*s", width, text);
}

static int rank_width(const ech_layout *layout)
{
    return layout->tensor > 1 ? 12 : 4;
}

static int blocks_width(const ech_layout *layout)
{
    return layout->chunks > 1 ? 20 : 10;
}

/* Axes along which there is one rank have no column. */
static void print_columns(const ech_layout *layout, ech_text *out)
{
    ech_text_append(out, ECH_PLAN_INDENT "%*s  stage  data%s%s  %-*s  micro-batches\n",
                    rank_width(layout), "rank", layout->context > 1 ? "  context" : "",
                    layout->tensor > 1 ? "    tensor" : "", blocks_width(layout), "blocks");
}

/* Tensor ranks, which are neighbours, do the same: the first stands for all. */
static void print_rank(const ech_layout *layout, int rank, ech_text *out)
{
    const ech_coordinates *here = &layout->coordinates[rank];
    int micro_batches = ech_layout_micro_batches(layout, rank);
    ECH_FREED_TEXT blocks = {0};
    print_blocks_of(layout, rank, &blocks);
    ech_text_append(out, ECH_PLAN_INDENT);
    print_range(rank, layout->tensor, rank_width(layout), out);
    if (ech_layout_serves(layout, rank)) {
        ech_text_append(out, "  a server of weights and optimizer states\n");
        return;
    }
    ech_text_append(out, "  %5d  %4d", here->stage, here->data);
    if (layout->context > 1) ech_text_append(out, "  %7d", here->context);
    if (layout->tensor > 1) print_range(0, layout->tensor, 10, out);
    ech_text_append(out, "  %-*s ", blocks_width(layout), blocks.at);
    for (int k = 0; k < micro_batches && k < MOST_MICRO_BATCHES; k++)
        ech_text_append(out, " %" PRId64, ech_layout_global_micro(layout, rank, k));
    ech_text_append(out, micro_batches > MOST_MICRO_BATCHES ? " ...\n" : "\n");
}

/* What is even to half a percent is not worth a line. */
static void print_imbalance(const ech_design *design, ech_text *out)
{
    int stage;
    double most = ech_plan_imbalance(design, &stage);
    if (design->layout->stages == 1) return;
    if (most < 1.005)
        ech_text_append(out, ECH_PLAN_INDENT "stages are even in FLOPs\n");
    else
        ech_text_append(out,
                        ECH_PLAN_INDENT "uneven: ranks of stage %d have %.2f x the mean of FLOPs\n",
                        stage, most);
}

static void print_strategy(const ech_config *config, ech_text *out)
{
    int64_t meets_every = ech_protocol_for(config)->meets_every(config);
    const char *keys = ech_strategy_keys(config);
    if (keys[0])
        ech_text_append(out, ECH_PLAN_INDENT "%s%s: %s\n",
                        config->parallel.strategy == ECH_STRATEGY_TPU ? "emulates " : "",
                        ech_config_name(config, "parallel.strategy"), keys);
    if (!meets_every) return;
    ech_text_append(out,
                    ECH_PLAN_INDENT "replicas are averaged after every %s, outer learning rate %g, "
                                    "outer momentum %g\n",
                    ECH_COUNT(meets_every, "step"), config->parallel.outer_learning_rate,
                    config->parallel.outer_momentum);
}

static void print_delays(const ech_layout *layout, ech_text *out)
{
    for (int rank = 0; rank < layout->world; rank++)
        if (ech_layout_delay(layout, rank) > 0)
            ech_text_append(out, ECH_PLAN_INDENT "rank %d sleeps %g s in each step\n", rank,
                            ech_layout_delay(layout, rank));
}

/* Ranks that follow the table's (evaluators), and the chief. */
static void print_roles(const ech_layout *layout, ech_text *out)
{
    const ech_roles roles = ech_layout_roles(layout);
    const ech_ranks evaluators = roles.evaluate;
    if (evaluators.n) {
        ech_text_append(out, ECH_PLAN_INDENT);
        print_range(evaluators.first, evaluators.n, rank_width(layout), out);
        ech_text_append(out, evaluators.n > 1 ? "  evaluators, each with checkpoints of its own\n"
                                              : "  an evaluator of checkpoints\n");
    }
    if (evaluators.n || roles.serve.n)
        ech_text_append(out,
                        ECH_PLAN_INDENT "rank 0 is the chief: it initializes, begins and commits "
                                        "checkpoints%s\n",
                        evaluators.n ? ", hands them out and writes the evaluators' results" : "");
}

static void print_data(const ech_plan_report *report, ech_text *out)
{
    if (!report->data.samples && !report->no_data) return;
    ech_text_append(out, "data        ");
    if (report->no_data)
        ech_text_append(out, "not counted: %s", report->no_data);
    else
        ech_print_data(report->design, &report->data, "\n" ECH_PLAN_INDENT, out);
    ech_text_append(out, "\n");
}

static void print_layout(const ech_plan_report *report, ech_text *out)
{
    const ech_layout *layout = report->design->layout;
    const ech_config *config = report->design->config;
    int rows = layout->world / layout->tensor, shown = rows <= MOST_ROWS ? rows : MOST_ROWS - 2;
    ECH_FREED_TEXT axes = {0};
    ech_text_append(out, "batch       %" PRId64 " samples", config->training.global_batch_size);
    if (ech_model_reads_texts(config))
        ech_text_append(out, " of %" PRId64 " tokens", config->data.sequence_length);
    ech_text_append(out, " a step = %s of %" PRId64,
                    ECH_COUNT(layout->micro_batches, "micro-batch"), layout->micro_batch);
    if (report->design->model->options.sequence_chunks > 1)
        ech_text_append(out, ", each in %d sequence chunks",
                        report->design->model->options.sequence_chunks);
    ech_text_append(out, "\nlayout      %s", ECH_COUNT(ech_layout_ranks(layout), "rank"));
    if (report->design->cluster)
        ech_text_append(out, ", on %s", report->design->cluster->name);
    else
        ech_text_append(out, " of %s, on %s", ECH_COUNT(config->parallel.threads, "thread"),
                        ech_config_name(config, "parallel.comm"));
    ech_print_axes(report->design, &axes);
    if (axes.n) ech_text_append(out, ": %s", axes.at);
    ech_text_append(out, "\n");
    ech_config_print_followed(config, ECH_PLAN_INDENT, out);
    print_strategy(config, out);
    print_columns(layout, out);
    for (int row = 0; row < shown; row++) print_rank(layout, row * layout->tensor, out);
    if (shown < rows) {
        ech_text_append(out, ECH_PLAN_INDENT "... and %d more ranks\n",
                        layout->world - (shown + 1) * layout->tensor);
        print_rank(layout, layout->world - layout->tensor, out);
    }
    print_roles(layout, out);
    print_imbalance(report->design, out);
    print_delays(layout, out);
}

/* ---- schedule ---- */

/* Without a pipeline time says nothing that the order does not. Long rows are truncated between two
 * words. */
static void print_rows(const ech_plan_report *report, ech_text *out)
{
    for (size_t c = 0; c < report->alike.n && c < MOST_ROWS; c++) {
        const ech_plan_class *alike = &report->alike.at[c];
        ECH_FREED_TEXT row = {0};
        if (ech_layout_serves(alike->plan->layout, alike->plan->rank))
            continue; /* it has no order */
        ech_list_print_row(&alike->plan->list[ECH_LIST_TRAIN], &row);
        size_t n = row.n;
        if (n > MOST_COLUMNS)
            for (n = MOST_COLUMNS; n > 0 && row.at[n] != ' ';) n--;
        ech_text_append(out, ECH_PLAN_INDENT "rank %d: %.*s%s\n", alike->plan->rank, (int)n,
                        row.n ? row.at : "", n < row.n ? " ..." : "");
        if (alike->ranks > 1)
            ech_text_append(out, ECH_PLAN_INDENT "%s like it\n",
                            ECH_COUNT(alike->ranks - 1, "more rank"));
    }
}

static void print_grid(const ech_plan_report *report, ech_text *out)
{
    ECH_FREED_TEXT grid = {0};
    ech_timeline_text(&report->timeline, MOST_COLUMNS, MOST_GRID_ROWS, &grid);
    for (const char *at = grid.at, *end; *at; at = end + (*end == '\n')) {
        end = strchrnul(at, '\n');
        ech_text_append(out, "%s%.*s\n", end > at ? ECH_PLAN_INDENT : "", (int)(end - at), at);
    }
}

static void print_schedule(const ech_plan_report *report, ech_text *out)
{
    const ech_config *config = report->design->config;
    const ech_layout *layout = report->design->layout;
    int turns = report->design->schedule->turns;
    ech_text_append(out, "schedule    %s", config->parallel.schedule);
    if (layout->stages > 1) ech_text_append(out, ", %d stages", layout->stages);
    if (layout->chunks > 1) ech_text_append(out, " of %d chunks", layout->chunks);
    if (report->design->schedule->delayed_from)
        ech_text_append(out, "; from step %lld on updates are delayed, in spans of %d steps",
                        (long long)report->design->schedule->delayed_from + 1, turns);
    else if (turns > 1)
        ech_text_append(out, ", drained every %d steps", turns);
    ech_text_append(out, "\n");
    if (layout->stages > 1 && report->checked)
        print_grid(report, out);
    else
        print_rows(report, out);
}

/* Of the first rank: what it keeps, and what it makes again. */
static void print_recomputation(const ech_plan_report *report, ech_text *out)
{
    const ech_plan *plan = report->alike.at[0].plan;
    int64_t kept[ECH_KEPTS], longest = 0;
    bool inverts = plan->model->options.invert;
    bool offloads = plan->kept != ECH_SPACE_DEVICE;
    bool encodes = plan->model->options.encode != ECH_ENCODE_NONE;
    if (plan->model->options.recompute == ECH_RECOMPUTE_NONE && !inverts && !offloads && !encodes)
        return;
    for (int b = 0; b < (int)plan->model->block.n; b++)
        if (plan->segment[b] >= 0 && b - plan->segment[b] >= longest)
            longest = b - plan->segment[b] + 1;
    ech_plan_kept(plan, kept);
    ech_text_append(out, "recompute   %s",
                    inverts ? "inverted"
                            : ech_config_name(report->design->config, "memory.recompute"));
    if (plan->model->options.recompute == ECH_RECOMPUTE_FULL || inverts)
        ech_text_append(out, ", segments of %s", ECH_COUNT(longest, "layer"));
    ech_text_append(out, "; rank %d, a micro-batch:", plan->rank);
    for (int k = 0; k < ECH_KEPTS; k++)
        if (k < ECH_KEPT_OFFLOADED || kept[k] > 0)
            ech_text_append(out, "%s %s %s", k ? "," : "", ECH_BYTES(kept[k]),
                            ech_kept_name((ech_kept)k));
    ech_text_append(out, "\n");
}

/* Which stages hold what others keep, and how much these keep at most. */
static void print_peers(const ech_plan_report *report, ech_text *out)
{
    const ech_design *design = report->design;
    int64_t chunks = design->config->memory.sequence_chunks;
    bool first = true;
    if (design->config->memory.offload_activations != ECH_OFFLOAD_PEER) return;
    for (int stage = 0; stage < design->layout->stages / 2; stage++) {
        ech_balance b;
        ech_balance_find(design->schedule, design->model, design->layout,
                         ech_layout_rank_at(design->layout, stage, 0, 0, 0),
                         chunks > 1 ? (int)chunks : 1, (int)design->config->memory.prefetch, &b);
        if (b.hold.n) {
            const ech_coordinates *at = design->layout->coordinates;
            ech_text_append(out, "%s stage %d keeps at most %d of %d", first ? "peers      " : ";",
                            at[b.evictor].stage, b.limit, b.kept);
            ech_text_append(out, "%s at once, stage %d holds the others",
                            first ? " micro-batches" : "", at[b.acceptor].stage);
            first = false;
        }
        ech_balance_free(&b);
    }
    if (!first) ech_text_append(out, "\n");
}

/* ---- calendar ---- */

static void print_every(const char *what, int64_t every, ech_text *out)
{
    if (every > 0)
        ech_text_append(out, "; %s every %" PRId64 " and last", what, every);
    else
        ech_text_append(out, "; %s after the last", what);
}

static void print_calendar(const ech_plan_report *report, ech_text *out)
{
    ech_calendar calendar = ech_calendar_of(report->design->config);
    ech_text_append(out, "calendar    %s", ECH_COUNT(calendar.steps, "step"));
    if (calendar.validates) print_every("validate", calendar.validate_every, out);
    print_every("compare ranks", calendar.check_every, out);
    print_every("save", calendar.save_every, out);
    ech_text_append(out, "\n");
}

static void print_steps(const ech_plan_report *report, ech_text *out)
{
    for (size_t c = 0; c < report->alike.n && c < MOST_ROWS; c++) {
        const ech_plan *plan = report->alike.at[c].plan;
        ech_text_append(out,
                        "steps       of the list train, rank %d: number, lane, step, what it comes "
                        "after\n",
                        plan->rank);
        ech_list_print(&plan->list[ECH_LIST_TRAIN], out);
    }
}

static void print_serves(const ech_serve_log *log, ech_text *out)
{
    if (!log) return;
    ech_text_append(out,
                    "bound       to %s: pushes of steps %" PRId64 " to %" PRId64
                    ", each span checked; times are of the first\n",
                    log->path, log->first + 1, log->end);
}

/* The hint is the choice with which the device needs the least. */
static void print_chunks(const ech_plan_report *report, ech_text *out)
{
    const ech_plan_chunks *chunks = &report->chunks;
    int n = report->design->model->options.sequence_chunks;
    if (!ech_plan_chunks_waste(chunks)) return;
    bool away = chunks->away > 0 && chunks->away < chunks->whole;
    ech_text_append(
        out,
        "chunks      %d sequence chunks do not pay: the device needs %s, with one chunk "
        "%s; ",
        n, ECH_BYTES(chunks->bytes), ECH_BYTES(chunks->whole));
    if (away)
        ech_text_append(out, "set memory.offload_activations=host, with which it needs %s\n",
                        ECH_BYTES(chunks->away));
    else
        ech_text_append(out, "set memory.sequence_chunks=1\n");
}

static void print_checked(const ech_layout *layout, ech_text *out)
{
    ech_text_append(out, "checked     all lists of %s, and against each other",
                    ECH_COUNT(layout->world, "rank"));
    if (layout->classes.n < layout->world)
        ech_text_append(out, "; of ranks that are alike the first: %d of them", layout->classes.n);
    ech_text_append(out, "\n");
}

void ech_plan_report_text(const ech_plan_report *report, ech_text *out)
{
    print_model(report, out);
    print_data(report, out);
    print_layout(report, out);
    print_schedule(report, out);
    print_recomputation(report, out);
    print_peers(report, out);
    if (report->options.simulate) ech_plan_print_simulation(report, out);
    ech_plan_print_forecast(report, out);
    ech_advice_text(&report->advice, ech_plan_days(report), out);
    ech_plan_print_memory(report, out);
    print_chunks(report, out);
    ech_plan_print_traffic(report, out);
    print_calendar(report, out);
    print_serves(report->design->serves, out);
    if (report->checked)
        print_checked(report->design->layout, out);
    else
        ech_text_append(out,
                        "checked     each list; the lists are too long to be checked against each "
                        "other\n");
    if (report->options.steps) print_steps(report, out);
}
