/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers in memory that threads update concurrently without waiting: each read and update is
 * atomic, without any order between them. Private to src/kernel.
 */
#ifndef ECH_KERNEL_SHARED_H
#define ECH_KERNEL_SHARED_H

#include <stdatomic.h>

_Static_assert(sizeof(_Atomic float) == sizeof(float) && sizeof(_Atomic double) == sizeof(double),
               "numbers that are atomic are as large as others");

/* Defines load(x), which is *x, and sgd(x, rate, g): *x -= rate g, computed by step(*x, rate, g) in
 * type `number`, rounded to `real`; concurrent updates are not lost. */
#define ECH_SHARED_NUMBERS(real, number, step, load, sgd)                                          \
    static inline real load(const real *x)                                                         \
    {                                                                                              \
        return atomic_load_explicit((const _Atomic real *)x, memory_order_relaxed);                \
    }                                                                                              \
    static inline void sgd(real *x, number rate, number g)                                         \
    {                                                                                              \
        _Atomic real *at = (_Atomic real *)x;                                                      \
        real old = atomic_load_explicit(at, memory_order_relaxed), now;                            \
        do now = (real)step((number)old, rate, g);                                                 \
        while (!atomic_compare_exchange_weak_explicit(at, &old, now, memory_order_relaxed,         \
                                                      memory_order_relaxed));                      \
    }

#endif
