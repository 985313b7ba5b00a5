/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `ucx`: UCX's functions, loaded on first use, since its libraries do much
 * as soon as they are loaded (signal handling, hooks in allocators). Processes of other backends do
 * not load them.
 */
#ifndef ECH_COMM_UCX_LIBRARY_H
#define ECH_COMM_UCX_LIBRARY_H

#include <stdbool.h>
#include <stdio.h>
#include <ucp/api/ucp.h>
#include <ucs/config/types.h>

#include "base/status.h"

/* X(name): a function, declared in UCX's headers. */
#define ECH_UCX_CALLS(X)                                                                           \
    X(ucp_get_version)                                                                             \
    X(ucp_get_version_string)                                                                      \
    X(ucp_config_read)                                                                             \
    X(ucp_config_modify)                                                                           \
    X(ucp_config_release)                                                                          \
    X(ucp_init_version)                                                                            \
    X(ucp_cleanup)                                                                                 \
    X(ucp_worker_create)                                                                           \
    X(ucp_worker_destroy)                                                                          \
    X(ucp_worker_progress)                                                                         \
    X(ucp_worker_flush_nbx)                                                                        \
    X(ucp_worker_get_address)                                                                      \
    X(ucp_worker_release_address)                                                                  \
    X(ucp_ep_create)                                                                               \
    X(ucp_ep_close_nbx)                                                                            \
    X(ucp_ep_print_info)                                                                           \
    X(ucp_tag_send_nbx)                                                                            \
    X(ucp_tag_recv_nbx)                                                                            \
    X(ucp_request_cancel)                                                                          \
    X(ucp_request_check_status)                                                                    \
    X(ucp_request_free)                                                                            \
    X(ucs_status_string)

typedef struct ech_ucx {
#define X(name) __typeof__(name) *name;
    ECH_UCX_CALLS(X)
#undef X
    /* From libucs, as in ucs/config/parser.h: prints all settings that the library and its modules
     * know. */
    void (*ucs_config_parser_print_all_opts)(FILE *stream, const char *prefix,
                                             ucs_config_print_flags_t flags, void *tables);
    void *ucs_config_global_list; /* the tables */
} ech_ucx;

/* Opens the library, once per process. Errors: ECH_EUNSUPPORTED, there is none, or it is older than
 * 1.13. */
ech_status ech_ucx_open(const ech_ucx **out);
/* "UCX 1.13.1"; static. */
const char *ech_ucx_version(void);
/* ECH_OK for UCS_OK, else ECH_ECOMM with UCX's text; `what` names the function. */
ech_status ech_ucx_check(const ech_ucx *ucx, ucs_status_t status, const char *what);
/* Makes a folder (comm/transient.h) for the memory that UCX shares with ranks of this machine,
 * unless UCX_POSIX_DIR names one, as the job monitor does. Its files have names only while they are
 * being made. Call it before a context exists. Errors: ECH_EIO. */
ech_status ech_ucx_make_folder(void);
/* If this process has made one: removes it, and killed ranks' too. If all were killed, the next
 * start does that. */
void ech_ucx_remove_folder(void);
/* True if the user had set variables of UCX when it was opened. */
bool ech_ucx_has_settings(void);
/* Checks that UCX knows each of its variables (UCX_...) in the environment; UCX itself ignores
 * unknown ones silently. Call it once a context exists, since modules are loaded with it. Errors:
 * ECH_EUSAGE, which names one. */
ech_status ech_ucx_check_settings(const ech_ucx *ucx);

#endif
