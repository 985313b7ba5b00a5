/* SPDX-License-Identifier: Apache-2.0
 *
 * RESUMES: trained in its own types, and once more from the checkpoint before the last one, a run
 * leaves the same bits.
 */
#include "app/probe.h"
#include "app/fixture.h"
#include "app/resumed.h"

/* Of pushes the order is open. */
static bool applies(const ech_design *design)
{
    return design->config->checkpoint.keep == 0 && design->layout->sums != ECH_SUMS_SERVERS;
}

static void judge(void *const *states, const probe_case *c)
{
    char why[300];
    (void)states;
    fixture_tokenizer = c->tokenizer;
    if (!resumed_is_same(c->config, c->ranks, why, sizeof why)) probe_fail("%s", why);
}

const probe probe_resumes = {.name = "resumes", .applies = applies, .judge = judge};
