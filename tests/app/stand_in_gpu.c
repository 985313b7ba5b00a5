/* SPDX-License-Identifier: Apache-2.0
 *
 * A stand-in for CUDA's runtime in tests of the whole program: made-up GPUs with emulated kernels.
 * Work is done as it is put on a stream. ECHELON_STAND_IN describes the GPUs, in words NAME=VALUE
 * (the default comes last):
 *
 *     gpus     how many; 1
 *     sm       their architecture; 90
 *     name     underscores stand for spaces
 *     driver   its CUDA version, as of cudaDriverGetVersion; 0: no driver; this build's
 *     memory   MiB of each GPU; 16384
 *     pinned   MiB of the host; 1024
 *     fault    the number of the first copy that fails, and all after it; 0: none
 *     f16      0: the build has no kernels of fp16; 1
 *     peers    0: no GPU can access another's memory; 1
 *
 * When the program ends, the stand-in prints what was allocated and what has not been freed.
 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "kernel/kernel.h"

#define HOLDS(condition)                                                                           \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "%s:%d: stand-in GPU: not %s\n", __FILE__, __LINE__, #condition);          \
        abort();                                                                                   \
    } while (0)

enum { MOST_BLOCKS = 4096, MIB = 1 << 20, HOST = -1, MOST_GPUS = 16 };

struct CUstream_st {
    int gpu;
};

struct CUevent_st {
    int gpu;
    bool is_recorded;
    double at; /* seconds */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block {
    void *at; /* NULL: none */
    size_t bytes;
    int gpu; /* or HOST */
} blocks[MOST_BLOCKS];
static struct {
    long allocations, freed, streams, streams_ended, events, events_ended, copies;
} counts;
static bool peers[MOST_GPUS][MOST_GPUS]; /* GPU [i] may access GPU [j]'s memory */
static _Thread_local int current;
static _Thread_local bool is_host_function; /* which calls nothing of CUDA */
static _Thread_local cudaError_t last;

/* ---- what there is ---- */

static const char *word(const char *name)
{
    const char *at = getenv("ECHELON_STAND_IN");
    size_t n = strlen(name);
    for (; at && *at; at += strcspn(at, " "), at += strspn(at, " "))
        if (strncmp(at, name, n) == 0 && at[n] == '=') return at + n + 1;
    return NULL;
}

static long number(const char *name, long otherwise)
{
    const char *text = word(name);
    return text ? atol(text) : otherwise;
}

static cudaError_t said(cudaError_t error)
{
    if (error != cudaSuccess) last = error;
    return error;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = (int)number("driver", CUDART_VERSION);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    int driver = 0;
    (void)cudaDriverGetVersion(&driver);
    if (driver < CUDART_VERSION) return said(cudaErrorInsufficientDriver);
    *n = (int)number("gpus", 1);
    return said(*n > 0 ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int gpu)
{
    int sm = (int)number("sm", 90);
    HOLDS(gpu >= 0 && gpu < number("gpus", 1));
    HOLDS(attribute == cudaDevAttrComputeCapabilityMajor ||
          attribute == cudaDevAttrComputeCapabilityMinor ||
          attribute == cudaDevAttrMultiProcessorCount);
    *value = attribute == cudaDevAttrMultiProcessorCount      ? 132
             : attribute == cudaDevAttrComputeCapabilityMajor ? sm / 10
                                                              : sm % 10;
    return cudaSuccess;
}

/* "bus=ID": all numbers name one card, as where each process is shown one and the same. */
cudaError_t cudaDeviceGetPCIBusId(char *out, int n, int gpu)
{
    const char *bus = word("bus");
    HOLDS(gpu >= 0 && gpu < number("gpus", 1));
    if (bus)
        snprintf(out, (size_t)n, "%.*s", (int)strcspn(bus, " "), bus);
    else
        snprintf(out, (size_t)n, "0000:%02x:00.0", gpu);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int gpu, int peer)
{
    HOLDS(gpu >= 0 && gpu < number("gpus", 1) && peer >= 0 && peer < number("gpus", 1));
    HOLDS(gpu != peer);
    *can = (int)number("peers", 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    HOLDS(number("peers", 1) && flags == 0 && peer != current);
    pthread_mutex_lock(&lock);
    bool already = peers[current][peer];
    peers[current][peer] = true;
    pthread_mutex_unlock(&lock);
    return said(already ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *of, int gpu)
{
    const char *name = word("name");
    memset(of, 0, sizeof *of);
    HOLDS(gpu >= 0 && gpu < number("gpus", 1));
    snprintf(of->name, sizeof of->name, "%.*s", (int)strcspn(name ? name : "", " "),
             name ? name : "made up");
    if (!name) strcpy(of->name, "Stand-in");
    for (char *at = of->name; *at; at++)
        if (*at == '_') *at = ' ';
    of->totalGlobalMem = (size_t)number("memory", 16384) * MIB;
    return cudaSuccess;
}

const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "cudaErrorOther";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorIllegalAddress ? "an illegal memory access was encountered" : "?";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last;
    last = cudaSuccess;
    return error;
}

cudaError_t cudaSetDevice(int gpu)
{
    HOLDS(gpu >= 0 && gpu < number("gpus", 1));
    current = gpu;
    return cudaSuccess;
}

/* ---- memory ---- */

/* Under the lock. */
static size_t taken(int gpu)
{
    size_t sum = 0;
    for (int b = 0; b < MOST_BLOCKS; b++)
        if (blocks[b].at && blocks[b].gpu == gpu) sum += blocks[b].bytes;
    return sum;
}

static cudaError_t take(void **out, size_t bytes, int gpu, long most_mib)
{
    cudaError_t error = cudaErrorMemoryAllocation;
    int b = 0;
    pthread_mutex_lock(&lock);
    while (b < MOST_BLOCKS && blocks[b].at) b++;
    HOLDS(b < MOST_BLOCKS);
    if (bytes <= (size_t)most_mib * MIB - taken(gpu)) {
        blocks[b] = (struct block){aligned_alloc(4096, (bytes + 4095) / 4096 * 4096), bytes, gpu};
        HOLDS(blocks[b].at);
        memset(blocks[b].at, 0xff, bytes);
        *out = blocks[b].at;
        counts.allocations++;
        error = cudaSuccess;
    }
    pthread_mutex_unlock(&lock);
    return said(error);
}

static cudaError_t give(void *memory, bool is_host)
{
    int b = 0;
    if (!memory) return cudaSuccess;
    pthread_mutex_lock(&lock);
    while (b < MOST_BLOCKS && blocks[b].at != memory) b++;
    HOLDS(b < MOST_BLOCKS && (blocks[b].gpu == HOST) == is_host);
    blocks[b] = (struct block){0};
    counts.freed++;
    pthread_mutex_unlock(&lock);
    free(memory);
    return cudaSuccess;
}

static bool is_of_a_gpu(const void *memory, size_t bytes)
{
    const char *at = memory;
    bool is = false;
    pthread_mutex_lock(&lock);
    for (int b = 0; b < MOST_BLOCKS && !is; b++) {
        const char *first = blocks[b].at;
        is = first && blocks[b].gpu != HOST && at >= first && at + bytes <= first + blocks[b].bytes;
    }
    pthread_mutex_unlock(&lock);
    return is;
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    return take(out, bytes, current, number("memory", 16384));
}

cudaError_t cudaFree(void *memory)
{
    return give(memory, false);
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags)
{
    HOLDS(flags == cudaHostAllocPortable);
    return take(out, bytes, HOST, number("pinned", 1024));
}

cudaError_t cudaFreeHost(void *memory)
{
    return give(memory, true);
}

cudaError_t cudaMemGetInfo(size_t *available, size_t *all)
{
    *all = (size_t)number("memory", 16384) * MIB;
    pthread_mutex_lock(&lock);
    *available = *all - taken(current);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int byte, size_t bytes)
{
    memset(to, byte, bytes);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    HOLDS(stream == cudaStreamLegacy && !is_host_function);
    return cudaSuccess;
}

/* ---- streams and events ---- */

/* Of a GPU that has failed every call fails. */
static cudaError_t now(void)
{
    long fault = number("fault", 0);
    HOLDS(!is_host_function);
    pthread_mutex_lock(&lock);
    bool has_failed = fault > 0 && counts.copies >= fault;
    pthread_mutex_unlock(&lock);
    return said(has_failed ? cudaErrorIllegalAddress : cudaSuccess);
}

static void count(long *of)
{
    HOLDS(!is_host_function);
    pthread_mutex_lock(&lock);
    (*of)++;
    pthread_mutex_unlock(&lock);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    HOLDS(flags == cudaStreamNonBlocking);
    *out = calloc(1, sizeof **out);
    HOLDS(*out);
    (*out)->gpu = current;
    count(&counts.streams);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    HOLDS(priority == -5);
    return cudaStreamCreateWithFlags(out, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    HOLDS(stream->gpu == current);
    free(stream);
    count(&counts.streams_ended);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    *out = calloc(1, sizeof **out);
    HOLDS(*out);
    (*out)->gpu = current;
    count(&counts.events);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    HOLDS(event->gpu == current);
    free(event);
    count(&counts.events_ended);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    HOLDS(event->gpu == stream->gpu && stream->gpu == current);
    event->is_recorded = true;
    event->at = ech_clock_now();
    return now();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    HOLDS(stream->gpu == current && event->is_recorded && flags == 0);
    return now();
}

/* Otherwise a thread that has no GPU yet gets the first one. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    HOLDS(event->is_recorded && event->gpu == current);
    return now();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return cudaEventQuery(event);
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    HOLDS(from->is_recorded && to->is_recorded && from->gpu == to->gpu && to->gpu == current);
    *milliseconds = (float)(1e3 * (to->at - from->at));
    return now();
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    HOLDS(stream->gpu == current && kind == cudaMemcpyDefault);
    count(&counts.copies);
    memcpy(to, from, bytes);
    return now();
}

cudaError_t cudaMemsetAsync(void *to, int byte, size_t bytes, cudaStream_t stream)
{
    HOLDS(stream->gpu == current);
    if (!is_of_a_gpu(to, bytes)) return said(cudaErrorInvalidValue);
    memset(to, byte, bytes);
    return now();
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    HOLDS(stream->gpu == current);
    cudaError_t error = now();
    is_host_function = true;
    if (error == cudaSuccess) function(argument);
    is_host_function = false;
    return error;
}

/* ---- kernels, and what is left when the program ends ---- */

const ech_kernels *ech_kernels_emulated(ech_dtype dtype);

const ech_kernels *ech_kernels_cuda(ech_dtype dtype)
{
    static const ech_kernels without_rows = {.name = "cuda", .architecture = "", .dtype = ECH_F16};
    bool lacks = dtype == ECH_F16 && number("f16", 1) == 0;
    return lacks ? &without_rows : ech_kernels_emulated(dtype);
}

static void __attribute__((destructor)) end(void)
{
    if (counts.allocations == 0) return;
    int met = 0;
    for (int i = 0; i < MOST_GPUS * MOST_GPUS; i++) met += peers[i / MOST_GPUS][i % MOST_GPUS];
    fprintf(stderr,
            "stand-in GPU: %ld allocations, %ld streams, %ld events; %d ways between GPUs; left: "
            "%ld, %ld, %ld\n",
            counts.allocations, counts.streams, counts.events, met,
            counts.allocations - counts.freed, counts.streams - counts.streams_ended,
            counts.events - counts.events_ended);
}
