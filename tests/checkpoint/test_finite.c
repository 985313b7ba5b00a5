/* SPDX-License-Identifier: Apache-2.0
 *
 * A NaN or infinity is found wherever it is, is not saved, and is not gone on from.
 */
#include <math.h>

#include "checkpoint/finite.h"
#include "checkpoint/fixture.h"
#include "checkpoint/manifest.h"

/* ---- finding ---- */

typedef struct special {
    ech_dtype dtype;
    uint64_t bits;
    const char *name; /* NULL: finite */
} special;

static const special specials[] = {
    {ECH_F16, 0x7c00, "inf"},
    {ECH_F16, 0xfc00, "-inf"},
    {ECH_F16, 0x7c01, "nan"},
    {ECH_F16, 0x7bff, NULL},
    {ECH_BF16, 0x7f80, "inf"},
    {ECH_BF16, 0xffc0, "nan"},
    {ECH_BF16, 0xff7f, NULL},
    {ECH_F32, 0x7f800000, "inf"},
    {ECH_F32, 0x7f800001, "nan"},
    {ECH_F32, 0xff7fffff, NULL},
    {ECH_F64, 0xfff0000000000000, "-inf"},
    {ECH_F64, 0x7ff8000000000000, "nan"},
    {ECH_F64, 0x7fefffffffffffff, NULL},
    {ECH_I64, 0x7ff8000000000000, NULL},
    {ECH_I32, 0x7f800000, NULL},
};

/* At every place about the ends of the blocks that are looked at together, on odd addresses as
 * well. */
TEST(finding)
{
    enum { MOST = 3 * 4096 + 5 };
    static const int64_t places[] = {0, 1, 4095, 4096, 4097, 8191, 12287, 12288, MOST - 1};
    char *bytes = ech_calloc(MOST * 8 + 1, 1);
    for (size_t s = 0; s < sizeof specials / sizeof *specials; s++)
        for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
            size_t item = ech_dtype_bytes(specials[s].dtype);
            char *at = bytes + p % 2, *element = at + (size_t)places[p] * item;
            assert_int_equal(ech_find_nonfinite(specials[s].dtype, at, MOST), -1);
            memcpy(element, &specials[s].bits, item);
            int64_t found = ech_find_nonfinite(specials[s].dtype, at, MOST);
            assert_int_equal(found, specials[s].name ? places[p] : -1);
            assert_int_equal(ech_find_nonfinite(specials[s].dtype, at, places[p]), -1);
            if (specials[s].name)
                assert_string_equal(ech_nonfinite_name(specials[s].dtype, element),
                                    specials[s].name);
            memset(element, 0, item);
        }
    free(bytes);
}

/* ---- saving ---- */

static int bad_tensor;

/* The last rank's last element of one tensor. */
static void poison(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n)
{
    (void)info, (void)n;
    const double nan64 = NAN;
    const float inf32 = -INFINITY;
    const uint16_t nan16 = 0x7fc0;
    ech_saved_tensor *t = &tensors[bad_tensor];
    if (rank != 1) return;
    const void *from = t->dtype == ECH_F64   ? (const void *)&nan64
                       : t->dtype == ECH_F32 ? (const void *)&inf32
                                             : (const void *)&nan16;
    const ech_box *box = &t->box[t->boxes - 1];
    int64_t at = box->at;
    for (int d = 0; d < t->dims; d++) at += (box->size[d] - 1) * box->stride[d];
    memcpy((char *)t->data + (size_t)at * ech_dtype_bytes(t->dtype), from,
           ech_dtype_bytes(t->dtype));
}

TEST(nothing_of_it_is_saved)
{
    char *directory = scratch_make(), *left = ech_file_join(directory, "step-00000002.tmp");
    fixture_save_one(directory, 1, 1);
    static const fixture_cut cuts[] = {BY_ROWS, BY_COLUMNS, BY_THREE_COLUMNS};
    for (bad_tensor = 0; bad_tensor < FIXTURE_TENSORS - 1; bad_tensor++) {
        if (fixture_tensors[bad_tensor].shape[0] == 0) continue;
        for (int c = 0; c < 3; c++) {
            fixture_job job = {.directory = directory,
                               .cut = cuts[c],
                               .step = 2,
                               .seed = 2,
                               .change = poison};
            fixture_save(2, &job);
            assert_int_equal(job.results[1], ECH_ENUMERIC);
            assert_int_equal(job.results[0], ECH_EABORTED);
            assert_false(ech_file_exists(left));
            fixture_assert_newest(directory, 1, 1);
        }
    }
    free(left);
    scratch_remove(directory);
}

static void overflow(int rank, ech_checkpoint_info *info, ech_saved_tensor *tensors, int *n)
{
    (void)info, (void)rank, (void)n;
    tensors[0].narrowed = true;
    tensors[0].narrow = ECH_F16;
    ((float *)tensors[0].data)[7] = 65520;
}

/* Finite, but not as it would be stored. */
TEST(too_large_for_its_type)
{
    char *directory = scratch_make();
    fixture_job job = {
        .directory = directory, .step = 2, .seed = 2, .change = overflow};
    fixture_save(1, &job);
    assert_int_equal(job.results[0], ECH_ENUMERIC);
    assert_non_null(strstr(job.error, "'wte.weight', element 7 is inf"));
    assert_non_null(strstr(job.error, "checkpoint.dtype"));
    scratch_remove(directory);
}

/* ---- going on ---- */

/* A checkpoint as an older version of this program would have saved it: whole, but for what it
 * holds. */
static void put_nan(const char *step, ech_checkpoint_file file, const char *tensor)
{
    char *path = ech_file_join(step, ech_checkpoint_file_name(file));
    char *manifest_path = ech_file_join(step, "manifest.json"), *text;
    size_t n;
    ech_safetensors *header;
    ech_manifest manifest;
    assert_int_equal(ech_file_read(path, 1 << 20, &text, &n), ECH_OK);
    assert_int_equal(ech_safetensors_open(path, &header), ECH_OK);
    int at = ech_safetensors_find(header, tensor);
    assert_true(at >= 0);
    ech_safetensors_close(header);
    char name[64], *found;
    long begin, end, length;
    snprintf(name, sizeof name, "\"%s\":{", tensor);
    assert_non_null(found = strstr(text + 8, name));
    assert_non_null(found = strstr(found, "\"data_offsets\":["));
    assert_int_equal(sscanf(found + 16, "%ld,%ld", &begin, &end), 2);
    memcpy(&length, text, sizeof length);
    memset(text + 8 + length + end - 4, 0xff, 4); /* of the last element */
    scratch_replace(path, text, n);
    free(text);
    assert_int_equal(ech_file_read(manifest_path, 1 << 20, &text, &n), ECH_OK);
    assert_int_equal(ech_manifest_parse(manifest_path, text, n, &manifest), ECH_OK);
    free(text);
    int fd = open(path, O_RDONLY);
    assert_int_equal(ech_hash_file_range(fd, path, manifest.files[file].bytes, 0, NULL,
                                         &manifest.files[file].hashes[0]),
                     ECH_OK);
    close(fd);
    ech_text printed = {0};
    assert_int_equal(ech_manifest_print(&manifest, &printed), ECH_OK);
    scratch_replace(manifest_path, printed.at, printed.n);
    ech_text_free(&printed);
    ech_manifest_free(&manifest);
    free(manifest_path);
    free(path);
}

TEST(what_has_it_is_not_the_newest)
{
    static const struct {
        ech_checkpoint_file file;
        const char *tensor;
    } places[] = {{ECH_FILE_MODEL, "norm.bias"},
                  {ECH_FILE_MODEL, "conv.weight"},
                  {ECH_FILE_STATE, "wte.weight.exp_avg"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char *directory = scratch_make(), *step = ech_file_join(directory, "step-00000002");
        ech_checkpoint *checkpoint;
        fixture_save_one(directory, 1, 1);
        fixture_save_one(directory, 2, 2);
        fixture_assert_newest(directory, 2, 2);
        put_nan(step, places[i].file, places[i].tensor);
        assert_int_equal(ech_checkpoint_open(step, true, &checkpoint), ECH_EINPUT);
        assert_error_has(places[i].tensor);
        assert_error_has("is nan");
        assert_int_equal(ech_checkpoint_open(step, false, &checkpoint), ECH_OK);
        ech_checkpoint_close(checkpoint);
        fixture_assert_newest(directory, 1, 1);
        free(step);
        scratch_remove(directory);
    }
}
