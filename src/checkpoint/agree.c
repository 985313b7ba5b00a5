/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks that save together agree on, by folds of fp64 values.
 */
#include "checkpoint/agree.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "checkpoint/box.h"

enum { HASH_WORDS = 4 }; /* of 32 bits each: exact in fp64 */

static void hash_to_words(ech_hash hash, double words[HASH_WORDS])
{
    words[0] = (double)(hash.high >> 32);
    words[1] = (double)(hash.high & UINT32_MAX);
    words[2] = (double)(hash.low >> 32);
    words[3] = (double)(hash.low & UINT32_MAX);
}

static ech_hash hash_from_words(const double words[HASH_WORDS])
{
    return (ech_hash){(uint64_t)words[0] << 32 | (uint64_t)words[1],
                      (uint64_t)words[2] << 32 | (uint64_t)words[3]};
}

ech_status ech_agree(ech_group *world, ech_status st)
{
    double failed = st != ECH_OK;
    ech_status folded = ech_group_fold(world, ECH_FOLD_MAX, &failed, 1);
    ECH_TRY(st);
    ECH_TRY(folded);
    return failed > 0 ? ECH_EABORTED : ECH_OK;
}

ech_status ech_agree_on_files(ech_group *world, int64_t step, const ech_stored files[2])
{
    enum { WORDS = 2 * HASH_WORDS + 1 };
    double value[2 * WORDS];
    for (int f = 0; f < 2; f++) {
        hash_to_words(ech_hash_bytes(files[f].header.at, files[f].header.n),
                      value + f * HASH_WORDS);
    }
    value[WORDS - 1] = (double)step;
    /* all have the same word if the largest is also the smallest */
    for (int i = 0; i < WORDS; i++) value[WORDS + i] = -value[i];
    ECH_TRY(ech_group_fold(world, ECH_FOLD_MAX, value, 2 * WORDS));
    for (int i = 0; i < WORDS; i++) {
        if (value[i] == -value[WORDS + i]) continue;
        if (ech_group_index(world) != 0) return ECH_EABORTED;
        ECH_FAIL(ECH_EINTERNAL, "checkpoint of step %" PRId64 ": the ranks list different %s", step,
                 i == WORDS - 1 ? "steps" : "tensors to save");
    }
    return ECH_OK;
}

/* The first tensor whose boxes do not fill it, or n. */
static int find_unfilled(const ech_saved_tensor *tensors, int n, const double *covered)
{
    int i = 0;
    while (i < n) {
        const ech_saved_tensor *t = &tensors[i];
        if (covered[i] != (double)(t->dims ? ech_box_count(t->dims, t->shape) : 1)) break;
        i++;
    }
    return i;
}

ech_status ech_agree_on_boxes(ech_group *world, const ech_saved_tensor *tensors, int n)
{
    double *covered = ech_calloc((size_t)n + 1, sizeof *covered);
    for (int i = 0; i < n; i++) {
        covered[i] = (double)ech_box_count(tensors[i].dims, tensors[i].size);
    }
    ech_status st = ech_group_fold(world, ECH_FOLD_SUM, covered, n);
    int at = st == ECH_OK ? find_unfilled(tensors, n, covered) : n;
    if (at < n) st = ECH_EABORTED;
    if (at < n && ech_group_index(world) == 0) {
        st = ech_fail_at(__FILE__, __LINE__, ECH_EINTERNAL,
                         "the ranks' boxes of tensor '%s' to be saved hold %.0f elements together, "
                         "not those of the tensor",
                         tensors[at].name, covered[at]);
    }
    free(covered);
    return st;
}

ech_status ech_agree_on_hashes(ech_group *world, ech_hash *hashes, int64_t n)
{
    double *words = ech_calloc((size_t)n + 1, HASH_WORDS * sizeof *words);
    for (int64_t i = 0; i < n; i++) hash_to_words(hashes[i], words + i * HASH_WORDS);
    ech_status st = ech_group_fold(world, ECH_FOLD_SUM, words, (int)n * HASH_WORDS);
    for (int64_t i = 0; i < n; i++) hashes[i] = hash_from_words(words + i * HASH_WORDS);
    free(words);
    return st;
}
