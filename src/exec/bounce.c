/* SPDX-License-Identifier: Apache-2.0
 *
 * How the host reads and writes device memory: through a bounce buffer of the host arena.
 * The rank's own thread uses it; while that waits for a checkpoint, the thread that writes the
 * checkpoint does.
 */
#include <string.h>

#include "exec/state.h"

/* The side that is not the bounce buffer may be on the device, on the host, or on disk. */
static ech_status copy_now(const ech_exec *exec, ech_lane lane, void *to, const void *from,
                           size_t bytes)
{
    int64_t offset;
    if (ech_disk_has(exec->disk, from, &offset)) return ech_disk_get(exec->disk, offset, to, bytes);
    if (ech_disk_has(exec->disk, to, &offset)) return ech_disk_put(exec->disk, offset, from, bytes);
    return ech_device_copy_now(exec->device, exec->on[lane].queue, to, from, bytes);
}

static ech_status copy_for_rank(void *context, void *to, const void *from, size_t bytes)
{
    ech_exec *exec = context;
    exec->counts.host_waits++;
    return copy_now(exec, ECH_LANE_COMPUTE, to, from, bytes);
}

static ech_status copy_for_saver(void *context, void *to, const void *from, size_t bytes)
{
    return copy_now(context, ECH_LANE_DISK, to, from, bytes);
}

void ech_bounce_create(ech_exec *exec)
{
    char *bounce = ech_exec_look(exec, exec->plan->bounce);
    exec->copier[0] = (ech_saved_copier){exec, copy_for_rank, bounce, ECH_BOUNCE_BYTES};
    exec->copier[1] = (ech_saved_copier){exec, copy_for_saver, bounce, ECH_BOUNCE_BYTES};
}

void ech_exec_copy(ech_exec *exec, void *to, const void *from, size_t bytes)
{
    ech_exec_fail(exec, copy_for_rank(exec, to, from, bytes));
}

/* Converts numbers of the buffer's elements; fp32, fp64 and uint8 without loss. */
static void convert(const ech_tensor *x, char *bounce, double *numbers, int64_t n, bool reads)
{
    unsigned char *codes = (unsigned char *)bounce;
    if (x->dtype != ECH_U8 && reads) ech_convert(bounce, x->dtype, numbers, ECH_F64, n);
    if (x->dtype != ECH_U8 && !reads) ech_convert(numbers, ECH_F64, bounce, x->dtype, n);
    for (int64_t i = 0; x->dtype == ECH_U8 && i < n; i++) {
        if (reads)
            numbers[i] = codes[i];
        else
            codes[i] = (unsigned char)numbers[i];
    }
}

static void move(ech_exec *exec, const ech_tensor *x, double *numbers, bool reads)
{
    char *bounce = ech_exec_look(exec, exec->plan->bounce);
    int64_t item = (int64_t)ech_dtype_bytes(x->dtype), most = ECH_BOUNCE_BYTES / item;
    for (int64_t at = 0, n, all = ech_tensor_count(x); at < all; at += n) {
        n = all - at < most ? all - at : most;
        char *device = (char *)x->data + at * item;
        if (reads) ech_exec_copy(exec, bounce, device, (size_t)(n * item));
        convert(x, bounce, numbers + at, n, reads);
        if (!reads) ech_exec_copy(exec, device, bounce, (size_t)(n * item));
    }
}

void ech_exec_read(ech_exec *exec, const ech_tensor *x, double *out)
{
    move(exec, x, out, true);
}

void ech_exec_write(ech_exec *exec, const ech_tensor *x, const double *from)
{
    move(exec, x, (double *)(uintptr_t)from, false);
}
