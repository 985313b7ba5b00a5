/* SPDX-License-Identifier: Apache-2.0
 *
 * Grids drawn at random.
 */
#ifndef ECH_TESTS_LAYOUT_DRAWN_H
#define ECH_TESTS_LAYOUT_DRAWN_H

#include "base/random.h"
#include "layout/sample.h"

typedef struct drawing {
    ech_random_key key;
    uint64_t at;
} drawing;

/* Of 1 to `most`. */
static inline int draw(drawing *d, int most)
{
    return 1 + (int)(ech_random_word(d->key, d->at++) % (uint32_t)most);
}

/* Returns how many ranks it has. */
static inline int draw_grid(drawing *d, ech_config *config)
{
    int context = 1 << (draw(d, 3) - 1), tensor = 1 << (draw(d, 3) - 1);
    int heads = 1 << (draw(d, 3) - 1), stages = draw(d, 4), replicas = 0;
    ech_text keys = {0};
    config->model.tie_word_embeddings = draw(d, 2) == 2;
    ech_text_append(&keys,
                    "model.num_key_value_heads=%d parallel.context=%d parallel.tensor=%d "
                    "parallel.stage_replicas=[",
                    heads, context, tensor);
    for (int k = 0; k < stages; k++) {
        int own = draw(d, 3);
        ech_text_append(&keys, "%s%d", k ? "," : "", own);
        replicas += own;
    }
    ech_text_append(&keys, "]");
    sample_set(config, keys.at);
    ech_text_free(&keys);
    return replicas * context * tensor;
}

#endif
