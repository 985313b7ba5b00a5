/* SPDX-License-Identifier: Apache-2.0
 *
 * What ranks that save together agree on, by folds of fp64 values.
 */
#include "checkpoint/agree.h"

#include <inttypes.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/tick.h"

/* As words of 32 bits, high ones first: exact in fp64, also in sums. */
static void to_words(const uint64_t *numbers, int64_t n, double *words)
{
    for (int64_t i = 0; i < n; i++) {
        words[2 * i] = (double)(numbers[i] >> 32);
        words[2 * i + 1] = (double)(numbers[i] & UINT32_MAX);
    }
}

ech_status ech_agree_on_files(ech_group *world, int64_t step,
                              const ech_stored files[ECH_FIRST_TEXT])
{
    enum { NUMBERS = 2 * ECH_FIRST_TEXT + 1, WORDS = 2 * NUMBERS };
    uint64_t mine[NUMBERS] = {[NUMBERS - 1] = (uint64_t)step};
    double value[2 * WORDS];
    for (int f = 0; f < ECH_FIRST_TEXT; f++) {
        ech_hash hash = ech_hash_bytes(files[f].header.at, files[f].header.n);
        mine[2 * f] = hash.high;
        mine[2 * f + 1] = hash.low;
    }
    to_words(mine, NUMBERS, value);
    /* all have the same word if the largest is also the smallest */
    for (int i = 0; i < WORDS; i++) value[WORDS + i] = -value[i];
    ECH_TRY(ech_group_fold(world, ECH_FOLD_MAX, value, 2 * WORDS));
    for (int i = 0; i < WORDS; i++) {
        if (value[i] == -value[WORDS + i]) continue;
        if (ech_group_index(world) != 0) return ECH_EABORTED;
        ECH_FAIL(ECH_EINTERNAL, "checkpoint of step %" PRId64 ": the ranks list different %s", step,
                 i >= WORDS - 2 ? "steps" : "tensors to save");
    }
    return ECH_OK;
}

ech_status ech_agree_on_sums(ech_group *world, uint64_t *sums, int64_t n)
{
    ECH_FREED double *words = ech_calloc((size_t)n + 1, 2 * sizeof *words);
    to_words(sums, n, words);
    ech_status st = ech_group_fold(world, ECH_FOLD_SUM, words, (int)n * 2);
    for (int64_t i = 0; i < n; i++)
        sums[i] = ((uint64_t)words[2 * i] << 32) + (uint64_t)words[2 * i + 1];
    return st;
}

/* ---- boxes ---- */

/* Of a set of a tensor's elements; sets that are put together add theirs, modulo 2^64. */
typedef struct cover {
    uint64_t elements, mark;
} cover;

/* Of coordinate `at` in dimension d. */
static uint64_t mark(int d, int64_t at)
{
    return ech_hash_number((uint64_t)at * ECH_MAX_DIMS + (uint64_t)d);
}

/* An element's mark is the product of its coordinates' marks. So the marks of a box sum to the
 * product of its dimensions' sums. The sums of boxes that hold each element once add up to the sum
 * of the whole tensor; if some elements occur twice and others never, they do not. All modulo
 * 2^64. */
static void add_box(cover *c, int dims, const int64_t *begin, const int64_t *size)
{
    uint64_t product = 1;
    for (int d = 0; d < dims; d++) {
        uint64_t sum = 0;
        for (int64_t i = 0; i < size[d]; i++) sum += mark(d, begin[d] + i);
        product *= sum;
    }
    c->elements += (uint64_t)ech_box_count(dims, size);
    c->mark += product;
}

/* The first tensor whose boxes do not have each element once, or n. */
static int find_uncovered(const ech_saved_tensor *tensors, int n, const cover *covered)
{
    int i = 0;
    while (i < n) {
        const int64_t origin[ECH_MAX_DIMS] = {0};
        cover whole = {0};
        add_box(&whole, tensors[i].dims, origin, tensors[i].shape);
        if (covered[i].elements != whole.elements || covered[i].mark != whole.mark) break;
        i++;
    }
    return i;
}

ech_status ech_agree_on_boxes(ech_group *world, const ech_saved_tensor *tensors, int n)
{
    ECH_FREED cover *covered = ech_calloc((size_t)n + 1, sizeof *covered);
    for (int i = 0; i < n; i++) {
        const ech_saved_tensor *t = &tensors[i];
        for (int b = 0; b < t->boxes; b++)
            add_box(&covered[i], t->dims, t->box[b].begin, t->box[b].size);
    }
    ECH_TRY(ech_agree_on_sums(world, (uint64_t *)covered, 2 * n));
    int at = find_uncovered(tensors, n, covered);
    if (at == n) return ECH_OK;
    if (ech_group_index(world) != 0) return ECH_EABORTED;
    ECH_FAIL(ECH_EINTERNAL,
             "the ranks' boxes of tensor '%s' to be saved hold %" PRIu64 " elements of its "
             "%" PRId64 ", and not each of them once",
             tensors[at].name, covered[at].elements,
             ech_box_count(tensors[at].dims, tensors[at].shape));
}

/* ---- joint work ----
 *
 * Meetings are all-reduces of two flags: a member has failed, a member works. */

enum { MEETINGS = 4 }; /* in the time that a wait may last */

/* Whether a member works. */
static bool meet(ech_joint *joint, bool failed, bool works)
{
    double value[2] = {failed, works};
    joint->met = ech_group_fold(joint->group, ECH_FOLD_MAX, value, 2);
    if (joint->met != ECH_OK) return false;
    joint->failed |= value[0] > 0;
    return value[1] > 0;
}

static void on_tick(void *context)
{
    ech_joint *joint = context;
    if (joint->met != ECH_OK || ech_clock_now() < joint->next) return;
    meet(joint, false, true);
    ech_group_show_life(joint->group); /* nobody meets in a group of one */
    joint->next = ech_clock_now() + joint->every;
}

void ech_joint_begin(ech_joint *joint, ech_group *group)
{
    double every = ech_group_deadline(group) / MEETINGS;
    *joint = (ech_joint){.group = group, .every = every, .next = ech_clock_now() + every};
    ech_tick_set(on_tick, joint);
}

ech_status ech_joint_end_or_fail(ech_joint *joint, ech_status work)
{
    if (work == ECH_OK) return ech_joint_end(joint, work);
    ech_tick_set(NULL, NULL);
    return work;
}

ech_status ech_joint_end(ech_joint *joint, ech_status work)
{
    ech_tick_set(NULL, NULL);
    while (joint->met == ECH_OK && meet(joint, work != ECH_OK, false)) continue;
    ECH_TRY(work);
    ECH_TRY(joint->met);
    return joint->failed ? ECH_EABORTED : ECH_OK;
}
