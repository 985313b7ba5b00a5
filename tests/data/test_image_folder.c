/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of PNG and JPEG files: each image is packed with the class of its folder, and what does
 * not fit or is damaged is an error with the file's name.
 */
#include <stdio.h>
#include <sys/stat.h>

#include "data/images.h"

#include "data/image_codec.h"

#ifdef ECH_HAS_CODECS
#include <jpeglib.h>
#include <png.h>

enum { ROWS = 16, COLUMNS = 24, CHANNELS = 3, NUMBERS = ROWS * COLUMNS * CHANNELS };

/* Smooth, so that JPEG keeps it; `i` shifts it. */
static void draw_image(int i, int channels, uint8_t *pixels)
{
    for (int at = 0; at < ROWS * COLUMNS; at++)
        for (int c = 0; c < channels; c++)
            pixels[at * channels + c] =
                (uint8_t)(10 * i + 4 * (at / COLUMNS) + 3 * (at % COLUMNS) + 20 * c);
}

static void write_png(const char *name, int i, int rows, int channels)
{
    uint8_t pixels[NUMBERS];
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = COLUMNS,
                       .height = (png_uint_32)rows,
                       .format = channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY};
    draw_image(i, channels, pixels);
    assert_true(png_image_write_to_file(&image, in_scratch(name), 0, pixels, 0, NULL));
}

static void write_jpeg(const char *name, int i)
{
    uint8_t pixels[NUMBERS];
    struct jpeg_compress_struct jpeg = {0};
    struct jpeg_error_mgr errors;
    FILE *file = fopen(in_scratch(name), "wb");
    assert_non_null(file);
    draw_image(i, CHANNELS, pixels);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = COLUMNS;
    jpeg.image_height = ROWS;
    jpeg.input_components = CHANNELS;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 98, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < ROWS) {
        JSAMPROW row = pixels + jpeg.next_scanline * COLUMNS * CHANNELS;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    assert_int_equal(fclose(file), 0);
}

static void make_folder(void)
{
    assert_int_equal(mkdir(in_scratch("in"), 0700), 0);
    assert_int_equal(mkdir(in_scratch("in/cat"), 0700), 0);
    assert_int_equal(mkdir(in_scratch("in/dog"), 0700), 0);
    write_png("in/cat/0.png", 0, ROWS, 3);
    write_jpeg("in/cat/1.JPG", 1);
    write_png("in/dog/2.png", 2, ROWS, 3);
    write_jpeg("in/dog/3.jpeg", 3);
}

/* Whether the pixels are image i's, up to what JPEG changes. */
static bool is_image(const uint8_t *pixels, int i)
{
    uint8_t drawn[NUMBERS];
    draw_image(i, CHANNELS, drawn);
    for (int at = 0; at < NUMBERS; at++)
        if (abs(pixels[at] - drawn[at]) > (i % 2 ? 4 : 0)) return false;
    return true;
}

TEST(folders_are_packed)
{
    ech_images_count count;
    ech_image_file *file;
    int seen[4] = {0};
    make_folder();
    assert_int_equal(pack("in", "packed", 0, 3, &count), ECH_OK);
    assert_int_equal(count.images, 4);
    assert_int_equal(count.classes, 2);
    assert_int_equal(count.image.channels, 3);
    assert_int_equal(ech_image_file_open(in_scratch("packed.images"), &file), ECH_OK);
    assert_string_equal(file->names, "cat");
    for (int64_t r = 0; r < 4; r++) {
        uint8_t record[4 + NUMBERS];
        int32_t label;
        assert_int_equal(ech_image_file_read(file, r, record, &label), ECH_OK);
        for (int i = 0; i < 4; i++)
            if (is_image(ech_image_pixels(record), i)) {
                seen[i]++;
                assert_int_equal(label, i / 2);
            }
    }
    for (int i = 0; i < 4; i++) assert_int_equal(seen[i], 1);
    ech_image_file_close(file);
}

static void assert_refused(const char *says)
{
    ech_images_count count;
    assert_int_equal(pack("in", "packed", 0, 2, &count), ECH_EINPUT);
    if (!strstr(ech_last_error(), says))
        fail_msg("\"%s\" does not say \"%s\"", ech_last_error(), says);
}

TEST(what_does_not_fit_is_refused)
{
    ech_images_count count;
    make_folder();
    write_png("in/dog/4.png", 4, ROWS, 1); /* gray among colors */
    assert_int_equal(pack("in", "packed", 0, 2, &count), ECH_OK);
    write_png("in/dog/4.png", 4, ROWS - 1, 3);
    assert_refused("in/dog/4.png: an image of 15 x 24 pixels among images of 16 x 24");
    write_file("in/dog/4.png", "\x89PNG\r\n\x1a\n", 8);
    assert_refused("in/dog/4.png: no PNG file, or damaged");
    assert_int_equal(unlink(in_scratch("in/dog/4.png")), 0);
    char *bytes;
    size_t n;
    assert_int_equal(ech_file_read(in_scratch("in/dog/3.jpeg"), 1 << 20, &bytes, &n), ECH_OK);
    write_file("in/dog/4.jpeg", bytes, n / 2);
    free(bytes);
    assert_refused("in/dog/4.jpeg: no JPEG file, or damaged");
    assert_int_equal(unlink(in_scratch("in/dog/4.jpeg")), 0);
    write_file("in/dog/notes.txt", "x", 1);
    assert_refused("in/dog/notes.txt: its name ends");
    assert_int_equal(unlink(in_scratch("in/dog/notes.txt")), 0);
    assert_int_equal(mkdir(in_scratch("in/empty"), 0700), 0);
    assert_refused("in/empty: a class without images");
}

/* A header of a huge image, whose pixels are not there. */
TEST(huge_images_are_refused)
{
    uint8_t bytes[] = "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xff\xff\0\0\xff\xff\x08\x02\0\0\0"
                      "\xc7\x06\x4d\x3c";
    ech_image_header sizes = {0};
    assert_int_equal(ech_image_codec_png.decode("huge.png", bytes, sizeof bytes - 1, &sizes, NULL),
                     ECH_EINPUT);
    assert_int_equal(sizes.height, 0);
}
#else
TEST(codecs_are_missing)
{
    ech_image_header sizes = {0};
    assert_int_equal(ech_image_codec_png.decode("a.png", NULL, 0, &sizes, NULL), ECH_EUNSUPPORTED);
    assert_non_null(strstr(ech_last_error(), "a.png: this program was built without libpng"));
    assert_int_equal(ech_image_codec_jpeg.decode("a.jpg", NULL, 0, &sizes, NULL), ECH_EUNSUPPORTED);
    assert_non_null(strstr(ech_last_error(), "built without libjpeg"));
}
#endif

ALL_TESTS(scratch_make, scratch_remove)
