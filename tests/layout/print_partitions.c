/* SPDX-License-Identifier: Apache-2.0
 *
 * Prints what the partitioner finds, for the script that compares it with other programs. Standard
 * input has the words
 *
 *     WORKERS NODE INSIDE BETWEEN MICRO_BATCHES TURNS VERSIONS BLOCKS
 *
 * and for each block its seconds forward and backward, and its boundary and parameter bytes. Each
 * line of output has the seconds of a step and the stages: SECONDS FIRST_BLOCK:REPLICAS ...
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "layout/partition.h"

static double next_number(void)
{
    double number;
    ECH_ASSERT(scanf("%lf", &number) == 1);
    return number;
}

int main(void)
{
    ech_partition_problem p = {.workers = (int)next_number(), .copies = 1, .wire = 1};
    p.rates.node = (int)next_number();
    p.rates.inside = next_number();
    p.rates.between = next_number();
    p.micro_batches = (int64_t)next_number();
    p.turns = (int)next_number();
    p.versions = (int)next_number();
    p.blocks = (int)next_number();
    ech_profile_block *block = ech_calloc((size_t)p.blocks, sizeof *block);
    p.block = block;
    for (int b = 0; b < p.blocks; b++) {
        block[b].seconds[ECH_FORWARD] = next_number();
        block[b].seconds[ECH_BACKWARD_INPUT] = next_number();
        block[b].boundary_bytes = (int64_t)next_number();
        block[b].param_bytes = (int64_t)next_number();
    }
    ech_partitions found = {0};
    ech_status status = ech_partition_search(&p, &found);
    if (status != ECH_OK) fprintf(stderr, "%s\n", ech_last_error());
    for (size_t i = 0; i < found.n; i++) {
        printf("%.17g", found.at[i].seconds);
        for (int s = 0; s < found.at[i].stages; s++)
            printf(" %d:%d", found.at[i].first_block[s], found.at[i].replicas[s]);
        printf("\n");
    }
    ech_partitions_free(&found);
    free(block);
    return status != ECH_OK;
}
