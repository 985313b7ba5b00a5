/* SPDX-License-Identifier: Apache-2.0
 *
 * The manifest: read back as written, every flipped bit and every cut found, and wrong content
 * refused even under a right hash.
 */
#include "checkpoint/manifest.h"

#include <math.h>

#include "checkpoint/scratch.h"

/* A manifest of a model file of two ranges and a config. */
static void make(ech_manifest *manifest, ech_hash hashes[3])
{
    *manifest = (ech_manifest){
        .info = {
            .step = 100, .optimizer_count = 98, .samples = 3200, .skipped_steps = 2, .ranks = 4}};
    manifest->info.loss = 0.1;
    manifest->info.run_yaml = "model:\n  \"hidden\"\\size: 4 # \xc3\xa9\n";
    for (int f = 0; f < ECH_FILES; f++) manifest->files[f].bytes = -1;
    for (uint64_t i = 0; i < 3; i++) hashes[i] = ech_hash_bytes(&i, sizeof i);
    manifest->files[ECH_FILE_MODEL].bytes = ECH_HASH_RANGE + 1;
    manifest->files[ECH_FILE_MODEL].hashes = hashes;
    manifest->files[ECH_FILE_CONFIG].bytes = 2;
    manifest->files[ECH_FILE_CONFIG].hashes = hashes + 2;
}

static ech_text print(double loss)
{
    ech_manifest manifest;
    ech_hash hashes[3];
    make(&manifest, hashes);
    manifest.info.loss = loss;
    ech_text text = {0};
    assert_int_equal(ech_manifest_print(&manifest, &text), ECH_OK);
    return text;
}

TEST(test_round_trip)
{
    ech_text text = print(0.1);
    ech_manifest want, have;
    ech_hash hashes[3];
    make(&want, hashes);
    assert_int_equal(ech_manifest_parse("m", text.at, text.n, &have), ECH_OK);
    assert_int_equal(have.info.step, want.info.step);
    assert_int_equal(have.info.optimizer_count, want.info.optimizer_count);
    assert_int_equal(have.info.samples, want.info.samples);
    assert_int_equal(have.info.skipped_steps, want.info.skipped_steps);
    assert_int_equal(have.info.ranks, want.info.ranks);
    assert_true(have.info.loss == want.info.loss);
    assert_string_equal(have.info.run_yaml, want.info.run_yaml);
    for (int f = 0; f < ECH_FILES; f++) {
        assert_int_equal(have.files[f].bytes, want.files[f].bytes);
        int64_t n = want.files[f].bytes < 0 ? 0 : ech_hash_ranges(want.files[f].bytes);
        for (int64_t i = 0; i < n; i++) {
            assert_true(ech_hash_equal(have.files[f].hashes[i], want.files[f].hashes[i]));
        }
    }
    ech_manifest_free(&have);
    ech_text_free(&text);
}

TEST(test_loss_that_json_has_not)
{
    const double losses[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (int i = 0; i < 3; i++) {
        ech_text text = print(losses[i]);
        assert_non_null(strstr(text.at, "\"loss\":null"));
        ech_manifest have;
        assert_int_equal(ech_manifest_parse("m", text.at, text.n, &have), ECH_OK);
        assert_true(isnan(have.info.loss));
        ech_manifest_free(&have);
        ech_text_free(&text);
    }
}

/* A dynamic loss scale makes it version 2, and comes back. */
TEST(test_loss_scale)
{
    ech_manifest manifest, have;
    ech_hash hashes[3];
    ech_text text = {0};
    make(&manifest, hashes);
    manifest.info.has_scaler = true;
    manifest.info.scaler =
        (ech_scaler){.scale = 0x1p40, .good_steps = 1999, .tolerance = 1, .overflows = 7};
    assert_int_equal(ech_manifest_print(&manifest, &text), ECH_OK);
    assert_non_null(strstr(text.at, "\"version\":2,"));
    assert_int_equal(ech_manifest_parse("m", text.at, text.n, &have), ECH_OK);
    assert_true(have.info.has_scaler);
    assert_memory_equal(&have.info.scaler, &manifest.info.scaler, sizeof have.info.scaler);
    ech_manifest_free(&have);
    ech_text_free(&text);
    const double refused[] = {3, 0, 0x1p41};
    for (int i = 0; i < 3; i++) {
        manifest.info.scaler.scale = refused[i];
        assert_int_equal(ech_manifest_print(&manifest, &text), ECH_OK);
        assert_int_equal(ech_manifest_parse("m", text.at, text.n, &have), ECH_EINPUT);
        assert_error_has("loss_scale");
        ech_text_free(&text);
    }
    text = print(0.1);
    assert_non_null(strstr(text.at, "\"version\":1,"));
    assert_int_equal(ech_manifest_parse("m", text.at, text.n, &have), ECH_OK);
    assert_false(have.info.has_scaler);
    ech_manifest_free(&have);
    ech_text_free(&text);
}

/* Clocks of workers make it version 3, and come back. */
/* Validations make it version 4, whatever else the run has, and come back. */
TEST(test_validations)
{
    const ech_validated validated = {
        .is = true, .step = 40, .loss = 0.1, .best_step = 30, .best = 1.0 / 3, .waited = 2};
    for (int scaled = 0; scaled < 2; scaled++) {
        ech_manifest manifest, have;
        ech_hash hashes[3];
        ech_text text = {0};
        make(&manifest, hashes);
        manifest.info.validated = validated;
        manifest.info.has_scaler = scaled;
        manifest.info.scaler = (ech_scaler){.scale = 4};
        assert_int_equal(ech_manifest_print(&manifest, &text), ECH_OK);
        assert_non_null(strstr(text.at, "\"version\":4,"));
        assert_int_equal(ech_manifest_parse("m", text.at, text.n, &have), ECH_OK);
        assert_int_equal(have.info.has_scaler, scaled);
        const ech_validated *v = &have.info.validated;
        assert_true(v->is && v->step == 40 && v->best_step == 30 && v->waited == 2);
        assert_true(v->loss == validated.loss && v->best == validated.best);
        ech_manifest_free(&have);
        ech_text_free(&text);
        manifest.info.validated.loss = manifest.info.validated.best = (double)NAN;
        assert_int_equal(ech_manifest_print(&manifest, &text), ECH_OK);
        assert_int_equal(ech_manifest_parse("m", text.at, text.n, &have), ECH_OK);
        assert_true(isnan(have.info.validated.loss) && isnan(have.info.validated.best));
        ech_manifest_free(&have);
        ech_text_free(&text);
        manifest.info.validated.waited = -1;
        assert_int_equal(ech_manifest_print(&manifest, &text), ECH_OK);
        assert_int_equal(ech_manifest_parse("m", text.at, text.n, &have), ECH_EINPUT);
        assert_error_has("validations_waited");
        ech_text_free(&text);
    }
}

TEST(test_clocks)
{
    ech_manifest manifest, have;
    ech_hash hashes[3];
    ech_text text = {0};
    int64_t clock[] = {0, 12, INT64_C(1) << 53};
    make(&manifest, hashes);
    manifest.info.clock = clock;
    manifest.info.clocks = 3;
    assert_int_equal(ech_manifest_print(&manifest, &text), ECH_OK);
    assert_non_null(strstr(text.at, "\"version\":3,"));
    assert_int_equal(ech_manifest_parse("m", text.at, text.n, &have), ECH_OK);
    assert_int_equal(have.info.clocks, 3);
    assert_memory_equal(have.info.clock, clock, sizeof clock);
    ech_checkpoint_info copy = ech_checkpoint_info_copy(&have.info);
    ech_manifest_free(&have);
    assert_memory_equal(copy.clock, clock, sizeof clock);
    ech_checkpoint_info_free(&copy);
    ech_text_free(&text);
    const int64_t refused[] = {-1, (INT64_C(1) << 53) + 1};
    for (int i = 0; i < 2; i++) {
        clock[1] = refused[i];
        assert_int_equal(ech_manifest_print(&manifest, &text), ECH_OK);
        assert_int_equal(ech_manifest_parse("m", text.at, text.n, &have), ECH_EINPUT);
        assert_error_has("clocks");
        ech_text_free(&text);
    }
}

TEST(test_every_bit_and_every_cut)
{
    ech_text text = print(2.5);
    ech_manifest have;
    for (size_t bit = 0; bit < 8 * text.n; bit++) {
        text.at[bit / 8] ^= (char)(1 << bit % 8);
        assert_int_equal(ech_manifest_parse("m", text.at, text.n, &have), ECH_EINPUT);
        text.at[bit / 8] ^= (char)(1 << bit % 8);
    }
    for (size_t n = 0; n < text.n; n++) {
        assert_int_equal(ech_manifest_parse("m", text.at, n, &have), ECH_EINPUT);
    }
    ech_text_free(&text);
}

/* Parses the text with `from` replaced by `to` and its hash made right again. */
static ech_status parse_edited(const char *from, const char *to)
{
    ech_text text = print(2.5), edited = {0};
    char *at = strstr(text.at, from);
    assert_non_null(at);
    size_t hashed = text.n - 3 - ECH_HASH_DIGITS;
    ech_text_append_bytes(&edited, text.at, (size_t)(at - text.at));
    ech_text_append(&edited, "%s", to);
    size_t rest = (size_t)(at - text.at) + strlen(from);
    ech_text_append_bytes(&edited, text.at + rest, hashed - rest);
    char digits[ECH_HASH_DIGITS + 1];
    ech_hash_print(ech_hash_bytes(edited.at, edited.n), digits);
    ech_text_append(&edited, "%s\"}\n", digits);
    ech_manifest have;
    ech_clear_error();
    ech_status st = ech_manifest_parse("m.json", edited.at, edited.n, &have);
    if (st == ECH_OK) ech_manifest_free(&have);
    ech_text_free(&text);
    ech_text_free(&edited);
    return st;
}

TEST(test_refused_content)
{
    static const struct {
        const char *from, *to, *says;
    } cases[] = {
        {"echelon checkpoint", "other", "format"},
        {"\"version\":1", "\"version\":2", "version 2"},
        {"\"version\":1", "\"version\":4", "version 4"},
        {"\"version\":1", "\"version\":5", "up to 4"},
        {"\"version\":1", "\"version\":0", "version"},
        {"\"version\":1", "\"version\":\"1\"", "version"},
        {"\"step\":100", "\"step\":-1", "step"},
        {"\"step\":100", "\"step\":1.0", "step"},
        {"\"step\":100", "\"step\":9007199254740993", "step"},
        {"\"step\":100,", "", "keys"},
        {"\"step\":100,", "\"step\":100,\"step\":100,", "duplicate"},
        {"\"step\":100,", "\"step\":100,\"other\":100,", "keys"},
        {"\"samples\":3200", "\"samples\":null", "samples"},
        {"\"ranks\":4", "\"ranks\":0", "ranks"},
        {"\"loss\":2.5", "\"loss\":\"2.5\"", "loss"},
        {"\"loss\":2.5", "\"loss\":NaN", "JSON"},
        {"\"run_yaml\":\"", "\"run_yaml\":[\"", "JSON"},
        {"\"range_bytes\":16777216", "\"range_bytes\":16", "range_bytes"},
        {"\"name\":\"model/config.json\"", "\"name\":\"../../etc/passwd\"", "etc/passwd"},
        {"\"name\":\"model/config.json\"", "\"name\":\"model/model.safetensors\"", "twice"},
        {"\"name\":\"model/config.json\"", "\"name\":7", "files"},
        {"\"name\":\"model/model.safetensors\"", "\"name\":\"state/state.safetensors\"", "lacks"},
        {"\"bytes\":16777217", "\"bytes\":16777216", "hashes"},
        {"\"bytes\":16777217", "\"bytes\":9223372036854775807", "hashes"},
        {"\"bytes\":2,", "\"bytes\":-2,", "bytes"},
        {"\"bytes\":2,", "\"bytes\":2,\"x\":0,", "exactly"},
        {"\"hashes\":[\"", "\"hashes\":[\"0", "hash 0"},
        {"\"hashes\":[\"", "\"hashes\":[[[[[\"", "beyond"},
    };
    assert_int_equal(parse_edited("\"step\":100", "\"step\":101"), ECH_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (parse_edited(cases[i].from, cases[i].to) == ECH_OK) {
            fail_msg("accepted: %s", cases[i].to);
        }
        assert_error_has("m.json");
        assert_error_has(cases[i].says);
    }
}

TEST(test_refused_run_file)
{
    ech_manifest manifest;
    ech_hash hashes[3];
    make(&manifest, hashes);
    manifest.info.run_yaml = "log: \xff";
    ech_text text = {0};
    assert_int_equal(ech_manifest_print(&manifest, &text), ECH_EINPUT);
    assert_error_has("UTF-8");
    assert_null(text.at);
}

TEST(test_hash_digits)
{
    /* the value of the empty input, from xxHash's own test */
    char digits[ECH_HASH_DIGITS + 1];
    ech_hash_print(ech_hash_bytes("", 0), digits);
    assert_string_equal(digits, "99aa06d3014798d86001c324468d497f");
    ech_hash back;
    assert_true(ech_hash_parse(digits, &back));
    assert_true(ech_hash_equal(back, ech_hash_bytes("", 0)));
    assert_false(ech_hash_parse("99AA06d3014798d86001c324468d497f", &back));
    assert_false(ech_hash_parse("99", &back));
    assert_int_equal(ech_hash_ranges(0), 0);
    assert_int_equal(ech_hash_ranges(ECH_HASH_RANGE), 1);
    assert_int_equal(ech_hash_ranges(ECH_HASH_RANGE + 1), 2);
}
