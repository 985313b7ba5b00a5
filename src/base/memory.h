/* SPDX-License-Identifier: Apache-2.0
 *
 * Host memory for plans and other small structures. Running out of it ends the process with a
 * message: nothing useful can be done, and no plan is half built. What trains (tensors, buckets,
 * states) never comes from here but from arenas whose size the plan knows (device/device.h).
 */
#ifndef ECH_BASE_MEMORY_H
#define ECH_BASE_MEMORY_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed memory for n items of `bytes` each; never NULL. Release with free(). */
void *ech_calloc(size_t n, size_t bytes);
char *ech_strdup(const char *s);

/* `items` (of *capacity items) moved to where at least `count` fit; new items are zeroed. */
void *ech_grow(void *items, size_t *capacity, size_t count, size_t item_bytes);

/* A list of T with room that grows: declare with ECH_LIST(T), add with ECH_PUSH. */
#define ECH_LIST(T)                                                                                \
    struct {                                                                                       \
        T *at;                                                                                     \
        size_t n, capacity;                                                                        \
    }
/* Appends a value to the list; its index is list.n - 1 afterwards. */
#define ECH_PUSH(list, ...)                                                                        \
    do {                                                                                           \
        (list).at = ech_grow((list).at, &(list).capacity, (list).n + 1, sizeof *(list).at);        \
        (list).at[(list).n++] = __VA_ARGS__;                                                       \
    } while (0)

/* Small things that die together (a plan's names, a model's blocks): a chain of chunks. */
typedef struct ech_pool ech_pool;
ech_pool *ech_pool_create(void);
void ech_pool_destroy(ech_pool *pool); /* accepts NULL */
void *ech_pool_alloc(ech_pool *pool, size_t bytes); /* zeroed, aligned to 16; never NULL */
char *ech_pool_format(ech_pool *pool, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
