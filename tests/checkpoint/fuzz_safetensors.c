/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the safetensors reader with whole files: what opens must be readable, every tensor of it,
 * and if it is fp32 as fp64, too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/whole.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void read_all(const ech_safetensors *file, size_t n)
{
    void *data = ech_calloc(n + 1, 2); /* no tensor is larger than the file */
    for (int i = 0; i < ech_safetensors_count(file); i++) {
        ech_saved_tensor t = ech_safetensors_get(file, i);
        ECH_ASSERT(ech_safetensors_find(file, t.name) == i);
        saved_whole(&t, data);
        ECH_ASSERT(ech_safetensors_read(file, i, &t) == ECH_OK);
        if (t.dtype != ECH_F32) continue;
        t.dtype = ECH_F64;
        ECH_ASSERT(ech_safetensors_read(file, i, &t) == ECH_OK);
    }
    free(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    ech_log_set_quiet(true);
    int fd = memfd_create("safetensors", 0);
    ECH_ASSERT(fd >= 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ECH_ASSERT(ech_file_write_at(fd, path, bytes, n, 0) == ECH_OK);
    ech_safetensors *file = NULL;
    if (ech_safetensors_open(path, &file) == ECH_OK) {
        read_all(file, n);
    } else {
        ECH_ASSERT(file == NULL);
    }
    ech_safetensors_close(file);
    close(fd);
    return 0;
}
