/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes of a training step by level of the cluster and by axis, as JSON.
 */
#include <stdlib.h>

#include "app/plan/json.h"

/* Bytes of all ranks, by axis and level. */
typedef struct matrix {
    double bytes[ECH_TRAFFIC_AXES][ECH_MOST_LEVELS];
} matrix;

/* What a class of ranks sends, and by axis the share of its messages that cross each level. */
typedef struct sender {
    ech_traffic traffic[ECH_TRAFFIC_AXES];
    double share[ECH_TRAFFIC_AXES][ECH_MOST_LEVELS];
} sender;

static int level_of(const ech_cluster *cluster, int first, int last)
{
    return (int)(ech_cluster_level_of(cluster, first, last) - cluster->level);
}

/* Sets the shares from the messages of the class's first rank. */
static void divide_messages(const ech_plan_report *report, int first, sender *s)
{
    static const ech_traffic_axis axis_of[ECH_MESSAGES] = {
        [ECH_MESSAGE_ACTIVATIONS] = ECH_TRAFFIC_PIPELINE,
        [ECH_MESSAGE_GRADIENTS] = ECH_TRAFFIC_PIPELINE,
        [ECH_MESSAGE_KEPT] = ECH_TRAFFIC_KEPT,
        [ECH_MESSAGE_BACK] = ECH_TRAFFIC_BACK,
        [ECH_MESSAGE_RING_TOKEN] = ECH_TRAFFIC_RING_TOKEN};
    const ech_link_uses *link = &report->simulation.link;
    double all[ECH_TRAFFIC_AXES] = {0};
    for (size_t i = 0; i < link->n; i++) {
        const ech_link_use *use = &link->at[i];
        if (use->from != first) continue;
        int low = use->from < use->to ? use->from : use->to;
        int high = use->from < use->to ? use->to : use->from;
        int level = level_of(report->design->cluster, low, high);
        for (int kind = 0; kind < ECH_MESSAGES; kind++) {
            s->share[axis_of[kind]][level] += (double)use->bytes_of[kind];
            all[axis_of[kind]] += (double)use->bytes_of[kind];
        }
    }
    for (int axis = 0; axis < ECH_TRAFFIC_AXES; axis++) {
        for (int l = 0; l < ECH_MOST_LEVELS; l++)
            s->share[axis][l] /= all[axis] > 0 ? all[axis] : 1;
        if (!(all[axis] > 0)) s->share[axis][0] = 1;
    }
}

/* The outermost level that each rank's group crosses, plus 1; 0: not known yet. */
typedef struct known_levels {
    unsigned char *of[ECH_GROUPS]; /* [world] */
    int *members;                  /* [world] scratch */
} known_levels;

/* All members of a group learn its level, but for pushes: servers are in several. */
static int level_of_group(const ech_design *design, int rank, ech_layout_group group,
                          known_levels *known)
{
    unsigned char *of = known->of[group];
    if (of[rank]) return of[rank] - 1;
    int n = ech_layout_members(design->layout, design->model, rank, group, known->members);
    int level = n > 1 ? level_of(design->cluster, known->members[0], known->members[n - 1]) : 0;
    of[rank] = (unsigned char)(level + 1);
    for (int i = 0; i < n && group != ECH_GROUP_PUSHED; i++)
        of[known->members[i]] = (unsigned char)(level + 1);
    return level;
}

static void add_rank(const ech_design *design, const sender *s, int rank, known_levels *known,
                     matrix *out)
{
    for (ech_traffic_axis axis = 0; axis < ECH_TRAFFIC_AXES; axis++) {
        ech_space from, to;
        if (ech_traffic_copies(axis, &from, &to)) continue;
        for (int group = 0; group < ECH_GROUPS; group++) {
            const ech_flow *flow = s->traffic[axis].of[group];
            double messages = (double)flow[ECH_COLLECTIVE_NONE].bytes;
            double bytes = (double)ech_traffic_of(&s->traffic[axis], ECH_FLOW_ANY, group).bytes;
            if (!(bytes > 0)) continue;
            int level = level_of_group(design, rank, (ech_layout_group)group, known);
            out->bytes[axis][level] += bytes - messages;
            for (int l = 0; l < design->cluster->levels; l++)
                out->bytes[axis][l] += messages * s->share[axis][l];
        }
    }
}

static void add_all(const ech_plan_report *report, matrix *out)
{
    const ech_design *design = report->design;
    const ech_classes *classes = &design->layout->classes;
    ECH_FREED sender *senders = ech_calloc((size_t)classes->n, sizeof *senders);
    size_t world = (size_t)design->world;
    ECH_FREED int *members = ech_calloc(world, sizeof *members);
    ECH_FREED unsigned char *of = ech_calloc(world, ECH_GROUPS);
    known_levels known = {.members = members};
    for (size_t group = 0; group < ECH_GROUPS; group++) known.of[group] = &of[group * world];
    for (int c = 0; c < classes->n; c++) {
        int first = classes->first[c];
        ech_plan_step_traffic(report->alike.at[report->class_of[first]].plan, senders[c].traffic);
        divide_messages(report, first, &senders[c]);
    }
    for (int rank = 0; rank < design->world; rank++)
        add_rank(design, &senders[classes->of[rank]], rank, &known, out);
}

json_t *ech_plan_levels_json(const ech_plan_report *report)
{
    const ech_cluster *cluster = report->design->cluster;
    json_t *levels = json_array();
    matrix all = {0};
    add_all(report, &all);
    for (int l = 0; l < cluster->levels; l++) {
        const ech_cluster_level *level = &cluster->level[l];
        json_t *bytes = json_object();
        for (ech_traffic_axis axis = 0; axis < ECH_TRAFFIC_AXES; axis++)
            if (all.bytes[axis][l] > 0)
                json_object_set_new(bytes, ech_traffic_axis_name(axis),
                                    json_real(all.bytes[axis][l]));
        int ranks = level->ranks < report->design->world ? level->ranks : report->design->world;
        json_array_append_new(levels,
                              json_pack("{s:i, s:f, s:f, s:f, s:o}", "ranks", ranks, "bandwidth",
                                        level->bandwidth, "share", level->share, "latency",
                                        level->latency, "bytes", bytes));
    }
    return levels;
}
