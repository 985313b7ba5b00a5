/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening MPI.
 */
#include "comm/mpi_library.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "device/cuda_library.h"

/* Environment variable: the path of the library. */
#define NAMED  "ECHELON_MPI"
#define REMEDY "set parallel.comm = local, whose ranks are threads"

ech_mpi_table ech_mpi;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_open;
static char version_text[64];

/* "Open MPI v4.1.4, package: ..." -> "Open MPI 4.1.4"; "MPICH Version:\t4.0.2\n..." likewise. */
static void read_version(const char *raw)
{
    char flavor[32] = "", number[24] = "";
    if (sscanf(raw, "Open MPI v%23[^, \n]", number) == 1)
        strcpy(flavor, "Open MPI");
    else if (sscanf(raw, "%31[A-Za-z] Version: %23[^, \n]", flavor, number) != 2)
        snprintf(flavor, sizeof flavor, "%.*s", (int)strcspn(raw, ",\n"), raw);
    snprintf(version_text, sizeof version_text, "%s%s%s", flavor, *number ? " " : "", number);
}

/* Every MPI has the function that returns its version; only Open MPI has the other symbols. */
static ech_status check_flavor(const ech_library *library)
{
    int (*get_version)(char *text, int *n);
    char raw[8192] = ""; /* MPICH's is longer than Open MPI's */
    const char *path;
    int n;
    const ech_library_symbol symbol = {"MPI_Get_library_version", &get_version};
    ECH_TRY(ech_library_open(library, &symbol, 1, &path));
    if (get_version(raw, &n) != ECH_MPI_SUCCESS) strcpy(raw, "an MPI without a version");
    read_version(raw);
    if (strncmp(raw, "Open MPI", strlen("Open MPI")) != 0)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: is %s, but only Open MPI can be called; install it (%s), name its "
                 "libmpi.so.40 in " NAMED ", or " REMEDY,
                 path, version_text, library->from);
    return ECH_OK;
}

static ech_status open_now(void)
{
    const char *named = getenv(NAMED), *path;
    const ech_library library = {
        .name = "Open MPI",
        .file = named && *named ? named : "libmpi.so.40",
        .from = "Debian's libopenmpi3 and openmpi-bin",
        .remedy = "name it in " NAMED ", or " REMEDY,
        .is_global = true, /* its plugins use its symbols */
    };
    const ech_library_symbol symbols[] = {
#define X(name, arguments) {"MPI_" #name, &ech_mpi.name},
        ECH_MPI_CALLS(X)
#undef X
#define X(type, name, symbol) {#symbol, &ech_mpi.name},
            ECH_MPI_HANDLES(X)
#undef X
    };
    if (is_open) return ECH_OK;
    ECH_TRY(check_flavor(&library));
    ECH_TRY(ech_library_open(&library, symbols, sizeof symbols / sizeof *symbols, &path));
    is_open = true;
    return ECH_OK;
}

ech_status ech_mpi_open(void)
{
    pthread_mutex_lock(&lock);
    ech_status status = open_now();
    pthread_mutex_unlock(&lock);
    return status;
}

const char *ech_mpi_lacks(void)
{
    static _Thread_local char text[512];
    bool quiet = ech_log_set_quiet(true);
    ech_status status = ech_mpi_open();
    ech_log_set_quiet(quiet);
    if (status == ECH_OK) return NULL;
    snprintf(text, sizeof text, "%s", ech_last_error());
    return text;
}

const char *ech_mpi_version(void)
{
    return version_text;
}
