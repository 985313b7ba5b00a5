/* SPDX-License-Identifier: Apache-2.0
 *
 * From a run to the report of its plans.
 */
#include "app/plan/planning.h"

#include <stdio.h>

#include "app/setup/initial.h"

static ech_status find_ranks(const ech_config *config, int given, int per_machine, int *ranks,
                             int *local_ranks)
{
    int cores = ech_device_find("cpu")->cores();
    ECH_TRY(ech_run_ranks_of(config, given, ranks));
    *local_ranks = per_machine ? per_machine : *ranks;
    if (ech_comm_has_threads((ech_comm_kind)config->parallel.comm) || *local_ranks > *ranks)
        *local_ranks = *ranks;
    else if (!per_machine && *local_ranks > cores)
        *local_ranks = cores;
    return ECH_OK;
}

ech_status ech_planning_read_cluster(ech_config *config, const char *path, int ranks,
                                     ech_cluster *out)
{
    static const char *const replaced[] = {"parallel.profile", "parallel.node_bandwidth",
                                           "parallel.network_bandwidth",
                                           "memory.offload_bandwidth"};
    char text[32];
    ECH_TRY(ech_cluster_read(path, out));
    ECH_TRY(ech_cluster_check(out, path, ranks));
    for (size_t i = 0; i < sizeof replaced / sizeof *replaced; i++)
        if (ech_config_is_set(config, replaced[i]))
            return ech_config_complain(
                config, replaced[i], "not with --cluster: %s has the speeds; remove the key", path);
    ech_dtype dtype = ech_model_types(config).compute;
    if (!(out->flops[dtype] > 0))
        ECH_FAIL(ECH_EUSAGE,
                 "%s: flops.%s: not set, and the run computes in this type; set it to a device's "
                 "operations per second",
                 path, ech_dtype_name(dtype));
    int node = out->level[0].ranks < ranks ? out->level[0].ranks : ranks;
    snprintf(text, sizeof text, "%d", node);
    ECH_TRY(ech_config_fill(config, "parallel.node_ranks", text, path, true));
    snprintf(text, sizeof text, "%.0f", out->device_memory - out->device_reserved);
    return ech_config_fill(config, "memory.device_limit", text, path, true);
}

ech_status ech_planning_create(const ech_run *run, const ech_planning_options *options,
                               ech_planning *out)
{
    int ranks = 1, local_ranks = 1;
    int64_t step = 0; /* from which a run would go on */
    *out = (ech_planning){0};
    ECH_TRY(
        find_ranks(run->config, run->arguments->ranks, options->per_machine, &ranks, &local_ranks));
    if (options->cluster)
        ECH_TRY(ech_planning_read_cluster(run->config, options->cluster, ranks, &out->cluster));
    ECH_TRY(ech_advice_check(&options->report.advice, options->cluster ? &out->cluster : NULL,
                             options->cluster));
    ECH_TRY(ech_design_create(run->config, run->tokenizer, ranks, local_ranks, &out->design));
    if (options->cluster) ech_design_set_cluster(&out->design, &out->cluster);
    if (out->design.serves) ECH_TRY(ech_initial_step(out->design.config, &step));
    ECH_TRY(ech_design_check_repeat(&out->design, step));
    return ech_plan_report_create(&out->design, &options->report, &out->report);
}

void ech_planning_destroy(ech_planning *planning)
{
    ech_plan_report_destroy(&planning->report);
    ech_design_destroy(&planning->design);
}
