/* SPDX-License-Identifier: Apache-2.0
 *
 * Plain files by pread, gzip by isa-l.
 */
#include "data/text_file.h"

#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

enum { BLOCK = 256 << 10 }; /* bytes read, or skipped, at a time */

struct ech_text_file {
    char *path;
    int fd;
    int64_t stored, taken; /* bytes of the file, and of these unpacked */
    int64_t at;            /* bytes of text unpacked */
    bool amid;             /* a member has begun and not ended */
    struct inflate_state state;
    unsigned char in[BLOCK], skipped[BLOCK];
};

bool ech_text_file_is_packed(const char *path)
{
    size_t n = strlen(path);
    return n > 3 && strcmp(path + n - 3, ".gz") == 0;
}

static void begin_member(ech_text_file *f)
{
    isal_inflate_reset(&f->state);
    f->state.crc_flag = ISAL_GZIP; /* headers and checksums are its business, too */
}

static void rewind_all(ech_text_file *f)
{
    isal_inflate_init(&f->state);
    begin_member(f);
    f->taken = f->at = 0;
    f->amid = true; /* a file without any member is none of gzip */
}

ech_status ech_text_file_open(const char *path, ech_text_file **out, int64_t *stored)
{
    int fd;
    ECH_TRY(ech_file_open(path, &fd, stored));
    ech_text_file *f = ech_calloc(1, sizeof *f);
    f->path = ech_strdup(path);
    f->fd = fd;
    f->stored = *stored;
    rewind_all(f);
    *out = f;
    return ECH_OK;
}

void ech_text_file_close(ech_text_file *file)
{
    if (!file) return;
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
    f->state.next_in = f->in;
    f->state.avail_in = (uint32_t)n;
    return ECH_OK;
}

static ech_status inflate(ech_text_file *f)
{
    int why = isal_inflate(&f->state);
    if (why < 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s: damaged before byte %lld: %s; unpack it again from where it came from",
                 f->path, (long long)(f->taken - f->state.avail_in),
                 why == ISAL_INCORRECT_CHECKSUM ? "a checksum is wrong" : "no gzip");
    return ECH_OK;
}

/* Unpacks the next n bytes of the text; *made: fewer only at its end. */
static ech_status unpack(ech_text_file *f, void *bytes, size_t n, size_t *made)
{
    f->state.next_out = bytes;
    f->state.avail_out = (uint32_t)n;
    while (f->state.avail_out > 0) {
        if (f->state.avail_in == 0 && f->taken < f->stored) ECH_TRY(refill(f));
        if (f->state.avail_in == 0 && !f->amid) break;
        if (!f->amid) begin_member(f);
        f->amid = true;
        ECH_TRY(inflate(f));
        f->amid = f->state.block_state != ISAL_BLOCK_FINISH;
        bool stuck = f->amid && f->state.avail_in == 0 && f->taken == f->stored;
        if (stuck && f->state.avail_out > 0)
            ECH_FAIL(ECH_EINPUT, "%s: truncated: its gzip does not end within %lld bytes", f->path,
                     (long long)f->stored);
    }
    *made = n - f->state.avail_out;
    f->at += (int64_t)*made;
    return ECH_OK;
}

ech_status ech_text_file_count(ech_text_file *file, int64_t *bytes)
{
    *bytes = file->stored;
    if (!ech_text_file_is_packed(file->path)) return ECH_OK;
    rewind_all(file);
    for (size_t made = 1; made > 0;) ECH_TRY(unpack(file, file->skipped, BLOCK, &made));
    *bytes = file->at;
    return ECH_OK;
}

ech_status ech_text_file_read(ech_text_file *file, int64_t at, size_t n, void *bytes)
{
    size_t made = 1;
    if (!ech_text_file_is_packed(file->path))
        return ech_file_read_at(file->fd, file->path, bytes, n, at);
    if (at < file->at) rewind_all(file);
    while (file->at < at && made > 0) {
        int64_t left = at - file->at;
        ECH_TRY(unpack(file, file->skipped, left < BLOCK ? (size_t)left : BLOCK, &made));
    }
    ECH_TRY(unpack(file, bytes, n, &made));
    if (made < n) ECH_FAIL(ECH_EINPUT, "%s: its text has become shorter than it was", file->path);
    return ECH_OK;
}
