/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors: the format's golden bytes, every file that a reader must refuse, and boxes written
 * and read back.
 */
#include "checkpoint/checkpoint.h"
#include "checkpoint/scratch.h"
#include "checkpoint/stored.h"
#include "checkpoint/whole.h"

/* a = [1.0, 2.0] in F32, as the format's own writer makes it. */
static const unsigned char golden[105] =
    "X\0\0\0\0\0\0\0"
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   "
    "\0\0\x80\x3f\0\0\0\x40";
enum { GOLDEN_BYTES = 104, GOLDEN_JSON = 85 };

/* Opens a file of this header and `data` zero bytes. `length` is the length of the header that the
 * file states (-1: the right one). */
static ech_status open_made(const char *header, int64_t length, size_t data, ech_safetensors **file)
{
    char *folder = scratch_make();
    size_t n = strlen(header);
    char *bytes = ech_calloc(8 + n + data, 1);
    uint64_t stated = length < 0 ? n : (uint64_t)length;
    memcpy(bytes, &stated, 8);
    memcpy(bytes + 8, header, n);
    char *path = scratch_write(folder, "x.safetensors", bytes, 8 + n + data);
    free(bytes);
    ech_clear_error();
    ech_status st = ech_safetensors_open(path, file);
    if (st != ECH_OK) assert_error_has("x.safetensors");
    free(path);
    scratch_remove(folder);
    return st;
}

TEST(test_golden_bytes)
{
    char *folder = scratch_make();
    char *path = scratch_write(folder, "golden.safetensors", golden, GOLDEN_BYTES);
    ech_safetensors *file;
    assert_int_equal(ech_safetensors_open(path, &file), ECH_OK);
    assert_int_equal(ech_safetensors_count(file), 1);
    assert_int_equal(ech_safetensors_find(file, "a"), 0);
    assert_int_equal(ech_safetensors_find(file, "b"), -1);
    ech_saved_tensor a = ech_safetensors_get(file, 0);
    assert_string_equal(a.name, "a");
    assert_int_equal(a.dtype, ECH_F32);
    assert_int_equal(a.dims, 1);
    assert_int_equal(a.shape[0], 2);
    float values[2];
    saved_whole(&a, values);
    assert_int_equal(ech_safetensors_read(file, 0, &a), ECH_OK);
    assert_true(values[0] == 1.0f && values[1] == 2.0f);
    ech_safetensors_close(file);
    free(path);
    scratch_remove(folder);
}

TEST(test_header_equals_golden)
{
    ech_saved_tensor a = {.name = "a", .dtype = ECH_F32, .dims = 1, .shape = {2}};
    ech_stored stored;
    assert_int_equal(ech_stored_plan(&a, 1, ECH_FILE_MODEL, NULL, &stored), ECH_OK);
    const ech_text text = stored.header;
    assert_int_equal(text.n, 4096);
    assert_int_equal(stored.offsets[0], 4096);
    assert_int_equal(stored.bytes, 4096 + 8);
    uint64_t length;
    memcpy(&length, text.at, 8);
    assert_int_equal(length, 4096 - 8);
    assert_memory_equal(text.at + 8, golden + 8, GOLDEN_JSON);
    for (size_t i = 8 + GOLDEN_JSON; i < text.n; i++) assert_int_equal(text.at[i], ' ');
    ech_stored_free(&stored);
}

#define T(name, dtype, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end   \
    "]}"

TEST(test_accepted)
{
    static const struct {
        const char *header;
        size_t data;
        int n;
    } cases[] = {
        {"{}", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{\"__metadata__\":{\"a\":\"b\"}}    ", 0, 0},
        {" \n\t{" T("a", "F32", "[2]", "0", "8") "} \n", 8, 1},
        {"{" T("a", "BOOL", "[1,1,2,2]", "0", "4") "}", 4, 1},
        {"{" T("a", "F32", "[]", "0", "4") "}", 4, 1},
        {"{" T("a", "F32", "[3,0,2]", "0", "0") "}", 0, 1},
        /* offsets need not ascend in the header's order; empty tensors share a place */
        {"{" T("b", "U8", "[3]", "2", "5") "," T("a", "U16", "[1]", "0",
                                                 "2") "," T("e", "F64", "[0]", "2", "2") "}",
         5, 3},
        {"{" T("a", "BF16", "[1,2,3,4]", "0", "48") "}", 48, 1},
        {"{" T("\\u00e9\\n", "I64", "[1]", "0", "8") "}", 8, 1},
        {"{" T("", "I32", "[1]", "0", "4") "," T("x", "F16", "[1]", "4", "6") "}", 6, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_safetensors *file = NULL;
        if (open_made(cases[i].header, -1, cases[i].data, &file) != ECH_OK) {
            fail_msg("%s: refused: %s", cases[i].header, ech_last_error());
        }
        assert_int_equal(ech_safetensors_count(file), cases[i].n);
        ech_safetensors_close(file);
    }
}

TEST(test_refused)
{
    static const struct {
        const char *header;
        int64_t length; /* stated; -1: the right one */
        size_t data;
        const char *says;
    } cases[] = {
        /* lengths */
        {"{}", 3, 0, "does not fit"},
        {"{}", INT64_MAX, 0, "does not fit"},
        {"", 0, 0, "JSON"},
        /* JSON */
        {"", -1, 8, "JSON"},
        {"[]", -1, 0, "must be a JSON object"},
        {"{", -1, 0, "JSON"},
        {"{}x", -1, 0, "JSON"},
        {"{\"\xff\":1}", -1, 0, "JSON"},
        {"{\"a\":1,}", -1, 0, "JSON"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", -1, 0, "JSON"},
        {"{" T("a", "F32", "[1]", "0", "4") "," T("a", "F32", "[1]", "4", "8") "}", -1, 8, "JSON"},
        {"{" T("a", "F32", "[1]", "0", "4") "," T("\\u0061", "F32", "[1]", "4", "8") "}", -1, 8,
         "JSON"},
        {"{\"a\\u0000\":{}}", -1, 0, "JSON"},
        {"{\"a\":[[[[[[]]]]]]}", -1, 0, "beyond"},
        {"{\"a\":[[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[],[]]}", -1, 0,
         "beyond"},
        {"{" T("a", "F32", "[99999999999999999999]", "0", "4") "}", -1, 4, "JSON"},
        /* metadata */
        {"{\"__metadata__\":[]}", -1, 0, "__metadata__"},
        {"{\"__metadata__\":{\"a\":1}}", -1, 0, "__metadata__"},
        {"{\"__metadata__\":{\"a\":{}}}", -1, 0, "__metadata__"},
        /* entries */
        {"{\"a\":1}", -1, 0, "'a'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", -1, 4, "'a'"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"offsets\":[0,4]}}", -1, 4, "data_offsets"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":0}}", -1, 4, "'a'"},
        {"{\"a\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", -1, 4, "dtype"},
        {"{" T("a", "F33", "[1]", "0", "4") "}", -1, 4, "F33"},
        {"{" T("a", "f32", "[1]", "0", "4") "}", -1, 4, "f32"},
        {"{" T("a", "F32", "1", "0", "4") "}", -1, 4, "shape"},
        {"{" T("a", "F32", "[-1]", "0", "4") "}", -1, 4, "shape"},
        {"{" T("a", "F32", "[1.0]", "0", "4") "}", -1, 4, "shape"},
        {"{" T("a", "F32", "[true]", "0", "4") "}", -1, 4, "shape"},
        {"{" T("a", "F32", "[1,1,1,1,1]", "0", "4") "}", -1, 4, "5 dimensions"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4,8]}}", -1, 4,
         "data_offsets"},
        {"{" T("a", "F32", "[1]", "0", "\\\"4\\\"") "}", -1, 4, "JSON"},
        {"{" T("a", "F32", "[1]", "-4", "0") "}", -1, 4, "data_offsets"},
        {"{" T("a", "F32", "[1]", "4", "0") "}", -1, 4, "data_offsets"},
        {"{" T("a", "F32", "[0]", "0", "0.0") "}", -1, 0, "data_offsets"},
        /* sizes */
        {"{" T("a", "F32", "[2]", "0", "4") "}", -1, 4, "8"},
        {"{" T("a", "F32", "[4611686018427387904,2]", "0", "0") "}", -1, 0, "overflow"},
        {"{" T("a", "F32", "[4294967296,4294967296]", "0", "0") "}", -1, 0, "overflow"},
        {"{" T("a", "F32", "[4611686018427387904]", "0", "0") "}", -1, 0, "overflow"},
        {"{" T("a", "F64", "[1152921504606846976,16,0]", "0", "0") "}", -1, 0, "overflow"},
        /* holes, overlaps, ends */
        {"{" T("a", "F32", "[1]", "4", "8") "}", -1, 8, "holes"},
        {"{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "8", "12") "}", -1, 12,
         "holes"},
        {"{" T("a", "F32", "[2]", "0", "8") "," T("b", "F32", "[1]", "4", "8") "}", -1, 8,
         "overlaps"},
        {"{" T("a", "F32", "[1]", "0", "4") "," T("b", "F32", "[1]", "0", "4") "}", -1, 4,
         "overlaps"},
        {"{" T("a", "F32", "[1]", "0", "4") "}", -1, 3, "truncated"},
        {"{" T("a", "F32", "[1]", "0", "4") "}", -1, 5, "too long"},
        {"{}", -1, 1, "too long"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ech_safetensors *file = NULL;
        if (open_made(cases[i].header, cases[i].length, cases[i].data, &file) == ECH_OK) {
            fail_msg("accepted: %s", cases[i].header);
        }
        assert_null(file);
        assert_error_has(cases[i].says);
    }
}

TEST(test_refused_sizes)
{
    char *folder = scratch_make();
    ech_safetensors *file = NULL;
    for (size_t n = 0; n < GOLDEN_BYTES; n++) { /* cut at every length */
        char *path = scratch_write(folder, "cut", golden, n);
        assert_int_equal(ech_safetensors_open(path, &file), ECH_EINPUT);
        free(path);
    }
    /* a header above the limit, in a file that would hold it */
    char *path = scratch_write(folder, "bomb", "\1\341\365\5\0\0\0\0{}", 10);
    assert_int_equal(truncate(path, 100 << 20), 0);
    assert_int_equal(ech_safetensors_open(path, &file), ECH_EINPUT);
    assert_error_has("limit");
    assert_int_equal(ech_safetensors_open(folder, &file), ECH_EINPUT);
    assert_error_has("regular file");
    free(path);
    path = ech_file_join(folder, "absent");
    assert_int_equal(ech_safetensors_open(path, &file), ECH_EIO);
    assert_error_has("absent");
    free(path);
    scratch_remove(folder);
}

static void assert_refused(const ech_saved_tensor *two, const char *part)
{
    ech_stored stored;
    assert_int_equal(ech_stored_plan(two, 2, ECH_FILE_MODEL, NULL, &stored), ECH_EINTERNAL);
    assert_error_has(part);
    ech_stored_free(&stored);
}

TEST(test_header_refuses)
{
    ech_saved_tensor two[] = {{.name = "a", .dtype = ECH_F32, .dims = 1, .shape = {2}},
                              {.name = "a", .dtype = ECH_F32, .dims = 1, .shape = {2}}};
    assert_refused(two, "'a'");
    two[1].name = "__metadata__";
    assert_refused(two, "'__metadata__'");
    two[1].name = "\xc3(";
    assert_refused(two, "UTF-8");
    two[1].name = "b";
    two[1].shape[0] = INT64_MAX / 4;
    assert_refused(two, "larger than a file");
    two[1].shape[0] = INT64_MAX / 2;
    assert_refused(two, "'b' to be saved has no shape that can be counted");
}

/* Two halves of columns and a scalar are written separately, and read whole and by rows. */
TEST(test_boxes_round_trip)
{
    enum { ROWS = 5, COLUMNS = 6, HALF = 3 };
    double left[ROWS * HALF], right[ROWS * HALF], whole[ROWS * COLUMNS];
    for (int r = 0; r < ROWS; r++) {
        for (int c = 0; c < HALF; c++) {
            left[r * HALF + c] = r * COLUMNS + c;
            right[r * HALF + c] = r * COLUMNS + c + HALF;
        }
    }
    int64_t count = -7;
    ech_saved_tensor tensors[] = {
        {.name = "w \"x\"", .dtype = ECH_F64, .dims = 2, .shape = {ROWS, COLUMNS}},
        {.name = "n", .dtype = ECH_I64}};
    ech_tensor half = ech_tensor_2d(left, ECH_F64, ROWS, HALF);
    ech_saved_add(&tensors[0], (int64_t[]){0, 0}, &half);
    saved_whole(&tensors[1], &count);
    ech_stored stored;
    assert_int_equal(ech_stored_plan(tensors, 2, ECH_FILE_MODEL, NULL, &stored), ECH_OK);
    const int64_t *offsets = stored.offsets;
    char *folder = scratch_make();
    char *path = scratch_write(folder, "x.safetensors", stored.header.at, stored.header.n);
    int fd = open(path, O_WRONLY);
    assert_int_equal(ech_safetensors_write(fd, path, &tensors[0], offsets[0], NULL), ECH_OK);
    tensors[0].box[0].begin[1] = HALF;
    tensors[0].data = right;
    assert_int_equal(ech_safetensors_write(fd, path, &tensors[0], offsets[0], NULL), ECH_OK);
    assert_int_equal(ech_safetensors_write(fd, path, &tensors[1], offsets[1], NULL), ECH_OK);
    tensors[0].box[0].begin[1] = HALF + 1;
    assert_int_equal(ech_safetensors_write(fd, path, &tensors[0], offsets[0], NULL), ECH_EINTERNAL);
    close(fd);
    ech_stored_free(&stored);

    ech_safetensors *file;
    assert_int_equal(ech_safetensors_open(path, &file), ECH_OK);
    int i = ech_safetensors_find(file, "w \"x\"");
    ech_saved_tensor w = ech_safetensors_get(file, i);
    saved_whole(&w, whole);
    assert_int_equal(ech_safetensors_read(file, i, &w), ECH_OK);
    for (int k = 0; k < ROWS * COLUMNS; k++) assert_true(whole[k] == k);
    double corner[4];
    ech_tensor part = ech_tensor_2d(corner, ECH_F64, 2, 2);
    w.boxes = 0;
    ech_saved_add(&w, (int64_t[]){3, 2}, &part);
    assert_int_equal(ech_safetensors_read(file, i, &w), ECH_OK);
    assert_true(corner[0] == 20 && corner[1] == 21 && corner[2] == 26 && corner[3] == 27);
    w.box[0].begin[0] = 4;
    assert_int_equal(ech_safetensors_read(file, i, &w), ECH_EINTERNAL);
    int64_t back = 0;
    i = ech_safetensors_find(file, "n");
    ech_saved_tensor n = ech_safetensors_get(file, i);
    saved_whole(&n, &back);
    assert_int_equal(ech_safetensors_read(file, i, &n), ECH_OK);
    assert_int_equal(back, -7);
    ech_safetensors_close(file);
    free(path);
    scratch_remove(folder);
}
