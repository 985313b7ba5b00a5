/* SPDX-License-Identifier: Apache-2.0
 *
 * Names of lanes, kinds of steps and the like, from this room's tables.
 */
#include "schedule/schedule.h"

static const struct {
    const char *name;
    bool gathers;
    int blocks;
} lanes[] = {
#define X(name, text, gathers, blocks, meaning) {text, gathers, blocks},
#include "schedule/lanes.def"
#undef X
};

static const char *const spaces[] = {
#define X(name, text, meaning) text,
#include "schedule/spaces.def"
#undef X
};

static const char *const memories[] = {
#define X(name, text, space, working, meaning) text,
#include "schedule/memory.def"
#undef X
};

static const bool is_working[] = {
#define X(name, text, space, working, meaning) working,
#include "schedule/memory.def"
#undef X
};

static const char *const lists[] = {
#define X(name, text, meaning) text,
#include "schedule/lists.def"
#undef X
};

static const char *const scalars[ECH_SCALARS] = {
#define X(name, ...) [ECH_SCALAR_##name] = #name,
#include "schedule/scalars.def"
#undef X
};

const char *ech_lane_name(ech_lane lane)
{
    return lanes[lane].name;
}

bool ech_lane_gathers(ech_lane lane)
{
    return lanes[lane].gathers;
}

int ech_queue_blocks(int queue)
{
    return lanes[queue < ECH_LANES ? queue : ECH_LANE_SEND].blocks;
}

const char *ech_space_name(ech_space space)
{
    return spaces[space];
}

const char *ech_memory_name(ech_memory_kind kind)
{
    return memories[kind];
}

bool ech_memory_is_working(ech_memory_kind kind)
{
    return is_working[kind];
}

const char *ech_list_name(ech_list_kind kind)
{
    return lists[kind];
}

const char *ech_scalar_name(int scalar)
{
    if (scalar >= (int)ECH_SCALARS) return "squares";
    while (!scalars[scalar]) scalar--;
    return scalars[scalar];
}

static const struct {
    const char *text, *colour, *meaning;
} bars[ECH_BAR_KINDS] = {
#define X(name, text, colour, meaning) {text, colour, meaning},
#include "schedule/bars.def"
#undef X
};

const char *ech_bar_kind_text(ech_bar_kind kind)
{
    return bars[kind].text;
}

const char *ech_bar_kind_colour(ech_bar_kind kind)
{
    return bars[kind].colour;
}

const char *ech_bar_kind_meaning(ech_bar_kind kind)
{
    return bars[kind].meaning;
}
