/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for the library of another MPI, or of an Open MPI that lacks functions: it only states
 * the version that STAND_IN_MPI names.
 */
#include <stdio.h>
#include <stdlib.h>

extern int MPI_Get_library_version(char *text, int *n);

__attribute__((visibility("default"))) int MPI_Get_library_version(char *text, int *n)
{
    *n = sprintf(text, "%s", getenv("STAND_IN_MPI"));
    return 0;
}
