/* SPDX-License-Identifier: Apache-2.0
 *
 * The backend `tcp`: processes that meet by torchrun's variables, in place of MPI under `nccl`. What holds for collectives over
 * threads and MPI holds over it, and jobs end as theirs do.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "comm/processes.h"

/* ---- collectives ---- */

static void test_collectives(void **state)
{
    (void)state;
    for (int n = 2; n <= 5; n += n - 1) expect_success(&ech_comm_tcp, n, check_collectives);
    expect_success(&ech_comm_tcp, 2, check_threads);
}

static void test_early_messages(void **state)
{
    (void)state;
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

static void test_control_of_nccl(void **state)
{
    (void)state;
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

static void test_ends(void **state)
{
    (void)state;
    expect_loss(0, 60, "");
    expect_loss(SIGSTOP, 60, "held up by rank 1: step 3, lost in block 5");
    expect_loss(SIGKILL, 60, "rank 1 ");
}

static void test_misfit(void **state)
{
    (void)state;
    int codes[MOST];
    char *log;
    run(&(job){.backend = &ech_comm_tcp, .ranks = 2, .deadline = 60, .body = misfit}, codes, &log);
    assert_int_equal(codes[1], FAILED);
    expect_in(log, "rank 0 sends 8 bytes to rank 1 with tag 4, but the receive is for 12 bytes");
    free(log);
}

/* ---- variables ---- */

static void test_wrong_variables(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),     cmocka_unit_test(test_early_messages),
        cmocka_unit_test(test_control_of_nccl), cmocka_unit_test(test_ends),
        cmocka_unit_test(test_misfit),          cmocka_unit_test(test_wrong_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
