/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests: small gray images to train on, with something to learn. An image is noise with a
 * bright horizontal bar; the bar's place is the class.
 */
#ifndef ECH_TESTS_APP_BARS_H
#define ECH_TESTS_APP_BARS_H

#include "app/fixture.h"
#include "base/random.h"
#include "data/idx.h"

static inline uint8_t bars_label(const idx_set *set, int image)
{
    return (uint8_t)(image * 5 % set->classes);
}

static inline uint8_t bars_pixel(const idx_set *set, int image, int at)
{
    const ech_random_key key = {.seed = 7};
    int pixels = set->rows * set->columns, height = set->rows / set->classes;
    uint32_t noise = ech_random_word(key, (uint64_t)(image * pixels + at)) % 100;
    bool bright = at / set->columns / height == bars_label(set, image);
    return (uint8_t)(noise + (bright ? 140 : 0));
}

/* Packs so many square images as NAME.images in the fixture's folder. */
static inline void bars_write(const char *name, int images, int side, int classes)
{
    char prefix[300], in[400];
    ech_images_count count;
    const idx_set set = {.images = images,
                         .rows = side,
                         .columns = side,
                         .classes = classes,
                         .label = bars_label,
                         .pixel = bars_pixel};
    snprintf(prefix, sizeof prefix, "%s/%s", fixture_folder, name);
    snprintf(in, sizeof in, "%s-images-idx3-ubyte", prefix);
    idx_write(prefix, &set);
    const ech_images_options options = {.in = in, .out = prefix, .workers = 1};
    ECH_ASSERT(ech_data_import_images(&options, &count) == ECH_OK);
    ECH_ASSERT(count.images == images && count.classes == classes && count.image.channels == 1);
}

#endif
