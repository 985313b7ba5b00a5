/* SPDX-License-Identifier: Apache-2.0
 *
 * Private to the backend `ucx`: what a rank sends to every other rank before its UCX address, so
 * that the receiver can check the address, and can test whether it may read the sender's memory.
 * Includes none of UCX's headers.
 */
#ifndef ECH_COMM_UCX_ADDRESS_H
#define ECH_COMM_UCX_ADDRESS_H

#include <stddef.h>
#include <stdint.h>

typedef struct ech_ucx_told {
    uint64_t length; /* bytes of the UCX address that follows */
    uint64_t seal;   /* its checksum (ech_ucx_seal) */
    /* A word in the sender's memory: its virtual address and its content. A receiver on the same
     * machine reads it with process_vm_readv. If that fails, large messages between the two ranks
     * go through /dev/shm instead of being copied once. */
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
