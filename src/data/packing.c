/* SPDX-License-Identifier: Apache-2.0
 *
 * gzip by isa-l; zstd, xz and bzip2 by their own libraries, which a build may lack.
 */
#include "data/packing.h"

#include <isa-l/igzip_lib.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/status.h"

static bool has(const unsigned char *bytes, size_t n, const char *first, size_t m)
{
    return n >= m && memcmp(bytes, first, m) == 0;
}

/* ---- gzip ---- */

static bool begins_gzip(const unsigned char *bytes, size_t n)
{
    return has(bytes, n, "\x1f\x8b", 2);
}

static void *create_gzip(void)
{
    struct inflate_state *state = ech_calloc(1, sizeof *state);
    isal_inflate_init(state);
    return state;
}

static void begin_gzip(void *context)
{
    struct inflate_state *state = context;
    isal_inflate_reset(state);
    state->crc_flag = ISAL_GZIP; /* headers and checksums are its business, too */
}

static const char *run_gzip(void *context, ech_packing_io *io, bool *ends)
{
    struct inflate_state *state = context;
    state->next_in = (uint8_t *)(uintptr_t)io->in;
    state->avail_in = (uint32_t)io->in_n;
    state->next_out = io->out;
    state->avail_out = (uint32_t)io->out_n;
    int why = isal_inflate(state);
    io->in = state->next_in;
    io->in_n = state->avail_in;
    io->out = state->next_out;
    io->out_n = state->avail_out;
    *ends = state->block_state == ISAL_BLOCK_FINISH;
    if (why >= 0) return NULL;
    return why == ISAL_INCORRECT_CHECKSUM ? "a checksum is wrong" : "no gzip";
}

/* ---- zstd ---- */

/* Some writers begin a file with a skippable frame (RFC 8878, section 3.1.2). */
static bool begins_zstd(const unsigned char *bytes, size_t n)
{
    bool skippable =
        n >= 4 && (bytes[0] & 0xf0) == 0x50 && has(bytes + 1, n - 1, "\x2a\x4d\x18", 3);
    return skippable || has(bytes, n, "\x28\xb5\x2f\xfd", 4);
}

#ifdef ECH_HAS_ZSTD
#include <zstd.h>
#include <zstd_errors.h>

static void *create_zstd(void)
{
    ZSTD_DStream *stream = ZSTD_createDStream();
    ECH_ASSERT(stream);
    return stream;
}

static void destroy_zstd(void *state)
{
    ZSTD_freeDStream(state);
}

static void begin_zstd(void *state)
{
    ZSTD_DCtx_reset(state, ZSTD_reset_session_only);
}

static const char *run_zstd(void *state, ech_packing_io *io, bool *ends)
{
    ZSTD_inBuffer in = {io->in, io->in_n, 0};
    ZSTD_outBuffer out = {io->out, io->out_n, 0};
    size_t left = ZSTD_decompressStream(state, &out, &in);
    io->in += in.pos;
    io->in_n -= in.pos;
    io->out += out.pos;
    io->out_n -= out.pos;
    *ends = left == 0;
    if (!ZSTD_isError(left)) return NULL;
    ZSTD_ErrorCode why = ZSTD_getErrorCode(left);
    if (why == ZSTD_error_checksum_wrong) return "a checksum is wrong";
    if (why == ZSTD_error_frameParameter_windowTooLarge)
        return "its window is above 128 MiB, which only zstd -d --long=31 unpacks";
    return "no zstd";
}
#define ZSTD create_zstd, destroy_zstd, begin_zstd, run_zstd
#else
#define ZSTD NULL, NULL, NULL, NULL
#endif

/* ---- xz ---- */

static bool begins_xz(const unsigned char *bytes, size_t n)
{
    return has(bytes, n, "\xfd\x37\x7a\x58\x5a\x00", 6);
}

#ifdef ECH_HAS_LZMA
#include <lzma.h>

static void *create_xz(void)
{
    lzma_stream *stream = ech_calloc(1, sizeof *stream);
    *stream = (lzma_stream)LZMA_STREAM_INIT;
    return stream;
}

static void destroy_xz(void *state)
{
    if (state) lzma_end(state);
    free(state);
}

/* With LZMA_CONCATENATED all streams of a file, and padding between them, are one member. */
static void begin_xz(void *state)
{
    static const uint64_t most_memory = 256 << 20; /* xz -9 needs 65 MiB */
    ECH_ASSERT(lzma_stream_decoder(state, most_memory, LZMA_CONCATENATED) == LZMA_OK);
}

static const char *run_xz(void *state, ech_packing_io *io, bool *ends)
{
    lzma_stream *stream = state;
    stream->next_in = io->in;
    stream->avail_in = io->in_n;
    stream->next_out = io->out;
    stream->avail_out = io->out_n;
    lzma_ret why = lzma_code(stream, io->last ? LZMA_FINISH : LZMA_RUN);
    io->in = stream->next_in;
    io->in_n = stream->avail_in;
    io->out = stream->next_out;
    io->out_n = stream->avail_out;
    *ends = why == LZMA_STREAM_END;
    if (why == LZMA_MEMLIMIT_ERROR)
        return "it needs more than 256 MiB of memory; unpack it with xz -d";
    if (why == LZMA_DATA_ERROR) return "a checksum is wrong, or the data are";
    /* Without progress it is truncated, which the caller finds. */
    bool right = why == LZMA_OK || why == LZMA_BUF_ERROR || why == LZMA_STREAM_END;
    return right ? NULL : "no xz";
}
#define XZ create_xz, destroy_xz, begin_xz, run_xz
#else
#define XZ NULL, NULL, NULL, NULL
#endif

/* ---- bzip2 ---- */

/* A block follows, or the end of a stream of no bytes. */
static bool begins_bzip2(const unsigned char *bytes, size_t n)
{
    return n >= 10 && has(bytes, n, "BZh", 3) && bytes[3] >= '1' && bytes[3] <= '9' &&
           (has(bytes + 4, 6, "\x31\x41\x59\x26\x53\x59", 6) ||
            has(bytes + 4, 6, "\x17\x72\x45\x38\x50\x90", 6));
}

#ifdef ECH_HAS_BZIP2
#include <bzlib.h>

typedef struct bzip2 {
    bz_stream stream;
    bool open;
} bzip2;

static void *create_bzip2(void)
{
    return ech_calloc(1, sizeof(bzip2));
}

static void close_bzip2(bzip2 *b)
{
    if (b->open) BZ2_bzDecompressEnd(&b->stream);
    b->open = false;
}

static void destroy_bzip2(void *state)
{
    if (state) close_bzip2(state);
    free(state);
}

static void begin_bzip2(void *state)
{
    bzip2 *b = state;
    close_bzip2(b);
    b->stream = (bz_stream){0};
    ECH_ASSERT(BZ2_bzDecompressInit(&b->stream, 0, 0) == BZ_OK);
    b->open = true;
}

static const char *run_bzip2(void *state, ech_packing_io *io, bool *ends)
{
    bzip2 *b = state;
    b->stream.next_in = (char *)(uintptr_t)io->in;
    b->stream.avail_in = (unsigned)io->in_n;
    b->stream.next_out = (char *)io->out;
    b->stream.avail_out = (unsigned)io->out_n;
    int why = BZ2_bzDecompress(&b->stream);
    io->in = (const unsigned char *)b->stream.next_in;
    io->in_n = b->stream.avail_in;
    io->out = (unsigned char *)b->stream.next_out;
    io->out_n = b->stream.avail_out;
    *ends = why == BZ_STREAM_END;
    if (why == BZ_OK || why == BZ_STREAM_END) return NULL;
    return why == BZ_DATA_ERROR ? "a checksum is wrong, or the data are" : "no bzip2";
}
#define BZIP2 create_bzip2, destroy_bzip2, begin_bzip2, run_bzip2
#else
#define BZIP2 NULL, NULL, NULL, NULL
#endif

/* ---- all ---- */

static const ech_packing packings[] = {
    {"gzip", ".gz", "gzip -d", "libisal-dev", begins_gzip, create_gzip, free, begin_gzip, run_gzip},
    {"zstd", ".zst", "zstd -d", "libzstd-dev", begins_zstd, ZSTD},
    {"xz", ".xz", "xz -d", "liblzma-dev", begins_xz, XZ},
    {"bzip2", ".bz2", "bzip2 -d", "libbz2-dev", begins_bzip2, BZIP2},
};
enum { PACKINGS = sizeof packings / sizeof *packings };

const ech_packing *ech_packing_of(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < PACKINGS; i++)
        if (packings[i].begins(bytes, n)) return &packings[i];
    return NULL;
}

const ech_packing *ech_packing_named(const char *path)
{
    for (size_t i = 0; i < PACKINGS; i++) {
        size_t n = strlen(path), m = strlen(packings[i].ending);
        if (n > m && strcasecmp(path + n - m, packings[i].ending) == 0) return &packings[i];
    }
    return NULL;
}
