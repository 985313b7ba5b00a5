/* SPDX-License-Identifier: Apache-2.0
 *
 * How gradients reach the weights: a row for each protocol of config/protocols.def, in a file of
 * its own, with the equation that the protocol computes. Sources outside of this folder neither
 * name a protocol nor test for one: they call the functions of a row, or of a rank's role in it.
 */
#ifndef ECH_SCHEDULE_PROTOCOL_PROTOCOL_H
#define ECH_SCHEDULE_PROTOCOL_PROTOCOL_H

#include "schedule/bucket_way.h"
#include "schedule/protocol/serial.h"
#include "schedule/plan.h"

struct ech_framing;

/* What a rank does with its train list: a worker, which computes gradients, or a server. */
typedef struct ech_role {
    /* The stages through which a turn takes a bucket (bucket_stages.def), in that order. */
    const ech_bucket_stage *stage;
    int stages;
    /* Parts of the frame pass (schedule/framing.h). `expect`: before a turn's first batch is
     * loaded, which may be while the turn before is under way. `begin_turn`: before its first step.
     * `update`: norms of all buckets are there. */
    void (*begin)(struct ech_framing *f);
    void (*expect)(struct ech_framing *f, int turn);
    void (*begin_turn)(struct ech_framing *f, int turn);
    void (*update)(struct ech_framing *f, int turn);
    void (*end_turn)(struct ech_framing *f, int turn);
    /* Returns the step after which READ may come; -1: any. */
    int (*end)(struct ech_framing *f);
    /* Turns of the list. */
    int (*turns)(const ech_schedule *schedule, const ech_layout *layout);
    ech_step_kind sleeps; /* the step in which a rank is slowed (parallel.delay) */
} ech_role;

/* The step that makes weights whole which several ranks keep in shards, and the group that it is
 * over. */
typedef struct ech_joining {
    ech_step_kind kind;
    ech_layout_group group;
} ech_joining;

/* What is said of an update with NaN or infinity. `skipped`, `instead`: where lists are spans, in
 * which updates go on. */
typedef struct ech_skipping {
    const char *skipped; /* what it has done */
    const char *instead; /* keys with which a run would find its place */
    const char *remedy;  /* after a comma: a key with which training would go on; "": none */
} ech_skipping;

typedef struct ech_protocol {
    ech_role worker, server;
    const char *span; /* of training steps that one list has: its name in errors */
    /* Sets the schedule's `weights` and `staleness`. */
    void (*schedule)(const ech_config *config, ech_schedule *schedule);
    /* Where weights are in training, if they are not offloaded. */
    ech_space space;
    /* Whether lists name the rows that a turn reads and changes of such a parameter, a bucket of
     * its own. */
    bool (*lists_rows)(const ech_model *model, int param);
    ech_joining (*joining)(const ech_bucket *bucket);
    /* Adds the persistent values that weights of all ranks need beside each rank's own. */
    void (*values)(ech_plan *plan);
    /* Makes the steps of lists that no other protocol has. */
    void (*lists)(ech_plan *plan, const ech_config *config);
    /* Training steps after which replicas that are apart meet, and after which they mix their
     * weights with neighbours'; 0: they never do. */
    int64_t (*meets_every)(const ech_config *config);
    int64_t (*mixes_every)(const ech_config *config);
    /* Workers that count training steps by themselves. Each one's gradient is an update by a part
     * of the learning rate. 0: all ranks take the same step. */
    int (*clocks)(const ech_layout *layout);
    /* Ranks that each add such a part in every step of their own. */
    int (*adders)(const ech_layout *layout);
    ech_skipping skipping;
    ech_serial serial; /* what one rank does to train likewise */
    /* Its members hold the same parameters where replicas have met, as those of data and tensor
     * groups do. */
    ech_layout_group alike;
} ech_protocol;

const ech_protocol *ech_protocol_of(const ech_layout *layout);
const ech_protocol *ech_protocol_for(const ech_config *config);
/* What the layout's protocol says: `span`, `space`, `alike`. */
const char *ech_protocol_span(const ech_layout *layout);
ech_space ech_protocol_space(const ech_layout *layout);
ech_layout_group ech_protocol_alike(const ech_layout *layout);
ech_skipping ech_protocol_skipping(const ech_layout *layout);
/* Seconds by which the plan's rank is slowed in steps of that kind. */
double ech_protocol_delay(const ech_plan *plan, ech_step_kind kind);
/* The role of the plan's rank. */
const ech_role *ech_protocol_role(const ech_plan *plan);
/* Its stages, a bit for each. */
uint64_t ech_protocol_stages(const ech_plan *plan);

#define X(NAME, name, sums, one) extern const ech_protocol ech_protocol_##name;
#include "config/protocols.def"

#endif
