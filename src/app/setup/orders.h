/* SPDX-License-Identifier: Apache-2.0
 *
 * Orders from files are checked, those of all ranks at once. Private to app/setup.
 */
#ifndef ECH_APP_SETUP_ORDERS_H
#define ECH_APP_SETUP_ORDERS_H

#include "app/setup/setup.h"

/* Reads the log of serves (parallel.serve_log), if there is one, and checks all ranks' train lists
 * against each other where an order is from a file: of a log bound to each of its spans. Errors:
 * those of ech_serve_log_read; ECH_EUSAGE: no such file; the checker's. */
ech_status ech_design_read_orders(ech_design *design);

#endif
