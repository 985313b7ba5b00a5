/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts calls of the allocator by functions that stand in front of the C library's; those of
 * libraries are their own affair. Sanitizers have allocators of their own: nothing is counted
 * there. For one file of a program.
 */
#ifndef ECH_TESTS_APP_ALLOCATIONS_H
#define ECH_TESTS_APP_ALLOCATIONS_H

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    atomic_bool counting;
    atomic_llong ours, theirs; /* of all threads */
    void *_Atomic culprit;     /* who has allocated, of ours */
} allocations;

/* Where that is in its file, for addr2line. */
static void allocations_print_culprit(char *out, size_t n)
{
    Dl_info info = {0};
    void *caller = atomic_load(&allocations.culprit);
    if (dladdr(caller, &info) == 0) info = (Dl_info){.dli_fname = "?"};
    snprintf(out, n, "%s+0x%zx (%s)", info.dli_fname,
             (size_t)((char *)caller - (char *)info.dli_fbase),
             info.dli_sname ? info.dli_sname : "?");
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* oneDNN allocates small objects at each call, and so does the C++ library for it; GNU's OpenMP a
 * small one for each region of one thread. */
static bool allocations_is_theirs(void *caller)
{
    Dl_info info;
    return dladdr(caller, &info) != 0 &&
           (strstr(info.dli_fname, "libdnnl") || strstr(info.dli_fname, "libstdc++") ||
            strstr(info.dli_fname, "libgomp") || strstr(info.dli_fname, "libomp"));
}

static void allocations_note(void *caller)
{
    if (!atomic_load(&allocations.counting)) return;
    bool is_ours = !allocations_is_theirs(caller);
    atomic_fetch_add(is_ours ? &allocations.ours : &allocations.theirs, 1);
    if (is_ours) atomic_store(&allocations.culprit, caller);
}

#define NOTE_ALLOCATION() allocations_note(__builtin_return_address(0))

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);

void *malloc(size_t bytes)
{
    NOTE_ALLOCATION();
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    NOTE_ALLOCATION();
    return __libc_calloc(n, bytes);
}

void *realloc(void *old, size_t bytes)
{
    NOTE_ALLOCATION();
    return __libc_realloc(old, bytes);
}

void *memalign(size_t align, size_t bytes)
{
    NOTE_ALLOCATION();
    return __libc_memalign(align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    NOTE_ALLOCATION();
    return __libc_memalign(align, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
    NOTE_ALLOCATION();
    void *memory = __libc_memalign(align, bytes);
    if (memory) *out = memory;
    return memory ? 0 : ENOMEM;
}
#endif

#endif
