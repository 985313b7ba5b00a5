/* SPDX-License-Identifier: Apache-2.0
 *
 * Which MPI library is accepted (comm/mpi_library.h), with a stand-in for others.
 */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/comm.h"
#include "comm/mpi_library.h"
#include "unit.h"

static void expect_refused(const char *path, const char *version, const char *why)
{
    ech_comm *comm[1];
    setenv("ECHELON_MPI", path, 1);
    setenv("STAND_IN_MPI", version, 1);
    const char *lacks = ech_comm_lacks(ECH_COMM_mpi);
    assert_non_null(lacks);
    if (!strstr(lacks, why)) fail_msg("\"%s\" does not say \"%s\"", lacks, why);
    assert_non_null(strstr(lacks, "set parallel.comm = local"));
    assert_int_equal(ech_comm_open(ech_comm_find("mpi"), 0, 60, comm), ECH_EUNSUPPORTED);
    assert_string_equal(ech_last_error(), lacks);
    unsetenv("ECHELON_MPI");
}

TEST(another_mpi_is_named)
{
    expect_refused(ECH_MPI_STANDIN, "MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr 7",
                   "mpi_standin.so: is MPICH 4.0.2, but only Open MPI can be called");
    expect_refused(ECH_MPI_STANDIN, "Intel(R) MPI Library 2021.9 for Linux* OS\n",
                   "is Intel(R) MPI Library 2021.9 for, but only Open MPI");
    expect_refused(ECH_MPI_STANDIN, "MVAPICH2 Version      :\t2.3.7", "but only Open MPI");
}

TEST(what_is_missing)
{
    expect_refused(ECH_MPI_STANDIN, "Open MPI v1.2, package: old",
                   "mpi_standin.so: has no MPI_Error_string, so it is too old");
    expect_refused("/nowhere/libmpi.so.40", "",
                   "Open MPI (/nowhere/libmpi.so.40) is neither where the system looks");
}

/* Last: an opened library stays. */
TEST(the_system_has_it)
{
    if (ech_comm_lacks(ECH_COMM_mpi)) skip();
    assert_int_equal(strncmp(ech_comm_version(ECH_COMM_mpi), "Open MPI ", 9), 0);
    assert_non_null(ech_mpi.COMM_WORLD);
    assert_ptr_not_equal(ech_mpi.COMM_WORLD, ech_mpi.COMM_NULL);
    assert_string_equal(ech_comm_launcher(ECH_COMM_mpi), "mpirun");
}
