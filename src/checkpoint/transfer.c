/* SPDX-License-Identifier: Apache-2.0
 *
 * Copying boxes with few system calls: runs that are adjacent in the file are written together;
 * runs that are close together are read with the bytes between them.
 */
#include "checkpoint/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/finite.h"
#include "checkpoint/hash.h"

enum {
    BUFFER = 256 << 10, /* bytes */
    DIRECT = 4 << 20,   /* bytes that are read or written at once, where they lie in memory */
    GAP = 16 << 10      /* bytes that are read for nothing, to save a call */
};

/* Runs that one call reads or writes. */
typedef struct span {
    int64_t first, n;   /* runs */
    int64_t begin, end; /* elements of the whole tensor */
} span;

typedef struct transfer {
    int fd;
    const char *path, *name;
    const char *memory; /* the whole tensor; NULL: it is in the file */
    bool writes;    /* or reads */
    int64_t offset; /* of the whole tensor in the file */
    ech_dtype stored, wanted;
    size_t stored_bytes, wanted_bytes; /* of an element */
    ech_box_runs runs;
    char *data, *buffer;
    const ech_saved_copier *copier; /* for `data`; NULL: host memory */
    uint64_t *sums;                 /* of what is written; NULL: none are wanted */
} transfer;

ech_status ech_transfer_check(const ech_saved_tensor *tensor)
{
    ECH_ASSERT(tensor->boxes >= 0 && tensor->boxes <= ECH_MOST_BOXES);
    for (int b = 0; b < tensor->boxes; b++) {
        const ech_box *box = &tensor->box[b];
        if (!ech_box_is_inside(tensor->dims, tensor->shape, box))
            ECH_FAIL(ECH_EINTERNAL, "box %d of tensor '%s' leaves its shape", b, tensor->name);
        if (ech_box_count(tensor->dims, box->size) == 0) continue;
        if (!tensor->data)
            ECH_FAIL(ECH_EINTERNAL, "box %d of tensor '%s' has no memory", b, tensor->name);
        if (!ech_box_is_apart(tensor->dims, box))
            ECH_FAIL(ECH_EINTERNAL,
                     "box %d of tensor '%s': by its strides elements overlap in memory, or "
                     "the last dimension is not contiguous",
                     b, tensor->name);
    }
    return ECH_OK;
}

static int64_t file_at(const transfer *t, int64_t element)
{
    return t->offset + element * (int64_t)t->stored_bytes;
}

/* The run `first`, however long it is, and those after it that begin at the end of the one before,
 * or soon after it if they are read, as long as all of it goes into the buffer. */
static span next_span(const transfer *t, int64_t first)
{
    int64_t item = (int64_t)t->stored_bytes, length = t->runs.length, gap = t->writes ? 0 : GAP;
    int64_t begin = ech_box_run_at(&t->runs, first).in_whole;
    span s = {.first = first, .n = 1, .begin = begin, .end = begin + length};
    while (first + s.n < t->runs.count) {
        int64_t next = ech_box_run_at(&t->runs, first + s.n).in_whole;
        if (next - s.end > gap / item || next + length - begin > BUFFER / item) break;
        s.end = next + length;
        s.n++;
    }
    return s;
}

/* No run could resume from it. A value that is infinite only in the file was too large for the
 * file's type. */
static ech_status refuse(const transfer *t, const char *element, int64_t at)
{
    bool narrow = ech_dtype_bytes(t->stored) < ech_dtype_bytes(t->wanted);
    ECH_FAIL(ECH_ENUMERIC,
             "%s: tensor '%s', element %lld is %s: not saved, and the checkpoints before it stay; "
             "lower optimizer.learning_rate and go on from the newest%s",
             t->path, t->name, (long long)at, ech_nonfinite_name(t->stored, element),
             narrow ? ", or save a type with a larger range (checkpoint.dtype)" : "");
}

/* Converts n elements between host memory and the form in the file. */
static void convert(const transfer *t, char *memory, char *stored, int64_t n)
{
    if (t->wanted == t->stored) /* of any type */
        memcpy(t->writes ? stored : memory, t->writes ? memory : stored,
               (size_t)n * t->stored_bytes);
    else if (t->writes)
        ech_convert(memory, t->wanted, stored, t->stored, n);
    else
        ech_convert(stored, t->stored, memory, t->wanted, n);
}

/* The same where the host cannot touch the memory, by way of its buffer. */
static ech_status convert_there(const transfer *t, char *memory, char *stored, int64_t n)
{
    const ech_saved_copier *c = t->copier;
    int64_t most = (int64_t)(c->bounce_bytes / t->wanted_bytes);
    for (int64_t part; n > 0; n -= part) {
        part = n < most ? n : most;
        size_t bytes = (size_t)part * t->wanted_bytes;
        if (t->writes) ECH_TRY(c->copy(c->context, c->bounce, memory, bytes));
        convert(t, c->bounce, stored, part);
        if (!t->writes) ECH_TRY(c->copy(c->context, memory, c->bounce, bytes));
        memory += bytes;
        stored += (size_t)part * t->stored_bytes;
    }
    return ECH_OK;
}

/* Moves n elements between memory, from its element number `at` on, and the form in the file. */
static ech_status take(const transfer *t, int64_t at, char *stored, int64_t n)
{
    char *memory = t->data + (size_t)at * t->wanted_bytes;
    if (t->copier) return convert_there(t, memory, stored, n);
    convert(t, memory, stored, n);
    return ECH_OK;
}

/* Reads or writes n elements as they are stored, which begin at element `at` of the whole tensor.
 * What is checked and added up is what the system is given. */
static ech_status call(const transfer *t, char *stored, int64_t n, int64_t at)
{
    size_t bytes = (size_t)n * t->stored_bytes;
    if (t->memory) {
        memcpy(stored, t->memory + (size_t)at * t->stored_bytes, bytes);
        return ECH_OK;
    }
    if (!t->writes) return ech_file_read_at(t->fd, t->path, stored, bytes, file_at(t, at));
    int64_t bad = t->sums ? ech_find_nonfinite(t->stored, stored, n) : -1;
    if (bad >= 0) return refuse(t, stored + (size_t)bad * t->stored_bytes, at + bad);
    if (t->sums) ech_sum_bytes(t->sums, stored, bytes, file_at(t, at));
    return ech_file_write_at(t->fd, t->path, stored, bytes, file_at(t, at));
}

/* A single run: directly where it lies in memory, or converted in blocks. */
static ech_status move_run(const transfer *t, ech_box_offset run)
{
    bool same = t->stored == t->wanted && !t->copier;
    int64_t most = (same ? DIRECT : BUFFER) / (int64_t)t->stored_bytes, n;
    for (int64_t done = 0; done < t->runs.length; done += n) {
        n = t->runs.length - done < most ? t->runs.length - done : most;
        int64_t at = run.in_memory + done;
        char *stored = same ? t->data + (size_t)at * t->wanted_bytes : t->buffer;
        if (!same && t->writes) ECH_TRY(take(t, at, stored, n));
        ECH_TRY(call(t, stored, n, run.in_whole + done));
        if (!same && !t->writes) ECH_TRY(take(t, at, stored, n));
    }
    return ECH_OK;
}

static ech_status move_span(const transfer *t, span s)
{
    if (s.n == 1) return move_run(t, ech_box_run_at(&t->runs, s.first));
    if (!t->writes) ECH_TRY(call(t, t->buffer, s.end - s.begin, s.begin));
    for (int64_t i = s.first; i < s.first + s.n; i++) {
        ech_box_offset run = ech_box_run_at(&t->runs, i);
        char *stored = t->buffer + (size_t)(run.in_whole - s.begin) * t->stored_bytes;
        ECH_TRY(take(t, run.in_memory, stored, t->runs.length));
    }
    return t->writes ? call(t, t->buffer, s.end - s.begin, s.begin) : ECH_OK;
}

static ech_status move_box(transfer *t, int dims, const int64_t *shape, const ech_box *box)
{
    t->runs = ech_box_split(dims, shape, box);
    for (int64_t i = 0; i < t->runs.count;) {
        span s = next_span(t, i);
        ECH_TRY(move_span(t, s));
        i += s.n;
    }
    return ECH_OK;
}

static ech_status move_boxes(transfer t, const ech_saved_tensor *tensor)
{
    ECH_TRY(ech_transfer_check(tensor));
    ECH_FREED char *buffer = ech_calloc(BUFFER, 1);
    t.name = tensor->name;
    t.copier = tensor->copier;
    t.wanted = tensor->dtype;
    t.stored_bytes = ech_dtype_bytes(t.stored);
    t.wanted_bytes = ech_dtype_bytes(t.wanted);
    t.buffer = buffer;
    t.data = tensor->data;
    for (int b = 0; b < tensor->boxes; b++) {
        ech_box_placed placed =
            ech_box_place_in(&tensor->place, tensor->dims, tensor->shape, &tensor->box[b]);
        for (int i = 0; i < placed.boxes; i++)
            ECH_TRY(move_box(&t, placed.dims, placed.shape, &placed.box[i]));
    }
    return ECH_OK;
}

ech_status ech_safetensors_write(int fd, const char *path, const ech_saved_tensor *tensor,
                                 int64_t offset, uint64_t *sums)
{
    return move_boxes((transfer){.fd = fd,
                                 .path = path,
                                 .writes = true,
                                 .offset = offset,
                                 .stored = ech_saved_dtype(tensor),
                                 .sums = sums},
                      tensor);
}

ech_status ech_transfer_read(int fd, const char *path, ech_dtype stored,
                             const ech_saved_tensor *tensor, int64_t offset)
{
    return move_boxes((transfer){.fd = fd, .path = path, .offset = offset, .stored = stored},
                      tensor);
}

ech_status ech_transfer_take(const double *whole, const ech_saved_tensor *tensor)
{
    return move_boxes((transfer){.fd = -1, .memory = (const char *)whole, .stored = ECH_F64},
                      tensor);
}
