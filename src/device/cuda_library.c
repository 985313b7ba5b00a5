/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding and opening CUDA's libraries.
 */
#include "device/cuda_library.h"

#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

#ifndef ECH_CUDA_MAJOR
#define ECH_CUDA_MAJOR "13" /* of builds that would not call it */
#endif

const ech_library ech_library_cublaslt = {.name = "cuBLASLt",
                                          .file = "libcublasLt.so." ECH_CUDA_MAJOR,
                                          .from = "pip install nvidia-cublas"};
const ech_library ech_library_cudnn = {
    .name = "cuDNN", .file = "libcudnn.so.9", .from = "pip install nvidia-cudnn-cu" ECH_CUDA_MAJOR};
const ech_library ech_library_nccl = {
    .name = "NCCL", .file = "libnccl.so.2", .from = "pip install nvidia-nccl-cu" ECH_CUDA_MAJOR};

/* Patterns of folders that are searched after the system's own: {environment variable or NULL, the
 * path after its value}. */
static const struct {
    const char *variable, *folder;
} places[] = {
    {"CUDA_HOME", "/lib64"},
    {"CUDA_HOME", "/lib"},
    {"CUDA_PATH", "/lib64"},
    {"CUDA_PATH", "/lib"},
    {NULL, "/usr/local/cuda/lib64"},
    {NULL, "/usr/local/cuda-*/lib64"},
    {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/lib"},
    {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/*/lib"},
    {"CONDA_PREFIX", "/lib"},
    {"HOME", "/.local/lib/python3*/site-packages/nvidia/*/lib"},
    {NULL, "/usr/local/lib/python3*/dist-packages/nvidia/*/lib"},
    {NULL, "/usr/local/lib/python3*/site-packages/nvidia/*/lib"},
    {NULL, "/usr/lib/python3*/dist-packages/nvidia/*/lib"},
    {NULL, "/opt/*/lib/python3*/site-packages/nvidia/*/lib"},
    {NULL, "/opt/*/*/lib/python3*/site-packages/nvidia/*/lib"},
    {NULL, "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib"},
};
/* Beside a python3 of PATH, as in an environment that is not activated. */
static const char of_python[] = "/../lib/python3*/site-packages/nvidia/*/lib";

static void *open_file(const ech_library *library, const char *path)
{
    return dlopen(path, RTLD_NOW | (library->is_global ? RTLD_GLOBAL : RTLD_LOCAL));
}

/* NULL: none of the files that match can be opened. */
static void *open_matching(const ech_library *library, const char *pattern)
{
    glob_t found = {0};
    void *handle = NULL;
    if (glob(pattern, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && !handle; i++)
            handle = open_file(library, found.gl_pathv[i]);
    globfree(&found);
    return handle;
}

static void *find_by_python(const ech_library *library)
{
    const char *at = getenv("PATH");
    void *handle = NULL;
    for (size_t n; at && *at && !handle; at += n + (at[n] == ':')) {
        ECH_FREED_TEXT python = {0};
        ECH_FREED_TEXT pattern = {0};
        n = strcspn(at, ":");
        ech_text_append(&python, "%.*s/python3", (int)n, at);
        ech_text_append(&pattern, "%.*s%s/%s", (int)n, at, of_python, library->file);
        if (n > 0 && access(python.at, X_OK) == 0) handle = open_matching(library, pattern.at);
    }
    return handle;
}

static void *find(const ech_library *library)
{
    void *handle = open_file(library, library->file);
    for (size_t p = 0; p < sizeof places / sizeof *places && !handle; p++) {
        const char *root = places[p].variable ? getenv(places[p].variable) : "";
        ECH_FREED_TEXT pattern = {0};
        if (!root || (places[p].variable && !*root)) continue;
        ech_text_append(&pattern, "%s%s/%s", root, places[p].folder, library->file);
        handle = open_matching(library, pattern.at);
    }
    return handle ? handle : find_by_python(library);
}

/* NULL: it is nowhere. */
static void *open_at(const ech_library *library, const char **path)
{
    struct link_map *map = NULL;
    void *handle = find(library);
    if (handle) *path = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : library->file;
    return handle;
}

const char *ech_library_lacks(const ech_library *library, const char **path)
{
    static _Thread_local char text[512];
    if (open_at(library, path)) return NULL;
    snprintf(text, sizeof text,
             "%s (%s) is neither where the system looks (LD_LIBRARY_PATH) nor in CUDA_HOME, "
             "/usr/local/cuda* or Python's packages nvidia/*/lib; install it (%s)%s%s",
             library->name, library->file, library->from, library->remedy ? ", " : "",
             library->remedy ? library->remedy : "");
    return text;
}

ech_status ech_library_open(const ech_library *library, const ech_library_symbol *symbol, int n,
                            const char **path)
{
    const char *where = NULL;
    void *handle = open_at(library, &where);
    if (!handle) ECH_FAIL(ECH_EUNSUPPORTED, "%s", ech_library_lacks(library, &where));
    for (int s = 0; s < n; s++) {
        void *address = dlsym(handle, symbol[s].name);
        if (!address)
            ECH_FAIL(ECH_EUNSUPPORTED,
                     "%s: has no %s, so it is too old; install a newer %s (%s)%s%s", where,
                     symbol[s].name, library->name, library->from, library->remedy ? ", " : "",
                     library->remedy ? library->remedy : "");
        memcpy(symbol[s].address, &address, sizeof address);
    }
    *path = where;
    return ECH_OK;
}
