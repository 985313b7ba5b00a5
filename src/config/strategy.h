/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.strategy: names for what several other keys say together (strategies.def).
 */
#ifndef ECH_CONFIG_STRATEGY_H
#define ECH_CONFIG_STRATEGY_H

#include "config/config.h"

/* How gradients reach the weights (protocols.def). */
typedef enum ech_strategy_protocol_kind {
#define X(NAME, name, sums, one) ECH_PROTOCOL_##NAME,
#include "config/protocols.def"
    ECH_PROTOCOLS
} ech_strategy_protocol_kind;

/* Over which ranks gradients are summed. */
typedef enum ech_strategy_sums {
    ECH_SUMS_ALL,     /* all that hold the same parameters, and servers */
    ECH_SUMS_REPLICA, /* the ranks of one replica */
    ECH_SUMS_SERVERS  /* a worker's own reach servers by themselves */
} ech_strategy_sums;

/* All of them, blank-separated. */
extern const char ech_strategy_names[];

/* Sets the keys that the configuration's strategy stands for, as ech_config_fill does: what they
 * are is then printed, ruled and resolved as if the run file had set them. Call it once all
 * assignments are made. Errors: a key is set to another value than the strategy's, each with a
 * line. */
ech_status ech_strategy_apply(ech_config *config);
/* By which protocol the strategy, with the keys beside it, trains. */
ech_strategy_protocol_kind ech_strategy_protocol(const ech_config *config);
/* What protocols.def says of that: `sums`, and `one`. */
ech_strategy_sums ech_strategy_sums_over(const ech_config *config);
bool ech_strategy_updates_alone(const ech_config *config);
/* The assignments that it makes, divided by blanks; "": none. */
const char *ech_strategy_keys(const ech_config *config);
/* Whether replicas are apart: each takes training steps of its own, and all meet behind every
 * parallel.sync_every of them. */
bool ech_strategy_is_apart(const ech_config *config);

/* Whether each rank adds its gradients to weights in the window when it has them, and waits for no
 * other within a span. */
bool ech_strategy_is_lock_free(const ech_config *config);
/* Whether clusters of these ranks have weights of their own there, and form a ring, around which a
 * token goes. */
bool ech_strategy_is_ring(const ech_config *config);
/* How many ranks keep variables for the others, which are workers; 0: each rank computes. */
int ech_strategy_servers(const ech_config *config);
/* Workers that they do not wait for when they sum the pushes of a training step; 0: they update at
 * each push, or wait for all. */
int ech_strategy_backups(const ech_config *config);
/* Steps by which a worker may then be ahead of the slowest one. */
int64_t ech_strategy_staleness(const ech_config *config);

#endif
