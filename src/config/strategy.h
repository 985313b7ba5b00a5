/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.strategy: names for combinations of other keys (strategies.def).
 */
#ifndef ECH_CONFIG_STRATEGY_H
#define ECH_CONFIG_STRATEGY_H

#include "config/config.h"

/* How gradients reach the weights (protocols.def). */
typedef enum ech_strategy_protocol_kind {
#define X(NAME, name, sums, one, meets) ECH_PROTOCOL_##NAME,
#include "config/protocols.def"
    ECH_PROTOCOLS
} ech_strategy_protocol_kind;

/* The ranks over which gradients are summed. */
typedef enum ech_strategy_sums {
    ECH_SUMS_ALL,     /* all that hold the same parameters, and servers */
    ECH_SUMS_REPLICA, /* the ranks of one replica */
    ECH_SUMS_SERVERS  /* each worker's gradients are sent to servers separately */
} ech_strategy_sums;

/* The weights from which diverged replicas continue after they have synchronized. */
typedef enum ech_strategy_meeting {
    ECH_MEETING_NEVER, /* they do not diverge */
    ECH_MEETING_AGREED,
    ECH_MEETING_OWN
} ech_strategy_meeting;

/* All of them, blank-separated. */
extern const char ech_strategy_names[];

/* Sets the keys that the configuration's strategy stands for, like ech_config_fill: they are then
 * printed, checked and resolved as if the run file had set them. Call it once all assignments are
 * made. Errors: a key is set to another value than the strategy's, one line per key. */
ech_status ech_strategy_apply(ech_config *config);
/* The protocol with which the strategy, and the other keys, train. */
ech_strategy_protocol_kind ech_strategy_protocol(const ech_config *config);
/* That protocol's columns `sums`, `one` and `meets` of protocols.def. */
ech_strategy_sums ech_strategy_sums_over(const ech_config *config);
bool ech_strategy_updates_alone(const ech_config *config);
ech_strategy_meeting ech_strategy_meets(const ech_config *config);
/* The assignments of the strategy, separated by blanks; "": none. */
const char *ech_strategy_keys(const ech_config *config);
/* True if clusters of lock-free ranks have weights of their own in shared memory, and form a ring
 * in which a token circulates. */
bool ech_strategy_is_ring(const ech_config *config);
/* Number of parameter servers; the other ranks are workers. 0: each rank computes. */
int ech_strategy_servers(const ech_config *config);
/* Number of workers that servers do not wait for when they sum the pushes of a training step; 0:
 * they update at each push, or wait for all. */
int ech_strategy_backups(const ech_config *config);
/* The most steps by which a worker may then be ahead of the slowest. */
int64_t ech_strategy_staleness(const ech_config *config);

#endif
