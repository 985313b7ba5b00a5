/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparison of the ranks' GPUs.
 */
#include "app/setup/cards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

enum { CARD_BYTES = 160 };

int ech_cards_sharers(const ech_config *config, const ech_device *device, int local_ranks)
{
    bool alone = device->identify && config->parallel.share_device != 1;
    return alone ? 1 : ech_device_sharers(device, local_ranks);
}

/* The first two of n cards that are the same; otherwise pair[0] is -1. */
static void find_pair(const char *cards, int n, int *pair)
{
    pair[0] = -1;
    for (int second = 1; second < n; second++)
        for (int first = 0; first < second; first++)
            if (memcmp(cards + first * CARD_BYTES, cards + second * CARD_BYTES, CARD_BYTES) == 0) {
                pair[0] = first;
                pair[1] = second;
                return;
            }
}

static ech_status exchange(ech_group *group, const char *mine, int *pair)
{
    char card[CARD_BYTES] = {0};
    int n = ech_group_size(group);
    ECH_FREED char *cards = ech_group_index(group) == 0 ? ech_calloc((size_t)n, CARD_BYTES) : NULL;
    snprintf(card, sizeof card, "%s", mine);
    ECH_TRY(ech_group_gather(group, cards, card, CARD_BYTES));
    if (cards) find_pair(cards, n, pair);
    return ech_group_broadcast(group, 0, pair, 2 * sizeof *pair);
}

ech_status ech_cards_check(const ech_config *config, ech_comm *comm, const char *mine)
{
    ECH_CLEANUP(ech_group_destroy_at) ech_group *group = NULL;
    int pair[2] = {-1, -1};
    ECH_TRY(ech_group_create_world(comm, "the ranks' GPUs", &group));
    ECH_TRY(exchange(group, mine, pair));
    if (pair[0] < 0) return ECH_OK;
    bool is_mine = ech_comm_rank(comm) == pair[0] || ech_comm_rank(comm) == pair[1];
    return ech_config_complain(config, "parallel.share_device",
                               "ranks %d and %d have the same %s; show each process one of "
                               "its own (srun --gpus-per-task=1, or CUDA_VISIBLE_DEVICES), start "
                               "fewer ranks on a machine, or set parallel.share_device=true",
                               pair[0], pair[1], is_mine ? mine : "GPU");
}

ech_status ech_cards_check_device(const ech_config *config, ech_comm *comm,
                                  const ech_device *device, int index)
{
    char mine[CARD_BYTES], host[64] = "", card[64];
    if (!device->identify || config->parallel.share_device == 1 || ech_comm_size(comm) == 1)
        return ECH_OK;
    (void)gethostname(host, sizeof host - 1);
    device->identify(index, card, sizeof card);
    snprintf(mine, sizeof mine, "%s of %s", card, host);
    return ech_cards_check(config, comm, mine);
}
