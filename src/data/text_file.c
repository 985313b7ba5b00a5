/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain files by pread, packed ones member by member.
 */
#include "data/text_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/packing.h"

enum { BLOCK = 256 << 10 }; /* bytes read, or skipped, at a time */

struct ech_text_file {
    char *path;
    int fd;
    int64_t stored, taken;      /* bytes of the file, and of these unpacked */
    int64_t at;                 /* bytes of text unpacked */
    const ech_packing *packing; /* NULL: plain; the rest is of a packed file */
    void *state;                /* the packing's */
    bool in_member;             /* a member has begun and not ended */
    ech_packing_io io;
    unsigned char in[BLOCK], skipped[BLOCK];
};

static void begin_member(ech_text_file *f)
{
    f->packing->begin(f->state);
    f->in_member = true;
}

static void rewind_all(ech_text_file *f)
{
    f->taken = f->at = 0;
    f->io = (ech_packing_io){.in = f->in};
    begin_member(f);
}

static ech_status find_packing(ech_text_file *f)
{
    unsigned char first[ECH_PACKING_FIRST];
    size_t n = f->stored < ECH_PACKING_FIRST ? (size_t)f->stored : ECH_PACKING_FIRST;
    const ech_packing *named = ech_packing_named(f->path);
    ECH_TRY(ech_file_read_at(f->fd, f->path, first, n, 0));
    f->packing = ech_packing_of(first, n);
    if (named && !f->packing && f->stored == 0)
        ECH_FAIL(ECH_EINPUT, "%s: truncated: it is called %s and has no byte; copy it again",
                 f->path, named->ending);
    if (named && !f->packing)
        ECH_FAIL(ECH_EINPUT,
                 "%s: is called %s and does not begin as %s does: if it is plain text, "
                 "give it another name",
                 f->path, named->ending, named->name);
    if (f->packing && !f->packing->create)
        ECH_FAIL(ECH_EUNSUPPORTED,
                 "%s: is packed by %s, whose library this build lacks: unpack it (%s %s), or "
                 "install %s and build again",
                 f->path, f->packing->name, f->packing->command, f->path, f->packing->package);
    if (!f->packing) return ECH_OK;
    f->state = f->packing->create();
    rewind_all(f);
    return ECH_OK;
}

ech_status ech_text_file_open(const char *path, ech_text_file **out, int64_t *stored)
{
    int fd;
    ECH_TRY(ech_file_open(path, &fd, stored));
    ECH_CLEANUP(ech_text_file_close_at) ech_text_file *f = ech_calloc(1, sizeof *f);
    f->path = ech_strdup(path);
    f->fd = fd;
    f->stored = *stored;
    ECH_TRY(find_packing(f));
    *out = f;
    f = NULL;
    return ECH_OK;
}

void ech_text_file_close(ech_text_file *file)
{
    if (!file) return;
    if (file->state) file->packing->destroy(file->state);
    close(file->fd);
    free(file->path);
    free(file);
}

static ech_status refill(ech_text_file *f)
{
    int64_t left = f->stored - f->taken;
    size_t n = left < BLOCK ? (size_t)left : BLOCK;
    ECH_TRY(ech_file_read_at(f->fd, f->path, f->in, n, f->taken));
    f->taken += (int64_t)n;
    f->io.in = f->in;
    f->io.in_n = n;
    f->io.last = f->taken == f->stored;
    return ECH_OK;
}

static ech_status run(ech_text_file *f, bool *ends)
{
    const char *why = f->packing->run(f->state, &f->io, ends);
    if (why)
        ECH_FAIL(ECH_EINPUT,
                 "%s: damaged before byte %lld: %s; unpack it again from where it came from",
                 f->path, (long long)f->taken - (long long)f->io.in_n, why);
    return ECH_OK;
}

/* Zeros between members, and after the last one, are padding (RFC 1952 leaves them to the reader,
 * as gzip -d does; xz calls them stream padding): no member begins with a zero. Whether there was
 * one. */
static bool skips_padding(ech_packing_io *io)
{
    size_t before = io->in_n;
    for (; io->in_n > 0 && *(const unsigned char *)io->in == 0; io->in_n--) io->in++;
    return io->in_n < before;
}

/* Unpacks the next n bytes of the text; *made: fewer only at its end. */
static ech_status unpack(ech_text_file *f, void *bytes, size_t n, size_t *made)
{
    f->io.out = bytes;
    f->io.out_n = n;
    while (f->io.out_n > 0) {
        bool ends;
        if (f->io.in_n == 0 && f->taken < f->stored) ECH_TRY(refill(f));
        if (!f->in_member && skips_padding(&f->io)) continue;
        if (f->io.in_n == 0 && !f->in_member) break;
        if (!f->in_member) begin_member(f);
        ECH_TRY(run(f, &ends));
        f->in_member = !ends;
        bool stuck = f->in_member && f->io.in_n == 0 && f->taken == f->stored;
        if (stuck && f->io.out_n > 0)
            ECH_FAIL(ECH_EINPUT,
                     "%s: truncated: its %s does not end within %lld bytes; copy it again", f->path,
                     f->packing->name, (long long)f->stored);
    }
    *made = n - f->io.out_n;
    f->at += (int64_t)*made;
    return ECH_OK;
}

ech_status ech_text_file_count(ech_text_file *file, int64_t *bytes)
{
    *bytes = file->stored;
    if (!file->packing) return ECH_OK;
    rewind_all(file);
    for (size_t made = 1; made > 0;) ECH_TRY(unpack(file, file->skipped, BLOCK, &made));
    *bytes = file->at;
    return ECH_OK;
}

ech_status ech_text_file_read(ech_text_file *file, int64_t at, size_t n, void *bytes)
{
    size_t made = 1;
    if (!file->packing) return ech_file_read_at(file->fd, file->path, bytes, n, at);
    if (at < file->at) rewind_all(file);
    while (file->at < at && made > 0) {
        int64_t left = at - file->at;
        ECH_TRY(unpack(file, file->skipped, left < BLOCK ? (size_t)left : BLOCK, &made));
    }
    ECH_TRY(unpack(file, bytes, n, &made));
    if (made < n)
        ECH_FAIL(ECH_EINPUT,
                 "%s: the text was shortened while it was read; run the command again when nothing "
                 "writes to it",
                 file->path);
    return ECH_OK;
}

ech_status ech_text_file_peek(ech_text_file *file, size_t most, void *bytes, size_t *n)
{
    if (file->packing) {
        rewind_all(file);
        return unpack(file, bytes, most, n);
    }
    *n = (int64_t)most < file->stored ? most : (size_t)file->stored;
    return ech_file_read_at(file->fd, file->path, bytes, *n, 0);
}
