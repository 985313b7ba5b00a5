/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequence chunks with memory.offload_activations: keys, values and their gradients leave the
 * device between the chunks. Of one block, and as many more as memory.prefetch says, they are there
 * at a time. Bits are probes/bits.c, and what goes out and comes back is probes/offloads.c.
 */

#include "app/grid_run.h"
#include "schedule/peaks.h"
#include "unit.h"

/* ---- plans ---- */

typedef struct need {
    int64_t arena, carried, host; /* bytes: of the device; carried there at most, and on the host */
} need;

/* Six layers, 64 wide, of one sample of 16,384 tokens. */
static need plan_long(const char *more)
{
    char words[500];
    int64_t peak[ECH_MEMORY_KINDS];
    snprintf(words, sizeof words,
             "training.micro_batch_size=1 training.global_batch_size=1 data.sequence_length=16384 "
             "model.num_hidden_layers=6 model.hidden_size=64 model.intermediate_size=256 "
             "model.num_attention_heads=4 precision.compute=fp32 memory.device_limit=1TiB %s",
             more);
    grid_plans g = grid_plan("llama", words);
    ech_plan_peaks(g.plan[0], peak);
    need n = {.arena = g.plan[0]->arena_bytes[ECH_SPACE_DEVICE],
              .carried = peak[ECH_MEMORY_KV_CACHE],
              .host = peak[ECH_MEMORY_KV_CACHE_ON_HOST]};
    grid_plans_free(&g);
    return n;
}

#define IN_8 "memory.sequence_chunks=8 memory.recompute=full "

/* In 8 chunks, recomputed and offloaded, the device needs a sixth of what it does in one piece;
 * with both, but without chunks, still more than with them. */
TEST(test_long_sequence)
{
    const int64_t layer = 4 * 16384 * 64 * (int64_t)sizeof(float); /* K, V, and their gradients */
    need whole = plan_long(""), again = plan_long("memory.recompute=full");
    need again_away = plan_long("memory.recompute=full memory.offload_activations=host");
    need stays = plan_long(IN_8), away = plan_long(IN_8 "memory.offload_activations=host");
    need alone = plan_long(IN_8 "memory.offload_activations=host memory.prefetch=0");
    need disk = plan_long(IN_8 "memory.offload_activations=disk");
    print_message("T = 16,384: %lld bytes; recomputed %lld, and offloaded %lld; in 8 chunks, "
                  "recomputed, %lld, and offloaded %lld, without prefetching %lld\n",
                  (long long)whole.arena, (long long)again.arena, (long long)again_away.arena,
                  (long long)stays.arena, (long long)away.arena, (long long)alone.arena);
    assert_int_equal(stays.carried, 6 * layer);
    assert_int_equal(away.carried, 2 * layer);
    assert_int_equal(alone.carried, layer);
    assert_int_equal(away.host, 6 * layer);
    assert_int_equal(disk.arena, away.arena);
    assert_true(6 * away.arena <= whole.arena && 9 * alone.arena <= whole.arena);
    assert_true(away.arena < again_away.arena * 2 / 3 && away.arena < stays.arena / 2);
}

/* Stages have several micro-batches' under way. */
static int64_t carried_by(const char *more)
{
    char words[400];
    int64_t peak[ECH_MEMORY_KINDS];
    snprintf(words, sizeof words,
             "parallel.pipeline=2 model.num_hidden_layers=8 training.micro_batch_size=1 "
             "training.global_batch_size=4 memory.sequence_chunks=4 precision.compute=fp32 "
             "memory.offload_activations=host %s",
             more);
    grid_plans g = grid_plan("llama", words);
    ech_plan_peaks(g.plan[0], peak);
    grid_plans_free(&g);
    return peak[ECH_MEMORY_KV_CACHE];
}

TEST(test_pipelines)
{
    static const char *const schedules[] = {
        "1f1b", "gpipe", "zero-bubble", "interleaved parallel.virtual_stages=2", "zero-bubble-v"};
    const int64_t layer = 4 * 24 * 32 * (int64_t)sizeof(float);
    for (int i = 0; i < 5; i++)
        for (int prefetch = 0; prefetch < 3; prefetch++) {
            char more[200];
            snprintf(more, sizeof more, "parallel.schedule=%s memory.prefetch=%d", schedules[i],
                     prefetch);
            assert_in_range(carried_by(more), layer / 2, (1 + prefetch) * layer);
        }
}

ALL_TESTS(grid_setup, fixture_teardown)
