/* SPDX-License-Identifier: Apache-2.0
 *
 * The log of serves that a run repeats (parallel.serve_log). Private to app/setup.
 */
#ifndef ECH_APP_SETUP_SERVES_H
#define ECH_APP_SETUP_SERVES_H

#include "app/setup/setup.h"

/* Reads design->serves, if the run has a log of serves. Errors: as for ech_serve_log_read;
 * ECH_EUSAGE: no such file. */
ech_status ech_design_read_serves(ech_design *design);

#endif
