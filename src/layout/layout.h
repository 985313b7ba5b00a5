/* SPDX-License-Identifier: Apache-2.0
 *
 * Who is where and owns what: a table, rank -> role and coordinates. Nobody else computes
 * coordinates; all ask here. The rectangular grid is one generator of that table.
 *
 * In this version a grid has one axis, data. Groups, owners and addend groups are asked for in the
 * general form, so that further axes change this room and not those who ask.
 */
#ifndef ECH_LAYOUT_LAYOUT_H
#define ECH_LAYOUT_LAYOUT_H

#include "config/config.h"
#include "model/model.h"

typedef enum ech_role { ECH_ROLE_WORKER } ech_role;

typedef enum ech_group_kind {
#define X(name, text, meaning) ECH_GROUP_##name,
#include "layout/groups.def"
#undef X
    ECH_GROUPS
} ech_group_kind;

const char *ech_group_kind_name(ech_group_kind kind);

typedef struct ech_place {
    ech_role role;
    int data;  /* which share of the samples */
    int stage; /* which part of the blocks */
    int first_block, blocks;
} ech_place;

typedef struct ech_layout {
    int world;
    int data; /* data-parallel degree */
    int stages;
    ech_place *place;      /* [world] */
    int64_t micro_batch;   /* samples of a micro-batch, per data rank */
    int64_t micro_batches; /* per data rank and step */
} ech_layout;

/* Fills parallel.data and training.micro_batch_size where they are "auto", for `world` ranks.
 * Errors: degrees that do not multiply to the ranks, batches that do not divide. */
ech_status ech_layout_resolve(ech_config *config, int world);
ech_status ech_layout_create(const ech_config *config, const ech_model *model, int world,
                             ech_layout **out);
void ech_layout_destroy(ech_layout *layout); /* accepts NULL */

/* The members of `rank`'s group of that kind, ascending, into ranks[world]. Returns how many. */
int ech_layout_members(const ech_layout *layout, int rank, ech_group_kind kind, int *ranks);
int ech_layout_group_size(const ech_layout *layout, int rank, ech_group_kind kind);
/* The ranks whose gradients of a parameter are added up. */
ech_group_kind ech_layout_addends(const ech_layout *layout, const ech_model *model, int param);
/* The rank that writes the parameter and its states into checkpoints. */
int ech_layout_writer(const ech_layout *layout, const ech_model *model, int param);

#endif
