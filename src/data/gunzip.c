/* SPDX-License-Identifier: Apache-2.0
 *
 * gzip by isa-l. What was unpacked lies in a window that moves along the text.
 */
#include "data/gunzip.h"

#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

enum { BLOCK = 256 << 10 }; /* bytes read, or unpacked, at a time */

struct ech_gunzip {
    char *path;
    int fd;
    int64_t stored, taken; /* bytes of the file, and of these read */
    bool amid;             /* a member has begun and not ended */
    struct inflate_state state;
    unsigned char in[BLOCK];
    unsigned char *window; /* bytes begin .. begin + n of the text */
    size_t n, capacity;
    int64_t begin;
};

bool ech_gunzip_is_packed(const char *path)
{
    size_t n = strlen(path);
    return n > 3 && strcmp(path + n - 3, ".gz") == 0;
}

static void begin_member(ech_gunzip *g)
{
    isal_inflate_reset(&g->state);
    g->state.crc_flag = ISAL_GZIP; /* headers and checksums are its business, too */
}

static void rewind_all(ech_gunzip *g)
{
    isal_inflate_init(&g->state);
    begin_member(g);
    g->taken = 0;
    g->amid = true; /* a file without any member is none of gzip */
    g->n = 0;
    g->begin = 0;
}

ech_status ech_gunzip_open(const char *path, ech_gunzip **out, int64_t *stored)
{
    int fd;
    ECH_TRY(ech_file_open(path, &fd, stored));
    ech_gunzip *g = ech_calloc(1, sizeof *g);
    g->path = ech_strdup(path);
    g->fd = fd;
    g->stored = *stored;
    rewind_all(g);
    *out = g;
    return ECH_OK;
}

void ech_gunzip_close(ech_gunzip *gunzip)
{
    if (!gunzip) return;
    close(gunzip->fd);
    free(gunzip->window);
    free(gunzip->path);
    free(gunzip);
}

static ech_status refill(ech_gunzip *g)
{
    int64_t left = g->stored - g->taken;
    size_t n = left < BLOCK ? (size_t)left : BLOCK;
    ECH_TRY(ech_file_read_at(g->fd, g->path, g->in, n, g->taken));
    g->taken += (int64_t)n;
    g->state.next_in = g->in;
    g->state.avail_in = (uint32_t)n;
    return ECH_OK;
}

static ech_status inflate(ech_gunzip *g)
{
    int why = isal_inflate(&g->state);
    if (why < 0)
        ECH_FAIL(ECH_EINPUT,
                 "%s: damaged before byte %lld: %s; unpack it again from where it came from",
                 g->path, (long long)(g->taken - g->state.avail_in),
                 why == ISAL_INCORRECT_CHECKSUM ? "a checksum is wrong" : "no gzip");
    return ECH_OK;
}

/* At most BLOCK bytes more into the window; *some: there were any. */
static ech_status unpack(ech_gunzip *g, bool *some)
{
    g->window = ech_grow(g->window, &g->capacity, g->n + BLOCK, 1);
    g->state.next_out = g->window + g->n;
    g->state.avail_out = BLOCK;
    while (g->state.avail_out == BLOCK) {
        bool empty = g->state.avail_in == 0;
        if (empty && g->taken < g->stored) ECH_TRY(refill(g));
        if (g->state.avail_in == 0 && !g->amid) break;
        if (!g->amid) begin_member(g);
        g->amid = true;
        ECH_TRY(inflate(g));
        g->amid = g->state.block_state != ISAL_BLOCK_FINISH;
        bool stuck = g->amid && g->state.avail_in == 0 && g->taken == g->stored;
        if (stuck && g->state.avail_out == BLOCK)
            ECH_FAIL(ECH_EINPUT, "%s: truncated: its gzip does not end within %lld bytes", g->path,
                     (long long)g->stored);
    }
    size_t made = BLOCK - g->state.avail_out;
    g->n += made;
    *some = made > 0;
    return ECH_OK;
}

/* What lies before `needed`, as far as it is there. */
static void drop(ech_gunzip *g, int64_t needed)
{
    int64_t n = needed - g->begin;
    if (n > (int64_t)g->n) n = (int64_t)g->n;
    if (n <= 0) return;
    g->n -= (size_t)n;
    g->begin += n;
    memmove(g->window, g->window + n, g->n);
}

ech_status ech_gunzip_count(ech_gunzip *gunzip, int64_t *bytes)
{
    bool some = true;
    rewind_all(gunzip);
    while (some) {
        ECH_TRY(unpack(gunzip, &some));
        drop(gunzip, INT64_MAX);
    }
    *bytes = gunzip->begin;
    return ECH_OK;
}

ech_status ech_gunzip_read(ech_gunzip *gunzip, int64_t needed, int64_t at, size_t n, void *bytes)
{
    bool some = true;
    if (needed < gunzip->begin) rewind_all(gunzip);
    drop(gunzip, needed);
    while (gunzip->begin + (int64_t)gunzip->n < at + (int64_t)n) {
        ECH_TRY(unpack(gunzip, &some));
        if (!some)
            ECH_FAIL(ECH_EINPUT, "%s: its text has become shorter than it was", gunzip->path);
        drop(gunzip, needed);
    }
    if (n > 0) memcpy(bytes, gunzip->window + (at - gunzip->begin), n);
    return ECH_OK;
}
