/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures how fast a device fills memory, copies within itself, and copies from and to pinned host
 * memory. Prints the median of several tries by the device's own events, in GB/s one way.
 *     bench_device_copies [DEVICE [MIB]]
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/text.h"
#include "device/device.h"

enum { TRIES = 9 };

typedef struct bench {
    const ech_device *device;
    ech_queue *queue;
    ech_event *from, *to;
    char *host, *near, *far; /* `bytes` each */
    size_t bytes;
} bench;

static void fill(const bench *b)
{
    b->device->fill(b->queue, b->near, 0x5a, b->bytes);
}

static void within(const bench *b)
{
    b->device->copy(b->queue, b->far, b->near, b->bytes);
}

static void to_device(const bench *b)
{
    b->device->copy(b->queue, b->near, b->host, b->bytes);
}

static void to_host(const bench *b)
{
    b->device->copy(b->queue, b->host, b->near, b->bytes);
}

static const struct {
    const char *name;
    void (*move)(const bench *b);
} rows[] = {{"fill", fill},
            {"copy within", within},
            {"host to device", to_device},
            {"device to host", to_host}};

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static ech_status measure(const bench *b, void (*move)(const bench *b), double *out)
{
    double seconds[TRIES];
    move(b); /* the first touch */
    for (int t = 0; t < TRIES; t++) {
        b->device->record(b->from, b->queue);
        move(b);
        b->device->record(b->to, b->queue);
        ECH_TRY(b->device->synchronize(b->to));
        seconds[t] = b->device->elapsed(b->from, b->to);
    }
    qsort(seconds, TRIES, sizeof *seconds, compare);
    *out = seconds[TRIES / 2];
    return ECH_OK;
}

static ech_status run(bench *b)
{
    double seconds;
    ECH_TRY(b->device->alloc(b->bytes, (void **)&b->near));
    ECH_TRY(b->device->alloc(b->bytes, (void **)&b->far));
    ECH_TRY(b->device->alloc_host(b->bytes, (void **)&b->host));
    ECH_TRY(b->device->queue_create(&b->queue));
    ECH_TRY(b->device->event_create(&b->from));
    ECH_TRY(b->device->event_create(&b->to));
    printf("%-16s %10s\n", "of the device", "GB/s");
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        ECH_TRY(measure(b, rows[r].move, &seconds));
        printf("%-16s %10.1f\n", rows[r].name, (double)b->bytes / seconds / 1e9);
    }
    return ECH_OK;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "cuda";
    int64_t mib = 256;
    if (!ech_device_row_find(name) || (argc > 2 && (!ech_text_to_int(argv[2], &mib) || mib < 1))) {
        fprintf(stderr, "usage: bench_device_copies [DEVICE [MIB]]\n");
        return 2;
    }
    const char *lacks = ech_device_lacks(name);
    if (lacks) fprintf(stderr, "%s: %s\n", name, lacks);
    if (lacks) return 77;
    bench b = {.device = ech_device_find(name), .bytes = (size_t)mib << 20};
    printf("%s\n", ech_device_describe(name));
    return run(&b) == ECH_OK ? 0 : 1;
}
