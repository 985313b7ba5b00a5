/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages from cluster to cluster: SEND_RING_TOKEN and RECV_RING_TOKEN.
 */
#include "schedule/step/step.h"

static void touch(ech_accessor *a)
{
    ech_access_value(a, a->plan->ring_token, !ech_step_sends(a->step));
}

static void print(const ech_step *step, ech_text *out)
{
    ech_text_append(out, " %s rank %d", ech_step_sends(step) ? "to" : "from", step->peer);
}

static void count(ech_traffic_count *c, const ech_step *step)
{
    ech_flow flow = {.calls = 1, .messages = 1, .bytes = step->bytes};
    if (ech_step_sends(step))
        ech_traffic_add(&c->traffic[ECH_TRAFFIC_RING_TOKEN], ECH_COLLECTIVE_NONE, ECH_GROUP_WORLD,
                        flow);
}

const ech_step_methods ech_ring_token_methods = {touch, print, ech_message_work,
                                                 ech_message_seconds, count};
