/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of two ranks whose states, weights and activations are on disk. They are killed at every
 * single call that changes or reads the scratch files, and started again. The final weights are
 * those of an undisturbed run, bit for bit. A disk that fails at any of these calls ends the run
 * with an error about it, and costs no checkpoint.
 *
 *     ECHELON_SWEEP=all test_app_offload_sweep     every call and kind of fault: some minutes
 */

#include "app/sweep.h"
#include "unit.h"

#define FOLDER "scratch"

static const char states[] = "memory.offload_optimizer=disk";
static const char all[] = "memory.offload_optimizer=disk memory.offload_parameters=disk "
                          "memory.offload_activations=disk parallel.zero=3";
static const char delayed[] = "memory.offload_optimizer=disk memory.offload_delayed_from=2 "
                              "checkpoint.every=2 training.check_every=0";

/* Of the calls: those between are alike. */
enum { OF_CALLS = 11 };

TEST(test_killed)
{
    sweep_kill(states, FOLDER, sweep_takes_all() ? 1 : 3 * SWEEP_STRIDE);
    if (sweep_takes_all()) sweep_kill(all, FOLDER, 1);
}

TEST(test_broken_and_full)
{
    int64_t stride = sweep_takes_all() ? 1 : OF_CALLS * SWEEP_STRIDE;
    sweep_fail(all, FOLDER, FAULTS_EIO, stride);
    sweep_fail(states, FOLDER, FAULTS_FULL, stride);
    if (!sweep_takes_all()) return;
    sweep_fail(states, FOLDER, FAULTS_EIO, stride);
    sweep_fail(all, FOLDER, FAULTS_ENOSPC, stride);
    sweep_fail(delayed, FOLDER, FAULTS_EIO, stride);
}

TEST(test_short)
{
    sweep_shorten(states, FOLDER);
    sweep_shorten(all, FOLDER);
    sweep_shorten(delayed, FOLDER);
}

ALL_TESTS(fixture_setup, fixture_teardown)

int main(void)
{
    faults_skip_fsync();
    faults_count_reads();
    return unit_run(NULL);
}
