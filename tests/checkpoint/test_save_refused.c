/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves that are refused, on every rank, and leave nothing.
 */
#include "checkpoint/fixture.h"

static void overlap(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n)
{
    (void)info, (void)n;
    if (rank == 1) tensors[0].box[0].begin[0] = 0, tensors[0].box[0].size[0] = 7;
}

static void hole(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n)
{
    (void)info, (void)n;
    if (rank == 1) tensors[3].boxes = 0;
}

/* As many elements as there are, but rank 0's twice. */
static void twice(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n)
{
    (void)info, (void)n;
    if (rank == 1) tensors[0].box[0].begin[0] = 0;
}

static void no_memory(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n)
{
    (void)info, (void)n;
    if (rank == 0) tensors[6].data = NULL;
}

static void shared_places(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n)
{
    (void)info, (void)n;
    if (rank == 0) tensors[0].box[0].stride[0] = 5;
}

static void other_list(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n)
{
    (void)info, (void)tensors;
    if (rank == 2) *n -= 1;
}

static void other_step(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n)
{
    (void)tensors, (void)n;
    info->step += rank == 1;
}

static void outside(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n)
{
    (void)info, (void)n;
    if (rank == 0) tensors[0].box[0].begin[0] = 6, tensors[0].box[0].size[0] = 2;
}

static void wrong_run_file(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n)
{
    (void)rank, (void)tensors, (void)n;
    info->run_yaml = (char *)(uintptr_t) "\xff";
}

TEST(test_refused_on_every_rank)
{
    static const struct {
        void (*change)(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n);
        ech_status first;
        const char *says;
    } cases[] = {{overlap, ECH_EINTERNAL, "'wte.weight' to be saved hold 72 elements of its 42"},
                 {hole, ECH_EINTERNAL, "'conv.weight' to be saved hold 48 elements of its 72"},
                 {twice, ECH_EINTERNAL, "'wte.weight' to be saved hold 42 elements of its 42"},
                 {no_memory, ECH_EINTERNAL, "'wte.weight.exp_avg' has no memory"},
                 {shared_places, ECH_EINTERNAL, "'wte.weight': by its strides"},
                 {other_list, ECH_EINTERNAL, "different tensors"},
                 {other_step, ECH_EINTERNAL, "different steps"},
                 {outside, ECH_EINTERNAL, "'wte.weight' leaves its shape"},
                 {wrong_run_file, ECH_EINPUT, "UTF-8"}};
    char *directory = scratch_make();
    fixture_save_one(directory, 3, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture_job job = {.directory = directory, .step = 4};
        job.change = cases[i].change;
        fixture_save(3, &job);
        assert_int_equal(job.results[0], cases[i].first);
        assert_non_null(strstr(job.error, cases[i].says));
        for (int r = 1; r < 3; r++) assert_int_equal(job.results[r], ECH_EABORTED);
    }
    /* nothing is left of them */
    ech_checkpoint *checkpoint;
    assert_int_equal(ech_checkpoint_open_newest(directory, true, &checkpoint), ECH_OK);
    assert_int_equal(ech_checkpoint_get_info(checkpoint)->step, 3);
    ech_checkpoint_close(checkpoint);
    char *temporary = ech_file_join(directory, "step-00000004.tmp");
    assert_false(ech_file_exists(temporary));
    free(temporary);
    scratch_remove(directory);
}
