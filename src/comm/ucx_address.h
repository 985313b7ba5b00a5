/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `ucx`: the header of a rank's address. Without UCX's headers.
 */
#ifndef ECH_COMM_UCX_ADDRESS_H
#define ECH_COMM_UCX_ADDRESS_H

#include <stddef.h>
#include <stdint.h>

typedef struct ech_ucx_told {
    uint64_t length, seal;    /* of the address: its bytes, ech_ucx_seal */
    /* the address and content of `probe` in the memory of a rank on this machine */
    uint64_t probe_at, probe;
} ech_ucx_told;

/* A checksum (FNV-1a): UCX accepts any bytes as an address, and wrong bytes may end the process. */
static inline uint64_t ech_ucx_seal(const void *address, size_t bytes)
{
    uint64_t seal = 0xcbf29ce484222325;
    for (size_t i = 0; i < bytes; i++)
        seal = (seal ^ ((const unsigned char *)address)[i]) * 0x100000001b3;
    return seal;
}

#endif
