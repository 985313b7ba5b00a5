/* SPDX-License-Identifier: Apache-2.0
 *
 * A hash of weights, by which adapters know their base.
 */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/memory.h"
#include "base/tick.h"
#include "checkpoint/hash.h"
#include "checkpoint/shards.h"

enum { ELEMENTS = 1 << 20 }; /* in memory at once, where rows are not longer */

ECH_DESTROY_AT(XXH3_state_t, XXH3_freeState)

static ech_status add_rows(const ech_shards *weights, const ech_saved_tensor *whole, int64_t first,
                           int64_t rows, uint16_t *room, XXH3_state_t *state)
{
    const int64_t begin[ECH_MAX_DIMS] = {first};
    int64_t shape[ECH_MAX_DIMS];
    ech_saved_tensor tensor = *whole;
    memcpy(shape, whole->shape, sizeof shape);
    shape[0] = rows;
    tensor.dtype = ECH_BF16;
    tensor.boxes = 0;
    tensor.copier = NULL;
    ech_tensor part = ech_tensor_view(room, ECH_BF16, whole->dims, shape);
    ech_saved_add(&tensor, begin, &part);
    ECH_TRY(ech_shards_load(weights, &tensor, 1));
    XXH3_128bits_update(state, room, (size_t)ech_tensor_count(&part) * sizeof *room);
    ech_tick();
    return ECH_OK;
}

static ech_status add_tensor(const ech_shards *weights, const ech_saved_tensor *whole,
                             XXH3_state_t *state)
{
    int64_t width = ech_box_count(whole->dims - 1, whole->shape + 1);
    int64_t most = width < ELEMENTS ? ELEMENTS / width : 1;
    if (most > whole->shape[0]) most = whole->shape[0];
    ECH_FREED uint16_t *room = ech_calloc((size_t)(most * width), sizeof *room);
    XXH3_128bits_update(state, whole->name, strlen(whole->name) + 1);
    for (int64_t first = 0; first < whole->shape[0]; first += most) {
        int64_t rest = whole->shape[0] - first;
        ECH_TRY(add_rows(weights, whole, first, rest < most ? rest : most, room, state));
    }
    return ECH_OK;
}

ech_status ech_shards_hash(const ech_shards *weights, const ech_saved_tensor *tensors, int n,
                           char digits[ECH_CHECKPOINT_DIGITS + 1])
{
    ECH_CLEANUP(XXH3_freeState_at) XXH3_state_t *state = XXH3_createState();
    if (!state)
        ECH_FAIL(ECH_ENOMEM, "no memory to hash weights; end other programs that use memory");
    XXH3_128bits_reset(state);
    for (int i = 0; i < n; i++) ECH_TRY(add_tensor(weights, &tensors[i], state));
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    ech_hash_print((ech_hash){hash.high64, hash.low64}, digits);
    return ECH_OK;
}
