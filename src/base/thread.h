/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads on which no signal handler runs.
 *
 * oneDNN's fp32 GEMM for AVX and AVX2 (jit_avx_gemm_f32) sets the stack pointer to a buffer on the
 * heap while it multiplies. The system writes the frame of a signal handler below the stack
 * pointer. So the frame overwrites about a kilobyte of the heap before that buffer. Therefore
 * threads that compute, and all that they start, block signals.
 */
#ifndef ECH_BASE_THREAD_H
#define ECH_BASE_THREAD_H

#include <pthread.h>

/* As pthread_create with default attributes: returns 0 or an error number. The thread blocks all
 * signals except those that a thread causes itself (SIGSEGV, SIGABRT and the like), and so do
 * threads that it starts. */
int ech_thread_start(pthread_t *thread, void *(*main)(void *), void *context);

#endif
