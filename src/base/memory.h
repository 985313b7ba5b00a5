/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory for plans and other small structures. If it runs out, the process ends with a
 * message. Tensors, buckets and optimizer states never come from here but from arenas whose size
 * the plan knows (device/device.h).
 */
#ifndef ECH_BASE_MEMORY_H
#define ECH_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Zeroed memory for n items of `bytes` each; never NULL. Release with free(). */
void *ech_calloc(size_t n, size_t bytes);
char *ech_strdup(const char *s); /* a copy; release with free() */

/* Reallocates `items` (NULL: none yet), of *capacity items, so that at least `count` fit, and
 * updates *capacity. New items are zeroed. Returns the new address. */
void *ech_grow(void *items, size_t *capacity, size_t count, size_t item_bytes);
/* Releases memory beyond `count` items, if there is enough of it; *capacity is what remains.
 * Returns the new address. */
void *ech_shrink(void *items, size_t *capacity, size_t count, size_t item_bytes);

/* A growing array of T: {0} is empty; append with ECH_PUSH; release with free(list.at). */
#define ECH_LIST(T)                                                                                \
    struct {                                                                                       \
        T *at;                                                                                     \
        size_t n, capacity;                                                                        \
    }
/* Appends a value to an ECH_LIST. */
#define ECH_PUSH(list, ...)                                                                        \
    do {                                                                                           \
        (list).at = ech_grow((list).at, &(list).capacity, (list).n + 1, sizeof *(list).at);        \
        (list).at[(list).n++] = __VA_ARGS__;                                                       \
    } while (0)

/* An allocator of small objects that are freed together (a plan's names, a model's blocks). */
typedef struct ech_pool ech_pool;
ech_pool *ech_pool_create(void);
void ech_pool_destroy(ech_pool *pool); /* accepts NULL */
ECH_DESTROY_AT(ech_pool, ech_pool_destroy)
void *ech_pool_alloc(ech_pool *pool, size_t bytes); /* zeroed, aligned to 16; never NULL */
/* Prints into memory of the pool. */
char *ech_pool_format(ech_pool *pool, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
