/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions: their kinds of scaling, and the keys that each reads.
 */
#include "model/decoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of a head that are rotated. */
static int64_t rotary_width(const ech_config *config)
{
    if (config->model.kv_lora_rank > 0) return config->model.qk_rope_head_dim;
    return (int64_t)((double)config->model.head_dim * config->model.partial_rotary_factor);
}

/* Reads n positive numbers that blanks divide. False: others, or not as many. */
static bool read_numbers(const char *text, int64_t n, double *to)
{
    for (int64_t i = 0; i < n; i++) {
        char *end;
        to[i] = ech_text_number(text, &end);
        if (end == text || !(to[i] > 0) || !isfinite(to[i])) return false;
        text = end;
    }
    return text[strspn(text, " ")] == 0;
}

/* Whether sequences are longer than in pretraining. */
static bool is_long(const ech_config *config)
{
    return config->data.sequence_length >
           config->model.rope_scaling_original_max_position_embeddings;
}

/* Of LongRoPE: the key with the divisors of the run's sequences. */
static const char *divisors_of(const ech_config *config)
{
    return is_long(config) ? config->model.rope_scaling_long_factor
                           : config->model.rope_scaling_short_factor;
}

/* Kinds of scaling, and the keys that each reads. */
static const struct scaling {
    ech_rope_scaling scaling;
    const char *reads;
} scalings[] = {
#define FACTOR   "model.rope_scaling_factor "
#define ORIGINAL "model.rope_scaling_original_max_position_embeddings "
    [ECH_ROPE_SCALING_NONE] = {ECH_ROPE_UNSCALED, ""},
    [ECH_ROPE_SCALING_LINEAR] = {ECH_ROPE_LINEAR, FACTOR},
    [ECH_ROPE_SCALING_DYNAMIC] = {ECH_ROPE_DYNAMIC, FACTOR ORIGINAL},
    [ECH_ROPE_SCALING_LLAMA3] = {ECH_ROPE_LLAMA3,
                                 FACTOR ORIGINAL "model.rope_scaling_low_freq_factor "
                                                 "model.rope_scaling_high_freq_factor"},
    [ECH_ROPE_SCALING_YARN] = {ECH_ROPE_YARN, FACTOR ORIGINAL
                               "model.rope_scaling_beta_fast model.rope_scaling_beta_slow "
                               "model.rope_scaling_truncate model.rope_scaling_mscale "
                               "model.rope_scaling_mscale_all_dim "
                               "model.rope_scaling_attention_factor"},
    [ECH_ROPE_SCALING_LONGROPE] = {ECH_ROPE_LONGROPE,
                                   FACTOR ORIGINAL "model.rope_scaling_short_factor "
                                                   "model.rope_scaling_long_factor "
                                                   "model.rope_scaling_attention_factor"},
};

ech_rope ech_builder_rope(const ech_builder *b)
{
    const ech_config *config = b->config;
    int64_t width = rotary_width(config);
    ech_rope rope = {.theta = config->model.rope_theta,
                     .width = width,
                     .neighbours = config->model.rope_interleaved,
                     .scaling = scalings[config->model.rope_scaling].scaling,
                     .factor = config->model.rope_scaling_factor,
                     .original_positions =
                         (double)config->model.rope_scaling_original_max_position_embeddings,
                     .positions = (double)config->data.sequence_length,
                     .low_freq_factor = config->model.rope_scaling_low_freq_factor,
                     .high_freq_factor = config->model.rope_scaling_high_freq_factor,
                     .beta_fast = config->model.rope_scaling_beta_fast,
                     .beta_slow = config->model.rope_scaling_beta_slow,
                     .truncate = config->model.rope_scaling_truncate,
                     .mscale = config->model.rope_scaling_mscale,
                     .mscale_all_dim = config->model.rope_scaling_mscale_all_dim,
                     .attention_factor = config->model.rope_scaling_attention_factor};
    double local = config->model.rope_local_base_freq;
    if (local > 0 && ech_model_window(config, b->layer) > 0) {
        rope.theta = local;
        rope.scaling = ECH_ROPE_UNSCALED;
    }
    if (rope.scaling == ECH_ROPE_LONGROPE) {
        double *divisors = ech_pool_alloc(b->model->pool, (size_t)(width / 2) * sizeof *divisors);
        ECH_ASSERT(read_numbers(divisors_of(config), width / 2, divisors));
        rope.divisors = divisors;
    }
    return rope;
}

static ech_status check_head_width(const ech_config *config)
{
    int64_t D = config->model.head_dim, width = rotary_width(config);
    if (config->model.kv_lora_rank > 0) return ECH_OK;
    if (D % 2 == 0 && width % 2 == 0 && width > 0) return ECH_OK;
    if (config->model.partial_rotary_factor < 1)
        return ech_config_complain(config, "model.partial_rotary_factor",
                                   "rotary positions need an even number of a head's %lld; this "
                                   "rotates %lld",
                                   (long long)D, (long long)width);
    if (ech_config_is_set(config, "model.head_dim"))
        return ech_config_complain(config, "model.head_dim",
                                   "rotary positions need an even head width");
    return ech_config_complain(config, "model.num_attention_heads",
                               "rotary positions need an even head width; hidden_size / heads "
                               "is %lld",
                               (long long)D);
}

static ech_status check_divisors(const ech_config *config, const char *key, const char *text)
{
    int64_t n = rotary_width(config) / 2;
    ECH_FREED double *numbers = ech_calloc((size_t)n + 1, sizeof *numbers);
    if (read_numbers(text, n, numbers)) return ECH_OK;
    return ech_config_complain(config, key,
                               "must be %lld positive numbers, divided by blanks: one of each "
                               "rotary pair",
                               (long long)n);
}

static ech_status check_scaling(const ech_config *config)
{
    char kind[64];
    snprintf(kind, sizeof kind, "model.rope_scaling = %s",
             ech_config_name(config, "model.rope_scaling"));
    ECH_TRY(ech_config_check_read(config, ECH_ROPE_SCALING_KEYS,
                                  scalings[config->model.rope_scaling].reads, kind));
    if (config->model.rope_scaling == ECH_ROPE_SCALING_LONGROPE) {
        ECH_TRY(check_divisors(config, "model.rope_scaling_short_factor",
                               config->model.rope_scaling_short_factor));
        ECH_TRY(check_divisors(config, "model.rope_scaling_long_factor",
                               config->model.rope_scaling_long_factor));
    }
    if (config->model.rope_scaling == ECH_ROPE_SCALING_YARN &&
        config->model.rope_scaling_beta_slow >= config->model.rope_scaling_beta_fast)
        return ech_config_complain(config, "model.rope_scaling_beta_slow",
                                   "must be below model.rope_scaling_beta_fast = %g",
                                   config->model.rope_scaling_beta_fast);
    if (config->model.rope_scaling != ECH_ROPE_SCALING_LLAMA3 ||
        config->model.rope_scaling_low_freq_factor < config->model.rope_scaling_high_freq_factor)
        return ECH_OK;
    return ech_config_complain(config, "model.rope_scaling_low_freq_factor",
                               "must be below model.rope_scaling_high_freq_factor = %g",
                               config->model.rope_scaling_high_freq_factor);
}

ech_status ech_decoder_check_rope(const ech_config *config)
{
    ECH_TRY(check_head_width(config));
    return check_scaling(config);
}
