/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures how fast `echelon data --images` decodes JPEG files, next to libjpeg-turbo alone.
 *
 *     bench_images FOLDER ROUNDS
 *
 * FOLDER has a folder of JPEG files for each class, all of one size. Both sides read and decode
 * each file on one thread, in turns, ROUNDS times. It prints each side's images a second of
 * processor time, medians of rounds, and the ratio.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <jpeglib.h> /* after stdio.h, which it needs */

#include "base/file.h"
#include "data/image_source.h"

enum { LARGEST = 64 << 20, MOST_ROUNDS = 100 };

static void fail(const char *what)
{
    fprintf(stderr, "bench_images: %s\n", what);
    exit(1);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What a program that only calls the library does. Its errors end the process. */
static void decode(const char *path, uint8_t *pixels)
{
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    char *bytes;
    size_t n;
    if (ech_file_read(path, LARGEST, &bytes, &n)) fail(ech_last_error());
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, (const unsigned char *)bytes, n);
    jpeg_read_header(&jpeg, TRUE);
    jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg);
    while (jpeg.output_scanline < jpeg.output_height) {
        JSAMPROW row = pixels + (size_t)jpeg.output_scanline * jpeg.output_width * 3;
        jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
    free(bytes);
}

static double time_library(const ech_image_source *source, uint8_t *pixels)
{
    double start = now();
    for (size_t i = 0; i < source->file.n; i++) decode(source->file.at[i].path, pixels);
    return now() - start;
}

static double time_own(const ech_image_source *source, uint8_t *pixels)
{
    double start = now();
    uint32_t label;
    for (size_t i = 0; i < source->file.n; i++)
        if (source->format->read(source, (int64_t)i, pixels, &label)) fail(ech_last_error());
    return now() - start;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *at, int n)
{
    qsort(at, (size_t)n, sizeof *at, compare);
    return at[n / 2];
}

int main(int argc, char **argv)
{
    static double own[MOST_ROUNDS], library[MOST_ROUNDS];
    ech_image_source source = {0};
    int rounds = argc == 3 ? atoi(argv[2]) : 0;
    if (rounds < 1 || rounds > MOST_ROUNDS) fail("usage: bench_images FOLDER ROUNDS");
    if (ech_image_source_open(argv[1], &source)) fail(ech_last_error());
    if (source.file.n == 0 || source.sizes.channels != 3) fail("no folder of JPEG files in color");
    uint8_t *pixels = malloc((size_t)ech_image_bytes(&source.sizes));
    if (!pixels) fail("out of memory");
    for (int i = 0; i < rounds; i++) {
        library[i] = time_library(&source, pixels);
        own[i] = time_own(&source, pixels);
    }
    double n = (double)source.file.n, a = n / median(library, rounds), b = n / median(own, rounds);
    printf("%zu images of %u x %u: libjpeg-turbo %.0f images/s, echelon %.0f, ratio %.3f\n",
           source.file.n, source.sizes.height, source.sizes.width, a, b, b / a);
    free(pixels);
    ech_image_source_close(&source);
    return 0;
}
