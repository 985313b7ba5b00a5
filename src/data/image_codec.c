/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of codecs, and PNG by libpng and JPEG by libjpeg-turbo.
 */
#include "data/image_codec.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"

static const ech_image_codec *const codecs[] = {&ech_image_codec_png, &ech_image_codec_jpeg};

const ech_image_codec *ech_image_codec_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    char ending[8] = "";
    if (!dot || strlen(dot) >= sizeof ending) return NULL;
    for (size_t i = 0; dot[i]; i++)
        ending[i] = dot[i] >= 'A' && dot[i] <= 'Z' ? (char)(dot[i] - 'A' + 'a') : dot[i];
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        if (ech_text_has_word(codecs[i]->endings, ending)) return codecs[i];
    return NULL;
}

ech_status ech_image_codec_sizes(const char *path, int64_t height, int64_t width, bool color,
                                 ech_image_header *sizes)
{
    uint32_t channels = color ? 3 : 1;
    if (height < 1 || width < 1 || height > ECH_IMAGE_SIDE || width > ECH_IMAGE_SIDE ||
        height * width > ECH_IMAGE_NUMBERS / 3)
        ECH_FAIL(ECH_EINPUT,
                 "%s: an image of %" PRId64 " x %" PRId64
                 " pixels; sides are 1 to %d, and an image "
                 "has at most %d pixels",
                 path, height, width, ECH_IMAGE_SIDE, ECH_IMAGE_NUMBERS / 3);
    if (sizes->height == 0) {
        sizes->height = (uint32_t)height;
        sizes->width = (uint32_t)width;
        sizes->channels = channels;
        return ECH_OK;
    }
    if (height != sizes->height || width != sizes->width)
        ECH_FAIL(ECH_EINPUT,
                 "%s: an image of %" PRId64 " x %" PRId64 " pixels among images of %u x %u; scale "
                 "all images to one size first",
                 path, height, width, sizes->height, sizes->width);
    if (channels > sizes->channels)
        ECH_FAIL(ECH_EINPUT,
                 "%s: an image in color among gray ones; make all gray, or the first one "
                 "in color",
                 path);
    return ECH_OK;
}

/* ---- PNG ---- */

#ifdef ECH_HAS_PNG
#include <png.h>

static ech_status read_png(png_image *image, const char *path, const uint8_t *bytes, size_t n,
                           ech_image_header *sizes, uint8_t *pixels)
{
    if (!png_image_begin_read_from_memory(image, bytes, n))
        ECH_FAIL(ECH_EINPUT, "%s: no PNG file, or damaged: %s", path, image->message);
    bool color = image->format & PNG_FORMAT_FLAG_COLOR;
    ECH_TRY(ech_image_codec_sizes(path, image->height, image->width, color, sizes));
    if (!pixels) return ECH_OK;
    /* Transparent parts show what is in the buffer: black. */
    memset(pixels, 0, (size_t)ech_image_bytes(sizes));
    image->format = sizes->channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
    if (!png_image_finish_read(image, NULL, pixels, 0, NULL))
        ECH_FAIL(ECH_EINPUT, "%s: a damaged PNG file: %s", path, image->message);
    return ECH_OK;
}

static ech_status decode_png(const char *path, const uint8_t *bytes, size_t n,
                             ech_image_header *sizes, uint8_t *pixels)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    ech_status status = read_png(&image, path, bytes, n, sizes, pixels);
    png_image_free(&image);
    return status;
}
#else
static ech_status decode_png(const char *path, const uint8_t *bytes, size_t n,
                             ech_image_header *sizes, uint8_t *pixels)
{
    (void)bytes, (void)n, (void)sizes, (void)pixels;
    ECH_FAIL(ECH_EUNSUPPORTED,
             "%s: this program was built without libpng; install libpng-dev and "
             "build again, or convert the images",
             path);
}
#endif

const ech_image_codec ech_image_codec_png = {
    .name = "PNG", .endings = ".png", .decode = decode_png};

/* ---- JPEG ---- */

#ifdef ECH_HAS_JPEG
#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>

enum { MOST_SCANS = 100 }; /* of a progressive file: each is a pass over the image */

typedef struct jpeg_reader {
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    char message[JMSG_LENGTH_MAX];
} jpeg_reader;

static void fail_jpeg(j_common_ptr jpeg)
{
    jpeg_reader *r = jpeg->client_data;
    jpeg->err->format_message(jpeg, r->message);
    longjmp(r->failed, 1);
}

/* Data that are damaged but could be guessed are an error, too. */
static void emit_jpeg(j_common_ptr jpeg, int level)
{
    if (level < 0) fail_jpeg(jpeg);
}

static void count_scans(j_common_ptr jpeg)
{
    jpeg_reader *r = jpeg->client_data;
    if (r->jpeg.input_scan_number <= MOST_SCANS) return;
    snprintf(r->message, sizeof r->message, "more than %d scans", MOST_SCANS);
    longjmp(r->failed, 1);
}

static ech_status fail_read(const char *path, const jpeg_reader *r)
{
    ECH_FAIL(ECH_EINPUT, "%s: no JPEG file, or damaged: %s", path, r->message);
}

static ech_status begin_jpeg(jpeg_reader *r, const char *path, const uint8_t *bytes, size_t n,
                             ech_image_header *sizes)
{
    if (setjmp(r->failed)) return fail_read(path, r);
    jpeg_mem_src(&r->jpeg, bytes, (unsigned long)n);
    jpeg_read_header(&r->jpeg, TRUE);
    return ech_image_codec_sizes(path, r->jpeg.image_height, r->jpeg.image_width,
                                 r->jpeg.num_components > 1, sizes);
}

static ech_status read_jpeg(jpeg_reader *r, const char *path, const ech_image_header *sizes,
                            uint8_t *pixels)
{
    size_t line = (size_t)sizes->width * sizes->channels;
    if (setjmp(r->failed)) return fail_read(path, r);
    r->jpeg.out_color_space = sizes->channels == 3 ? JCS_RGB : JCS_GRAYSCALE;
    jpeg_start_decompress(&r->jpeg);
    while (r->jpeg.output_scanline < r->jpeg.output_height) {
        JSAMPROW row = pixels + r->jpeg.output_scanline * line;
        jpeg_read_scanlines(&r->jpeg, &row, 1);
    }
    jpeg_finish_decompress(&r->jpeg);
    return ECH_OK;
}

static ech_status decode_jpeg(const char *path, const uint8_t *bytes, size_t n,
                              ech_image_header *sizes, uint8_t *pixels)
{
    jpeg_reader r = {.progress = {.progress_monitor = count_scans}};
    r.jpeg.err = jpeg_std_error(&r.errors);
    r.errors.error_exit = fail_jpeg;
    r.errors.emit_message = emit_jpeg;
    r.jpeg.client_data = &r;
    if (setjmp(r.failed)) return fail_read(path, &r);
    jpeg_create_decompress(&r.jpeg);
    r.jpeg.client_data = &r;
    r.jpeg.progress = &r.progress;
    ech_status status = begin_jpeg(&r, path, bytes, n, sizes);
    if (status == ECH_OK && pixels) status = read_jpeg(&r, path, sizes, pixels);
    jpeg_destroy_decompress(&r.jpeg);
    return status;
}
#else
static ech_status decode_jpeg(const char *path, const uint8_t *bytes, size_t n,
                              ech_image_header *sizes, uint8_t *pixels)
{
    (void)bytes, (void)n, (void)sizes, (void)pixels;
    ECH_FAIL(ECH_EUNSUPPORTED,
             "%s: this program was built without libjpeg; install "
             "libjpeg62-turbo-dev and build again, or convert the images",
             path);
}
#endif

const ech_image_codec ech_image_codec_jpeg = {
    .name = "JPEG", .endings = ".jpg .jpeg", .decode = decode_jpeg};
