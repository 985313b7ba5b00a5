/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix of techniques is true: a run of each pair is planned where it says so, and refused
 * where it does not.
 */
#include "app/fixture.h"
#include "program/techniques.h"
#include "base/log.h"
#include "share.h"
#include "unit.h"

/* Why there is no plan of a run with these assignments; NULL: there is one. */
static const char *refusal_of(const char *assignments)
{
    ech_design design = {0};
    ech_plan *plan = NULL;
    ech_clear_error();
    ech_config *config = fixture_config_of("", assignments);
    int ranks = config ? (int)ech_setup_ranks(config) : 0;
    ech_status status =
        config ? ech_design_create(config, NULL, ranks, ranks, &design) : ECH_EUSAGE;
    if (status == ECH_OK) status = ech_design_plan(&design, 0, false, &plan);
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return status == ECH_OK ? NULL : ech_last_error();
}

/* Those of a technique with itself, too: each runs alone. */
TEST(test_pairs)
{
    int wrong = 0, judged[ECH_PAIRS] = {0};
    for (int a = 0; a < ECH_TECHNIQUES; a++)
        for (int b = 0; b <= a; b++) {
            ECH_FREED_TEXT assignments = {0};
            ech_pair pair = ech_technique_pair(a, b, &assignments);
            if (pair == ECH_PAIR_CHOICE || !share_takes()) continue;
            const char *refusal = refusal_of(assignments.at);
            judged[pair]++;
            if (!refusal == (pair == ECH_PAIR_RUNS) && (a != b || !refusal)) continue;
            wrong++;
            fprintf(stderr, "%s, %s: %s\n    echelon plan %s\n", ech_techniques[a].name,
                    ech_techniques[b].name, refusal ? refusal : "is not refused", assignments.at);
        }
    assert_int_equal(wrong, 0);
    assert_true(judged[ECH_PAIR_RUNS] > 0);
}

/* docs/techniques.md ends with what `echelon help techniques` prints. */
TEST(test_page)
{
    ECH_FREED_TEXT printed = {0};
    char *page;
    size_t n;
    ech_techniques_print(&printed);
    assert_int_equal(ech_file_read(ECH_DOCS "/techniques.md", 1 << 20, &page, &n), ECH_OK);
    assert_true(n > printed.n);
    assert_memory_equal(page + n - printed.n, printed.at, printed.n);
    free(page);
}

ALL_TESTS(NULL, NULL)
