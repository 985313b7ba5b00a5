/* SPDX-License-Identifier: Apache-2.0
 *
 * NVIDIA GPUs, for code that calls CUDA itself: kernels, and transports between GPUs. Needs no CUDA
 * header.
 */
#ifndef ECH_DEVICE_CUDA_H
#define ECH_DEVICE_CUDA_H

#include "device/device.h"

/* The cudaStream_t of a queue, whose GPU becomes the calling thread's. */
void *ech_device_cuda_stream(const ech_queue *queue);
/* Stores the first cudaError_t that is not cudaSuccess, and its origin: query and synchronize of
 * any event then fail with a text that reports it. `what`: a text that remains valid. Returns true
 * for cudaSuccess. */
bool ech_device_cuda_check(int error, const char *what);

#endif
