/* SPDX-License-Identifier: Apache-2.0
 *
 * What the process takes besides the arenas: libraries, compiled kernels, batches read ahead. Held
 * under a printed allowance, so that no large memory can come into being that the plan does not
 * know. Sanitizers have memory of their own: skipped there.
 */

#include "app/fixture.h"
#include "app/train/train.h"
#include "base/log.h"
#include "unit.h"

enum { ALLOWANCE_MIB = 64 };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = true };
#else
enum { SANITIZED = false };
#endif

/* The most memory that was ever resident, in bytes. */
static int64_t resident_peak(void)
{
    char line[256];
    long long kib = 0;
    FILE *file = fopen("/proc/self/status", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %lld kB", &kib) == 1) break;
    fclose(file);
    assert_true(kib > 0);
    return kib * 1024;
}

static int64_t planned_arenas(const ech_config *given)
{
    ech_config *config = ech_config_copy(given);
    ech_design design;
    ech_plan *plan;
    assert_int_equal(ech_design_create(config, fixture_tokenizer, 1, 1, &design), ECH_OK);
    assert_int_equal(ech_design_plan(&design, 0, false, &plan), ECH_OK);
    int64_t bytes = plan->arena_bytes[ECH_SPACE_DEVICE] + plan->arena_bytes[ECH_SPACE_HOST];
    ech_plan_destroy(plan);
    ech_design_destroy(&design);
    ech_config_destroy(config);
    return bytes;
}

TEST(test_process_minus_arena)
{
    if (SANITIZED) skip();
    ech_config *config = fixture_config(
        "llama", "model.hidden_size=512 model.num_hidden_layers=4 model.num_attention_heads=8 "
                 "data.sequence_length=128 training.global_batch_size=16 "
                 "training.micro_batch_size=8 parallel.bucket_bytes=4MiB");
    int64_t arena = planned_arenas(config);
    ech_training training = {0};
    assert_int_equal(fixture_run(config, 1, ech_train_rank, &training), ECH_OK);
    int64_t beside = resident_peak() - arena;
    print_message("arena %lld MiB, process %lld MiB more; allowed %d MiB\n",
                  (long long)(arena >> 20), (long long)(beside >> 20), ALLOWANCE_MIB);
    assert_true(arena > (int64_t)ALLOWANCE_MIB << 20);
    assert_true(beside < (int64_t)ALLOWANCE_MIB << 20);
    ech_config_destroy(config);
}

ALL_TESTS(fixture_setup, fixture_teardown)
