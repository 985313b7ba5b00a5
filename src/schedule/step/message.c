/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between stages: SEND_ACT, RECV_ACT, SEND_GRAD, RECV_GRAD.
 */
#include "schedule/step/step.h"

const char *ech_message_name(ech_message_kind kind)
{
    static const char *const names[] = {
#define X(name, text) text,
#include "schedule/messages.def"
#undef X
    };
    return names[kind];
}

ech_message_kind ech_step_kind_message(ech_step_kind kind)
{
    const ech_step_row *row = ech_step_row_of(kind);
    bool backward = row->phase == ECH_BACKWARD_INPUT, kept = row->methods == &ech_kept_methods;
    if (row->methods == &ech_ring_token_methods) return ECH_MESSAGE_RING_TOKEN;
    if (kept) return backward ? ECH_MESSAGE_BACK : ECH_MESSAGE_KEPT;
    return backward ? ECH_MESSAGE_GRADIENTS : ECH_MESSAGE_ACTIVATIONS;
}

bool ech_step_kind_is_gradient(ech_step_kind kind)
{
    return ech_step_kind_message(kind) == ECH_MESSAGE_GRADIENTS;
}

bool ech_step_kind_is_at_output(ech_step_kind kind)
{
    return ech_step_kind_sends(kind) != ech_step_kind_is_gradient(kind);
}

bool ech_step_kind_is_held(ech_step_kind kind)
{
    ech_message_kind message = ech_step_kind_message(kind);
    return message == ECH_MESSAGE_KEPT || message == ECH_MESSAGE_BACK;
}

bool ech_step_kind_is_of_blocks(ech_step_kind kind)
{
    return ech_step_kind_message(kind) < ECH_MESSAGE_KEPT;
}

int ech_step_boundary(const ech_step *step)
{
    if (ech_step_kind_is_held(step->kind)) return step->block;
    if (!ech_step_kind_is_of_blocks(step->kind)) return 0;
    return step->block + ech_step_kind_is_at_output(step->kind);
}

int ech_step_queue(const ech_step *step)
{
    if (step->lane != ECH_LANE_SEND && step->lane != ECH_LANE_RECEIVE) return step->lane;
    return ECH_LANES + ECH_MESSAGES * ech_step_boundary(step) +
           (int)ech_step_kind_message(step->kind);
}

size_t ech_step_ports(const ech_step *step, const ech_block *block, const int **ports)
{
    int phase = ech_step_row_of(step->kind)->phase; /* a COLLECTIVE has its own */
    bool forward = (phase < 0 ? (int)step->phase : phase) == ECH_FORWARD;
    if (ech_step_sends(step)) {
        *ports = forward ? block->output.at : block->dinput.at;
        return forward ? block->output.n : block->dinput.n;
    }
    *ports = forward ? block->input.at : block->doutput.at;
    return forward ? block->input.n : block->doutput.n;
}

void ech_message_touch(ech_accessor *a)
{
    const ech_block *block = a->plan->model->block.at[a->step->block];
    const int *ports;
    size_t n = ech_step_ports(a->step, block, &ports);
    for (size_t i = 0; i < n; i++)
        if (ports[i] >= 0) ech_access_local(a, ports[i], !ech_step_sends(a->step));
}

void ech_message_print(const ech_step *step, ech_text *out)
{
    ech_text_append(out, " %d.%d/%d %s rank %d", step->chunk, step->micro, step->block,
                    ech_step_sends(step) ? "to" : "from", step->peer);
}

ech_work ech_message_work(const ech_step_query *q)
{
    return (ech_work){.bytes = ech_step_sends(q->step) ? (double)q->step->bytes : 0};
}

double ech_message_seconds(const ech_step_query *q)
{
    return ech_cost_message(&q->costs->rates, (double)q->step->bytes, q->among.first,
                            q->among.last);
}

static void count(ech_traffic_count *c, const ech_step *step)
{
    ech_flow flow = {.calls = 1, .bytes = step->bytes};
    const int *ports;
    if (!ech_step_sends(step)) return;
    size_t n = ech_step_ports(step, c->plan->model->block.at[step->block], &ports);
    for (size_t i = 0; i < n; i++) flow.messages += ports[i] >= 0;
    ech_traffic_add(&c->traffic[ECH_TRAFFIC_PIPELINE], ECH_COLLECTIVE_NONE, ECH_GROUP_WORLD, flow);
}

const ech_step_methods ech_message_methods = {ech_message_touch, ech_message_print,
                                              ech_message_work, ech_message_seconds, count};
