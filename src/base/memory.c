/* SPDX-License-Identifier: Apache-2.0
 *
 * Small host memory that never fails, growing lists, and pools.
 */
#include "base/memory.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"

static _Noreturn void die_without_memory(size_t n, size_t bytes)
{
    ech_log_set_quiet(false);
    ech_log_line("error: ", "no memory for %zu x %zu bytes of host structures", n, bytes);
    exit(1);
}

void *ech_calloc(size_t n, size_t bytes)
{
    /* calloc(0) may give NULL, which the caller was promised never to see. */
    void *memory = calloc(n ? n : 1, bytes ? bytes : 1);
    if (!memory) die_without_memory(n, bytes);
    return memory;
}

char *ech_strdup(const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = ech_calloc(n, 1);
    memcpy(copy, s, n);
    return copy;
}

void *ech_grow(void *items, size_t *capacity, size_t count, size_t item_bytes)
{
    ECH_ASSERT(item_bytes > 0);
    if (count <= *capacity) return items;
    size_t room = *capacity ? *capacity : 8;
    while (room < count) {
        if (room > SIZE_MAX / 2) die_without_memory(count, item_bytes);
        room *= 2;
    }
    if (room > SIZE_MAX / item_bytes) die_without_memory(count, item_bytes);
    char *moved = realloc(items, room * item_bytes);
    if (!moved) die_without_memory(room, item_bytes);
    memset(moved + *capacity * item_bytes, 0, (room - *capacity) * item_bytes);
    *capacity = room;
    return moved;
}

void *ech_shrink(void *items, size_t *capacity, size_t count, size_t item_bytes)
{
    void *moved = count > 0 && count < *capacity ? realloc(items, count * item_bytes) : NULL;
    if (!moved) return items;
    *capacity = count;
    return moved;
}

enum { POOL_CHUNK_BYTES = 64 << 10, POOL_ALIGN = 16 };

typedef struct chunk {
    struct chunk *next;
    size_t used, room;
    alignas(POOL_ALIGN) char bytes[];
} chunk;

struct ech_pool {
    chunk *first; /* the one being filled */
};

ech_pool *ech_pool_create(void)
{
    return ech_calloc(1, sizeof(ech_pool));
}

void ech_pool_destroy(ech_pool *pool)
{
    if (!pool) return;
    for (chunk *at = pool->first; at;) {
        chunk *next = at->next;
        free(at);
        at = next;
    }
    free(pool);
}

static chunk *add_chunk(ech_pool *pool, size_t room)
{
    chunk *added = ech_calloc(1, sizeof *added + room);
    added->room = room;
    added->next = pool->first;
    pool->first = added;
    return added;
}

void *ech_pool_alloc(ech_pool *pool, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) die_without_memory(1, bytes);
    bytes = (bytes + POOL_ALIGN - 1) / POOL_ALIGN * POOL_ALIGN;
    chunk *at = pool->first;
    if (!at || at->room - at->used < bytes)
        at = add_chunk(pool, bytes > POOL_CHUNK_BYTES ? bytes : POOL_CHUNK_BYTES);
    void *memory = at->bytes + at->used;
    at->used += bytes;
    return memory;
}

char *ech_pool_format(ech_pool *pool, const char *format, ...)
{
    ECH_ASSERT(format);
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int n = vsnprintf(NULL, 0, format, arguments);
    size_t room = n < 0 ? 1 : (size_t)n + 1;
    char *text = ech_pool_alloc(pool, room);
    vsnprintf(text, room, format, again);
    va_end(again);
    va_end(arguments);
    return text;
}
