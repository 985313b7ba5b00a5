/* SPDX-License-Identifier: Apache-2.0
 *
 * Kinds of samples: a block's batch values have the shapes and types that the tables state, and a
 * kind without a slot has no such value.
 */
#include "layer/layer.h"
#include "unit.h"

static const ech_image image = {.height = 5, .width = 7, .channels = 3};

/* The sizes of a kind's slot for 2 samples of 4 positions, of 8 with all sequence chunks. */
static void assert_sizes(ech_sample_kind kind, ech_slot slot, int dims, const int64_t *sizes)
{
    const ech_extent extent = {.batch = 2, .tokens = 4, .sequence = 8};
    ech_pool *pool = ech_pool_create();
    ech_block *block =
        ech_block_create(pool, "block", 0, (ech_block_options){.samples = kind, .image = image});
    int64_t found[ECH_MAX_DIMS];
    int added = ech_block_batch(block, slot);
    const ech_block_value *value = &block->value.at[added];
    assert_int_equal(value->shape.dims, dims);
    ech_shape_resolve(&value->shape, extent, found);
    for (int d = 0; d < dims; d++) assert_int_equal(found[d], sizes[d]);
    assert_int_equal(value->slot, slot);
    assert_int_equal(value->dtype, ech_slot_dtype(slot));
    assert_int_equal(value->source, ECH_FROM_BATCH);
    ech_block_destroy(block);
    ech_pool_destroy(pool);
}

TEST(slots_have_shapes_by_kind)
{
    const int64_t positions[] = {2, 4}, sequence[] = {2, 8}, samples[] = {2},
                  images[] = {2, 5, 7, 3};
    assert_sizes(ECH_SAMPLES_OF_tokens, ECH_TOKENS, 2, positions);
    assert_sizes(ECH_SAMPLES_OF_tokens, ECH_TARGETS, 2, positions);
    assert_sizes(ECH_SAMPLES_OF_tokens, ECH_STARTS, 2, sequence);
    assert_sizes(ECH_SAMPLES_OF_tokens, ECH_LENGTHS, 1, samples);
    assert_sizes(ECH_SAMPLES_OF_features, ECH_VALUES, 2, positions);
    assert_sizes(ECH_SAMPLES_OF_features, ECH_TARGETS, 1, samples);
    assert_sizes(ECH_SAMPLES_OF_images, ECH_PIXELS, 4, images);
    assert_sizes(ECH_SAMPLES_OF_images, ECH_TARGETS, 1, samples);
    assert_sizes(ECH_SAMPLES_OF_images, ECH_WEIGHTS, 1, samples);
    assert_false(ech_slot_is_of(ECH_SAMPLES_OF_images, ECH_TOKENS));
    assert_false(ech_slot_is_of(ECH_SAMPLES_OF_tokens, ECH_PIXELS));
}

/* Pixels are rows of channels: norms and biases see rows and columns. */
TEST(images_are_rows_of_channels)
{
    ech_shape images = ech_shape_images(5, 7, 3), rows = ech_shape_of_rows(&images);
    const ech_extent extent = {.batch = 2, .tokens = 1, .sequence = 1};
    assert_int_equal(ech_shape_count(&images, extent), 2 * 5 * 7 * 3);
    assert_int_equal(ech_shape_count(&rows, extent), 2 * 5 * 7);
    for (int d = 1; d < 4; d++) assert_int_equal(ech_axis_mesh(images.axis[d]), ECH_MESH_NONE);
}

TEST(kinds_state_units)
{
    assert_string_equal(ech_sample_row_of(ECH_SAMPLES_OF_tokens)->unit, "token");
    assert_true(ech_sample_row_of(ECH_SAMPLES_OF_tokens)->texts);
    assert_string_equal(ech_sample_row_of(ECH_SAMPLES_OF_images)->unit, "sample");
    assert_true(ech_sample_row_of(ECH_SAMPLES_OF_images)->accuracy);
    assert_false(ech_sample_row_of(ECH_SAMPLES_OF_features)->texts);
}
