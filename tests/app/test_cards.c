/* SPDX-License-Identifier: Apache-2.0
 *
 * Which GPU each rank has: two ranks with the same one are refused, on all ranks.
 */
#include "app/grid_run.h"
#include "app/setup/cards.h"
#include "comm/ranks.h"
#include "unit.h"

enum { RANKS = 5 };

typedef struct hand {
    const ech_config *config;
    const char *card[RANKS];
    bool refused;
} hand;

static ech_status check_rank(ech_comm *comm, void *context)
{
    const hand *h = context;
    int rank = ech_comm_rank(comm);
    ech_status status = ech_cards_check(h->config, comm, h->card[rank]);
    RANKS_CHECK((status == ECH_OK) == !h->refused);
    if (status == ECH_OK) return ECH_OK;
    RANKS_CHECK(status == ECH_EUSAGE);
    RANKS_CHECK(strstr(ech_last_error(), "parallel.share_device") != NULL);
    RANKS_CHECK(strstr(ech_last_error(), "ranks 1 and 4 have the same") != NULL);
    RANKS_CHECK((strstr(ech_last_error(), "b of x") != NULL) == (rank == 1 || rank == 4));
    return ECH_OK;
}

TEST(test_ranks_with_one_card)
{
    ech_config *config = grid_config_of("gpt2", "run", "");
    hand h = {config, {"a", "b of x", "c", "b of y", "d"}, false};
    assert_int_equal(ranks_run(RANKS, 60, check_rank, &h, NULL), ECH_OK);
    h.card[4] = "b of x";
    h.refused = true;
    assert_int_equal(ranks_run(RANKS, 60, check_rank, &h, NULL), ECH_OK);
    ech_config_destroy(config);
}

ALL_TESTS(grid_setup, fixture_teardown)

int main(void)
{
    return unit_run(NULL);
}
