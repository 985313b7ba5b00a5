/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `tcp`: processes that meet by torchrun's variables, in place of MPI under `nccl`.
 * What holds for collectives over threads and MPI holds over it, and jobs end as theirs do.
 */

#include "comm/processes.h"
#include "unit.h"

/* ---- collectives ---- */

TEST(test_collectives)
{
    for (int n = 2; n <= 5; n += n - 1) expect_success(&ech_comm_tcp, n, check_collectives);
    expect_success(&ech_comm_tcp, 2, check_threads);
}

TEST(test_early_messages)
{
    expect_success(&ech_comm_tcp, 2, cross);
}

static ech_status fold_by_nccl(ech_comm *comm, void *context)
{
    (void)context;
    ech_group *group;
    double sum = ech_comm_rank(comm) + 1;
    ECH_TRY(checks_world(comm, &group));
    ECH_TRY(ech_group_fold(group, ECH_FOLD_SUM, &sum, 1));
    ech_group_destroy(group);
    RANKS_CHECK(strcmp(ech_comm_name(comm), "nccl") == 0 && fabs(sum - 6) == 0);
    return ECH_OK;
}

TEST(test_control_of_nccl)
{
    expect_success(ech_comm_find("nccl"), 3, fold_by_nccl);
}

/* ---- ends ---- */

static void expect_loss(int how, double deadline, const char *words)
{
    int codes[MOST];
    char *log;
    run(&(job){.backend = &ech_comm_tcp,
               .ranks = 3,
               .deadline = deadline,
               .body = lose_one,
               .context = &how},
        codes, &log);
    for (int r = 0; r < 3; r++)
        assert_int_equal(codes[r], r == 1 && how == SIGKILL ? -how : FAILED);
    expect_in(log, words);
    free(log);
}

TEST(test_ends)
{
    expect_loss(0, 60, "");
    expect_loss(SIGSTOP, 60, "held up by rank 1: step 3, lost in block 5");
    expect_loss(SIGKILL, 60, "rank 1 ");
}

TEST(test_misfit)
{
    int codes[MOST];
    char *log;
    run(&(job){.backend = &ech_comm_tcp, .ranks = 2, .deadline = 60, .body = misfit}, codes, &log);
    assert_int_equal(codes[1], FAILED);
    expect_in(log, "rank 0 sends 8 bytes to rank 1 with tag 4, but the receive is for 12 bytes");
    free(log);
}

/* ---- variables ---- */

TEST(test_wrong_variables)
{
    int codes[MOST];
    char *log;
    job twice = {.backend = &ech_comm_tcp,
                 .ranks = 3,
                 .deadline = 60,
                 .body = check_collectives,
                 .ranks_text = {NULL, NULL, "1"}};
    run(&twice, codes, &log);
    for (int r = 0; r < 3; r++) assert_int_equal(codes[r], FAILED);
    expect_in(log, "a process says that it is rank 1 of 3");
    free(log);
    job word = {.backend = &ech_comm_tcp, .ranks = 1, .deadline = 60, .ranks_text = {"first"}};
    run(&word, codes, &log);
    expect_in(log, "RANK is \"first\"");
    free(log);
}
