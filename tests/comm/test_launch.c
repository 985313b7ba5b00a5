/* SPDX-License-Identifier: Apache-2.0
 *
 * Foreign launchers are recognised by what they leave in the environment, and shells inside an
 * allocation are not taken for them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/log.h"
#include "comm/launch.h"

/* name, value, ..., NULL */
static const char *const *environment;

static const char *look_up(const char *name)
{
    for (const char *const *e = environment; *e; e += 2)
        if (strcmp(e[0], name) == 0) return e[1];
    return NULL;
}

static ech_status check(int size, const char *const *variables)
{
    environment = variables;
    bool quiet = ech_log_set_quiet(true);
    ech_status st = ech_launch_check(look_up, size, "Open MPI 4.1.4", "/usr/bin/mpiexec");
    ech_log_set_quiet(quiet);
    return st;
}

#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})

static void test_foreign_launchers(void **state)
{
    (void)state;
    assert_int_equal(check(1, ENV("PMI_SIZE", "4", "PMI_RANK", "0")), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "MPICH"));
    assert_non_null(strstr(ech_last_error(), "PMI_SIZE=4"));
    assert_non_null(strstr(ech_last_error(), "Open MPI 4.1.4"));
    assert_non_null(strstr(ech_last_error(), "/usr/bin/mpiexec -n N"));
    assert_int_equal(check(1, ENV("OMPI_COMM_WORLD_SIZE", "2")), ECH_EUSAGE);
    assert_int_equal(check(1, ENV("MPI_LOCALNRANKS", "2")), ECH_EUSAGE);
    assert_int_equal(check(1, ENV("PMIX_RANK", "1")), ECH_EUSAGE);
    assert_int_equal(
        check(1, ENV("SLURM_PROCID", "0", "SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "2")),
        ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "srun --mpi=pmix"));
}

static void test_own_launcher(void **state)
{
    (void)state;
    assert_int_equal(check(4, ENV("OMPI_COMM_WORLD_SIZE", "4")), ECH_OK);
    assert_int_equal(check(1, ENV("OMPI_COMM_WORLD_SIZE", "1", "PMIX_RANK", "0")), ECH_OK);
    assert_int_equal(check(1, ENV("HOME", "/")), ECH_OK);
}

static void test_shells_in_an_allocation(void **state)
{
    (void)state;
    assert_int_equal(check(1, ENV("SLURM_NTASKS", "8", "SLURM_JOB_ID", "1")), ECH_OK);
    assert_int_equal(check(1, ENV("SLURM_NTASKS", "8", "SLURM_PROCID", "0")), ECH_OK);
    assert_int_equal(check(1, ENV("SLURM_NTASKS", "8", "SLURM_PROCID", "0", "SLURM_STEP_ID",
                                  "4294967290", "SLURM_STEP_NUM_TASKS", "1")),
                     ECH_OK);
    assert_int_equal(check(1, ENV("SLURM_STEP_NUM_TASKS", "8")), ECH_OK);
    assert_int_equal(check(1, ENV("PMI_SIZE", "many")), ECH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_foreign_launchers),
        cmocka_unit_test(test_own_launcher),
        cmocka_unit_test(test_shells_in_an_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
