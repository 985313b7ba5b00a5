/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing packed images: records stream into a file, whose header is completed at the end.
 */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/text.h"
#include "data/image_file.h"
#include "data/sink.h"

struct ech_image_writer {
    char *path;
    ech_sink sink;
    ech_image_header header;
    XXH3_state_t *hash;
};

static ech_status put_header(ech_image_writer *writer, const char *const *names)
{
    ECH_FREED_TEXT text = {0};
    ech_image_header *h = &writer->header;
    for (uint32_t k = 0; k < h->classes; k++)
        ech_text_append_bytes(&text, names[k], strlen(names[k]) + 1);
    size_t bytes = (sizeof *h + text.n + 63) / 64 * 64;
    if (bytes > ECH_IMAGE_HEADER)
        ECH_FAIL(ECH_EINPUT, "%s: the names of %u classes have %zu bytes; at most %d fit",
                 writer->path, h->classes, text.n, ECH_IMAGE_HEADER);
    h->bytes = (uint32_t)bytes;
    while (sizeof *h + text.n < bytes) ech_text_append_bytes(&text, "", 1);
    ECH_TRY(ech_sink_put(&writer->sink, h, sizeof *h));
    return ech_sink_put(&writer->sink, text.at, text.n);
}

ech_status ech_image_writer_create(const char *path, const ech_image_header *sizes,
                                   const char *const *names, ech_image_writer **out)
{
    ECH_CLEANUP(ech_image_writer_discard_at)
    ech_image_writer *writer = ech_calloc(1, sizeof *writer);
    writer->path = ech_strdup(path);
    writer->hash = XXH3_createState();
    XXH3_64bits_reset(writer->hash);
    writer->header = (ech_image_header){.version = ECH_IMAGE_VERSION,
                                        .height = sizes->height,
                                        .width = sizes->width,
                                        .channels = sizes->channels,
                                        .classes = sizes->classes};
    memcpy(writer->header.magic, ECH_IMAGE_MAGIC, sizeof writer->header.magic);
    ECH_TRY(ech_image_check_sizes(path, &writer->header));
    ECH_TRY(ech_sink_open(path, &writer->sink));
    ECH_TRY(put_header(writer, names));
    *out = writer;
    writer = NULL;
    return ECH_OK;
}

ech_status ech_image_writer_add(ech_image_writer *writer, uint32_t label, const uint8_t *pixels)
{
    size_t n = (size_t)ech_image_bytes(&writer->header);
    ECH_ASSERT(label < writer->header.classes);
    XXH3_64bits_update(writer->hash, &label, sizeof label);
    XXH3_64bits_update(writer->hash, pixels, n);
    writer->header.count++;
    ECH_TRY(ech_sink_put(&writer->sink, &label, sizeof label));
    return ech_sink_put(&writer->sink, pixels, n);
}

ech_status ech_image_writer_finish(ech_image_writer *writer, const ech_image_header *normal)
{
    ECH_CLEANUP(ech_image_writer_discard_at) ech_image_writer *own = writer;
    ech_image_header *h = &own->header;
    memcpy(h->mean, normal->mean, sizeof h->mean);
    memcpy(h->deviation, normal->deviation, sizeof h->deviation);
    h->hash = XXH3_64bits_digest(own->hash);
    ECH_TRY(ech_sink_flush(&own->sink));
    ECH_TRY(ech_file_write_at(own->sink.fd, own->path, h, sizeof *h, 0));
    ECH_TRY(ech_sink_flush(&own->sink));
    return ech_sink_rename(&own->sink, own->path);
}

void ech_image_writer_discard(ech_image_writer *writer)
{
    if (!writer) return;
    ech_sink_close(&writer->sink);
    XXH3_freeState(writer->hash);
    free(writer->path);
    free(writer);
}
