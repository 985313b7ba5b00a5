/* SPDX-License-Identifier: Apache-2.0
 *
 * TF_CONFIG, the variable by which Kubeflow's TFJob and tf.distribute tell a process its role and
 * the addresses of all processes. Roles are given ranks as in layout/layout.h: chief and workers,
 * then servers (ps), then evaluators.
 */
#ifndef ECH_COMM_TF_CONFIG_H
#define ECH_COMM_TF_CONFIG_H

#include <stddef.h>

#include "base/status.h"

typedef struct ech_tf_config {
    int workers;    /* the chief, which is rank 0, and workers */
    int servers;    /* ps */
    int evaluators; /* TFJob does not list them: the number that ech_tf_config_adopt got */
    int rank;       /* this process's */
} ech_tf_config;

/* Parses a text of TF_CONFIG for a run with this number of evaluators. host[host_bytes] and *port:
 * the address of rank 0. Errors: ECH_EUSAGE or ECH_EINPUT, which name the field. */
ech_status ech_tf_config_parse(const char *text, int evaluators, ech_tf_config *out, char *host,
                               size_t host_bytes, int *port);
/* Where TF_CONFIG names several tasks and RANK is not set: sets RANK, WORLD_SIZE, MASTER_ADDR and
 * MASTER_PORT, by which the processes meet as torchrun's do. Call it before ech_launched_here.
 * Errors: as ech_tf_config_parse. */
ech_status ech_tf_config_adopt(int evaluators);
/* The adopted cluster; NULL: there is none. */
const ech_tf_config *ech_tf_config_adopted(void);

#endif
