/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of where a step's time goes, as people read it.
 */

#include <stdio.h>
#include <string.h>

#include "app/step_profile/step_profile.h"
#include "unit.h"

static void push(ech_step_profile_table *table, ech_step_profile_row row)
{
    ECH_PUSH(table->row, row);
}

static void invent_tables(ech_step_profile_table all[2])
{
    for (int r = 0; r < 2; r++) {
        all[r] = (ech_step_profile_table){.rank = r, .threads = 2, .steps = 10, .seconds = 2.1};
        all[r].rates = (ech_machine_rates){200e9, 40e9};
        push(&all[r], (ech_step_profile_row){.name = "linear F 768x2304",
                                             .calls = 120,
                                             .seconds = 1 + 0.5 * r,
                                             .flops = 160e9,
                                             .bytes = 8e9,
                                             .bound = 0.8});
        push(&all[r],
             (ech_step_profile_row){
                 .name = "gelu F", .calls = 10, .seconds = 0.5, .bytes = 10e9, .bound = 0.25});
        push(&all[r], (ech_step_profile_row){.name = "scale", .calls = 10, .seconds = 0.00001});
        push(&all[r], (ech_step_profile_row){.name = "clip", .calls = 10, .seconds = 0.00002});
        push(&all[r], (ech_step_profile_row){.name = "never"});
        push(&all[r], (ech_step_profile_row){
                          .name = "waits for reduce_grads", .waits = true, .seconds = 0.4});
        push(&all[r], (ech_step_profile_row){.name = "reduce_grads over data",
                                             .group = ECH_ROWS_BESIDE,
                                             .lane = ECH_LANE_REDUCE,
                                             .calls = 20,
                                             .bytes = 3e9,
                                             .seconds = 0.6});
        push(&all[r], (ech_step_profile_row){
                          .name = "saving", .group = ECH_ROWS_OUTSIDE, .seconds = 0.19997});
    }
    push(&all[1], (ech_step_profile_row){.name = "head_loss B 50257x768",
                                         .calls = 10,
                                         .seconds = 0.3,
                                         .flops = 30e9,
                                         .bytes = 1e9,
                                         .bound = 0.15});
}

/* clang-format off */
static const char expected[] =
    "where the time of a step goes: mean of 10 steps, rank 0 of 2, 2 threads; this machine's own rates: products 200.0 GFLOP/s, memory 40.0 GB/s\n"
    "\n"
    "compute lane                           calls  ms a step      %           rate   bound ms    over it\n"
    "  waits for reduce_grads                         40.000   19.0                               40.000\n"
    "  gelu F                                 1.0     50.000   23.8      20.0 GB/s     25.000     25.000\n"
    "  linear F 768x2304                       12    100.000   47.6  160.0 GFLOP/s     80.000     20.000   rank 1: 150.00 ms\n"
    "  2 small rows together                  2.0      0.003    0.0                                0.003\n"
    "  sum                                           190.003   90.5                   105.000     85.003\n"
    "\n"
    "reduce lane, beside it                 calls  ms a step      %           rate   bound ms    over it\n"
    "  reduce_grads over data                 2.0     60.000   28.6       5.0 GB/s\n"
    "  sum                                            60.000   28.6\n"
    "\n"
    "between lists of steps                 calls  ms a step      %           rate   bound ms    over it\n"
    "  saving                                         19.997    9.5                               19.997\n"
    "  sum                                            19.997    9.5                               19.997\n"
    "\n"
    "not on rank 0, where it is slowest     calls  ms a step      %           rate   bound ms    over it\n"
    "  rank 1: head_loss B 50257x768          1.0     30.000   14.3  100.0 GFLOP/s     15.000     15.000\n"
    "\n"
    "a step takes 190.00 ms; its work would take 105.00 ms at these rates, which is 55% of it; another 20.00 ms go by between steps\n";
/* clang-format on */

TEST(test_text)
{
    ech_step_profile_table all[2];
    ech_text text = {0};
    invent_tables(all);
    ech_step_profile_print(all, 2, &text);
    if (strcmp(text.at, expected) != 0) fputs(text.at, stderr);
    assert_string_equal(text.at, expected);
    ech_text_free(&text);
    for (int r = 0; r < 2; r++) ech_step_profile_table_free(&all[r]);
}

TEST(test_nothing_measured)
{
    ech_step_profile_table none = {0};
    ech_text text = {0};
    ech_step_profile_print(&none, 1, &text);
    assert_non_null(strstr(text.at, "no step was profiled"));
    ech_text_free(&text);
}
