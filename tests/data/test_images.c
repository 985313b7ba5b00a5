/* SPDX-License-Identifier: Apache-2.0
 *
 * Images: other programs' files become packed ones, which are read as they were written; batches
 * have each image once an epoch, shifted and mirrored by position alone; damaged files are refused.
 */
#include <math.h>
#include <stddef.h>
#include <sys/stat.h>

#include "data/images.h"

enum { IMAGES = 40, ROWS = 3, COLUMNS = 5, NUMBERS = ROWS * COLUMNS, CLASSES = 4 };

static void assert_refused(ech_status status, const char *says)
{
    assert_int_equal(status, ECH_EINPUT);
    if (!strstr(ech_last_error(), says))
        fail_msg("\"%s\" does not say \"%s\"", ech_last_error(), says);
}

static ech_image_file *open_packed(const char *name)
{
    ech_image_file *file;
    assert_int_equal(ech_image_file_open(in_scratch(name), &file), ECH_OK);
    return file;
}

/* The image of a record, by its first byte. */
static int check_record(const ech_image_file *file, int64_t r)
{
    uint8_t record[4 + NUMBERS];
    int32_t label;
    assert_int_equal(ech_image_file_read(file, r, record, &label), ECH_OK);
    int i = ech_image_pixels(record)[0];
    assert_int_equal(label, i % CLASSES);
    for (int at = 0; at < NUMBERS; at++)
        assert_int_equal(ech_image_pixels(record)[at], image_byte(i, at));
    return i;
}

TEST(idx_is_packed)
{
    ech_images_count count;
    int seen[IMAGES] = {0};
    double mean = 0;
    write_idx(IMAGES, ROWS, COLUMNS, CLASSES);
    assert_int_equal(pack("few-images-idx3-ubyte", "all", 0, 2, &count), ECH_OK);
    assert_int_equal(count.images, IMAGES);
    assert_int_equal(count.classes, CLASSES);
    ech_image_file *file = open_packed("all.images");
    assert_int_equal(file->header.height, ROWS);
    assert_int_equal(file->header.width, COLUMNS);
    assert_int_equal(file->header.channels, 1);
    assert_string_equal(file->names, "0");
    for (int64_t r = 0; r < IMAGES; r++) seen[check_record(file, r)]++;
    for (int i = 0; i < IMAGES; i++) assert_int_equal(seen[i], 1);
    for (int i = 0; i < IMAGES * NUMBERS; i++) mean += image_byte(i / NUMBERS, i % NUMBERS);
    assert_true(fabs((double)file->header.mean[0] - mean / (IMAGES * NUMBERS)) < 1e-4);
    ech_image_file_close(file);
}

static void assert_same_files(const char *a, const char *b)
{
    char *x, *y;
    size_t n, m;
    assert_int_equal(ech_file_read(in_scratch(a), 1 << 20, &x, &n), ECH_OK);
    assert_int_equal(ech_file_read(in_scratch(b), 1 << 20, &y, &m), ECH_OK);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    free(x);
    free(y);
}

/* With any number of threads; and parts have the whole's normalization and no image in common. */
TEST(threads_and_parts)
{
    ech_images_count count;
    write_idx(IMAGES, ROWS, COLUMNS, CLASSES);
    assert_int_equal(pack("few-images-idx3-ubyte", "one", 0, 1, &count), ECH_OK);
    assert_int_equal(pack("few-images-idx3-ubyte", "many", 0, 7, &count), ECH_OK);
    assert_same_files("one.images", "many.images");
    assert_int_equal(pack("few-images-idx3-ubyte", "two", 0.25, 3, &count), ECH_OK);
    assert_int_equal(count.images, 30);
    assert_int_equal(count.valid_images, 10);
    ech_image_file *train = open_packed("two-train.images"),
                   *valid = open_packed("two-valid.images");
    int seen[IMAGES] = {0};
    for (int64_t r = 0; r < 30; r++) seen[check_record(train, r)]++;
    for (int64_t r = 0; r < 10; r++) seen[check_record(valid, r)]++;
    for (int i = 0; i < IMAGES; i++) assert_int_equal(seen[i], 1);
    assert_true(train->header.mean[0] == valid->header.mean[0]);
    assert_true(train->header.deviation[0] == valid->header.deviation[0]);
    ech_image_file_close(train);
    ech_image_file_close(valid);
}

/* Planes become pixels; classes are named as batches.meta.txt does. */
TEST(cifar_is_packed)
{
    enum { PLANE = 1024, RECORD = 1 + 3 * PLANE };
    ech_images_count count;
    static uint8_t records[3 * RECORD];
    for (int i = 0; i < 3; i++) {
        records[i * RECORD] = (uint8_t)(9 - i);
        for (int at = 0; at < 3 * PLANE; at++)
            records[i * RECORD + 1 + at] = (uint8_t)(at / PLANE * 50 + at % PLANE % 7 + i);
    }
    assert_int_equal(mkdir(in_scratch("cifar"), 0700), 0);
    write_file("cifar/data_batch_1.bin", records, 2 * RECORD);
    write_file("cifar/data_batch_2.bin", records + 2 * RECORD, RECORD);
    write_file("cifar/batches.meta.txt", "airplane\nautomobile\n", 20);
    assert_int_equal(pack("cifar", "packed", 0, 2, &count), ECH_OK);
    assert_int_equal(count.images, 3);
    assert_int_equal(count.classes, 10);
    ech_image_file *file = open_packed("packed.images");
    assert_string_equal(file->names, "airplane");
    static uint8_t record[4 + 3 * PLANE];
    for (int64_t r = 0; r < 3; r++) {
        int32_t label;
        assert_int_equal(ech_image_file_read(file, r, record, &label), ECH_OK);
        for (int at = 0; at < 3 * PLANE; at++)
            assert_int_equal(ech_image_pixels(record)[at], at % 3 * 50 + at / 3 % 7 + (9 - label));
    }
    ech_image_file_close(file);
    records[RECORD] = 10;
    write_file("cifar/data_batch_1.bin", records, 2 * RECORD);
    assert_refused(pack("cifar", "packed", 0, 2, &count), "record 1 has label 10");
    write_file("cifar/data_batch_1.bin", records, 2 * RECORD - 1);
    assert_refused(pack("cifar", "packed", 0, 2, &count), "no whole number");
}

TEST(damaged_idx_is_refused)
{
    ech_images_count count;
    uint8_t head[16], labels[8 + IMAGES] = {0};
    idx_put(head, IDX_IMAGES);
    idx_put(head + 4, 0xffffffff);
    idx_put(head + 8, 65536);
    idx_put(head + 12, 65536);
    write_idx(IMAGES, ROWS, COLUMNS, CLASSES);
    write_file("few-images-idx3-ubyte", head, sizeof head);
    assert_refused(pack("few-images-idx3-ubyte", "x", 0, 1, &count), "65536 x 65536 pixels");
    idx_put(head + 8, 2);
    idx_put(head + 12, 2);
    write_file("few-images-idx3-ubyte", head, sizeof head);
    assert_refused(pack("few-images-idx3-ubyte", "x", 0, 1, &count), "damaged or truncated");
    write_idx(IMAGES, ROWS, COLUMNS, CLASSES);
    idx_put(labels, IDX_LABELS);
    idx_put(labels + 4, IMAGES - 1);
    write_file("few-labels-idx1-ubyte", labels, sizeof labels);
    assert_refused(pack("few-images-idx3-ubyte", "x", 0, 1, &count), "not the labels of 40 images");
    write_file("text", "hello, world, hello", 19);
    assert_refused(pack("text", "x", 0, 1, &count), "no images");
    assert_false(ech_file_exists(in_scratch("x.images")));
}

/* A number of the header at a place becomes another one. */
static void assert_damage(size_t at, uint32_t number, const char *says)
{
    char *bytes;
    size_t n;
    ech_image_file *file;
    assert_int_equal(ech_file_read(in_scratch("all.images"), 1 << 20, &bytes, &n), ECH_OK);
    memcpy(bytes + at, &number, sizeof number);
    write_file("damaged.images", bytes, n);
    assert_refused(ech_image_file_open(in_scratch("damaged.images"), &file), says);
    free(bytes);
}

TEST(damaged_packed_files_are_refused)
{
    ech_images_count count;
    ech_image_file *file;
    char *bytes;
    size_t n;
    write_idx(IMAGES, ROWS, COLUMNS, CLASSES);
    assert_int_equal(pack("few-images-idx3-ubyte", "all", 0, 1, &count), ECH_OK);
    assert_damage(0, 7, "not a file of packed images");
    assert_damage(offsetof(ech_image_header, version), 2, "version 2");
    assert_damage(offsetof(ech_image_header, height), 0xffffffff, "sides are 1 to");
    assert_damage(offsetof(ech_image_header, channels), 5, "channels 1 to 4");
    assert_damage(offsetof(ech_image_header, classes), 0, "0 classes");
    assert_damage(offsetof(ech_image_header, classes), 1000, "class");
    assert_damage(offsetof(ech_image_header, bytes), 16, "a header of 16 bytes");
    assert_damage(offsetof(ech_image_header, count), 41, "41 records");
    assert_damage(offsetof(ech_image_header, count) + 4, 0x7fffffff, "damaged or truncated");
    assert_damage(offsetof(ech_image_header, deviation), 0, "cannot normalize");
    assert_damage(offsetof(ech_image_header, mean), 0x7fc00000, "cannot normalize");
    assert_int_equal(ech_file_read(in_scratch("all.images"), 1 << 20, &bytes, &n), ECH_OK);
    write_file("damaged.images", bytes, n - 1);
    assert_refused(ech_image_file_open(in_scratch("damaged.images"), &file), "truncated");
    write_file("damaged.images", bytes, 40);
    assert_refused(ech_image_file_open(in_scratch("damaged.images"), &file), "40 bytes");
    size_t record = ((const ech_image_header *)(const void *)bytes)->bytes + 2 * (4 + NUMBERS);
    bytes[record] = CLASSES;
    write_file("damaged.images", bytes, n);
    file = open_packed("damaged.images");
    uint8_t room[4 + NUMBERS];
    int32_t label;
    assert_refused(ech_image_file_read(file, 2, room, &label), "record 2 has label 4");
    ech_image_file_close(file);
    free(bytes);
}

/* ---- batches ---- */

static const ech_image sizes = {.height = ROWS, .width = COLUMNS, .channels = 1};

static ech_status open_images(const char *split, int64_t classes, ech_image image, ech_corpus **out)
{
    const ech_corpus_options options = {.key = "data.train",
                                        .sources = in_scratch("all.images"),
                                        .split = split,
                                        .sequence_length = 1,
                                        .samples = ECH_SAMPLES_OF_images,
                                        .image = image,
                                        .vocabulary = classes};
    return ech_corpus_open(&options, out);
}

static ech_corpus *make_corpus(void)
{
    ech_images_count count;
    ech_corpus *corpus;
    write_idx(IMAGES, ROWS, COLUMNS, CLASSES);
    assert_int_equal(pack("few-images-idx3-ubyte", "all", 0, 1, &count), ECH_OK);
    assert_int_equal(open_images("", CLASSES, sizes, &corpus), ECH_OK);
    return corpus;
}

static ech_loader_options image_options(int64_t crop, bool flip)
{
    ech_loader_options options = sample_options();
    options.sequence_length = 1;
    options.global_batch_size = 8;
    options.samples = ECH_SAMPLES_OF_images;
    options.image = sizes;
    options.vocabulary = CLASSES;
    options.crop_padding = crop;
    options.flip = flip;
    return options;
}

/* The byte that became this number. */
static int byte_of(const ech_corpus *corpus, float number)
{
    const ech_image_file *file = corpus->source.at[0].records;
    const float(*normal)[256] = (const float(*)[256])file->normal;
    for (int byte = 0; byte < 256; byte++)
        if (normal[0][byte] == number) return byte;
    fail_msg("%g is no byte", (double)number);
    return -1;
}

/* Over two replicas each image is there once an epoch, as it is and with its label. */
TEST(each_image_once_an_epoch)
{
    ech_corpus *corpus = make_corpus();
    for (int64_t epoch = 0; epoch < 2; epoch++) {
        int seen[IMAGES] = {0};
        for (int d = 0; d < 2; d++) {
            ech_loader_options options = image_options(0, false);
            options.data_degree = 2;
            options.data_rank = d;
            ech_loader *loader = start(corpus, options, epoch * IMAGES / 8);
            for (int64_t step = epoch * IMAGES / 8; step < (epoch + 1) * IMAGES / 8; step++) {
                const ech_batch *batch = next(loader, step);
                assert_true(batch->step_tokens == 8);
                for (int row = 0; row < 4; row++) {
                    int i = byte_of(corpus, batch->pixels[row * NUMBERS]);
                    seen[i]++;
                    assert_int_equal(batch->targets[row], i % CLASSES);
                    assert_true(batch->weights[row] == 1);
                    for (int at = 0; at < NUMBERS; at++)
                        assert_int_equal(byte_of(corpus, batch->pixels[row * NUMBERS + at]),
                                         image_byte(i, at));
                }
            }
            ech_loader_destroy(loader);
        }
        for (int i = 0; i < IMAGES; i++) assert_int_equal(seen[i], 1);
    }
    ech_corpus_close(corpus);
}

/* How a row was changed, of all changes that are possible; the label names candidates. */
static bool is_changed_by(const ech_corpus *corpus, const float *pixels, int i, int down, int right,
                          bool mirrored)
{
    for (int y = 0; y < ROWS; y++)
        for (int x = 0; x < COLUMNS; x++) {
            int from_y = y - down, from_x = (mirrored ? COLUMNS - 1 - x : x) - right;
            bool inside = from_y >= 0 && from_y < ROWS && from_x >= 0 && from_x < COLUMNS;
            int expected = inside ? image_byte(i, from_y * COLUMNS + from_x) : 0;
            if (byte_of(corpus, pixels[y * COLUMNS + x]) != expected) return false;
        }
    return true;
}

/* Images are shifted by up to a pixel in each direction, and mirrored: all of these happen, and
 * nothing else. */
TEST(changes_are_shifts_and_mirrors)
{
    ech_corpus *corpus = make_corpus();
    ech_loader *plain = start(corpus, image_options(0, false), 0);
    ech_loader *changed = start(corpus, image_options(1, true), 0);
    int seen[3][3][2] = {{{0}}};
    for (int64_t step = 0; step < 40; step++) {
        const ech_batch *a = next(plain, step), *b = next(changed, step);
        for (int row = 0; row < 8; row++) {
            int i = byte_of(corpus, a->pixels[row * NUMBERS]), found = 0;
            assert_int_equal(a->targets[row], b->targets[row]);
            for (int k = 0; k < 18; k++)
                if (is_changed_by(corpus, b->pixels + row * NUMBERS, i, k / 6 - 1, k / 2 % 3 - 1,
                                  k % 2)) {
                    seen[k / 6][k / 2 % 3][k % 2]++;
                    found++;
                }
            assert_int_equal(found, 1);
        }
    }
    for (int k = 0; k < 18; k++) assert_true(seen[k / 6][k / 2 % 3][k % 2] > 0);
    ech_loader_destroy(plain);
    ech_loader_destroy(changed);
    ech_corpus_close(corpus);
}

/* Replicas and a resumed run read the same changed images. */
TEST(changes_follow_positions)
{
    ech_corpus *corpus = make_corpus();
    ech_loader *whole = start(corpus, image_options(2, true), 0);
    for (int64_t step = 0; step < 7; step++) {
        const ech_batch *all = next(whole, step);
        for (int d = 0; d < 2; d++) {
            ech_loader_options options = image_options(2, true);
            options.data_degree = 2;
            options.data_rank = d;
            ech_loader *loader = start(corpus, options, step);
            const ech_batch *own = next(loader, step);
            for (int row = 0; row < 4; row++)
                assert_memory_equal(own->pixels + row * NUMBERS,
                                    all->pixels + ech_sample_index(&options, row) * NUMBERS,
                                    NUMBERS * 4);
            ech_loader_destroy(loader);
        }
    }
    ech_loader_destroy(whole);
    ech_corpus_close(corpus);
}

TEST(sizes_classes_and_splits)
{
    ech_corpus *corpus = make_corpus(), *other;
    assert_int_equal(open_images("", CLASSES - 1, sizes, &other), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "use model.num_classes = 4"));
    ech_image wrong = sizes;
    wrong.width++;
    assert_int_equal(open_images("", CLASSES, wrong, &other), ECH_EUSAGE);
    assert_non_null(strstr(ech_last_error(), "model.image_width = 5"));
    ECH_FREED_TEXT all = {0}, part = {0};
    assert_int_equal(ech_corpus_identity(corpus, &all), ECH_OK);
    assert_int_equal(open_images("3,1", CLASSES, sizes, &other), ECH_OK);
    assert_int_equal(ech_corpus_samples(other), 30);
    assert_int_equal(ech_corpus_identity(other, &part), ECH_OK);
    assert_string_not_equal(all.at, part.at);
    ech_corpus_counts counts;
    ech_corpus_count(other, 60, &counts);
    assert_true(counts.targets == 60 && counts.padding == 0 && counts.least_epochs == 2);
    ech_corpus_close(other);
    ech_corpus_close(corpus);
}

ALL_TESTS(scratch_make, scratch_remove)
