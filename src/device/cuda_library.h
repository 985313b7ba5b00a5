/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's libraries, loaded when a device or a transport that needs them starts, so that one binary
 * runs on machines with and without them. Compiled in all builds; includes no CUDA header.
 */
#ifndef ECH_DEVICE_CUDA_LIBRARY_H
#define ECH_DEVICE_CUDA_LIBRARY_H

#include <stdbool.h>

#include "base/status.h"

typedef struct ech_library {
    const char *name; /* "cuBLASLt" */
    const char *file; /* its shared object, with the version of this build's headers */
    const char *from; /* how to get it: "pip install nvidia-cublas" */
    /* what else a user can do where it is missing: "set parallel.comm = local"; NULL: nothing */
    const char *remedy;
    bool is_global; /* libraries that are opened later may use its symbols (RTLD_GLOBAL) */
} ech_library;
extern const ech_library ech_library_cublaslt, ech_library_cudnn, ech_library_nccl;

/* A function of a library, and where its address is written. */
typedef struct ech_library_symbol {
    const char *name;
    void *address; /* address of a pointer to a function */
} ech_library_symbol;

/* Opens a library and writes the addresses of n functions; it stays open. Search order: the
 * system's paths (LD_LIBRARY_PATH, ld.so.conf), the folders lib64 and lib of CUDA_HOME, CUDA_PATH
 * and /usr/local/cuda*, and nvidia/NAME/lib of Python's packages (VIRTUAL_ENV, CONDA_PREFIX,
 * ~/.local, the system's, /opt's and of each python3 in PATH). *path: where it was found; owned by
 * the library. Errors: ECH_EUNSUPPORTED, it was not found, or lacks a function: one line that says
 * what to do. */
ech_status ech_library_open(const ech_library *library, const ech_library_symbol *symbol, int n,
                            const char **path);

/* Why it cannot be opened: a text valid until this thread's next call; NULL: *path is its location.
 * Logs nothing. */
const char *ech_library_lacks(const ech_library *library, const char **path);

#endif
