/* SPDX-License-Identifier: Apache-2.0
 *
 * Folders of weights: which one a path means, one file or shards, names that differ, what is
 * missing, left over, of another shape or not a file of the folder.
 */
#include "checkpoint/scratch.h"

#include <sys/stat.h>

#include "checkpoint/shards.h"
#include "checkpoint/stored.h"
#include "checkpoint/whole.h"

enum { ROWS = 4, WIDTH = 3 };

static const ech_family family = {.prefix = "model.",
                                  .buffers = ".inv_freq .bias",
                                  .names = &(const ech_names){.tokens = "model.table"}};

/* A matrix of a file: element i is first + i. */
typedef struct matrix {
    const char *name;
    ech_dtype dtype;
    float first;
} matrix;

static void write_file(const char *folder, const char *name, const matrix *all, int n)
{
    float data[4][ROWS * WIDTH];
    ech_saved_tensor tensors[4];
    assert_in_range(n, 1, 4);
    for (int i = 0; i < n; i++) {
        tensors[i] = (ech_saved_tensor){.name = all[i].name,
                                        .dtype = ECH_F32,
                                        .narrowed = true,
                                        .narrow = all[i].dtype,
                                        .dims = 2,
                                        .shape = {ROWS, WIDTH}};
        for (int k = 0; k < ROWS * WIDTH; k++) data[i][k] = all[i].first + (float)k;
        saved_whole(&tensors[i], data[i]);
    }
    ech_stored stored;
    char *path = ech_file_join(folder, name);
    assert_int_equal(ech_stored_plan(tensors, n, ECH_FILE_MODEL, NULL, &stored), ECH_OK);
    assert_int_equal(ech_stored_create(&stored, path), ECH_OK);
    assert_int_equal(ech_stored_write(&stored, path), ECH_OK);
    ech_stored_free(&stored);
    free(path);
}

static void write_index(const char *folder, const char *map)
{
    char text[512];
    snprintf(text, sizeof text, "{\"metadata\": {}, \"weight_map\": {%s}}", map);
    free(scratch_write(folder, "model.safetensors.index.json", text, strlen(text)));
}

static ech_saved_tensor want(const char *name)
{
    return (ech_saved_tensor){.name = name, .dtype = ECH_F32, .dims = 2, .shape = {ROWS, WIDTH}};
}

/* Opens and checks; an error says `part`, or with NULL there is none. */
static ech_shards *open_as(const char *folder, bool tied, const char *part)
{
    const ech_saved_tensor wanted[] = {want("model.table.weight"), want("model.norm.weight")};
    ech_shards *weights = NULL;
    ech_status st = ech_shards_open(folder, &family, tied, true, &weights);
    if (st == ECH_OK) st = ech_shards_check(weights, wanted, 2);
    if (st == ECH_OK) st = ech_shards_check_head(weights);
    if (!part) {
        assert_int_equal(st, ECH_OK);
        return weights;
    }
    assert_int_not_equal(st, ECH_OK);
    assert_error_has(part);
    ech_shards_close(weights);
    return NULL;
}

static void check_values(const ech_shards *weights, const char *name, float first)
{
    float part[2 * WIDTH];
    ech_saved_tensor t = want(name);
    ech_tensor memory = ech_tensor_2d(part, ECH_F32, 2, WIDTH);
    ech_saved_add(&t, (const int64_t[]){1, 0}, &memory);
    assert_int_equal(ech_shards_load(weights, &t, 1), ECH_OK);
    for (int i = 0; i < 2 * WIDTH; i++) assert_true(part[i] == first + (float)(WIDTH + i));
}

TEST(one_file)
{
    char *folder = scratch_make();
    const matrix all[] = {{"table.weight", ECH_F16, 1},
                          {"model.norm.weight", ECH_F64, 30},
                          {"h.0.attn.bias", ECH_F32, 0}};
    write_file(folder, "model.safetensors", all, 3);
    ech_shards *weights = open_as(folder, false, NULL);
    assert_int_equal(ech_shards_count(weights), 3);
    assert_int_equal(ech_shards_dtype(weights, "model.table.weight"), ECH_F16);
    check_values(weights, "model.table.weight", 1);
    check_values(weights, "model.norm.weight", 30);
    ech_shards_close(weights);
    scratch_remove(folder);
}

TEST(shards)
{
    char *folder = scratch_make();
    const matrix first = {"model.table.weight", ECH_BF16, 2}, second = {"norm.weight", ECH_F32, 50};
    write_file(folder, "a.safetensors", &first, 1);
    write_file(folder, "b.safetensors", &second, 1);
    write_index(folder, "\"norm.weight\": \"b.safetensors\", "
                        "\"model.table.weight\": \"a.safetensors\"");
    ech_shards *weights = open_as(folder, false, NULL);
    check_values(weights, "model.table.weight", 2);
    check_values(weights, "model.norm.weight", 50);
    ech_shards_close(weights);

    const struct {
        const char *map, *part;
    } cases[] = {
        {"\"norm.weight\": \"../b.safetensors\"", "'../b.safetensors'"},
        {"\"norm.weight\": \"..\"", "'..'"},
        {"\"norm.weight\": \"\"", "''"},
        {"\"norm.weight\": \"b\\u0000.safetensors\"", "bad JSON"},
        {"\"norm.weight\": 3", "'norm.weight'"},
        {"", "empty"},
        {"\"norm.weight\": \"c.safetensors\"", "c.safetensors is not there"},
        {"\"norm.weight\": \"a.safetensors\"", "'model.table.weight', which weight_map does not"},
        {"\"norm.weight\": \"b.safetensors\", \"x\": \"b.safetensors\"", "tensor 'x' is not in"},
        {"\"norm.weight\": \"b.safetensors\"", "no tensor 'model.table.weight'"},
        {"\"norm.weight\": \"dangling\"", "dangling is not there"},
        {"\"norm.weight\": \"folder\"", "not a regular file"}};
    char *link = ech_file_join(folder, "dangling"), *inner = ech_file_join(folder, "folder");
    assert_int_equal(symlink("nowhere", link), 0);
    assert_int_equal(mkdir(inner, 0777), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_index(folder, cases[i].map);
        open_as(folder, false, cases[i].part);
    }
    free(link);
    free(inner);
    scratch_remove(folder);
}

/* Hugging Face's cache: snapshots/HASH/NAME are links to ../../blobs/HASH. */
TEST(links_into_a_cache)
{
    char *root = scratch_make(), *blobs = ech_file_join(root, "blobs");
    char *snapshot = ech_file_join(root, "snapshot");
    const matrix first = {"model.table.weight", ECH_BF16, 2}, second = {"norm.weight", ECH_F32, 50};
    assert_int_equal(mkdir(blobs, 0777), 0);
    assert_int_equal(mkdir(snapshot, 0777), 0);
    write_file(blobs, "0a1b", &first, 1);
    write_file(blobs, "2c3d", &second, 1);
    write_index(blobs, "\"norm.weight\": \"b.safetensors\", "
                       "\"model.table.weight\": \"a.safetensors\"");
    const char *const links[][2] = {
        {"../blobs/0a1b", "a.safetensors"},
        {"../blobs/2c3d", "b.safetensors"},
        {"../blobs/model.safetensors.index.json", "model.safetensors.index.json"}};
    for (size_t i = 0; i < sizeof links / sizeof *links; i++) {
        char *path = ech_file_join(snapshot, links[i][1]);
        assert_int_equal(symlink(links[i][0], path), 0);
        free(path);
    }
    ech_shards *weights = open_as(snapshot, false, NULL);
    check_values(weights, "model.table.weight", 2);
    check_values(weights, "model.norm.weight", 50);
    ech_shards_close(weights);
    free(blobs);
    free(snapshot);
    char *snapshots = ech_file_join(root, "snapshots"), *found = NULL;
    assert_int_equal(mkdir(snapshots, 0777), 0);
    assert_int_equal(ech_shards_find(root, &found), ECH_EUSAGE);
    assert_error_has("a folder below");
    free(snapshots);
    scratch_remove(root);
}

/* GPT-2's of some years have their masks as truth values; nobody reads them. */
TEST(masks_of_any_type)
{
    char bytes[512] = {0}, *folder = scratch_make();
    const char *header =
        "{\"table.weight\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[0,48]},"
        "\"norm.weight\":{\"dtype\":\"F32\",\"shape\":[4,3],\"data_offsets\":[48,96]},"
        "\"h.0.attn.bias\":{\"dtype\":\"BOOL\",\"shape\":[1,1,2,2],\"data_offsets\":[96,100]}}";
    bytes[0] = (char)strlen(header);
    assert_in_range(strlen(header), 128, 255);
    memcpy(bytes + 8, header, strlen(header));
    free(scratch_write(folder, "model.safetensors", bytes, 8 + strlen(header) + 100));
    ech_shards_close(open_as(folder, false, NULL));
    scratch_remove(folder);
}

TEST(tied_heads)
{
    char *folder = scratch_make();
    matrix all[] = {
        {"table.weight", ECH_F32, 1}, {"norm.weight", ECH_F32, 30}, {"lm_head.weight", ECH_F64, 1}};
    write_file(folder, "model.safetensors", all, 3);
    open_as(folder, false, "'lm_head.weight' belongs to nothing");
    ech_shards_close(open_as(folder, true, NULL));
    all[2].first = 2;
    scratch_remove(folder);
    folder = scratch_make();
    write_file(folder, "model.safetensors", all, 3);
    open_as(folder, true, "'lm_head.weight' differs from 'model.table.weight' at row 0");
    scratch_remove(folder);
}

/* A file with one tensor of one number. */
static void write_number(const char *folder, const char *name, ech_dtype dtype, int dims,
                         void *number)
{
    ech_saved_tensor tensor = {.name = name, .dtype = dtype, .dims = dims, .shape = {1}};
    ech_stored stored;
    char *path = ech_file_join(folder, "model.safetensors");
    saved_whole(&tensor, number);
    assert_int_equal(ech_stored_plan(&tensor, 1, ECH_FILE_MODEL, NULL, &stored), ECH_OK);
    assert_int_equal(ech_stored_create(&stored, path), ECH_OK);
    assert_int_equal(ech_stored_write(&stored, path), ECH_OK);
    ech_stored_free(&stored);
    free(path);
}

TEST(counts)
{
    static const struct {
        const char *name;
        ech_dtype dtype;
        int dims;
        int64_t number, count;
        const char *part; /* of the error; NULL: there is none */
    } cases[] = {{"model.bn.count", ECH_I64, 0, INT64_C(1) << 40, INT64_C(1) << 40, NULL},
                 {"bn.count", ECH_I64, 0, 7, 7, NULL}, /* without the family's prefix */
                 {"model.other", ECH_I64, 0, 7, 0, NULL},
                 {"model.bn.count", ECH_I64, 0, -1, 0, "is negative"},
                 {"model.bn.count", ECH_I64, 1, 7, 0, "is no I64 scalar"},
                 {"model.bn.count", ECH_F64, 0, 0, 0, "is no I64 scalar"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *folder = scratch_make();
        int64_t number = cases[i].number, count = 99;
        ech_shards *weights;
        write_number(folder, cases[i].name, cases[i].dtype, cases[i].dims, &number);
        assert_int_equal(ech_shards_open(folder, &family, false, true, &weights), ECH_OK);
        ech_status st = ech_shards_read_count(weights, "model.bn.count", &count);
        assert_int_equal(st, cases[i].part ? ECH_EINPUT : ECH_OK);
        if (cases[i].part)
            assert_error_has(cases[i].part);
        else
            assert_int_equal(count, cases[i].count);
        ech_shards_close(weights);
        scratch_remove(folder);
    }
}

TEST(wrong_tensors)
{
    char *folder = scratch_make();
    const matrix all[] = {{"model.table.weight", ECH_F32, 1},
                          {"table.weight", ECH_F32, 1},
                          {"model.norm.weight", ECH_F32, 1}};
    write_file(folder, "model.safetensors", all, 3);
    open_as(folder, false, "'table.weight' belongs to nothing");
    scratch_remove(folder);
    folder = scratch_make();
    const matrix other[] = {{"model.table.weight", ECH_F32, 1}, {"model.nrm.weight", ECH_F32, 1}};
    write_file(folder, "model.safetensors", other, 2);
    open_as(folder, false, "no tensor 'model.norm.weight' among its 2 (the nearest is");
    scratch_remove(folder);
    folder = scratch_make();
    open_as(folder, false, "neither model.safetensors nor");
    free(scratch_write(folder, "pytorch_model.bin", "PK", 2));
    open_as(folder, false, "save_pretrained");
    scratch_remove(folder);
}

TEST(finding)
{
    char *folder = scratch_make(), *found = NULL;
    assert_int_equal(ech_shards_find("/nowhere/at/all", &found), ECH_EUSAGE);
    assert_int_equal(ech_shards_find(folder, &found), ECH_EUSAGE);
    assert_error_has("config.json");
    char *model = ech_file_join(folder, "model");
    assert_int_equal(mkdir(model, 0777), 0);
    free(scratch_write(model, "config.json", "{}", 2));
    assert_int_equal(ech_shards_find(folder, &found), ECH_OK);
    assert_string_equal(found, model);
    free(found);
    free(scratch_write(folder, "config.json", "{}", 2));
    assert_int_equal(ech_shards_find(folder, &found), ECH_OK);
    assert_string_equal(found, folder);
    free(found);
    free(model);
    scratch_remove(folder);
}
