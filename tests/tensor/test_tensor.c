/* SPDX-License-Identifier: Apache-2.0
 *
 * Views: shapes, strides, slices and folding; names of types.
 */

#include "tensor/tensor.h"
#include "unit.h"

TEST(test_types)
{
    assert_int_equal(ech_dtype_bytes(ECH_F32), 4);
    assert_int_equal(ech_dtype_bytes(ECH_BF16), 2);
    assert_int_equal(ech_dtype_bytes(ECH_U8), 1);
    for (int d = 0; d < ECH_DTYPES; d++) {
        ech_dtype found;
        assert_true(ech_dtype_from_name(ech_dtype_name((ech_dtype)d), &found));
        assert_int_equal(found, d);
        bool on_disk = d != ECH_E6M9;
        assert_int_equal(ech_dtype_from_disk(ech_dtype_on_disk((ech_dtype)d), &found), on_disk);
        assert_int_equal(found, d);
    }
    ech_dtype untouched = ECH_I64;
    assert_false(ech_dtype_from_name("fp33", &untouched));
    assert_false(ech_dtype_from_disk("f32", &untouched));
    assert_int_equal(untouched, ECH_I64);
}

TEST(test_views)
{
    float data[24];
    ech_tensor x = ech_tensor_view(data, ECH_F32, 3, (const int64_t[]){2, 3, 4});
    assert_int_equal(x.stride[0], 12);
    assert_int_equal(x.stride[1], 4);
    assert_int_equal(x.stride[2], 1);
    assert_int_equal(ech_tensor_count(&x), 24);
    assert_int_equal(ech_tensor_bytes(&x), 96);
    assert_true(ech_tensor_is_contiguous(&x));
    ech_tensor scalar = ech_tensor_view(data, ECH_F64, 0, NULL);
    assert_int_equal(ech_tensor_count(&scalar), 1);
    assert_int_equal(ech_tensor_bytes(&scalar), 8);
    ech_tensor none = ech_tensor_1d(data, ECH_F32, 0);
    assert_int_equal(ech_tensor_count(&none), 0);
    ech_tensor matrix = ech_tensor_2d(data, ECH_F32, 6, 4);
    assert_int_equal(matrix.shape[0], 6);
    assert_int_equal(matrix.stride[0], 4);
}

TEST(test_slices)
{
    float data[24];
    ech_tensor x = ech_tensor_2d(data, ECH_F32, 6, 4);
    ech_tensor columns = ech_tensor_narrow(&x, x.dims - 1, 1, 2);
    assert_ptr_equal(columns.data, data + 1);
    assert_int_equal(columns.shape[1], 2);
    assert_int_equal(columns.stride[0], 4);
    assert_false(ech_tensor_is_contiguous(&columns));
    ech_tensor rows = ech_tensor_rows(&x, 2, 3);
    assert_ptr_equal(rows.data, data + 8);
    assert_int_equal(rows.shape[0], 3);
    assert_true(ech_tensor_is_contiguous(&rows));
    /* One row's stride is never walked. */
    ech_tensor row = ech_tensor_rows(&columns, 0, 1);
    assert_true(ech_tensor_is_contiguous(&row));
    /* A view of no memory stays one. */
    ech_tensor planned = ech_tensor_2d(NULL, ECH_F32, 6, 4);
    assert_null(ech_tensor_rows(&planned, 2, 3).data);
}

TEST(test_folding)
{
    float data[120];
    ech_tensor x = ech_tensor_view(data, ECH_F32, 4, (const int64_t[]){2, 3, 4, 5});
    ech_tensor matrix = ech_tensor_matrix(&x);
    assert_int_equal(matrix.dims, 2);
    assert_int_equal(matrix.shape[0], 24);
    assert_int_equal(matrix.shape[1], 5);
    assert_int_equal(matrix.stride[0], 5);
    /* Columns of a (B, T, C) tensor fold, too: the stride of rows stays C. */
    ech_tensor columns = ech_tensor_narrow(&x, x.dims - 1, 2, 2);
    matrix = ech_tensor_matrix(&columns);
    assert_ptr_equal(matrix.data, data + 2);
    assert_int_equal(matrix.shape[0], 24);
    assert_int_equal(matrix.shape[1], 2);
    assert_int_equal(matrix.stride[0], 5);
    ech_tensor line = ech_tensor_1d(data, ECH_F32, 7);
    matrix = ech_tensor_matrix(&line);
    assert_int_equal(matrix.shape[0], 1);
    assert_int_equal(matrix.shape[1], 7);
}
