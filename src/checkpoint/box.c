/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes as runs of contiguous elements.
 */
#include "checkpoint/box.h"

bool ech_box_elements(int dims, const int64_t *shape, int64_t *out)
{
    int64_t product = 1;
    for (int d = 0; d < dims; d++) {
        if (shape[d] < 0 || __builtin_mul_overflow(product, shape[d], &product)) return false;
    }
    *out = product;
    return true;
}

int64_t ech_box_count(int dims, const int64_t *size)
{
    int64_t product = size[0];
    for (int d = 1; d < dims; d++) product *= size[d];
    return product;
}

bool ech_box_is_inside(int dims, const int64_t *shape, const int64_t *begin, const int64_t *size)
{
    int64_t elements;
    if (dims < 0 || dims > ECH_MAX_DIMS || !ech_box_elements(dims, shape, &elements)) return false;
    if (size[0] == 0) return true;
    if (dims == 0) return size[0] == 1;
    for (int d = 0; d < dims; d++) {
        if (size[d] < 0 || begin[d] < 0 || begin[d] > shape[d] || size[d] > shape[d] - begin[d]) {
            return false;
        }
    }
    return true;
}

ech_box_runs ech_box_split(int dims, const int64_t *shape, const int64_t *begin,
                           const int64_t *size)
{
    ech_box_runs runs = {0};
    if (ech_box_count(dims, size) == 0) return runs;

    /* the run: whole dimensions from the right, and the first cut one */
    int d = dims;
    int64_t stride = 1;
    runs.length = 1;
    bool whole = true;
    while (d > 0 && whole) {
        d--;
        runs.length *= size[d];
        runs.first += begin[d] * stride;
        stride *= shape[d];
        whole = size[d] == shape[d];
    }

    /* what is left steps from run to run */
    runs.count = 1;
    runs.outer = d;
    while (d > 0) {
        d--;
        runs.count *= size[d];
        runs.first += begin[d] * stride;
        runs.size[d] = size[d];
        runs.stride[d] = stride;
        stride *= shape[d];
    }
    return runs;
}

int64_t ech_box_run_at(const ech_box_runs *runs, int64_t i)
{
    int64_t at = runs->first;
    for (int d = runs->outer - 1; d >= 0; d--) {
        at += i % runs->size[d] * runs->stride[d];
        i /= runs->size[d];
    }
    return at;
}
