/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of a run on a grid (grid_run.h), from inside a rank's function.
 */
#ifndef ECH_TESTS_APP_SAVED_RUN_H
#define ECH_TESTS_APP_SAVED_RUN_H

#include "app/grid_run.h"

/* What the rank holds becomes that of a checkpoint's folder. */
static inline ech_status saved_run_restore(const char *from, ech_exec *exec)
{
    ech_checkpoint *checkpoint;
    ECH_TRY(ech_checkpoint_open(from, true, &checkpoint));
    ech_status status = ech_exec_restore(exec, checkpoint);
    ech_checkpoint_close(checkpoint);
    return status;
}

/* A checkpoint of that step, in a folder of its own below `to`. Collective. */
static inline ech_status saved_run_save(const char *to, int step, ech_compared_run *run)
{
    char yaml[] = "none", json[] = "{}";
    ech_checkpoint_info info = {.step = step,
                                .optimizer_count = ech_exec_updates(run->session.exec),
                                .ranks = run->design->world,
                                .run_yaml = yaml,
                                .text[ECH_FILE_CONFIG] = {json, strlen(json)}};
    ech_exec_set_save(run->session.exec, to, &info, 0, 0, -1);
    return ech_exec_run(run->session.exec, ECH_LIST_SAVE, step);
}

#endif
