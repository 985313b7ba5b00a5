/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens the stand-in for NCCL (nccl_standin.h), which the program then opens, too. After cmocka.h.
 */
#ifndef ECH_TESTS_COMM_NCCL_OPENED_H
#define ECH_TESTS_COMM_NCCL_OPENED_H

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "comm/nccl_standin.h"
#include "unit.h"

static struct {
    __typeof__(nccl_standin_use) *use;
    __typeof__(nccl_standin_count) *count;
    __typeof__(nccl_standin_load) *load;
} nccl_opened;

/* For streams of the device `queued`. */
static inline void nccl_opened_open(void)
{
    void *handle = dlopen(ECH_NCCL_STANDIN, RTLD_NOW | RTLD_LOCAL), *symbol;
    assert_non_null(handle);
    symbol = dlsym(handle, "nccl_standin_use");
    memcpy(&nccl_opened.use, &symbol, sizeof symbol);
    symbol = dlsym(handle, "nccl_standin_count");
    memcpy(&nccl_opened.count, &symbol, sizeof symbol);
    symbol = dlsym(handle, "nccl_standin_load");
    memcpy(&nccl_opened.load, &symbol, sizeof symbol);
    assert_int_equal(setenv("ECHELON_NCCL", ECH_NCCL_STANDIN, 1), 0);
    nccl_opened.use(ech_device_find("queued"), ech_log_rank);
}

#endif
