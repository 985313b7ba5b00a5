/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA's libraries, opened when a device or a transport starts that needs them: so that one binary
 * runs on machines with and without them. Compiled in all builds; reads no header of CUDA.
 */
#ifndef ECH_DEVICE_CUDA_LIBRARY_H
#define ECH_DEVICE_CUDA_LIBRARY_H

#include "base/status.h"

typedef struct ech_library {
    const char *name; /* "cuBLASLt" */
    const char
        *file; /* its shared object, with the version that the headers of this build are of */
    const char *from; /* who has it: "pip install nvidia-cublas" */
} ech_library;
extern const ech_library ech_library_cublaslt, ech_library_cudnn, ech_library_nccl;

/* A function of a library, and where its address is written. */
typedef struct ech_library_symbol {
    const char *name;
    void *address; /* of a pointer to a function */
} ech_library_symbol;

/* Opens a library and writes the addresses of n functions; it stays open. Looked for, in this
 * order: where the system looks (LD_LIBRARY_PATH, ld.so.conf), the folders lib64 and lib of
 * CUDA_HOME, CUDA_PATH and /usr/local/cuda*, and nvidia/NAME/lib of Python's packages (VIRTUAL_ENV,
 * CONDA_PREFIX, ~/.local, those of the system, of /opt and of each python3 in PATH). *path: where
 * it was found; the library's to keep. Errors: ECH_EUNSUPPORTED, it is nowhere, or lacks a
 * function: one line that says what to do. */
ech_status ech_library_open(const ech_library *library, const ech_library_symbol *symbol, int n,
                            const char **path);

/* Why it cannot be opened: a text valid until this thread's next call; NULL: *path is where it is.
 * Logs nothing. */
const char *ech_library_lacks(const ech_library *library, const char **path);

#endif
