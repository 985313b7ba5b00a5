/* SPDX-License-Identifier: Apache-2.0
 *
 * A PROTOCOL: how gradients reach the weights, for example by an all-reduce, through parameter
 * servers, or by local steps. Each row of config/protocols.def has a file here with the equation
 * that it computes. Sources outside this folder neither name a protocol nor test for one: they call
 * the functions of its row, or of a rank's role in it.
 */
#ifndef ECH_SCHEDULE_PROTOCOL_PROTOCOL_H
#define ECH_SCHEDULE_PROTOCOL_PROTOCOL_H

#include "schedule/bucket_way.h"
#include "schedule/protocol/serial.h"
#include "schedule/plan.h"

struct ech_framing;

/* What a rank does in its train list: a worker computes gradients, a server applies them. */
typedef struct ech_role {
    /* The stages of a bucket in a turn (bucket_stages.def), in order. */
    const ech_bucket_stage *stage;
    int stages;
    /* The same of a bucket of layer states, if the protocol averages them. */
    const ech_bucket_stage *state_stage;
    int state_stages;
    /* Parts of the frame pass (schedule/framing.h). `expect` runs before a turn's first batch is
     * loaded, perhaps during the previous turn; `begin_turn` before its first step; `update` once
     * all norms are there. All but `update` may be NULL: nothing. */
    void (*begin)(struct ech_framing *f);
    void (*expect)(struct ech_framing *f, int turn);
    void (*begin_turn)(struct ech_framing *f, int turn);
    void (*update)(struct ech_framing *f, int turn);
    void (*end_turn)(struct ech_framing *f, int turn);
    /* Returns the step after which READ may come; -1, or NULL: any. */
    int (*end)(struct ech_framing *f);
    /* Turns of the list. */
    int (*turns)(const ech_schedule *schedule, const ech_layout *layout);
    ech_step_kind sleeps; /* the step in which a rank is slowed down (parallel.delay) */
} ech_role;

/* The step that gathers sharded weights, and its group. */
typedef struct ech_joining {
    ech_step_kind kind;
    ech_layout_group group;
} ech_joining;

/* Tensors of a bucket that a meeting of replicas works on: the weights in full precision, or the
 * layer states; two optimizer states; and the data that replicas exchange, which has the type of
 * gradients and is summed. Layer states have no optimizer states. */
typedef enum ech_meeting_tensor {
    ECH_MEETING_SUM,
    ECH_MEETING_ANCHOR,
    ECH_MEETING_MOMENTUM, /* only with parallel.outer_momentum above 0 */
    ECH_MEETING_WEIGHTS,
    ECH_MEETING_TENSORS
} ech_meeting_tensor;

/* to = by from + keep to; `keep` NULL: to = by from. */
typedef struct ech_meeting_row {
    ech_meeting_tensor to, from;
    double (*by)(const ech_config *config, int replicas);
    double (*keep)(const ech_config *config, int replicas);
} ech_meeting_row;

/* A step's rows, in order. A row with a tensor that the run lacks is left out. */
typedef struct ech_meeting {
    const ech_meeting_row *row;
    int rows;
} ech_meeting;

/* Texts of the report about an update with NaN or infinity. `skipped` and `instead` are for spans,
 * in which updates continue. */
typedef struct ech_skipping {
    const char *skipped; /* what was skipped */
    const char *instead; /* keys with which a run would find where it happened */
    const char *remedy;  /* after a comma: a key with which training would continue; "": none */
} ech_skipping;

typedef struct ech_protocol {
    ech_role worker, server;
    const char *span; /* name in errors of the training steps of one list */
    /* Sets the schedule's `weights`, `staleness`, `backups` and `ring`; NULL: nothing. */
    void (*schedule)(const ech_config *config, const ech_layout *layout, ech_schedule *schedule);
    /* Where weights are during training if they are not offloaded. */
    ech_space space;
    /* True if the parameter is a bucket of its own and lists name the rows of it that a turn reads
     * and changes; NULL: never. */
    bool (*lists_rows)(const ech_model *model, int param);
    /* The ranks of a bucket's group that own its shards. `of`: a rank among all members. Returns
     * its index among the owners; their number if it is none of them. */
    ech_membership (*owner)(const ech_layout *layout, ech_membership of);
    /* Sets ech_keeping.whose of a bucket. `members`: its group has other members to share with. */
    void (*share)(const ech_plan *plan, ech_bucket *bucket, bool members);
    ech_joining (*joining)(const ech_bucket *bucket);
    /* Adds the persistent values for weights of all ranks, in addition to the rank's own; NULL:
     * there are none. */
    void (*values)(ech_plan *plan);
    /* Builds the lists that no other protocol has; NULL: there are none. */
    void (*lists)(ech_plan *plan, const ech_config *config);
    /* Training steps between synchronizations of diverged replicas, and between averagings with
     * neighbours; 0: never. */
    int64_t (*meets_every)(const ech_config *config);
    int64_t (*mixes_every)(const ech_config *config);
    ech_meeting outer; /* of OUTER_UPDATE, for weights */
    /* Layer states, such as batch norm's running statistics, differ between workers within a list:
     * each worker commits its own samples' partials, and the list ends with the mean. Otherwise
     * partials are summed like gradients. */
    bool averages;
    /* Number of workers that count training steps independently. Each worker's gradient is one
     * update, by a fraction of the learning rate. 0: all ranks take the same step. */
    int (*clocks)(const ech_layout *layout);
    /* Number of ranks that each add such a fraction in every step of their own. */
    int (*adders)(const ech_layout *layout);
    ech_skipping skipping;
    ech_serial serial; /* the equivalent program of a single rank */
    /* Its members hold the same parameters after replicas have synchronized, like the members of
     * data and tensor groups. */
    ech_layout_group alike;
} ech_protocol;

const ech_protocol *ech_protocol_of(const ech_layout *layout);
const ech_protocol *ech_protocol_for(const ech_config *config);
/* Fields of the layout's protocol: `span`, `space`, `alike`. */
const char *ech_protocol_span(const ech_layout *layout);
ech_space ech_protocol_space(const ech_layout *layout);
ech_layout_group ech_protocol_alike(const ech_layout *layout);
ech_skipping ech_protocol_skipping(const ech_layout *layout);
/* The rows of a DIFFERENCE, OUTER_UPDATE or EXCHANGE, for weights or for layer states. */
ech_meeting ech_protocol_meeting(const ech_plan *plan, const ech_step *step);
/* Seconds by which the plan's rank is slowed down in steps of that kind. */
double ech_protocol_delay(const ech_plan *plan, ech_step_kind kind);
/* The role of the plan's rank. */
const ech_role *ech_protocol_role(const ech_plan *plan);
/* Its stages for the bucket, one bit each. */
uint64_t ech_protocol_stages(const ech_plan *plan, const ech_bucket *bucket);
/* True if the bucket has layer states that differ between workers within a train list. */
bool ech_protocol_averages(const ech_plan *plan, const ech_bucket *bucket);

#define X(NAME, name, sums, one, meets) extern const ech_protocol ech_protocol_##name;
#include "config/protocols.def"

#endif
