/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening UCX, and its settings.
 */
#include "comm/ucx_library.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "comm/transient.h"
#include "device/cuda_library.h"

enum { LEAST_MAJOR = 1, LEAST_MINOR = 13 };

static const ech_library library = {
    .name = "UCX", .file = "libucp.so.0", .from = "Debian's libucx0"};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool is_open;
static ech_ucx table;
static const char prefix[] = "UCX_";
static bool has_settings; /* of the user's */

static const char folder_variable[] = "UCX_POSIX_DIR";

static bool is_setting(const char *entry)
{
    return strncmp(entry, prefix, strlen(prefix)) == 0;
}

/* The job monitor sets that one. */
static bool is_users(const char *entry)
{
    return is_setting(entry) && strncmp(entry, folder_variable, strlen(folder_variable)) != 0;
}

static ech_status open_now(void)
{
    const ech_library_symbol symbols[] = {
#define X(name) {#name, &table.name},
        ECH_UCX_CALLS(X)
#undef X
            {"ucs_config_parser_print_all_opts", &table.ucs_config_parser_print_all_opts},
        {"ucs_config_global_list", &table.ucs_config_global_list},
    };
    const char *path;
    unsigned major, minor, release;
    if (is_open) return ECH_OK;
    for (char **entry = environ; *entry; entry++) has_settings |= is_users(*entry);
    /* Signal handling is ours: UCX would print a trace of its own, and may wait for a debugger. */
    setenv("UCX_HANDLE_ERRORS", "none", 0);
    /* Its messages about a dead rank are misleading; our errors name the rank. */
    setenv("UCX_LOG_LEVEL", "fatal", 0);
    /* Shared memory that survives the death of a rank, and has no name in a file system, so that
     * nothing is left over. These are settings of a module, which a configuration does not
     * accept. */
    setenv("UCX_POSIX_ERROR_HANDLING", "y", 1);
    setenv("UCX_POSIX_USE_PROC_LINK", "y", 1);
    /* A quarter of each worker's initial memory, which is in /dev/shm: there are two workers for
     * each pair of ranks. */
    setenv("UCX_POSIX_RX_BUFS_GROW", "64", 0);
#ifdef __SANITIZE_THREAD__
    /* Its hooks into mmap take locks at the end of threads that the sanitizer has already
     * forgotten. */
    setenv("UCX_MEM_EVENTS", "n", 1);
#endif
    ECH_TRY(ech_library_open(&library, symbols, sizeof symbols / sizeof *symbols, &path));
    table.ucp_get_version(&major, &minor, &release);
    if (major != LEAST_MAJOR || minor < LEAST_MINOR)
        ECH_FAIL(ECH_EUNSUPPORTED, "%s: is UCX %s, but %d.%d or newer is needed (Debian 12 has it)",
                 path, table.ucp_get_version_string(), LEAST_MAJOR, LEAST_MINOR);
    is_open = true;
    return ECH_OK;
}

ech_status ech_ucx_open(const ech_ucx **out)
{
    pthread_mutex_lock(&lock);
    ech_status status = open_now();
    pthread_mutex_unlock(&lock);
    *out = &table;
    return status;
}

const char *ech_ucx_version(void)
{
    static _Thread_local char text[64];
    const ech_ucx *ucx;
    if (ech_ucx_open(&ucx) != ECH_OK) return "UCX, whose library is not there";
    snprintf(text, sizeof text, "UCX %s", ucx->ucp_get_version_string());
    return text;
}

/* ---- the folder of shared memory ---- */

static ech_transient folder = {.hold = -1}; /* -1: none of this process's own */

ech_status ech_ucx_make_folder(void)
{
    if (getenv(folder_variable)) return ECH_OK;
    ECH_TRY(ech_transient_create(true, &folder));
    if (strncmp(folder.path, "/dev/shm/", strlen("/dev/shm/")) == 0)
        setenv(folder_variable, folder.path, 1);
    else
        ech_ucx_remove_folder(); /* otherwise it would not be memory */
    return ECH_OK;
}

void ech_ucx_remove_folder(void)
{
    if (folder.hold < 0) return;
    unsetenv(folder_variable);
    ech_transient_remove(&folder);
    folder.hold = -1;
    ech_transient_sweep(); /* a killed rank has left its own */
}

ech_status ech_ucx_check(const ech_ucx *ucx, ucs_status_t status, const char *what)
{
    if (status == UCS_OK) return ECH_OK;
    ECH_FAIL(ECH_ECOMM, "%s: %s; with UCX_LOG_LEVEL=info in the environment UCX says more", what,
             ucx->ucs_status_string(status));
}

/* True if a line of `known` is "NAME=...", with NAME the first n characters of `entry`. */
static bool is_known(const char *known, const char *entry, size_t n)
{
    for (const char *at = known; at; at = strchr(at, '\n')) {
        if (*at == '\n') at++;
        if (strncmp(at, entry, n) == 0 && at[n] == '=') return true;
    }
    return false;
}

bool ech_ucx_has_settings(void)
{
    return has_settings;
}

ech_status ech_ucx_check_settings(const ech_ucx *ucx)
{
    ECH_FREED char *known = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&known, &bytes);
    if (!stream)
        ECH_FAIL(ECH_EIO,
                 "no memory for a list of UCX's settings; end other programs that use memory");
    ucx->ucs_config_parser_print_all_opts(stream, prefix,
                                          UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_HIDDEN,
                                          ucx->ucs_config_global_list);
    fclose(stream);
    for (char **entry = environ; *entry; entry++) {
        size_t n = strcspn(*entry, "=");
        if (!is_setting(*entry) || is_known(known, *entry, n)) continue;
        ECH_FAIL(ECH_EUSAGE,
                 "%.*s: %s has no such setting and would ignore it; unset it, or see ucx_info -cf "
                 "(Debian's ucx-utils)",
                 (int)n, *entry, ech_ucx_version());
    }
    return ECH_OK;
}
