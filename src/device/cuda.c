/* SPDX-License-Identifier: Apache-2.0
 *
 * NVIDIA GPUs, by CUDA's runtime: queues are streams. Only builds with CUDA's headers have this
 * file.
 */
#include <ctype.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "device/cpu.h"
#include "device/cuda.h"
#include "device/cuda_library.h"

/* The oldest architecture that kernels are compiled for: tensor cores with bf16. */
enum { OLDEST = 80 };
/* What the driver and libraries take of a GPU besides the arena: context, kernels' code,
 * cuBLASLt's. */
static const size_t allowance = (size_t)1 << 30;

struct ech_queue {
    cudaStream_t stream;
    int gpu;
};

/* Made when it is recorded first, on the GPU of the queue where it is. */
struct ech_event {
    cudaEvent_t event; /* NULL: never recorded */
    int gpu;
};

/* ---- faults ---- */

static _Atomic int first_fault;
static const char *_Atomic first_place;

bool ech_device_cuda_check(int error, const char *what)
{
    int none = cudaSuccess;
    if (error == cudaSuccess) return true;
    if (atomic_compare_exchange_strong(&first_fault, &none, error)) first_place = what;
    return false;
}

static const char *hint_of(cudaError_t error)
{
    switch ((int)error) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
        return "a kernel accessed invalid memory; tools/gpu.sh sanitizer finds where";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
        return "this build has no kernels for the GPU; build with its ECH_CUDA_ARCHITECTURES";
    case cudaErrorECCUncorrectable:
        return "the GPU's memory is damaged; leave it out with CUDA_VISIBLE_DEVICES";
    case cudaErrorMemoryAllocation:
        return "lower memory.device_limit, or end other programs that use the GPU";
    case cudaErrorDevicesUnavailable:
        return "another process has the GPU for itself (nvidia-smi -q -d COMPUTE)";
    default:
        return "nvidia-smi and the system's log (dmesg | grep -i xid) may say more";
    }
}

static ech_status fail_by(cudaError_t error, const char *what)
{
    ECH_FAIL(ECH_EIO, "the GPU fails at %s: %s (%s); %s", what, cudaGetErrorString(error),
             cudaGetErrorName(error), hint_of(error));
}

/* Of the first fault, also if a later call has found it. */
static ech_status check_now(cudaError_t error, const char *what)
{
    if (ech_device_cuda_check((int)error, what) && first_fault == cudaSuccess) return ECH_OK;
    const char *place = first_place;
    return fail_by((cudaError_t)first_fault, place ? place : what);
}

/* ---- GPUs: each thread has one ---- */

static _Thread_local int current; /* as CUDA's own */
static _Thread_local int home; /* of what the thread makes: it puts work on others' queues, too */

/* What follows is on this one. */
static void turn_to(int gpu)
{
    if (gpu == current) return;
    ech_device_cuda_check((int)cudaSetDevice(gpu), "cudaSetDevice");
    current = gpu;
}

static void use(int gpu)
{
    home = gpu;
    turn_to(gpu);
}

static int count(void)
{
    int n = 0;
    return cudaGetDeviceCount(&n) == cudaSuccess ? n : 0;
}

static int number_of(int gpu, enum cudaDeviceAttr attribute)
{
    int value = 0;
    (void)cudaDeviceGetAttribute(&value, attribute, gpu);
    return value;
}

/* "0000:3b:00.0"; parts of a card (MIG) have its bus, and a UUID of their own. */
static void identify(int gpu, char *out, size_t n)
{
    struct cudaDeviceProp of;
    char bus[32] = "?";
    (void)cudaDeviceGetPCIBusId(bus, sizeof bus, gpu);
    memset(&of, 0, sizeof of);
    (void)cudaGetDeviceProperties(&of, gpu);
    snprintf(out, n, "GPU %s (%02x%02x%02x%02x)", bus, (unsigned char)of.uuid.bytes[0],
             (unsigned char)of.uuid.bytes[1], (unsigned char)of.uuid.bytes[2],
             (unsigned char)of.uuid.bytes[3]);
}

static bool meet(int gpu)
{
    int can = 0;
    if (gpu == home) return true;
    turn_to(home);
    cudaError_t error = cudaDeviceCanAccessPeer(&can, home, gpu);
    if (error == cudaSuccess && can) error = cudaDeviceEnablePeerAccess(gpu, 0);
    (void)cudaGetLastError();
    return can && (error == cudaSuccess || error == cudaErrorPeerAccessAlreadyEnabled);
}

/* The system has a folder for each device of the bus. */
static ech_core_set near(void)
{
    char bus[32] = "?", path[96];
    (void)cudaDeviceGetPCIBusId(bus, sizeof bus, home);
    for (char *at = bus; *at; at++) *at = (char)tolower((unsigned char)*at);
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/local_cpulist", bus);
    return ech_cores_read(path);
}

static int multiprocessors(void)
{
    int least = count() ? number_of(0, cudaDevAttrMultiProcessorCount) : 0;
    for (int gpu = 1; gpu < count(); gpu++) {
        int n = number_of(gpu, cudaDevAttrMultiProcessorCount);
        if (n < least) least = n;
    }
    return least;
}

static int architecture(int gpu)
{
    return 10 * number_of(gpu, cudaDevAttrComputeCapabilityMajor) +
           number_of(gpu, cudaDevAttrComputeCapabilityMinor);
}

/* ---- whether a machine can compute with it ---- */

static char missing[512]; /* empty: nothing is */

static void say_no_gpu(cudaError_t error, int driver)
{
    int runtime = CUDART_VERSION;
    if (driver == 0)
        snprintf(missing, sizeof missing,
                 "this machine has no NVIDIA driver (libcuda.so.1); install one, or use a machine "
                 "with a GPU");
    else if (error == cudaErrorInsufficientDriver)
        snprintf(missing, sizeof missing,
                 "the driver is for CUDA %d.%d, older than this build's %d.%d; update it, or build "
                 "with an older CUDA",
                 driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else if (error == cudaErrorNoDevice)
        snprintf(missing, sizeof missing,
                 "there is a driver, but no GPU that this process may use; look at nvidia-smi and "
                 "CUDA_VISIBLE_DEVICES");
    else
        snprintf(missing, sizeof missing, "the driver says: %s (%s); %s", cudaGetErrorString(error),
                 cudaGetErrorName(error), hint_of(error));
}

static void look(void)
{
    int driver = 0, n = 0;
    /* A rank has more than the 8 queues that a GPU separates by default. If they shared one, a
     * queue that waits would delay others. */
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    (void)cudaDriverGetVersion(&driver);
    cudaError_t error = cudaGetDeviceCount(&n);
    if (error != cudaSuccess || n == 0) {
        say_no_gpu(error == cudaSuccess ? cudaErrorNoDevice : error, driver);
        (void)cudaGetLastError();
        return;
    }
    for (int gpu = 0; gpu < n; gpu++)
        if (architecture(gpu) < OLDEST) {
            snprintf(missing, sizeof missing,
                     "GPU %d is of architecture sm_%d, and kernels are for sm_%d and newer; leave "
                     "it out with CUDA_VISIBLE_DEVICES",
                     gpu, architecture(gpu), OLDEST);
            return;
        }
    const char *path = NULL, *why = ech_library_lacks(&ech_library_cublaslt, &path);
    if (why) snprintf(missing, sizeof missing, "%s", why);
}

static const char *lacks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, look);
    return *missing ? missing : NULL;
}

static const char *describe(void)
{
    static _Thread_local char text[512];
    const char *path = "?";
    int driver = 0, runtime = CUDART_VERSION;
    struct cudaDeviceProp of;
    (void)ech_library_lacks(&ech_library_cublaslt, &path);
    (void)cudaDriverGetVersion(&driver);
    if (cudaGetDeviceProperties(&of, 0) != cudaSuccess) snprintf(of.name, sizeof of.name, "?");
    snprintf(
        text, sizeof text,
        "%d x %s (sm_%d), CUDA %d.%d, driver for CUDA %d.%d, cuBLASLt of %s; %zu MiB of each are "
        "for driver and libraries",
        count(), of.name, architecture(0), runtime / 1000, runtime % 1000 / 10, driver / 1000,
        driver % 1000 / 10, path, allowance >> 20);
    return text;
}

/* ---- memory ---- */

static ech_status no_memory(size_t bytes, cudaError_t error)
{
    char wanted[32], left[32];
    size_t available = 0, all = 0;
    (void)cudaGetLastError();
    if (error != cudaErrorMemoryAllocation) return fail_by(error, "cudaMalloc");
    (void)cudaMemGetInfo(&available, &all);
    ECH_FAIL(ECH_ENOMEM, "GPU %d has no %s left, only %s; %s", current,
             ech_text_from_bytes((int64_t)bytes, wanted, sizeof wanted),
             ech_text_from_bytes((int64_t)available, left, sizeof left), hint_of(error));
}

static ech_status alloc(size_t bytes, void **out)
{
    void *memory = NULL;
    turn_to(home);
    cudaError_t error = cudaMalloc(&memory, bytes ? bytes : 1);
    if (error != cudaSuccess) return no_memory(bytes, error);
    error = cudaMemset(memory, 0, bytes);
    /* Not for the whole GPU, where queues of other ranks may wait for this one. */
    if (error == cudaSuccess) error = cudaStreamSynchronize(cudaStreamLegacy);
    if (error != cudaSuccess) return fail_by(error, "cudaMemset");
    *out = memory;
    return ECH_OK;
}

static void release(void *memory, size_t bytes)
{
    (void)bytes;
    turn_to(home);
    ech_device_cuda_check((int)cudaFree(memory), "cudaFree");
}

/* Pinned, for the copies of all GPUs. */
static ech_status alloc_host(size_t bytes, void **out)
{
    char wanted[32];
    void *memory = NULL;
    turn_to(home);
    cudaError_t error = cudaHostAlloc(&memory, bytes ? bytes : 1, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        ECH_FAIL(ECH_ENOMEM,
                 "cannot get %s of pinned memory; end other programs that use memory, or raise the "
                 "container's limit",
                 ech_text_from_bytes((int64_t)bytes, wanted, sizeof wanted));
    }
    if (error != cudaSuccess) return fail_by(error, "cudaHostAlloc");
    memset(memory, 0, bytes);
    *out = memory;
    return ECH_OK;
}

static void release_host(void *memory, size_t bytes)
{
    (void)bytes;
    turn_to(home);
    ech_device_cuda_check((int)cudaFreeHost(memory), "cudaFreeHost");
}

static size_t memory_bytes(void)
{
    size_t least = SIZE_MAX;
    for (int gpu = 0; gpu < count(); gpu++) {
        struct cudaDeviceProp of;
        bool is_known = cudaGetDeviceProperties(&of, gpu) == cudaSuccess;
        if (is_known && of.totalGlobalMem < least) least = of.totalGlobalMem;
    }
    return least > 2 * allowance ? least - allowance : allowance;
}

static size_t left(void)
{
    size_t available = 0, all = 0;
    turn_to(home);
    (void)cudaMemGetInfo(&available, &all);
    return available;
}

/* ---- queues and events ---- */

void *ech_device_cuda_stream(const ech_queue *queue)
{
    turn_to(queue->gpu);
    return queue->stream;
}

static ech_status queue_create(ech_queue **out)
{
    ech_queue *queue = ech_calloc(1, sizeof *queue);
    turn_to(home);
    queue->gpu = home;
    cudaError_t error = cudaStreamCreateWithFlags(&queue->stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
        free(queue);
        return fail_by(error, "cudaStreamCreateWithFlags");
    }
    *out = queue;
    return ECH_OK;
}

static void prefer(ech_queue *queue)
{
    int least = 0, greatest = 0;
    cudaStream_t stream = NULL;
    turn_to(queue->gpu);
    if (cudaDeviceGetStreamPriorityRange(&least, &greatest) != cudaSuccess ||
        cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest) != cudaSuccess) {
        (void)cudaGetLastError();
        return;
    }
    ech_device_cuda_check((int)cudaStreamDestroy(queue->stream), "cudaStreamDestroy");
    queue->stream = stream;
}

static void queue_destroy(ech_queue *queue)
{
    if (!queue) return;
    turn_to(queue->gpu);
    ech_device_cuda_check((int)cudaStreamDestroy(queue->stream), "cudaStreamDestroy");
    free(queue);
}

static ech_status event_create(ech_event **out)
{
    *out = ech_calloc(1, sizeof **out);
    return ECH_OK;
}

/* Also threads ask for events that have no GPU, whose first call would take memory of GPU 0. */
static cudaEvent_t made(const ech_event *event)
{
    turn_to(event->gpu);
    return event->event;
}

static void forget(ech_event *event)
{
    if (event->event) ech_device_cuda_check((int)cudaEventDestroy(made(event)), "cudaEventDestroy");
    event->event = NULL;
}

static void event_destroy(ech_event *event)
{
    if (event) forget(event);
    free(event);
}

static void copy(ech_queue *queue, void *to, const void *from, size_t bytes)
{
    if (bytes == 0) return; /* from or to anywhere */
    turn_to(queue->gpu);
    ech_device_cuda_check((int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, queue->stream),
                          "cudaMemcpyAsync");
}

static void fill(ech_queue *queue, void *to, unsigned char byte, size_t bytes)
{
    if (bytes == 0) return;
    turn_to(queue->gpu);
    ech_device_cuda_check((int)cudaMemsetAsync(to, byte, bytes, queue->stream), "cudaMemsetAsync");
}

/* A call. */
typedef struct task {
    void (*function)(void *argument);
    max_align_t argument[];
} task;

static void CUDART_CB do_task(void *argument)
{
    task *p = argument;
    p->function(p->argument);
    free(p);
}

static void call(ech_queue *queue, void (*function)(void *argument), void *argument, size_t bytes)
{
    task *p = ech_calloc(1, sizeof *p + bytes);
    p->function = function;
    memcpy(p->argument, argument, bytes);
    turn_to(queue->gpu);
    if (!ech_device_cuda_check((int)cudaLaunchHostFunc(queue->stream, do_task, p),
                               "cudaLaunchHostFunc"))
        free(p);
}

static void record(ech_event *event, ech_queue *queue)
{
    if (event->gpu != queue->gpu) {
        forget(event);
        event->gpu = queue->gpu;
    }
    turn_to(queue->gpu);
    if (!event->event &&
        !ech_device_cuda_check((int)cudaEventCreate(&event->event), "cudaEventCreate"))
        return;
    ech_device_cuda_check((int)cudaEventRecord(event->event, queue->stream), "cudaEventRecord");
}

static void wait(ech_queue *queue, ech_event *event)
{
    if (!event->event) return;
    turn_to(queue->gpu);
    ech_device_cuda_check((int)cudaStreamWaitEvent(queue->stream, event->event, 0),
                          "cudaStreamWaitEvent");
}

static ech_status query(ech_event *event, bool *reached)
{
    cudaError_t error = event->event ? cudaEventQuery(made(event)) : cudaSuccess;
    *reached = error == cudaSuccess;
    if (error == cudaErrorNotReady) (void)cudaGetLastError(); /* no launch's */
    return check_now(error == cudaErrorNotReady ? cudaSuccess : error, "cudaEventQuery");
}

static ech_status synchronize(ech_event *event)
{
    return check_now(event->event ? cudaEventSynchronize(made(event)) : cudaSuccess,
                     "cudaEventSynchronize");
}

static double elapsed(const ech_event *from, const ech_event *to)
{
    float milliseconds = 0;
    ech_device_cuda_check((int)cudaEventElapsedTime(&milliseconds, made(from), made(to)),
                          "cudaEventElapsedTime");
    return (double)milliseconds / 1e3;
}

const ech_device ech_device_cuda = {
    .name = "cuda",
    .lacks = lacks,
    .describe = describe,
    .count = count,
    .use = use,
    .identify = identify,
    .meet = meet,
    .near = near,
    .alloc = alloc,
    .release = release,
    .alloc_host = alloc_host,
    .release_host = release_host,
    .memory_bytes = memory_bytes,
    .left = left,
    .multiprocessors = multiprocessors,
    .cores = ech_device_cpu_cores,
    .queue_create = queue_create,
    .prefer = prefer,
    .queue_destroy = queue_destroy,
    .stream = ech_device_cuda_stream,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .copy = copy,
    .fill = fill,
    .call = call,
    .record = record,
    .wait = wait,
    .query = query,
    .synchronize = synchronize,
    .elapsed = elapsed,
};
