/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks of orders that come from files, over all ranks at the same time. Private to app/setup.
 */
#ifndef ECH_APP_SETUP_ORDERS_H
#define ECH_APP_SETUP_ORDERS_H

#include "app/setup/setup.h"

/* Reads the log of serves (parallel.serve_log), if there is one. If an order comes from a file,
 * checks all ranks' train lists against each other; with a log, bound to each of its spans. Errors:
 * as for ech_serve_log_read; ECH_EUSAGE: no such file; as for the checker. */
ech_status ech_design_read_orders(ech_design *design);

#endif
