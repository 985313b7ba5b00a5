/* SPDX-License-Identifier: Apache-2.0
 *
 * NVIDIA GPUs, for those who call CUDA themselves: kernels, and transports between GPUs. Needs no
 * header of CUDA.
 */
#ifndef ECH_DEVICE_CUDA_H
#define ECH_DEVICE_CUDA_H

#include "device/device.h"

/* The cudaStream_t of a queue, whose GPU becomes the calling thread's. */
void *ech_device_cuda_stream(const ech_queue *queue);
/* Keeps the first cudaError_t that is not cudaSuccess, and by what it came: query and synchronize
 * of any event then fail with a text that says so. `what`: a text that stays. Returns whether it is
 * cudaSuccess. */
bool ech_device_cuda_check(int error, const char *what);

#endif
