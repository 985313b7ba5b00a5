/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs of two ranks are killed at every single call that changes a checkpoint's files, in the
 * foreground and in the background, and started again. The final weights are those of an
 * undisturbed run, bit for bit. A disk that fails at any of these calls ends the run with an error
 * about it, and costs no checkpoint.
 *
 *     ECHELON_SWEEP=all test_app_save_sweep     every call, kind of fault and layout: some minutes
 */

#include "app/sweep.h"
#include "unit.h"

#define BACKGROUND "checkpoint.background=true"
#define FOLDER     "checkpoints"

TEST(test_killed)
{
    int64_t stride = sweep_takes_all() ? 1 : SWEEP_STRIDE;
    sweep_kill("checkpoint.background=false", FOLDER, stride);
    sweep_kill(BACKGROUND, FOLDER, stride);
    if (!sweep_takes_all()) return;
    sweep_kill("parallel.pipeline=2 model.num_hidden_layers=2", FOLDER, 1);
    sweep_kill("parallel.tensor=2 checkpoint.dtype=bf16", FOLDER, 1);
    sweep_kill("parallel.pipeline=2 parallel.schedule=pipedream-2bw "
               "training.micro_batch_size=1 parallel.flush_every=1",
               FOLDER, 1);
}

TEST(test_broken_and_full)
{
    int64_t stride =
        sweep_takes_all() ? 1 : 7 * SWEEP_STRIDE; /* every call: test_checkpoint_sweep */
    sweep_fail(BACKGROUND, FOLDER, FAULTS_EIO, stride);
    sweep_fail(BACKGROUND, FOLDER, FAULTS_FULL, stride);
    if (!sweep_takes_all()) return;
    sweep_fail("checkpoint.background=false", FOLDER, FAULTS_EIO, stride);
    sweep_fail("checkpoint.background=false", FOLDER, FAULTS_FULL, stride);
    sweep_fail(BACKGROUND, FOLDER, FAULTS_ENOSPC, stride);
}

TEST(test_short_writes)
{
    sweep_shorten("checkpoint.background=false", FOLDER);
    sweep_shorten(BACKGROUND, FOLDER);
}

ALL_TESTS(fixture_setup, fixture_teardown)

int main(void)
{
    faults_skip_fsync();
    return unit_run(NULL);
}
