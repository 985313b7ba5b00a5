/* SPDX-License-Identifier: Apache-2.0
 *
 * What plans take of devices' tables of kernels: scratch functions of each type, pure ones.
 */
#include <string.h>

#include "device/device.h"
#include "kernel/kernel.h"
#include "unit.h"

static const ech_dtype types[] = {ECH_F32, ECH_F64, ECH_BF16, ECH_F16};
enum { TYPES = sizeof types / sizeof *types };

static const char *const devices[] = {
#define X(name, ...) #name,
#include "device/device.def"
#undef X
};

TEST(test_every_device_has_tables)
{
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        for (int t = 0; t < TYPES; t++) {
            const ech_kernels *kernels = ech_kernels_on(devices[d], types[t]);
            assert_non_null(kernels);
            assert_int_equal(kernels->dtype, types[t]);
            assert_ptr_equal(kernels->wide, ech_kernels_on(devices[d], ech_dtype_wide(types[t])));
            assert_true(*ech_kernels_architecture(kernels));
            assert_null(ech_kernels_on(devices[d], ECH_I32));
            assert_int_equal(ech_device_row_of(devices[d])->loss_rows,
                             ech_device_row_find(devices[d])->loss_rows);
        }
    assert_int_equal(ech_device_row_of("cuda")->loss_rows, 8192);
    assert_int_equal(ech_device_row_of("auto")->loss_rows, ech_device_row_of("cpu")->loss_rows);
}

/* GPUs do not have the rows of images. */
static bool has(const char *device, ech_op op, bool row)
{
    bool classes = op >= ECH_OP_smooth_statistics && op <= ECH_OP_class_hits;
    bool images = classes || (op >= ECH_OP_conv2d_forward && op <= ECH_OP_batch_norm_commit);
    return row == !(images && strcmp(device, "cuda") == 0);
}

/* A build that has the backend of a device has all rows of its kernels. */
TEST(test_backends_have_all_rows)
{
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++)
        for (int t = 0; t < TYPES && ech_device_find(devices[d]); t++) {
            const ech_kernels *kernels = ech_kernels_on(devices[d], types[t]);
            const char *lack = ech_kernels_lack(devices[d], types[t]);
            if (lack) { /* nobody gets to use such a table */
                assert_string_equal(devices[d], "cuda");
                assert_int_equal(types[t], ECH_F16);
                assert_non_null(strstr(lack, "-DECH_CUDA_F16=ON"));
                continue;
            }
#define X(op, ...) assert_true(has(devices[d], ECH_OP_##op, kernels->op != NULL));
#include "kernel/kernel.def"
#undef X
        }
}

/* Scratch of a GPU does not depend on threads, is not smaller for larger sizes, and is a multiple
 * of the alignment. */
TEST(test_scratch_of_a_gpu)
{
    const int64_t small[7] = {3, 5, 7, 2, 1, 16, 1}, large[7] = {300, 512, 768, 64, 64, 128, 1};
    size_t alignment = ech_device_row_find("cuda")->alignment;
    for (int t = 0; t < TYPES; t++)
        for (ech_op op = 0; op < ECH_OPS; op++) {
            const ech_kernels *kernels = ech_kernels_on("cuda", types[t]);
            size_t few = ech_kernel_scratch(kernels, op, 1, small);
            size_t many = ech_kernel_scratch(kernels, op, 1, large);
            assert_int_equal(few, ech_kernel_scratch(kernels, op, 7, small));
            assert_true(few <= many);
            assert_int_equal(few % alignment, 0);
        }
}
