/* SPDX-License-Identifier: Apache-2.0
 *
 * Copying boxes with few system calls: runs that are adjacent in the file are written together; runs that are close
 * together are read with the bytes between them.
 */
#include "checkpoint/transfer.h"

#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/box.h"
#include "checkpoint/finite.h"
#include "checkpoint/hash.h"
#include "tensor/convert.h"

enum {
    BUFFER = 256 << 10, /* bytes */
    PIECE = 4 << 20,    /* bytes that are added up and written at once, from where they lie */
    GAP = 16 << 10      /* bytes that are read to no use rather than calling once more */
};

/* Runs that one call moves. */
typedef struct span {
    int64_t first, n;   /* runs */
    int64_t begin, end; /* elements of the whole tensor */
} span;

typedef struct transfer {
    int fd;
    const char *path, *name;
    int64_t offset; /* of the whole tensor in the file */
    ech_dtype stored, wanted;
    size_t stored_bytes, wanted_bytes; /* of an element */
    ech_box_runs runs;
    char *data, *buffer;
    uint64_t *sums; /* of what is written; NULL: none are wanted */
} transfer;

ech_status ech_transfer_check(const ech_saved_tensor *tensor)
{
    ECH_ASSERT(tensor->boxes >= 0 && tensor->boxes <= ECH_MOST_BOXES);
    for (int b = 0; b < tensor->boxes; b++) {
        const ech_saved_box *box = &tensor->box[b];
        if (!ech_box_is_inside(tensor->dims, tensor->shape, box)) {
            ECH_FAIL(ECH_EINTERNAL, "box %d of tensor '%s' leaves its shape", b, tensor->name);
        }
        if (ech_box_count(tensor->dims, box->size) == 0) continue;
        if (!box->data)
            ECH_FAIL(ECH_EINTERNAL, "box %d of tensor '%s' has no memory", b, tensor->name);
        if (!ech_box_is_apart(tensor->dims, box)) {
            ECH_FAIL(ECH_EINTERNAL,
                     "box %d of tensor '%s': by its strides elements overlap in memory, or "
                     "those of the last dimension do not follow each other",
                     b, tensor->name);
        }
    }
    return ECH_OK;
}

static transfer begin_transfer(int fd, const char *path, ech_dtype stored,
                               const ech_saved_tensor *tensor, int b, int64_t offset)
{
    const ech_saved_box *box = &tensor->box[b];
    return (transfer){.fd = fd,
                      .path = path,
                      .name = tensor->name,
                      .offset = offset,
                      .stored = stored,
                      .wanted = tensor->dtype,
                      .stored_bytes = ech_dtype_bytes(stored),
                      .wanted_bytes = ech_dtype_bytes(tensor->dtype),
                      .runs = ech_box_split(tensor->dims, tensor->shape, box),
                      .data = box->data,
                      .buffer = ech_calloc(BUFFER, 1)};
}

static int64_t file_at(const transfer *t, int64_t element)
{
    return t->offset + element * (int64_t)t->stored_bytes;
}

/* The run `first`, however long it is, and those after it that begin at most `gap` bytes after the
 * end of the one before, as long as all of it goes into the buffer. */
static span next_span(const transfer *t, int64_t first, int64_t gap)
{
    int64_t item = (int64_t)t->stored_bytes, length = t->runs.length;
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

/* ---- writing ---- */

/* n elements of the memory from its element number `at` on, as they are to be stored. */
static void take(const transfer *t, int64_t at, char *to, int64_t n)
{
    ech_convert(t->data + (size_t)at * t->wanted_bytes, t->wanted, to, t->stored, n);
}

/* What a run would go on from for ever. What is infinite only as it is stored was too large for that. */
static ech_status refuse(const transfer *t, const char *element, int64_t at)
{
    bool narrow = ech_dtype_bytes(t->stored) < ech_dtype_bytes(t->wanted);
    ECH_FAIL(ECH_ENUMERIC,
             "%s: tensor '%s', element %lld is %s: not saved, and the checkpoints before it stay; "
             "lower optimizer.learning_rate and go on from the newest%s",
             t->path, t->name, (long long)at, ech_nonfinite_name(t->stored, element),
             narrow ? ", or save a type with a larger range (checkpoint.dtype)" : "");
}

/* n elements as they are stored, which begin at element `at` of the whole tensor. What is looked at and
 * added up is what the system is given. */
static ech_status hand_over(const transfer *t, const char *from, int64_t n, int64_t at)
{
    size_t bytes = (size_t)n * t->stored_bytes;
    int64_t bad = t->sums ? ech_find_nonfinite(t->stored, from, n) : -1;
    if (bad >= 0) return refuse(t, from + (size_t)bad * t->stored_bytes, at + bad);
    if (t->sums) ech_sum_bytes(t->sums, from, bytes, file_at(t, at));
    return ech_file_write_at(t->fd, t->path, from, bytes, file_at(t, at));
}

/* Writes a single run: directly from memory, or converted in blocks. */
static ech_status write_run(const transfer *t, ech_box_offset run)
{
    bool same = t->stored == t->wanted;
    int64_t most = (same ? PIECE : BUFFER) / (int64_t)t->stored_bytes, n;
    for (int64_t done = 0; done < t->runs.length; done += n) {
        n = t->runs.length - done < most ? t->runs.length - done : most;
        int64_t at = run.in_memory + done;
        const char *from = same ? t->data + (size_t)at * t->wanted_bytes : t->buffer;
        if (!same) take(t, at, t->buffer, n);
        ECH_TRY(hand_over(t, from, n, run.in_whole + done));
    }
    return ECH_OK;
}

static ech_status write_span(const transfer *t, span s)
{
    if (s.n == 1) return write_run(t, ech_box_run_at(&t->runs, s.first));
    size_t bytes = (size_t)t->runs.length * t->stored_bytes;
    for (int64_t i = 0; i < s.n; i++)
        take(t, ech_box_run_at(&t->runs, s.first + i).in_memory, t->buffer + (size_t)i * bytes,
             t->runs.length);
    return hand_over(t, t->buffer, s.n * t->runs.length, s.begin);
}

ech_status ech_transfer_write(int fd, const char *path, const ech_saved_tensor *tensor, int b,
                              int64_t offset, uint64_t *sums)
{
    transfer t = begin_transfer(fd, path, ech_saved_dtype(tensor), tensor, b, offset);
    t.sums = sums;
    ech_status st = ECH_OK;
    for (int64_t i = 0; i < t.runs.count && st == ECH_OK;) {
        span s = next_span(&t, i, 0);
        st = write_span(&t, s);
        i += s.n;
    }
    free(t.buffer);
    return st;
}

/* ---- reading ---- */

/* n elements as they are stored, to where the memory has its element number `at`. */
static void put(const transfer *t, int64_t at, const char *from, int64_t n)
{
    ech_convert(from, t->stored, t->data + (size_t)at * t->wanted_bytes, t->wanted, n);
}

/* Reads a single run: directly into memory, or converted in blocks. */
static ech_status read_run(const transfer *t, ech_box_offset run)
{
    bool same = t->stored == t->wanted;
    int64_t most = same ? t->runs.length : BUFFER / (int64_t)t->stored_bytes, n;
    for (int64_t done = 0; done < t->runs.length; done += n) {
        n = t->runs.length - done < most ? t->runs.length - done : most;
        int64_t at = run.in_memory + done;
        char *to = same ? t->data + (size_t)at * t->wanted_bytes : t->buffer;
        ECH_TRY(ech_file_read_at(t->fd, t->path, to, (size_t)n * t->stored_bytes,
                                 file_at(t, run.in_whole + done)));
        if (!same) put(t, at, t->buffer, n);
    }
    return ECH_OK;
}

static ech_status read_span(const transfer *t, span s)
{
    if (s.n == 1) return read_run(t, ech_box_run_at(&t->runs, s.first));
    ECH_TRY(ech_file_read_at(t->fd, t->path, t->buffer, (size_t)(s.end - s.begin) * t->stored_bytes,
                             file_at(t, s.begin)));
    for (int64_t i = s.first; i < s.first + s.n; i++) {
        ech_box_offset run = ech_box_run_at(&t->runs, i);
        const char *from = t->buffer + (size_t)(run.in_whole - s.begin) * t->stored_bytes;
        put(t, run.in_memory, from, t->runs.length);
    }
    return ECH_OK;
}

ech_status ech_transfer_read(int fd, const char *path, ech_dtype stored,
                             const ech_saved_tensor *tensor, int b, int64_t offset)
{
    transfer t = begin_transfer(fd, path, stored, tensor, b, offset);
    ech_status st = ECH_OK;
    for (int64_t i = 0; i < t.runs.count && st == ECH_OK;) {
        span s = next_span(&t, i, GAP);
        st = read_span(&t, s);
        i += s.n;
    }
    free(t.buffer);
    return st;
}
