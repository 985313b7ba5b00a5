/* SPDX-License-Identifier: Apache-2.0
 *
 * Replicas of stages have as many micro-batches as others, or one more, and lists that fit
 * together. That they train what one rank does, with tables that two stages share, is the lattice's
 * (app/test_lattice.c).
 */

#include "check/check.h"
#include "schedule/fixture.h"
#include "unit.h"

static void check_loads(const fixture *f)
{
    const ech_layout *layout = f->of.layout;
    for (int s = 0; s < layout->stages; s++) {
        int all = 0, least = (int)layout->micro_batches, most = 0;
        for (int rank = layout->first_rank[s]; rank < layout->first_rank[s + 1]; rank++) {
            int load = fixture_list(f, rank)->micro_batches / f->schedule->turns;
            all += load;
            if (load < least) least = load;
            if (load > most) most = load;
        }
        assert_int_equal(all, layout->micro_batches);
        assert_true(most - least <= 1 && least > 0);
    }
}

static void check(const char *schedule, int stages, const char *replicas, int M)
{
    fixture f =
        fixture_pipeline((fixture_shape){.schedule = schedule,
                                         .stages = stages,
                                         .replicas = replicas,
                                         .micro_batches = M,
                                         .turns = fixture_is_asynchronous(schedule) ? 3 : 0});
    for (int kind = 0; kind < ECH_LIST_KINDS; kind++) fixture_check(&f, (ech_list_kind)kind);
    check_loads(&f);
    fixture_free(&f);
}

TEST(test_replicas)
{
    static const struct {
        const char *replicas;
        int stages;
    } rows[] = {{"[3,1]", 2},   {"[1,2,1]", 3}, {"[2,1]", 2},     {"[1,3]", 2},
                {"[2,3,1]", 3}, {"[4,1,2]", 3}, {"[1,2,2,1]", 4}, {"[2,2]", 2}};
    static const char *const names[] = {"1f1b", "gpipe", "naive"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            for (int M = 4; M <= 9; M++) check(names[n], rows[i].stages, rows[i].replicas, M);
        check("pipedream", rows[i].stages, rows[i].replicas, 12);
    }
}
