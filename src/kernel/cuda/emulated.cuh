/* SPDX-License-Identifier: Apache-2.0
 *
 * A grid of CUDA threads on the processor, so that the kernels' own source is tested without a GPU.
 * Blocks run one after the other, the threads of a block as fibers that switch only at barriers,
 * shuffles and matrix operations. Between two of these they run in a varying order, and shared
 * memory is full of NaN when a block begins, so a missing barrier gives wrong numbers.
 */
#ifndef ECH_KERNEL_CUDA_EMULATED_H
#define ECH_KERNEL_CUDA_EMULATED_H

#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <mutex>

#define __global__
#define __device__
#define __host__
#define __restrict__ __restrict
#define __launch_bounds__(...)

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
};

inline dim3 threadIdx(0), blockIdx(0), blockDim(0), gridDim(0);

namespace emulated
{
enum {
    WARP = 32,
    MOST_THREADS = 1024,
    STACK = 1 << 18,
    MOST_DECLARED = 48 << 10,
    MOST_DYNAMIC = 96 << 10,   /* of a launch: ECH_LAUNCH_SHARED */
    DECLARED_BESIDE = 3 << 10, /* ECH_DECLARED_SHARED */
    MOST_ACROSS = 65535,       /* blocks of a grid's y and z */
    SLOT = 64,
    MOST_COPIES = 64 /* of a thread, in flight */
};

/* Threads that wait for each other: the last one to arrive releases all. */
struct barrier {
    unsigned arrived, generation;
};

/* A copy that has begun: it is executed when its thread waits for it. */
struct copy {
    void *to;
    const void *from;
    size_t bytes, of; /* the others are zeros */
};

struct fiber {
    jmp_buf place;
    ucontext_t start;
    size_t shared; /* bytes of shared memory that it has declared */
    bool begun, ended;
    unsigned copies;
    copy copying[MOST_COPIES];
};

struct machine {
    std::mutex one;
    fiber threads[MOST_THREADS];
    jmp_buf scheduler;
    ucontext_t home;
    void (*body)(const void *);
    const void *argument;
    barrier block, warp[MOST_THREADS / WARP];
    alignas(16) char slot[MOST_THREADS][SLOT]; /* the lanes' exchange slots */
    size_t dynamic;                            /* bytes of the launch */
    size_t declared;                           /* bytes that its kernel may declare */
    uint64_t moves; /* of all threads: if it does not change, they wait forever */
    uint64_t turn;  /* decides the order */
    alignas(128) char shared[MOST_DYNAMIC + MOST_DECLARED];
};
inline machine now;

inline fiber &self()
{
    return now.threads[threadIdx.x];
}

[[noreturn]] inline void fail(const char *what)
{
    fprintf(stderr, "emulated kernel: %s (block %u,%u,%u, thread %u)\n", what, blockIdx.x,
            blockIdx.y, blockIdx.z, threadIdx.x);
    abort();
}

inline void begin_copy(void *to, const void *from, size_t bytes, size_t of)
{
    if (self().copies == MOST_COPIES) fail("too many copies under way");
    if (reinterpret_cast<uintptr_t>(to) % of || (bytes && reinterpret_cast<uintptr_t>(from) % of))
        fail("a copy is not aligned");
    self().copying[self().copies++] = {to, from, bytes, of};
}

inline void end_copies()
{
    for (unsigned i = 0; i < self().copies; i++) {
        const copy &c = self().copying[i];
        memset(c.to, 0, c.of);
        memcpy(c.to, c.from, c.bytes);
    }
    self().copies = 0;
}

inline void yield()
{
    if (_setjmp(self().place) == 0) _longjmp(now.scheduler, 1);
}

inline void meet(barrier &b, unsigned count)
{
    unsigned generation = b.generation;
    now.moves++;
    if (++b.arrived == count) {
        b.arrived = 0;
        b.generation++;
        return;
    }
    while (b.generation == generation) yield();
}

/* A fiber lives as long as the process, and runs one thread of each launch. */
inline void live()
{
    for (;;) {
        now.body(now.argument);
        if (self().copies) fail("copies are under way at a thread's end");
        self().ended = true;
        now.moves++;
        yield();
    }
}

inline void resume(unsigned thread)
{
    fiber &f = now.threads[thread];
    threadIdx.x = thread;
    if (_setjmp(now.scheduler) != 0) return;
    if (f.begun) _longjmp(f.place, 1);
    f.begun = true;
    getcontext(&f.start);
    f.start.uc_stack.ss_sp = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    f.start.uc_stack.ss_size = STACK;
    f.start.uc_link = NULL;
    makecontext(&f.start, live, 0);
    setcontext(&f.start);
}

/* Runs every thread once per round, until all have ended; 1031 is coprime to every number of
 * threads. */
inline void run_block()
{
    unsigned n = blockDim.x;
    memset(now.shared, 0xff, now.dynamic + MOST_DECLARED);
    for (unsigned t = 0; t < n; t++) {
        now.threads[t].ended = false;
        now.threads[t].shared = now.dynamic;
    }
    for (unsigned left = n; left > 0;) {
        uint64_t before = now.moves;
        unsigned first = (unsigned)(now.turn++ * 40503u % n);
        bool backward = now.turn % 3 == 0;
        left = 0;
        for (unsigned i = 0; i < n; i++) {
            unsigned t = (unsigned)(((uint64_t)(backward ? n - 1 - i : i) * 1031 + first) % n);
            if (!now.threads[t].ended) resume(t);
            left += !now.threads[t].ended;
        }
        if (left > 0 && now.moves == before) fail("threads wait for others that have ended");
    }
}

template <typename F> void run(dim3 blocks, int threads, size_t shared, F call)
{
    std::lock_guard<std::mutex> lock(now.one);
    if (threads <= 0 || threads % WARP || threads > MOST_THREADS || shared > MOST_DYNAMIC ||
        blocks.x > INT32_MAX || blocks.y > MOST_ACROSS || blocks.z > MOST_ACROSS)
        fail("a bad launch");
    now.body = [](const void *f) { (*static_cast<const F *>(f))(); };
    now.argument = &call;
    now.dynamic = (shared + 15) / 16 * 16;
    now.declared = shared ? DECLARED_BESIDE : MOST_DECLARED;
    gridDim = blocks;
    blockDim = dim3((unsigned)threads);
    for (blockIdx.z = 0; blockIdx.z < blocks.z; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < blocks.y; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < blocks.x; blockIdx.x++) run_block();
}

/* The next `bytes` bytes of the block's shared memory: each thread declares the same in the same
 * order. */
inline void *declare(size_t bytes)
{
    size_t at = self().shared;
    self().shared += (bytes + 15) / 16 * 16;
    if (self().shared - now.dynamic > now.declared) fail("too much shared memory");
    return now.shared + at;
}

inline unsigned lane()
{
    return threadIdx.x % WARP;
}

inline void meet_warp()
{
    meet(now.warp[threadIdx.x / WARP], WARP);
}

/* This lane's value for others, and the value of lane `of` of the same warp; `read` ends before the
 * slots change again. */
template <typename T> void show(T value)
{
    static_assert(sizeof(T) <= SLOT, "a slot");
    memcpy(now.slot[threadIdx.x], &value, sizeof value);
    meet_warp();
}

template <typename T> const T &shown(unsigned of)
{
    return *reinterpret_cast<const T *>(now.slot[threadIdx.x / WARP * WARP + of]);
}
} // namespace emulated

#define ECH_SHARED(type, name, count)                                                              \
    type *name = static_cast<type *>(emulated::declare(sizeof(type) * (count)))
#define ECH_DYNAMIC_SHARED(name) char *name = emulated::now.shared

inline void __syncthreads()
{
    emulated::meet(emulated::now.block, blockDim.x);
}

inline void __syncwarp()
{
    emulated::meet_warp();
}

template <typename T> T __shfl_sync(unsigned, T value, unsigned from)
{
    emulated::show(value);
    T other = emulated::shown<T>(from);
    emulated::meet_warp();
    return other;
}

template <typename T> T __shfl_xor_sync(unsigned mask, T value, unsigned distance)
{
    return __shfl_sync(mask, value, emulated::lane() ^ distance);
}

inline unsigned __ballot_sync(unsigned, bool value)
{
    unsigned bits = 0;
    emulated::show(value);
    for (unsigned i = 0; i < emulated::WARP; i++) bits |= (unsigned)emulated::shown<bool>(i) << i;
    emulated::meet_warp();
    return bits;
}

/* Blocks and threads run one at a time, so nothing has to be atomic. */
template <typename T> T atomicAdd(T *at, T value)
{
    T old = *at;
    *at = old + value;
    return old;
}

template <typename T> T atomicMin(T *at, T value)
{
    T old = *at;
    *at = value < old ? value : old;
    return old;
}

inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

inline int __ffs(int bits)
{
    return __builtin_ffs(bits);
}

#endif
