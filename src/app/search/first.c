/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of the first layout of a search.
 */
#include "app/plan/json.h"
#include "app/search/search.h"

ech_status ech_search_add_plan(ech_search *search, const ech_planning_options *options)
{
    ECH_CLEANUP(ech_config_destroy_at)
    ech_config *config = ech_search_config(search, &search->candidate.at[0]);
    ech_run run = *search->run;
    ech_planning_options its = *options;
    ech_planning planning;
    run.config = config;
    its.report = (ech_plan_options){.tokens = options->report.tokens};
    ech_status status = ech_planning_create(&run, &its, &planning);
    if (status == ECH_OK) {
        json_decref(search->plan);
        search->plan = ech_plan_report_tree(&planning.report, true);
    }
    ech_planning_destroy(&planning);
    return status;
}
