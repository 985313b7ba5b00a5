/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the fixture's checkpoint of step 1 and seed 1 below a folder, for check_safetensors.py.
 *
 *     write_checkpoint DIRECTORY
 */
#include "checkpoint/fixture.h"

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: write_checkpoint DIRECTORY\n");
        return 2;
    }
    fixture_job job = {.directory = argv[1], .cut = BY_COLUMNS, .step = 1, .seed = 1};
    if (ranks_run(3, 60, fixture_save_rank, &job, NULL) != ECH_OK) return 1;
    return job.results[0] == ECH_OK ? 0 : 1;
}
