/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks, room for OpenBLAS under a limit on address space, and what malloc does with freed memory.
 */
#include "program/startup.h"

#include <malloc.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "program/command.h"
#include "base/last_words.h"

/* Sanitizers are not there yet, either. */
#define BARE                                                                                       \
    __attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined")))

/* What its constructor maps for each thread (BUFFER_SIZE in OpenBLAS's common_x86_64.h), and what a
 * small run needs besides: with less, some libraries crash. */
static const size_t buffer_bytes = (size_t)130 << 20, other_bytes = (size_t)96 << 20;

/* getenv does not work yet. 0: not set. */
BARE static size_t read_threads(char **environment, const char *name)
{
    size_t n = 0, length = strlen(name);
    for (char **at = environment; *at && n == 0; at++) {
        if (strncmp(*at, name, length) != 0) continue;
        for (const char *digit = *at + length; *digit >= '0' && *digit <= '9' && n < 100000;
             digit++)
            n = 10 * n + (size_t)(*digit - '0');
    }
    return n;
}

BARE static size_t count_threads(char **environment)
{
    cpu_set_t mine;
    size_t wanted = read_threads(environment, "OPENBLAS_NUM_THREADS=");
    if (wanted == 0) wanted = read_threads(environment, "OMP_NUM_THREADS=");
    size_t cores = sched_getaffinity(0, sizeof mine, &mine) == 0 ? (size_t)CPU_COUNT(&mine) : 1;
    return wanted && wanted < cores ? wanted : cores;
}

BARE static void refuse(const char *text)
{
    ssize_t n = write(STDERR_FILENO, text, strlen(text));
    (void)n; /* there is no other place to say it */
    _exit(ECH_EXIT_FAILED);
}

/* A thread's stack is as large as the limit on the first one's; libraries use 100 KiB of it. */
static const rlim_t least_stack = (rlim_t)256 << 10;

BARE static void check_stack(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= least_stack) return;
    refuse("echelon: error: the limit on stacks (ulimit -s) is below the 256 KiB that threads "
           "need; raise it\n");
}

BARE static void check_addresses(char **environment)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    size_t bytes = count_threads(environment) * buffer_bytes + other_bytes;
    void *room = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        refuse("echelon: error: the limit on address space (ulimit -v) is too small for the linear "
               "algebra "
               "library, which takes 130 MiB a thread; raise it, or set OMP_NUM_THREADS=1\n");
    munmap(room, bytes);
}

BARE void ech_startup_check(int argc, char **argv, char **environment)
{
    (void)argc, (void)argv;
    check_stack();
    check_addresses(environment);
}

void ech_startup_prepare_words(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    ech_last_words_set(
        "a library ended the process by a signal, probably because it got no memory: raise the "
        "limit on address space (ulimit -v), or use fewer parallel.threads");
}

/* glibc's largest threshold for mappings of their own, and the free bytes that stay at a heap's
 * end. */
enum { MAPPED_FROM = 32 << 20, FREE_BYTES = 512 << 20 };

void ech_startup_keep_memory(void)
{
#ifdef M_MMAP_THRESHOLD
    mallopt(M_MMAP_THRESHOLD, MAPPED_FROM);
    mallopt(M_TRIM_THRESHOLD, FREE_BYTES);
#endif
}
