/* SPDX-License-Identifier: Apache-2.0
 *
 * From a run to the report of its plans: for this machine, or for the devices and the network of a
 * cluster file. Nothing is collective.
 */
#ifndef ECH_APP_PLAN_PLANNING_H
#define ECH_APP_PLAN_PLANNING_H

#include "app/plan/report.h"
#include "app/setup/run.h"

typedef struct ech_planning_options {
    int per_machine;     /* ranks on one machine; 0: all, but not more than cores */
    const char *cluster; /* cluster file; NULL: this machine */
    ech_plan_options report;
} ech_planning_options;

typedef struct ech_planning {
    ech_cluster cluster; /* if the options name one */
    ech_design design;
    ech_plan_report report;
} ech_planning;

/* Reads the cluster file and sets keys that the configuration leaves open to what the cluster has.
 * Errors: as of ech_cluster_read; a key that contradicts the file is set. */
ech_status ech_planning_read_cluster(ech_config *config, const char *path, int ranks,
                                     ech_cluster *out);

/* Makes the design for run->arguments->ranks and its report. It borrows the run, whose
 * configuration it resolves. *out is to be destroyed also after a failure; it must not move. */
ech_status ech_planning_create(const ech_run *run, const ech_planning_options *options,
                               ech_planning *out);
void ech_planning_destroy(ech_planning *planning);

#endif
