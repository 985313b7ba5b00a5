/* SPDX-License-Identifier: Apache-2.0
 *
 * Foreign launchers are recognised by what they leave in the environment, and shells inside an
 * allocation are not taken for them.
 */

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/backend.h"
#include "comm/launch.h"
#include "unit.h"

/* An environment of a test's own. variables: name, value, ..., NULL. */
static void set_environment(const char *const *variables)
{
    assert_int_equal(clearenv(), 0);
    for (const char *const *v = variables; *v; v += 2) assert_int_equal(setenv(v[0], v[1], 1), 0);
}

static ech_status check(int size, const char *const *variables)
{
    set_environment(variables);
    ech_status st = ech_launched_check(size, "mpi (Open MPI 4.1.4)", "/usr/bin/mpiexec");
    return st;
}

#define ENV(...) ((const char *const[]){__VA_ARGS__, NULL})

TEST(test_foreign_launchers)
{
    assert_int_equal(check(1, ENV("PMI_SIZE", "4", "PMI_RANK", "0")), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "MPICH"));
    assert_non_null(strstr(ech_last_error(), "PMI_SIZE=4"));
    assert_non_null(strstr(ech_last_error(), "Open MPI 4.1.4"));
    assert_non_null(strstr(ech_last_error(), "/usr/bin/mpiexec -n N"));
    assert_int_equal(check(1, ENV("OMPI_COMM_WORLD_SIZE", "2", "OMPI_COMM_WORLD_RANK", "1")),
                     ECH_EUSAGE);
    assert_int_equal(check(1, ENV("MPI_LOCALNRANKS", "2", "MPI_LOCALRANKID", "0")), ECH_EUSAGE);
    assert_int_equal(check(1, ENV("PMIX_RANK", "1")), ECH_EUSAGE);
    assert_int_equal(
        check(1, ENV("SLURM_PROCID", "0", "SLURM_STEP_ID", "0", "SLURM_STEP_NUM_TASKS", "2")),
        ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "srun --mpi=pmix"));
}

/* Whatever moves the messages: processes that see no other are refused, and told how to find each
 * other. */
TEST(test_lone_ranks)
{
    const char *const *const launched[] = {
        ENV("OMPI_COMM_WORLD_RANK", "2", "OMPI_COMM_WORLD_SIZE", "4"),
        ENV("PMI_RANK", "1", "PMI_SIZE", "2"),
        ENV("SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "4"),
        ENV("PMIX_RANK", "1"),
    };
    const ech_comm_backend *const backends[] = {&ech_comm_tcp, ech_comm_find("ucx")};
    for (int b = 0; b < 2; b++) {
        for (size_t i = 0; i < sizeof launched / sizeof *launched && backends[b]; i++) {
            ech_comm *comm = NULL;
            set_environment(launched[i]);
            if (b == 0) setenv("RANK", "0", 1);
            if (b == 0) setenv("WORLD_SIZE", "1", 1);
            assert_int_equal(ech_comm_open(backends[b], 0, 20, &comm), ECH_EUSAGE);
            assert_non_null(strstr(ech_last_error(), "sees a lone rank: give each process RANK=$"));
            assert_non_null(strstr(ech_last_error(), launched[i][0]));
        }
        ech_comm *comm = NULL;
        if (!backends[b]) continue;
        set_environment(ENV("RANK", "0", "WORLD_SIZE", "1"));
        assert_int_equal(ech_comm_open(backends[b], 0, 20, &comm), ECH_OK);
        ech_comm_close(comm);
    }
}

/* It brings no MPI: each of its processes would be alone. */
TEST(test_torchrun)
{
    const char *const variables[] = {"RANK", "0", "WORLD_SIZE", "4", "MASTER_ADDR", "x", NULL};
    assert_int_equal(check(1, variables), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "torchrun"));
    assert_non_null(strstr(ech_last_error(), "echelon --ranks N"));
}

TEST(test_own_launcher)
{
    assert_int_equal(check(4, ENV("OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_RANK", "0")),
                     ECH_OK);
    assert_int_equal(
        check(1, ENV("OMPI_COMM_WORLD_SIZE", "1", "OMPI_COMM_WORLD_RANK", "0", "PMIX_RANK", "0")),
        ECH_OK);
    assert_int_equal(check(1, ENV("HOME", "/")), ECH_OK);
}

TEST(test_shells_in_an_allocation)
{
    assert_int_equal(check(1, ENV("SLURM_NTASKS", "8", "SLURM_JOB_ID", "1")), ECH_OK);
    assert_int_equal(check(1, ENV("SLURM_NTASKS", "8", "SLURM_PROCID", "0")), ECH_OK);
    assert_int_equal(check(1, ENV("SLURM_NTASKS", "8", "SLURM_PROCID", "0", "SLURM_STEP_ID",
                                  "4294967290", "SLURM_STEP_NUM_TASKS", "1")),
                     ECH_OK);
    assert_int_equal(check(1, ENV("SLURM_STEP_NUM_TASKS", "8")), ECH_OK);
    assert_int_equal(check(1, ENV("PMI_SIZE", "many")), ECH_OK);
}

static void expect_seen(const char *const *variables, const char *by, int64_t size, int64_t rank)
{
    ech_launched launched = {.by = "nobody"};
    set_environment(variables);
    assert_int_equal(ech_launched_here(&launched), by != NULL);
    if (!by) return;
    assert_string_equal(launched.by, by);
    assert_int_equal(launched.size, size);
    assert_int_equal(launched.rank, rank);
}

TEST(test_ranks)
{
    expect_seen(ENV("PATH", "/bin"), NULL, 0, 0);
    expect_seen(ENV("OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "4", "PMIX_RANK", "3"),
                "Open MPI's mpirun", 4, 3);
    expect_seen(ENV("PMI_RANK", "0", "PMI_SIZE", "2"), "MPICH's mpiexec", 2, 0);
    expect_seen(ENV("SLURM_PROCID", "1", "SLURM_STEP_NUM_TASKS", "2"), "Slurm's srun", 2, 1);
    expect_seen(ENV("PMIX_RANK", "1"), "a PMIx launcher", 0, 1);
    expect_seen(ENV("RANK", "1", "WORLD_SIZE", "2"), "a launcher like torchrun", 2, 1);
    expect_seen(ENV("RANK", "0", "WORLD_SIZE", "1"), NULL, 0, 0);
    /* The shell of an allocation is no rank. */
    expect_seen(ENV("SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "1", "SLURM_NTASKS", "8"), NULL, 0,
                0);
    expect_seen(ENV("OMPI_COMM_WORLD_RANK", "x", "OMPI_COMM_WORLD_SIZE", "2"), NULL, 0, 0);
}
