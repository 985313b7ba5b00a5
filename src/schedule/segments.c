/* SPDX-License-Identifier: Apache-2.0
 *
 * Activation recomputation: decides which blocks are recomputed together. A segment of N blocks
 * keeps its first block's input. R recomputes its blocks first to last, before the B of the last
 * one; their values are then live at the same time. If R inverts blocks, a segment keeps its last
 * block's output, and each R comes right before its block's B: long segments are then best.
 *
 * With n blocks and m inputs in flight, the memory is about ceil(n / N) m a + N b bytes, where a is
 * an input and b what R makes of a block for its B and W. It is least at N = sqrt(n m a / b) (Chen
 * et al. 2016, arXiv:1604.06174, section 3.2; Narayanan et al. 2021, arXiv:2104.04473, section
 * 3.5).
 */
#include <string.h>

#include "schedule/passes.h"
#include "schedule/segments.h"

bool ech_plan_continues_segment(const ech_plan *plan, int block)
{
    return block < (int)plan->model->block.n && plan->segment[block] >= 0 &&
           plan->segment[block] < block;
}

ech_calls ech_plan_calls(const ech_plan *plan, const ech_list *list, int block, ech_phase phase)
{
    const ech_block *of = plan->model->block.at[block];
    ech_calls calls = {0, ech_program_calls(of, phase, list->purpose)};
    bool again = phase == ECH_RECOMPUTE, keeps = phase == ECH_FORWARD && list->purpose == ECH_TRAIN;
    /* The last calls serve the R of the next block; where R inverts, the R of the previous
     * block. */
    int neighbour = of->options.invert ? block : block + 1;
    bool crossed = ech_plan_continues_segment(plan, neighbour);
    if (again && !crossed) calls.end = of->needed;
    if (!again && crossed) calls.first = of->doubled[phase];
    if (again && ech_plan_continues_segment(plan, block)) calls.first = of->sharded;
    if (keeps && of->sharded && ech_plan_continues_segment(plan, block)) calls.end -= of->sharded;
    return calls;
}

/* ---- number of blocks ---- */

static void mark_operands(const ech_block *block, ech_phase phase, int calls, bool write,
                          bool *marked)
{
    for (int c = 0; c < calls; c++) {
        const ech_block_call *call = &block->program[phase].at[c];
        for (const ech_operand *o = NULL; (o = ech_call_next(block, call, ECH_TRAIN, o));)
            if (ech_operand_is_value(o) && (o->mode != ECH_READ) == write) marked[o->value] = true;
    }
}

/* Bytes that the first `calls` of R make of the block and B and W read. */
static int64_t made_bytes(const ech_plan *plan, const ech_block *block, int calls,
                          ech_extent extent)
{
    ECH_FREED bool *made = ech_calloc(block->value.n, sizeof *made);
    ECH_FREED bool *read = ech_calloc(block->value.n, sizeof *read);
    int64_t bytes = 0;
    mark_operands(block, ECH_RECOMPUTE, calls, true, made);
    for (int phase = ECH_BACKWARD_INPUT; phase <= ECH_BACKWARD_WEIGHT; phase++)
        mark_operands(block, (ech_phase)phase, (int)block->program[phase].n, false, read);
    for (size_t v = 0; v < block->value.n; v++)
        if (made[v] && read[v])
            bytes += (int64_t)ech_block_value_bytes(block, (int)v, extent, plan->types);
    return bytes;
}

static int64_t input_bytes(const ech_plan *plan, const ech_block *block, ech_extent extent)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < block->input.n; i++)
        bytes += (int64_t)ech_block_value_bytes(block, block->input.at[i], extent, plan->types);
    return bytes;
}

/* True if this rank, or the peer whose blocks it holds, runs the block next to `index`. */
static bool is_beside(const ech_plan *plan, int index, int block)
{
    if (block < 0 || block >= (int)plan->model->block.n) return false;
    bool own = ech_layout_has_block(plan->layout, plan->rank, index);
    return ech_layout_has_block(plan->layout, own ? plan->rank : plan->peer, block);
}

/* Two inputs that are one output of the previous block, such as the streams of a reversible model
 * after its embedding, are one value on its rank. */
static void join_inputs(const ech_plan *plan, int index, bool *kept)
{
    const ech_block *block = plan->model->block.at[index];
    if (!is_beside(plan, index, index - 1)) return;
    const ech_block *before = plan->model->block.at[index - 1];
    for (size_t i = 1; i < block->input.n; i++)
        for (size_t j = 0; j < i; j++)
            if (before->output.at[i] == before->output.at[j] && kept[block->input.at[i]]) {
                kept[block->input.at[i]] = false;
                kept[block->input.at[j]] = true;
            }
}

/* continues: the block's input, or where R inverts its output, is recomputed with a neighbour's. */
static void find_kept(const ech_block *block, bool continues, bool *kept)
{
    ECH_FREED bool *made = ech_calloc(block->value.n, sizeof *made);
    ECH_FREED bool *read = ech_calloc(block->value.n, sizeof *read);
    mark_operands(block, ECH_FORWARD, (int)block->program[ECH_FORWARD].n, true, made);
    mark_operands(block, ECH_RECOMPUTE, block->needed, false, read);
    for (int phase = ECH_BACKWARD_INPUT; phase <= ECH_BACKWARD_WEIGHT; phase++)
        mark_operands(block, (ech_phase)phase, (int)block->program[phase].n, false, read);
    for (size_t i = 0; i < block->input.n; i++) made[block->input.at[i]] = true;
    const int *ends = block->options.invert ? block->output.at : block->input.at;
    for (size_t i = 0; !continues && !block->sharded && i < block->rinput.n; i++)
        read[ends[i]] = true;
    for (size_t v = 0; v < block->value.n; v++) {
        const ech_block_value *value = &block->value.at[v];
        bool from_forward = value->role == ECH_ROLE_ACTIVATION || value->role == ECH_ROLE_TABLE;
        kept[v] = made[v] && read[v] && from_forward &&
                  !(continues && value->kept == ECH_KEPT_SHARDED);
    }
}

/* True if the block's R reads what a neighbour's R makes, and no kept input or output. */
static bool continues(const ech_plan *plan, int index)
{
    bool inverts = plan->model->block.at[index]->options.invert;
    return ech_plan_continues_segment(plan, inverts ? index + 1 : index);
}

/* An output that R inverts, or that B reads, may also be an input that the next block keeps. It is
 * one value on its rank, which the next block keeps. */
static void leave_outputs(const ech_plan *plan, int index, bool *kept)
{
    const ech_block *block = plan->model->block.at[index];
    if (!is_beside(plan, index, index + 1)) return;
    const ech_block *next = plan->model->block.at[index + 1];
    ECH_FREED bool *theirs = ech_calloc(next->value.n, sizeof *theirs);
    find_kept(next, continues(plan, index + 1), theirs);
    for (size_t i = 0; i < block->output.n; i++)
        if (theirs[next->input.at[i]]) kept[block->output.at[i]] = false;
}

void ech_plan_find_kept(const ech_plan *plan, int index, bool *kept)
{
    find_kept(plan->model->block.at[index], continues(plan, index), kept);
    join_inputs(plan, index, kept);
    leave_outputs(plan, index, kept);
}

bool ech_segments_keep(const ech_block *block)
{
    ECH_FREED bool *kept = ech_calloc(block->value.n, sizeof *kept);
    bool some = false;
    find_kept(block, false, kept);
    for (size_t v = 0; v < block->value.n; v++) some |= kept[v] && !block->value.at[v].cached;
    return some;
}

int64_t ech_plan_kept_bytes(const ech_plan *plan, int index)
{
    const ech_block *block = plan->model->block.at[index];
    ech_extent extent = plan->list[ECH_LIST_TRAIN].extent;
    ECH_FREED bool *kept = ech_calloc(block->value.n, sizeof *kept);
    int64_t bytes = 0;
    ech_plan_find_kept(plan, index, kept);
    for (size_t v = 0; v < block->value.n; v++)
        if (kept[v] && !block->value.at[v].cached)
            bytes += (int64_t)ech_block_value_bytes(block, (int)v, extent, plan->types);
    return bytes;
}

static ech_kept how_kept(const ech_plan *plan, const ech_block_value *value)
{
    if (plan->kept != ECH_SPACE_DEVICE) return ECH_KEPT_OFFLOADED;
    return value->kept == ECH_KEPT_RECOMPUTED ? ECH_KEPT_STORED : value->kept;
}

void ech_plan_kept(const ech_plan *plan, int64_t bytes[ECH_KEPTS])
{
    ech_extent extent = plan->list[ECH_LIST_TRAIN].extent;
    memset(bytes, 0, ECH_KEPTS * sizeof *bytes);
    for (int b = 0; b < (int)plan->model->block.n; b++) {
        const ech_block *block = plan->model->block.at[b];
        if (!ech_layout_has_block(plan->layout, plan->rank, b)) continue;
        ECH_FREED bool *kept = ech_calloc(block->value.n, sizeof *kept);
        ech_plan_find_kept(plan, b, kept);
        for (size_t v = 0; v < block->value.n; v++)
            if (kept[v])
                bytes[how_kept(plan, &block->value.at[v])] +=
                    (int64_t)ech_block_value_bytes(block, (int)v, extent, plan->types);
        bytes[ECH_KEPT_RECOMPUTED] += made_bytes(plan, block, block->needed, extent);
    }
}

/* The most inputs of a chunk's block that are kept at the same time. */
static int count_in_flight(const ech_order *order, int chunk)
{
    int now = 0, most = 0;
    for (size_t i = 0; i < order->n; i++) {
        if (order->at[i].chunk != chunk) continue;
        now += (order->at[i].action == ECH_F) - (order->at[i].action == ECH_B);
        if (now > most) most = now;
    }
    return most;
}

/* The N with the fewest bytes, for blocks like this one. */
static int choose_blocks(const ech_plan *plan, const ech_block *block, int n, int in_flight)
{
    ech_extent extent = plan->list[ECH_LIST_TRAIN].extent;
    double input = (double)input_bytes(plan, block, extent);
    double kept = input / (block->sharded ? plan->layout->tensor : 1);
    double made = (double)made_bytes(plan, block, block->needed, extent), least = 0;
    int all = (int)block->program[ECH_RECOMPUTE].n;
    double crossed = (double)made_bytes(plan, block, all, extent) + input;
    bool away = plan->kept != ECH_SPACE_DEVICE;
    double there = 1 + plan->prefetch; /* inputs on the device, of those that are offloaded */
    int best = 1;
    for (int N = 1; N <= n; N++) {
        int segments = (n + N - 1) / N;
        double inputs = (double)segments * in_flight;
        if (away && inputs > there) inputs = there;
        double bytes = inputs * kept + made + (N - 1) * crossed;
        if (N > 1 && bytes >= least) continue;
        least = bytes;
        best = N;
    }
    return best;
}

static int count_layers(const ech_model *model, int first, int end)
{
    int n = 0;
    for (int b = first; b < end; b++) n += model->block.at[b]->needed > 0;
    return n;
}

/* The blocks from `first` on that R recomputes in the same way; 0: R does not run in that block. */
static int count_alike(const ech_model *model, int first, int end)
{
    const ech_block *block = model->block.at[first];
    int b = first;
    while (b < end && model->block.at[b]->needed > 0 &&
           model->block.at[b]->options.invert == block->options.invert)
        b++;
    return b - first;
}

/* Divides n blocks that R recomputes in the same way into segments. */
static void fill_run(ech_plan *plan, const ech_config *config, int first, int n, int in_flight)
{
    const ech_block *block = plan->model->block.at[first];
    int N = (int)config->memory.recompute_blocks;
    if (!block->rinput.n) N = 1; /* its input is kept */
    if (N == ECH_AUTO && block->options.invert) N = n;
    if (N == ECH_AUTO) N = choose_blocks(plan, block, n, in_flight);
    for (int b = first; b < first + n; b++) plan->segment[b] = b - (b - first) % N;
}

static void fill_segments(ech_plan *plan, const ech_config *config, int rank,
                          const ech_order *order)
{
    const ech_model *model = plan->model;
    int first, end;
    for (int chunk = 0; chunk < plan->layout->chunks; chunk++) {
        ech_layout_blocks(plan->layout, rank, chunk, &first, &end);
        for (int b = first, n; b<end; b += n> 0 ? n : 1) {
            n = count_alike(model, b, end);
            if (n > 0) fill_run(plan, config, b, n, count_in_flight(order, chunk));
        }
    }
}

/* Also for the peer's blocks, whose activations this rank may hold. */
void ech_pass_segments(ech_plan *plan, const ech_config *config, const ech_order *order)
{
    int blocks = (int)plan->model->block.n;
    ECH_FREED ech_order theirs = {0};
    plan->segment = ech_calloc((size_t)blocks, sizeof *plan->segment);
    for (int b = 0; b < blocks; b++) plan->segment[b] = -1;
    fill_segments(plan, config, plan->rank, order);
    if (plan->peer < 0) return;
    ech_schedule_order(plan->schedule, plan->layout, plan->peer, plan->schedule->turns, false,
                       &theirs);
    ech_order_expand_sequence_chunks(plan->schedule, &theirs, plan->list[ECH_LIST_TRAIN].numbering,
                                     NULL);
    fill_segments(plan, config, plan->peer, &theirs);
}

ech_status ech_segments_check(const ech_config *config, const ech_model *model,
                              const ech_layout *layout)
{
    int most = 0;
    for (int rank = 0; rank < layout->world; rank++)
        for (int chunk = 0, first, end; chunk < layout->chunks; chunk++) {
            ech_layout_blocks(layout, rank, chunk, &first, &end);
            int n = count_layers(model, first, end);
            if (n > most) most = n;
        }
    if (most == 0 || config->memory.recompute_blocks <= most) return ECH_OK;
    return ech_config_complain(config, "memory.recompute_blocks",
                               "no stage recomputes more than %s; use at most %d, or remove this "
                               "key",
                               ECH_COUNT(most, "layer"), most);
}
