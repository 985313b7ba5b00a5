/* SPDX-License-Identifier: Apache-2.0
 *
 * The keys of a KV cache that queries may attend to if their position is known only on the device.
 * Private to src/kernel.
 */
#ifndef ECH_KERNEL_SEEN_H
#define ECH_KERNEL_SEEN_H

#include "kernel/kernel.h"

typedef struct ech_seen {
    ech_attention_shard at;
    ech_tensor k, v;
} ech_seen;

/* Gives the result of a position known on the host: excludes the keys after the last query, which
 * do not exist yet. */
static inline ech_seen ech_seen_now(const ech_attention_shard *at, const ech_tensor *k,
                                    const ech_tensor *v)
{
    ech_seen now = {*at, *k, *v};
    if (!at->query.position) return now;
    now.at.query = ech_rows_now(&at->query);
    int64_t end = ech_rows_token_position(&now.at.query, now.at.query.tokens - 1) + 1;
    now.at.key.tokens = now.at.key.split = end;
    now.k = ech_tensor_narrow(k, 1, 0, end);
    now.v = ech_tensor_narrow(v, 1, 0, end);
    return now;
}
/* The first line of attention_forward. */
#define ECH_SEEN(shard, keys, values)                                                              \
    const ech_seen seen_now = ech_seen_now(shard, keys, values);                                   \
    (shard) = &seen_now.at;                                                                        \
    (keys) = &seen_now.k;                                                                          \
    (values) = &seen_now.v

#endif
