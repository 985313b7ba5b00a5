/* SPDX-License-Identifier: Apache-2.0
 *
 * TensorBoard's events: records that its own writer made, byte for byte, and files of a run.
 */
#include "checkpoint/scratch.h"

#include <dirent.h>
#include <math.h>

#include "app/train/tensorboard.h"

static void assert_hex(const ech_text *text, const char *wanted)
{
    ech_text hex = {0};
    for (size_t i = 0; i < text->n; i++) ech_text_append(&hex, "%02x", (unsigned char)text->at[i]);
    assert_string_equal(hex.at, wanted);
    ech_text_free(&hex);
}

/* A file of tensorboard 2.21's own EventFileWriter. */
TEST(is_what_tensorboard_writes)
{
    ech_text file = {0};
    const ech_event_scalar loss = {"loss", 2.5};
    ech_event_version(1700000000, &file);
    ech_event_scalars(1700000001, 7, &loss, 1, &file);
    assert_hex(&file, "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32"
                      "eced8f9d"
                      "1a00000000000000129bd82d0900004040fc54d94110072a0d0a0b0a046c6f7373150000"
                      "204037efed96");
    ech_text_free(&file);
}

/* Likewise: SessionLog(status=START), and a summary with two values, one of them a NaN. */
TEST(starts_and_several_values)
{
    ech_text file = {0};
    const ech_event_scalar two[] = {{"a", 1}, {"b/c", NAN}};
    ech_event_start(1700000002, 8, &file);
    ech_event_scalars(1700000003, 9, two, 2, &file);
    assert_hex(&file, "0f000000000000006d532b090900008040fc54d94110083a020801b317d690"
                      "2300000000000000b09f7743090000c040fc54d94110092a160a080a0161150000803f0a0a0a"
                      "03622f63150000c07fafeaa995");
    ech_text_free(&file);
}

/* Likewise: tensorboard.summary's text. */
TEST(texts)
{
    ech_text file = {0};
    ech_event_text(1700000004, 5, "run file", "    a: \xc3\xa9\n", &file);
    assert_hex(&file, "3700000000000000e7e8ca590900000041fc54d94110052a2a0a280a0872756e2066696c6542"
                      "1008071200420a20202020613a20c3a90a4a0a0a060a047465787420023a7e252e");
    ech_text_free(&file);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_event_file(const struct dirent *entry)
{
    return strncmp(entry->d_name, "events.out.tfevents.", 20) == 0;
}

/* A file for each start, in the order of their names. */
TEST(a_file_for_each_start)
{
    char *folder = scratch_make(), *text[2];
    size_t n[2];
    for (int start = 1; start <= 2; start++) {
        ech_journal *events = NULL;
        assert_int_equal(ech_event_file_open(folder, start * 10, start, &events), ECH_OK);
        const ech_event_scalar value = {"x", start};
        ech_text record = {0};
        ech_event_scalars(1.5e9, start * 10 + 1, &value, 1, &record);
        assert_true(ech_journal_add(events, record.at, record.n));
        ech_text_free(&record);
        ech_journal_close(events);
    }
    struct dirent **entry;
    assert_int_equal(scandir(folder, &entry, is_event_file, by_name), 2);
    for (int i = 0; i < 2; i++) {
        char *path = ech_file_join(folder, entry[i]->d_name), end[16];
        snprintf(end, sizeof end, ".%05d", i + 1);
        assert_string_equal(path + strlen(path) - 6, end);
        assert_int_equal(ech_file_read(path, 1 << 20, &text[i], &n[i]), ECH_OK);
        /* Version, start, scalar, each with 16 bytes around it. */
        assert_int_equal(n[i], 24 + 15 + 23 + 3 * 16);
        assert_memory_equal(text[i] + 12 + 9,
                            "\x1a\x0d"
                            "brain.Event:2",
                            15);
        assert_int_equal(text[i][40 + 12 + 10], (i + 1) * 10 + 1); /* takes steps from there back */
        free(path);
        free(text[i]);
        free(entry[i]);
    }
    free(entry);
    scratch_remove(folder);
}
