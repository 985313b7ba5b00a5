/* SPDX-License-Identifier: Apache-2.0
 *
 * The step profile of a training run, from the measured rates of this machine to the table at the end.
 */
#include <stdlib.h>

#include "app/bench/peak.h"
#include "app/bench/stream.h"
#include "app/train/trainer.h"
#include "base/clock.h"
#include "base/file.h"

void ech_trainer_turn_to(ech_trainer *t, ech_errand errand)
{
    if (t->step_profile) ech_step_profile_turn_to(t->step_profile, errand, ech_clock_now());
}

/* All ranks at once: those of one machine share its memory, and its clock rates. */
ech_status ech_trainer_begin_step_profile(ech_trainer *t)
{
    int threads = (int)t->config->parallel.threads;
    ech_group *world = ech_exec_world(t->session.exec);
    ECH_TRY(ech_group_barrier(world));
    ech_rates rates = {.flops = ech_peak_flops(t->design->kernels, threads)};
    ECH_TRY(ech_group_barrier(world));
    rates.bytes = ech_stream_bytes(threads);
    ECH_TRY(ech_group_barrier(world));
    t->step_profile = ech_step_profile_create(t->session.plan, rates);
    return ECH_OK;
}

/* The run goes on without the file where it cannot be written. A start that has nothing to show leaves that
 * of the one before. */
static void write_table(const ech_trainer *t, const ech_step_profile_table *all)
{
    ECH_FREED char *path = ech_file_join(t->config->log.directory, "step_profile.jsonl");
    ECH_FREED_TEXT lines = {0}, table = {0};
    ech_step_profile_print_json(all, t->design->world, &lines);
    ech_step_profile_print(all, t->design->world, &table);
    if (all->steps < 1)
        table.at[--table.n] = '\0'; /* its line's end */
    else if (ech_file_write(path, lines.at, lines.n) == ECH_OK)
        ech_text_append(&table, "all rows, of all ranks: %s", path);
    else
        ech_text_append(&table, "the rows could not be written to %s", path);
    ech_progress_say(t->progress, "%s", table.at);
}

ech_status ech_trainer_finish_step_profile(ech_trainer *t)
{
    if (!t->step_profile) return ECH_OK;
    int world = t->design->world;
    ech_step_profile_table own = ech_step_profile_end(t->step_profile, ech_clock_now());
    ECH_FREED ech_step_profile_table *all = ech_calloc((size_t)world, sizeof *all);
    ech_status status = ech_step_profile_gather(ech_exec_world(t->session.exec), &own, all);
    if (status == ECH_OK && ech_trainer_is_first(t)) write_table(t, all);
    for (int r = 0; r < world; r++) ech_step_profile_table_free(&all[r]);
    ech_step_profile_table_free(&own);
    return status;
}
